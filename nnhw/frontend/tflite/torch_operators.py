"""Operators of torch that stand for integer functions of TFLite's kernels in a traced model."""

from __future__ import annotations

import torch
from torch import Tensor

from nnhw.ir.ops import FixedSoftmax


@torch.library.custom_op("nnhw::lookup", mutates_args=())
def lookup(x: Tensor, table: Tensor, low: int) -> Tensor:
    """Return the table's value for each integer, table[x - low], in the dtype of x.

    Parameters
    ----------
    x: integers low..low + len(table) - 1 in a floating-point tensor of any shape.
    table: int64 [values].
    """
    return table[x.to(torch.int64) - low].to(x.dtype)


@lookup.register_fake
def _lookup_fake(x: Tensor, table: Tensor, low: int) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("nnhw::fixed_softmax", mutates_args=())
def fixed_softmax(x: Tensor, multiplier: int, left: int, least: int) -> Tensor:
    """Return the softmax of integers [N, .., channels] along the last axis in steps of 1 / 256; see `FixedSoftmax`."""
    op = FixedSoftmax(x.dim() - 2, multiplier, left, least)
    return torch.from_numpy(op.evaluate(x.to(torch.int64).cpu().numpy())).to(x.dtype)


@fixed_softmax.register_fake
def _fixed_softmax_fake(x: Tensor, multiplier: int, left: int, least: int) -> Tensor:
    return torch.empty_like(x)
