"""The hardware of each kind of requantizer, by the class of its parameters."""

from __future__ import annotations

from collections.abc import Callable

from nnhw.engines.requantize import CommonSteps, DoubleScaler, Requantizer, Scaler, Table, Thresholds, ThresholdSearch
from nnhw.errors import MappingError
from nnhw.hdl.common_steps import CommonStepsUnit
from nnhw.hdl.lookup import TableUnit
from nnhw.hdl.requantizer import RequantizerUnit
from nnhw.hdl.scaling import DoubleScalerUnit, ScalerUnit
from nnhw.hdl.thresholds import ThresholdSearchUnit, ThresholdUnit
from nnhw.ir.types import IntType

REQUANTIZERS: dict[type, Callable[..., RequantizerUnit]] = {
    CommonSteps: CommonStepsUnit,
    DoubleScaler: DoubleScalerUnit,
    Scaler: ScalerUnit,
    Table: TableUnit,
    ThresholdSearch: ThresholdSearchUnit,
    Thresholds: ThresholdUnit,
}


def make_requantizer(
    requantizer: Requantizer, raw: tuple[int, int], drain: int, logic_thresholds: bool = True
) -> RequantizerUnit:
    """Return the hardware of a requantizer.

    Parameters
    ----------
    raw: (lowest, highest) raw sum that the engine can give; the shape of `i_sums` follows from it.
    drain: sums that come in one move; divides the channels.
    logic_thresholds: `Thresholds` have their steps as constants in logic, else in block RAM; other kinds have fields
        for that.

    Raises
    ------
    MappingError: `drain` does not divide the channels, or there are raw sums outside of the requantizer's range.
    """
    if requantizer.outputs % drain:
        raise MappingError(f"requantizer: drain {drain} must divide outputs {requantizer.outputs}")
    # Comparing requantizers take any sum; those that were proved for a range must not get others.
    domain = getattr(requantizer, "raw", IntType(*raw))
    if raw[0] < domain.low or raw[1] > domain.high:
        raise MappingError(f"requantizer for raw sums {domain} was given sums {raw[0]}..{raw[1]}")
    if isinstance(requantizer, Thresholds):
        return ThresholdUnit(requantizer, raw, drain, logic_thresholds)
    return REQUANTIZERS[type(requantizer)](requantizer, raw, drain)
