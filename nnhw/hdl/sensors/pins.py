"""The pins of a board at which a sensor, a result and a serial port are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.build import Attrs, Pins, Platform, Resource, Subsignal
from amaranth.hdl import Module
from amaranth.lib import io

from nnhw.boards import Board, table_pins
from nnhw.errors import BoardError, raise_all
from nnhw.families import FAMILIES
from nnhw.hdl.sensors.sensor_device import SensorDevice
from nnhw.sensors import ResultPins, SensorPins

SENSOR, RESULT = "nnhw_sensor", "nnhw_result"
"""Names of the resources of a platform."""


def add_sensor(platform: Platform, board: Board, taken: Mapping[str, str]) -> None:
    """Add the pins of the sensor that a board is chosen for, and those of its result, to its platform.

    Parameters
    ----------
    taken: pins that are in use by something else, with what that is.

    Raises
    ------
    ProblemList, BoardError: pins are in use.
    """
    assert board.sensor is not None
    tables: list[tuple[str, SensorPins | ResultPins]] = [(SENSOR, board.sensor)]
    if board.result is not None:
        tables.append((RESULT, board.result))
    raise_all(
        [
            BoardError(
                f"board '{board.name}': field '{table.kind}.{name}' is pin {pin}, which is in use: it is "
                f"{taken[pin]}; choose a free pin in the board file"
            )
            for _, table in tables
            for name, pin in table_pins(table).items()
            if pin in taken
        ]
    )
    platform.add_resources([_resource(name, table, board) for name, table in tables])


def _resource(name: str, table: SensorPins | ResultPins, board: Board) -> Resource:
    attribute, standard = FAMILIES[board.family].pins.io_standard
    # A result has outputs alone.
    ways = dict.fromkeys(getattr(table, "inputs", {}), "i") | dict.fromkeys(table.outputs, "o")
    pins = table_pins(table)
    signals = [Subsignal(one, Pins(pins[one], dir=way, assert_width=1)) for one, way in ways.items()]
    return Resource(name, 0, *signals, Attrs(**{attribute: table.io_standard or standard}))


def connect_sensor(m: Module, platform: Any, board: Board, device: SensorDevice) -> None:
    """Connect a device to the pins of its sensor, of its result, and to the serial port, whose input is not used."""
    assert board.sensor is not None
    assert board.uart is not None, "a board with a sensor has a serial port"
    sensor = _requested(platform, SENSOR)
    for number, name in enumerate(board.sensor.inputs):
        m.submodules[f"sensor_{name}"] = buffer = io.Buffer("i", getattr(sensor, name))
        m.d.comb += device.pins_i[number].eq(buffer.i)
    for number, name in enumerate(board.sensor.outputs):
        _drive(m, f"sensor_{name}", getattr(sensor, name), device.pins_o[number])
    _drive(m, "tx", _requested(platform, board.uart.resource_name).tx, device.tx)
    if board.result is not None:
        result = _requested(platform, RESULT)
        for name in board.result.outputs:
            _drive(m, f"result_{name}", getattr(result, name), _shown(device, name))


def _requested(platform: Any, name: str) -> Any:
    """Return a resource without buffers: pins that are not used stay out of the design."""
    return platform.request(name, dir={pin.name: "-" for pin in platform.lookup(name).ios})


def _drive(m: Module, name: str, pin: Any, value: Any) -> None:
    m.submodules[name] = buffer = io.Buffer("o", pin)
    m.d.comb += buffer.o.eq(value)


def _shown(device: SensorDevice, name: str) -> Any:
    """Return what a pin of the result shows, by its name in `ResultPins.outputs`."""
    return device.changes if name == "changes" else device.label[int(name.removeprefix("label_"))]
