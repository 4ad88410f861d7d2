"""A device without a computer: a sensor's pins, its front end, the network, and the pins of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import Accelerator
from nnhw.accelerator.formats import InputFormat
from nnhw.engines.pack import PackConfig
from nnhw.hdl.engine import ByteEngine
from nnhw.hdl.pack import Packer
from nnhw.hdl.sensors.frame_buffer import FrameBuffer
from nnhw.hdl.sensors.i2s import I2sReceiver
from nnhw.hdl.sensors.log_mel import LogMelEngine
from nnhw.hdl.sensors.pdm import PdmReceiver
from nnhw.hdl.sensors.pixels import CameraReceiver, PixelsEngine
from nnhw.hdl.sensors.results import LABEL_BITS, Largest, Reporter
from nnhw.links.uart import clocks_per_bit
from nnhw.sensors import I2s, LogMelConfig, Pdm, PixelsConfig, SensorFront, SensorPins
from nnhw.sensors.pins import half_cycles
from nnhw.sensors.results import RESULT_BAUD


class SensorDevice(wiring.Component):
    """A network that is fed by a sensor.

    Parameters
    ----------
    accelerator: the network; its frames are those of `front`, its results codes of at most 8 bits.
    front: what stands between sensor and network.
    pins: the sensor.
    clock_hz: clock of the device.

    Members
    -------
    pins_i, pins_o: In, Out: the sensor's pins in the order of `SensorPins.inputs` and `outputs`; asynchronous.
    tx: Out(1), a serial port of 115,200 baud: each result as a line of two hexadecimal digits, see `Reporter`.
    label: Out(8), the number of the largest result. changes: Out(1), changes its level with each result.
    code, written: Out(8), Out(1): for those who watch, a code of the front end, with a strobe.

    Timing: a frame that is complete while the network still takes the one before is left out.
    """

    def __init__(self, accelerator: Accelerator, front: SensorFront, pins: SensorPins, clock_hz: int) -> None:
        self.accelerator = accelerator
        self.front = front
        self.pins = pins
        self.clock_hz = clock_hz
        ports = {"tx": Out(1, init=1), "label": Out(LABEL_BITS), "changes": Out(1), "code": Out(8), "written": Out(1)}
        super().__init__({"pins_i": In(len(pins.inputs)), "pins_o": Out(len(pins.outputs)), **ports})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        form = self.accelerator.input_format
        # Until a whole frame has come, the places of what is still missing hold what silence would give.
        silence = self.front.silence - form.offset
        m.submodules.frame = frame = FrameBuffer(form.elements, silence, form.element.bits)
        m.submodules.engine = engine = ByteEngine(self.accelerator, packs=False)
        m.submodules.largest = largest = Largest(self.accelerator.output_format)
        m.submodules.reporter = reporter = Reporter(clocks_per_bit(self.clock_hz, RESULT_BAUD))
        CONNECTIONS[self.front.kind](m, self, self.front, frame, frame.busy | reporter.busy)
        _connect_packed(m, frame.o, engine.i, form)
        wiring.connect(m, engine.o, largest.i)
        m.d.comb += [
            frame.code.eq(self.code - form.offset),
            frame.write.eq(self.written),
            self.label.eq(largest.label),
            reporter.label.eq(largest.label),
            reporter.found.eq(largest.found),
            self.tx.eq(reporter.tx),
        ]
        with m.If(largest.found):
            m.d.sync += self.changes.eq(~self.changes)
        return m


def _connect_packed(m: Module, source: Any, engine: Any, form: InputFormat) -> None:
    """Connect a stream of codes, one a byte, to the input of a network, which may want several in a byte."""
    bits = form.element.bits
    if bits == 8 or (form.per_byte == 1 and not form.lanes):
        wiring.connect(m, source, engine)
        return
    assert form.lanes or form.per_byte * bits == 8, "the mapper fills bytes"
    m.submodules.packer = packer = Packer(PackConfig(bits, form.elements))
    wiring.connect(m, source, packer.i)
    wiring.connect(m, packer.o, engine)


def _connect_log_mel(m: Module, device: SensorDevice, config: LogMelConfig, frame: FrameBuffer, busy: Any) -> None:
    """Connect a microphone: a frame is sent with each new window."""
    m.submodules.front = front = LogMelEngine(config)
    make, inputs, outputs = MICROPHONES[device.pins.kind]
    m.submodules.receiver = receiver = make(half_cycles(device.clock_hz, config.rate_hz), config.gain_log2)
    m.d.comb += [
        *(getattr(receiver, name).eq(device.pins_i[number]) for number, name in enumerate(inputs)),
        *(device.pins_o[number].eq(getattr(receiver, name)) for number, name in enumerate(outputs)),
        front.sample.eq(receiver.sample),
        front.take.eq(receiver.take),
        device.code.eq(front.code),
        device.written.eq(front.write),
        frame.send.eq(front.done),
    ]


def _connect_pixels(m: Module, device: SensorDevice, config: PixelsConfig, frame: FrameBuffer, busy: Any) -> None:
    """Connect a camera: an image that begins while a result is on its way is left out."""
    m.submodules.front = front = PixelsEngine(config)
    m.submodules.receiver = receiver = CameraReceiver()
    m.d.comb += [
        receiver.pins.eq(device.pins_i),
        front.pixel.eq(receiver.pixel),
        front.take.eq(receiver.take),
        front.row.eq(receiver.row),
        front.image.eq(receiver.image),
        front.skip.eq(busy),
        device.code.eq(front.code),
        device.written.eq(front.write),
        frame.send.eq(front.done),
    ]


MICROPHONES: Mapping[str, tuple[Callable[[int, int], Any], tuple[str, ...], tuple[str, ...]]] = {
    I2s.kind: (I2sReceiver, ("sd",), ("bclk", "ws")),
    Pdm.kind: (PdmReceiver, ("data",), ("clk",)),
}
"""Receiver of a microphone, and its ports in the order of `SensorPins.inputs` and `outputs`, by kind of its pins."""
CONNECTIONS: Mapping[str, Callable[[Module, SensorDevice, Any, FrameBuffer, Any], None]] = {
    LogMelConfig.kind: _connect_log_mel,
    PixelsConfig.kind: _connect_pixels,
}
"""Connects a sensor's pins and front end, by kind of the front end."""
