"""Multiplication by radix-4 digits: the partial products, and the tree that adds them, for requantizers of both styles.

Both styles multiply a sum by a factor whose digits are signals. In a layer's own engine they come from a memory of the
channels' constants, and digits that are 0 in all channels have no partial product (`nnhw.hdl.scaling`); in a shared
engine all digits of the widest factor come with each sum (`nnhw.hdl.shared.shared_requantizer`). So digits and the
shape of the tree are described once, here. Each style says for itself how two terms are added, because that differs:

- A layer's own engine may stop, so its registers have an enable. It makes sums unsigned and adds modulo the width of
  the result, which is known for its constants, in one or two moves.
- A shared engine never stops in mid-sum, so its registers have no enable, which saves control signals. Its sums are
  signed and grow level by level, as any factor may come, and the addend joins the last two terms in two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amaranth.hdl import Mux, Value


@dataclass(frozen=True)
class Term:
    """A partial product, or a sum of some, on its way through the tree: `value << shift`."""

    value: Value
    shift: int


def digit_multiple(digit: Value, once: Value, twice: Value) -> Value:
    """Return a number times a digit, one LUT4 a bit; for -1 its complement, which is one less: the addend has the one.

    Parameters
    ----------
    digit: two bits: 00, 01 and 10 are 0, 1 and 2, and 11 is -1.
    once, twice: the number, and twice the number, in the width of the result.
    """
    return Mux(digit[1], Mux(digit[0], ~once, twice), Mux(digit[0], once, 0))


def add_neighbours(
    terms: Sequence[Term], add: Callable[[int, Term, Term], Value], keep: Callable[[int, Term], Value]
) -> list[Term]:
    """Return the next level of the tree: the sums of neighbours, and the last term where it has none.

    Parameters
    ----------
    terms: by ascending shift.
    add: (index of the lower term, lower term, higher term) --> register of their sum, in units of the lower term. The
        bits of the lower term below the higher one have nothing to be added to.
    keep: (index, term) --> register of the term, as many moves later as a sum.
    """
    following = []
    for index in range(0, len(terms), 2):
        low, *high = terms[index : index + 2]
        following.append(Term(add(index, low, *high) if high else keep(index, low), low.shift))
    return following
