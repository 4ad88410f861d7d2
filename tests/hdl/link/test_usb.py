"""The USB device: its design is the same text each time, so layouts are found in the cache and serve other clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amaranth.hdl import Fragment

from nnhw.hdl.link.usb import UsbSerial


def names(fragment: Fragment) -> Iterator[str]:
    for inner, name, *_ in fragment.subfragments:
        yield name or ""
        yield from names(Fragment.get(inner, None))


def test_usb_serial_has_no_names_that_differ_from_build_to_build() -> None:
    found = [*names(Fragment.get(UsbSerial(), None))]
    assert {"_Outgoing", "_Incoming", "USBStreamInEndpoint"} < set(found)
    assert not [name for name in found if re.search(r"\d{4}", name)]
