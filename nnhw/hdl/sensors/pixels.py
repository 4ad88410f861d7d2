"""The engine of `PixelsConfig`: a camera's pins, cropping, and sums of squares of pixels in a memory of one row."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import cdc, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.memory import block_ram
from nnhw.sensors.pixels import PixelsConfig

CAMERA_PINS = 11
"""pclk, href, vsync and eight bits of data."""


class CameraReceiver(wiring.Component):
    """Samples the pins of a camera by the design's clock.

    Members
    -------
    pins: In(11), asynchronous: pclk, href, vsync, and data from the lowest bit on.
    pixel, take: Out(8), Out(1): a pixel, with a strobe.
    row: Out(1), strobe: a row has ended. image: Out(1), strobe: the next image begins.

    Timing: `pclk` must be high and low for two cycles each, or more.
    """

    def __init__(self) -> None:
        ports = {"pixel": Out(8), "take": Out(1), "row": Out(1), "image": Out(1)}
        super().__init__({"pins": In(CAMERA_PINS), **ports})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pins, before = Signal(CAMERA_PINS), Signal(3)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.pins, pins)
        pclk, href, vsync = pins[0], pins[1], pins[2]
        m.d.sync += before.eq(pins[:3])
        m.d.comb += [
            self.pixel.eq(pins[3:]),
            self.take.eq(pclk & ~before[0] & href & ~vsync),
            self.row.eq(before[1] & ~href),
            self.image.eq(before[2] & ~vsync),
        ]
        return m


class PixelsEngine(wiring.Component):
    """Crops and averages images as they come, equal to `PixelsConfig.codes`.

    Parameters
    ----------
    config: what to compute.

    Members
    -------
    pixel, take, row, image: In, as `CameraReceiver` gives them.
    code, write: Out(8), Out(1): a code, with a strobe.
    done: Out(1), strobe: all codes of an image have come.
    skip: In(1), in the cycle of `image`: this image is not wanted.

    Timing: a code comes a cycle after the last pixel of its square; pixels are three cycles apart, or more.
    """

    def __init__(self, config: PixelsConfig) -> None:
        self.config = config
        ports = {"pixel": In(8), "take": In(1), "row": In(1), "image": In(1), "skip": In(1)}
        super().__init__({**ports, "code": Out(8), "write": Out(1), "done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, side = self.config, self.config.block
        bits = 8 + config.area_log2
        m.submodules.sums = sums = block_ram(config.columns, bits)
        reader, writer = sums.read_port(), sums.write_port()
        # Place of the next pixel in the image; whether this image is wanted, from its first pixel on.
        x, y, wanted = Signal(range(config.width + 1)), Signal(range(config.height + 1)), Signal()
        square, row = Signal(range(config.columns)), Signal(range(config.rows))
        u, v = Signal(range(side)), Signal(range(side))
        inside, total, line = Signal(), Signal(bits), Signal(bits)
        in_row = (x >= config.left) & (x < config.left + side * config.columns)
        in_column = (y >= config.top) & (y < config.top + side * config.rows)
        ends, ends_square = Signal(), Signal()
        m.d.comb += [
            inside.eq(self.take & wanted & in_row & in_column),
            # What the rows above have in this square; read since the pixel before, or a row before.
            reader.addr.eq(square),
            line.eq(Mux(u == 0, Mux(v == 0, 0, reader.data), total) + self.pixel),
            ends.eq(u == side - 1),
            ends_square.eq(inside & ends),
            writer.addr.eq(square),
            writer.data.eq(line),
            writer.en.eq(ends_square),
        ]
        # A camera may send more pixels or rows than the image has: the counters stop there, and do not wrap.
        with m.If(self.take & (x != config.width)):
            m.d.sync += x.eq(x + 1)
        with m.If(inside):
            m.d.sync += [total.eq(line), u.eq(Mux(ends, 0, u + 1))]
            with m.If(ends):
                m.d.sync += square.eq(Mux(square == config.columns - 1, 0, square + 1))
        with m.If(self.row):
            m.d.sync += [x.eq(0), u.eq(0), square.eq(0)]
            with m.If(y != config.height):
                m.d.sync += y.eq(y + 1)
            with m.If(in_column):
                m.d.sync += v.eq(Mux(v == side - 1, 0, v + 1))
                with m.If(v == side - 1):
                    m.d.sync += row.eq(Mux(row == config.rows - 1, 0, row + 1))
        with m.If(self.image):
            m.d.sync += [x.eq(0), y.eq(0), u.eq(0), v.eq(0), square.eq(0), row.eq(0), wanted.eq(~self.skip)]
        self._write(m, ends_square & (v == side - 1), line, (square == config.columns - 1) & (row == config.rows - 1))
        return m

    def _write(self, m: Module, complete: object, line: Signal, last: object) -> None:
        """Write the average of a square that is complete, a cycle later."""
        area = self.config.area_log2
        # Half of the area is added, so that the average is rounded to the nearest, ties up.
        rounded = line + (1 << area >> 1)
        code = (rounded >> (area + 8 - self.config.bits))[: self.config.bits]
        m.d.sync += [
            self.write.eq(complete),
            self.code.eq((~code)[: self.config.bits] if self.config.invert else code),
            self.done.eq(Cat(complete, last).all()),
        ]
