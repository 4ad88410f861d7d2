"""Choosing the rate of a link: the fastest at which the device answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnhw.driver.links.base import ByteLink
from nnhw.driver.session import Session
from nnhw.errors import LinkError

_ATTEMPTS = 2
"""Questions at each rate. A device that was asked at another rate before may use the first one to change its rate."""


def open_fastest(
    rates: Sequence[int], open_at: Callable[[int], ByteLink], notice: Callable[[str], None] = lambda text: None
) -> ByteLink:
    """Open a link at the first of several rates at which the device answers; if there is none, at the last.

    At a rate that an adapter, a cable or a system cannot do, either opening fails, or no answer comes.

    Parameters
    ----------
    rates: bits per second, fastest first.
    open_at: opens the link at a rate; raises LinkError where that is not possible.
    notice: called with a message about each rate that does not work.

    Raises
    ------
    LinkError: the link cannot be opened at the last rate.
    """
    *faster, last = rates
    refusals: list[str] = []
    for rate in faster:
        try:
            link = open_at(rate)
        except LinkError as error:
            # Told only if a slower rate can be opened: else the rate is not the reason, and the last error says it all.
            refusals.append(f"the link cannot be opened at {rate:,} bits a second: {error}")
            continue
        _tell(refusals, notice)
        try:
            Session(link, max_retries=_ATTEMPTS - 1).reset()
        except LinkError:
            link.close()
            notice(f"link '{link.name}': no answer at {rate:,} bits a second; the next rate is tried")
        except BaseException:
            # Ctrl-C, too: the link is not handed to anybody who could close it.
            link.close()
            raise
        else:
            return link
    link = open_at(last)
    _tell(refusals, notice)
    return link


def _tell(messages: list[str], notice: Callable[[str], None]) -> None:
    """Give messages that were held back, each once."""
    while messages:
        notice(messages.pop(0))
