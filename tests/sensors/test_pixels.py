"""Cropping and averaging of a camera's images: the engine at the camera's pins against the definition."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.sensors.pixels import CameraReceiver, PixelsEngine
from nnhw.sensors import PixelsConfig
from sim.simulator import Simulator


class AtPins(wiring.Component):
    """A receiver with an engine behind it."""

    def __init__(self, config: PixelsConfig) -> None:
        self.config = config
        super().__init__({"pins": In(11), "skip": In(1), "code": Out(8), "write": Out(1), "done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = CameraReceiver()
        m.submodules.engine = engine = PixelsEngine(self.config)
        m.d.comb += receiver.pins.eq(self.pins)
        m.d.comb += [getattr(engine, name).eq(getattr(receiver, name)) for name in ("pixel", "take", "row", "image")]
        m.d.comb += [getattr(self, name).eq(getattr(engine, name)) for name in ("code", "write", "done")]
        m.d.comb += engine.skip.eq(self.skip)
        return m


def pins_of(images: np.ndarray) -> list[int]:
    """Return the levels of the eleven pins in each half of a pixel clock; noise where no pixel is."""
    noise, gap = 0xA5 << 3, [4 | 0xA5 << 3] * 3
    levels: list[int] = [*gap]
    for image in images:
        levels += [noise] * 2
        for row in image:
            levels += [2 | int(pixel) << 3 for pixel in row] + [noise] * 2
        levels += gap
    return [level | high for level in levels for high in (0, 1)]


def received(config: PixelsConfig, images: np.ndarray, skipped: frozenset[int] = frozenset()) -> tuple[list[int], int]:
    """Return the codes that come, and how many images are done."""
    device, codes, done, began = AtPins(config), [], [], [0]

    async def bench(ctx: Any) -> None:
        was = 0
        for level in [*pins_of(images), *[0] * 8]:
            began[0] += bool(was & 4 and not level & 4)
            was = level
            ctx.set(device.pins, level)
            ctx.set(device.skip, began[0] - 1 in skipped)
            for _ in range(2):
                if ctx.get(device.write):
                    codes.append(ctx.get(device.code))
                if ctx.get(device.done):
                    done.append(len(codes) + 1)
                await ctx.tick()

    simulator = Simulator(device)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return codes, len(done)


CASES = [
    PixelsConfig(width=9, height=7, left=2, top=1, rows=2, columns=3, block=2),
    PixelsConfig(width=8, height=4, left=0, top=0, rows=1, columns=2, block=4, bits=4, invert=True),
    PixelsConfig(width=5, height=3, left=1, top=1, rows=2, columns=3, block=1, bits=1),
]


@pytest.mark.parametrize("config", CASES, ids=["cropped", "inverted", "single pixels"])
def test_pixels_engine_equals_the_definition(config: PixelsConfig) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, config.height, config.width))
    images[0], images[1, ::2] = 255, 0
    codes, done = received(config, images)
    assert done == 3
    assert codes == config.codes(images).reshape(-1).tolist()


def test_pixels_engine_leaves_out_an_image_that_is_not_wanted() -> None:
    config = CASES[0]
    images = np.random.default_rng(2).integers(0, 256, (3, config.height, config.width))
    codes, done = received(config, images, frozenset({1}))
    assert done == 2
    assert codes == config.codes(images[[0, 2]]).reshape(-1).tolist()


def test_average_is_that_of_whole_squares() -> None:
    config = CASES[0]
    image = np.arange(63).reshape(1, 7, 9)
    squares = [[image[0, 1 + 2 * r : 3 + 2 * r, 2 + 2 * c : 4 + 2 * c] for c in range(3)] for r in range(2)]
    wanted = [[(int(square.sum()) + 2) // 4 for square in row] for row in squares]
    assert config.codes(image)[0, 0, 0].tolist() == wanted


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block": 3}, "block is one of 1, 2, 4, 8, 16, given 3"),
        ({"bits": 3}, "bits is 1, 2, 4 or 8, given 3"),
        ({"left": 4}, "left=4 and 3 squares of 2 pixels end at 10, and the image has 9"),
        ({"rows": 0}, "a frame has 1 to 512 columns and 1 to 4096 elements, given 0 x 3"),
    ],
)
def test_pixels_rejects_parameters_out_of_range(changed: dict[str, int], message: str) -> None:
    given = {"width": 9, "height": 7, "left": 2, "top": 1, "rows": 2, "columns": 3, "block": 2}
    with pytest.raises(ValueError, match=re.escape(message)):
        PixelsConfig(**{**given, **changed})


def test_pixels_rejects_images_of_another_size() -> None:
    with pytest.raises(ValueError, match=re.escape("signals are [N, 7, 9] of whole numbers, given (1, 9, 7)")):
        CASES[0].codes(np.zeros((1, 9, 7)))
