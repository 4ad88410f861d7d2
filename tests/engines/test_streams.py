"""Stream engines: what they are in terms of the IR's operators, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.join import SumConfig, signed_digits
from nnhw.engines.pad import PadConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.ir.ops.window import MaxPool2d, SumPool2d
from nnhw.ir.types import BIPOLAR, IntType

INT4 = IntType(-8, 7)


@given(st.integers(-(2**40), 2**40).filter(bool))
def test_signed_digits_are_the_factor_and_never_neighbours(factor: int) -> None:
    digits = signed_digits(factor)
    assert sum(sign << shift for shift, sign in digits) == factor
    shifts = [shift for shift, _ in digits]
    assert all(b - a > 1 for a, b in pairwise(shifts))


@pytest.mark.parametrize("element", [INT4, BIPOLAR], ids=str)
@pytest.mark.parametrize("row_lanes", [1, 3])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_window_and_channelwise_are_a_pooling(op: str, row_lanes: int, element: IntType) -> None:
    rng = np.random.default_rng(4)
    image = rng.integers(-8, 8, (4, 7, 9))
    image = np.where(image < 0, -1, 1) if element.bipolar else image
    window = WindowConfig(7, 9, 4, (3, 2), (2, 3), (1, 1), 2, row_lanes, 1, element.bits, 7)
    engine = ChannelwiseConfig(6, 2, 2, op, element, 9, row_lanes)
    results = engine.golden(window.golden(image.transpose(1, 2, 0))).reshape(9, 4)
    values = engine.multiplier * results + engine.offsets
    pool: Any = (SumPool2d if op == "sum" else MaxPool2d)((3, 2), (2, 3))
    expected = pool.evaluate(image[None])[0]
    assert (values.T.reshape(4, 3, 3) == expected).all()


@pytest.mark.parametrize("row_lanes", [1, 3])
def test_window_groups_hold_the_channels_of_one_group(row_lanes: int) -> None:
    image = np.random.default_rng(4).integers(0, 99, (8, 7, 6))
    window = WindowConfig(8, 7, 6, (3, 2), (1, 1), (1, 1), 1, row_lanes, 2, 7, 8, dilation=(2, 3), groups=2)
    vectors = window.golden(image).reshape(4, 4, 2, 2, -1)
    for y, x, group, repeat in np.ndindex(vectors.shape[:4]):
        patch = image[y : y + 5 : 2, x : x + 4 : 3, 3 * group : 3 * group + 3].transpose(2, 0, 1)
        assert (vectors[y, x, group, repeat] == patch.reshape(-1)[window.weight_order()]).all()


REJECTED: dict[str, tuple[Callable[[], object], str]] = {
    "window channel lanes": (
        lambda: WindowConfig(4, 4, 6, (3, 3), (1, 1), (1, 1), 2, 1, 1, 1, 6, groups=2),
        "window needs channel lanes that divide 3 channels, given 2",
    ),
    "window groups": (
        lambda: WindowConfig(4, 4, 6, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 6, groups=4),
        "window needs groups that divide 6 channels, given 4",
    ),
    "window dilation": (
        lambda: WindowConfig(4, 9, 1, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 6, dilation=(2, 2)),
        "window needs an input of at least 5 x 5 pixels, given 4 x 9",
    ),
    "window upsample": (
        lambda: WindowConfig(4, 4, 1, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 6, upsample=(2, 2)),
        "window needs kernel, stride and block (1, 1) where it upsamples, given (3, 3), (1, 1) and (1, 1)",
    ),
    "pad pattern": (
        lambda: PadConfig(2, 2, 1, 1, 2, (1, 1), (1, 1), 4),
        "padding needs a pattern of 2 bits, given 0x4",
    ),
    "pad widths": (
        lambda: PadConfig(2, 2, 1, 1, 2, (1, -1), (1, 1), 0),
        "padding needs widths of at least 0, given (1, -1) and (1, 1)",
    ),
    "pad bipolar": (
        lambda: PadConfig(2, 2, 1, 1, 3, (1, 1), (1, 1), 0, bipolar=True),
        "padding of bipolar elements gives numbers of 2 bits, given 3",
    ),
    "slice": (lambda: SliceConfig(1, 1, 1, 4, 3, 2), "a slice needs beats within a turn of 4, given 2 from 3 on"),
    "fifo depth": (lambda: FifoConfig(0, 1, 1, 1), "a FIFO needs a depth of at least 1, given 0"),
    "fifo large depth": (
        lambda: FifoConfig(2, 1, 1, 1, large=True),
        "a FIFO in large RAM needs a depth of at least 3, given 2",
    ),
    "fifo large words": (
        lambda: FifoConfig(16_386, 1, 1, 1, large=True),
        "a FIFO in large RAM needs at most 16384 words, given 16385",
    ),
    "window large": (
        lambda: WindowConfig(4, 4, 1, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 15, large=True),
        "a line buffer in large RAM needs at most 16384 words, given 32768",
    ),
    "sum factors": (
        lambda: SumConfig((INT4,), (1, 2), 1, 1, 1),
        "a sum of 1 streams needs as many factors, given (1, 2)",
    ),
    "sum zero": (lambda: SumConfig((INT4,), (0,), 1, 1, 1), "a sum needs factors other than 0, given (0,)"),
    "channelwise": (
        lambda: ChannelwiseConfig(9, 1, 1, "mean", INT4, 1, row_lanes=2),
        "channelwise engine: op must be one of sum, dot, max, given 'mean'; row lanes 2 must divide taps 9",
    ),
    "channelwise weights": (
        lambda: ChannelwiseConfig(9, 2, 1, "dot", INT4, 1, weights=np.ones((3, 9)), weight=INT4),
        "channelwise engine: op 'dot' needs weights [2, 9] and their type, given (3, 9)",
    ),
    "channelwise dsp": (
        lambda: ChannelwiseConfig(9, 2, 1, "sum", INT4, 1, dsp=True),
        "channelwise engine: DSP blocks need op 'dot' and integers of at most 8 bits; use logic",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_stream_engine_rejects(name: str) -> None:
    make, message = REJECTED[name]
    with pytest.raises(MappingError) as caught:
        make()
    assert str(caught.value) == message
