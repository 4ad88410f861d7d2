"""Counters of iterations, of loops and of what else repeats a number of times that a record states."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value


def iterations(
    m: Module,
    name: str,
    limit: Value,
    advance: Value,
    anew: Value,
    single: Value | None = None,
    *,
    wraps: bool = True,
) -> Signal:
    """Count `limit` + 1 iterations; return a register: the current one is the last.

    Parameters
    ----------
    name: of the signals.
    limit: one less than the iterations; constant from two cycles before the first one on.
    advance: strobe: the current iteration ends.
    anew: begin with the first iteration.
    single: whether `limit` is 0, valid in the cycle before the first iteration; None: it is found out here.
    wraps: after the last iteration the first one follows; else only `anew` leads back to it.
    """
    # The number of the next iteration: when that begins, `last` says whether it is the last one.
    count, last = Signal(len(limit), name=f"count_{name}", init=1), Signal(name=f"last_{name}")
    if single is None:
        single = Signal(name=f"single_{name}")
        m.d.sync += single.eq(limit == 0)
    with m.If(anew | (advance & last) if wraps else anew):
        m.d.sync += [count.eq(1), last.eq(single)]
    with m.Elif(advance):
        m.d.sync += [count.eq(count + 1), last.eq(count == limit)]
    return last
