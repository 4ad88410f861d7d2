"""Builds whose input comes from a sensor: clock, rate, what the front end takes, and whether the network fits to it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.errors import DoesNotFitError, InputError, MappingError
from nnhw.families import FAMILIES, Cost, Family
from nnhw.families.parts import dsp_blocks, listed, luts, memory, rom, state
from nnhw.flow.folder.build_folder import read_json
from nnhw.flow.options import Options
from nnhw.sensors import SensorFront, front_of

RATE_MARGIN = 1.05
"""By what factor the network is mapped faster than frames come: a sensor may be 2 % too fast (`RATE_TOLERANCE`)."""
LABELS_MAX = 256
"""Results of a network whose largest is shown: its number leaves as two hexadecimal digits."""
RESULT_BITS_MAX = 16
"""Bits of results that the hardware compares, two bytes each."""
PROBES = 64
"""Random frames with which the first quantizer of a network is compared with the codes of the front end."""


def load_front(path: Path, board: Board) -> SensorFront | None:
    """Return the front end of a build; None where the board's input is its link.

    Parameters
    ----------
    path: the file `lower.json` of a build, whose entry `front` describes the model's front end.

    Raises
    ------
    InputError: a sensor is asked for, and the model has no front end, or one for something else.
    """
    pins = board.sensor
    if pins is None:
        return None
    table = read_json(path).get("front")
    if not isinstance(table, dict):
        raise InputError(
            f"--input {pins.kind} needs a model that begins with a front end, and this one has none; make it "
            "nnhw.nn.SensorModel(front, network), with nnhw.nn.LogMel or nnhw.nn.AveragePixels as its front"
        )
    front = front_of(table)
    if pins.kind not in front.inputs:
        raise InputError(
            f"--input {pins.kind} is for the {pins.title} of a board, and the model begins with "
            f"nnhw.nn.{front.layer}, which stands behind {' or '.join(front.inputs)}"
        )
    return front


def sensor_options(board: Board, front: SensorFront, options: Options) -> Options:
    """Return the options with the clock and the rate of a sensor, where the user asked for none.

    Raises
    ------
    InputError: no clock of the board serves sensor and front end, or not the one that was asked for.
    """
    from nnhw.flow.implementation.timing_closure import first_clock, usable_clocks

    clocks = usable_clocks(board)
    if options.clock_hz is not None:
        clock_hz = first_clock(clocks, options.clock_hz, board.target_clock_hz).output_hz
        if wrong := clock_problems(board, front, clock_hz):
            raise InputError("; ".join(wrong))
    else:
        served = [one.output_hz for one in clocks if not clock_problems(board, front, one.output_hz)]
        if not served:
            raise InputError("; ".join(clock_problems(board, front, board.target_clock_hz)))
        clock_hz = served[0]
    rate = options.target_fps
    if rate is None:
        rate = front.frames_per_s * RATE_MARGIN
    # No link takes part, so none is the bound.
    return dataclasses.replace(options, clock_hz=float(clock_hz), target_fps=rate, fast_for="engine")


def clock_problems(board: Board, front: SensorFront, clock_hz: float) -> list[str]:
    """Return why sensor or front end cannot work at a clock, in Hz."""
    assert board.sensor is not None
    wrong = board.sensor.clock_problem(clock_hz, front.sample_rate_hz)
    return ([wrong] if wrong else []) + front.problems(clock_hz)


def check_speed(accelerator: Accelerator, front: SensorFront, clock_hz: float) -> None:
    """Raise DoesNotFitError where the network of a microphone is not done before the next frame comes.

    An image that a camera sends while the network is at work is left out, so its network may be slower.
    """
    latency, most = accelerator.schedule.latency_cycles, front.frame_cycles(clock_hz)
    if latency > most and not front.may_drop_frames:
        raise DoesNotFitError(
            f"at {clock_hz / 1e6:g} MHz a frame comes every {most:,} cycles, and the network takes {latency:,}; use a "
            "faster --clock, a longer hop, or a smaller network"
        )


def front_cost(front: SensorFront, family: Family) -> Cost:
    """Return the cost of what stands around the network: front end, buffer of a frame, largest result, serial port."""
    elements, bits = int(np.prod(front.shape)), (front.high - front.low).bit_length()
    parts = front.parts
    memories = listed(memory(*size) for size in ((elements, bits), *parts.memories))
    roms = listed(rom(*size) for size in parts.roms)
    # At most so many of the logic cells have a flip-flop.
    logic = luts(parts.logic_cells) + state(parts.logic_cells)
    return family.price(logic + memories + roms + dsp_blocks(parts.multipliers))


def beside(board: Board, front: SensorFront) -> Cost:
    """Return what a design takes beside the engines of its network."""
    return front_cost(front, FAMILIES[board.family])


def check_ends(head: ir.Graph, tail: ir.Graph, accelerator: Accelerator, front: SensorFront) -> None:
    """Raise MappingError where a network's frames are not those of a front end, or its results cannot be compared.

    Parameters
    ----------
    head, tail: what the computer would do in front of the network and behind it; here nobody does.
    """
    check_formats(accelerator, front)
    rng = np.random.default_rng(1)
    every = np.arange(front.low, front.high + 1).reshape(-1, *(1 for _ in front.shape))
    mixed = rng.integers(front.low, front.high + 1, (PROBES, *front.shape))
    codes = np.concatenate([np.broadcast_to(every, (len(every), *front.shape)), mixed])
    found = ir.run(head, (codes * front.scale).astype(np.float32))[0]
    if found.shape != codes.shape or (found != codes).any():
        raise MappingError(
            f"--input needs a network that begins with a quantizer whose codes are those of {front.layer}; use "
            f"nnhw.nn.{'Int' if front.low else 'UInt'}({(front.high - front.low).bit_length()}, "
            f"scale={front.scale}) as its first layer, and nothing before it"
        )
    form = accelerator.output_format
    element = form.element
    values = np.arange(element.low, element.high + 1) * form.multiplier + int(form.offsets[0])
    given = np.broadcast_to(values.reshape(-1, *(1 for _ in form.shape)), (len(values), *form.shape))
    ends = ir.run(tail, given)[0].reshape(len(values), -1)
    if (ends != ends[:, :1]).any() or (np.diff(ends[:, 0]) <= 0).any():
        raise MappingError(
            "--input compares codes, so behind the last quantizer nothing may change which result is the largest; end "
            "the network in a quantizer with one scale, such as nnhw.nn.Int(8, scale=2**-3)"
        )


def check_formats(accelerator: Accelerator, front: SensorFront) -> None:
    """Raise MappingError where an accelerator takes other frames than a front end sends, or has other results."""
    i_form, o_form = accelerator.input_format, accelerator.output_format
    title = f"--input needs a network that takes the frames of {front.layer}"
    if accelerator.programs:
        raise MappingError(f"{title}, and a shared engine has to be given its program first; use --style streaming")
    if i_form.headed:
        raise MappingError(
            f"{title}, and a recurrent network has to be told where a sequence begins, which no sensor does; use a "
            "network without a state, which sees the last steps at once"
        )
    if tuple(i_form.shape) != front.shape:
        raise MappingError(f"{title}, shape {list(front.shape)}; given is a network of {list(i_form.shape)}")
    if (i_form.codes.low, i_form.codes.high) != (front.low, front.high):
        raise MappingError(
            f"{title}, codes {front.low} to {front.high}; the first quantizer of the network gives {i_form.codes.low} "
            f"to {i_form.codes.high}"
        )
    if (
        len(set(o_form.offsets.tolist())) > 1
        or o_form.multiplier < 0
        or o_form.element.bipolar
        or o_form.element.bits > RESULT_BITS_MAX
    ):
        raise MappingError(
            "--input compares results as they leave the last engine, so all must be codes of one quantizer; end the "
            "network in one, such as nnhw.nn.Int(8, scale=2**-3)"
        )
    if not 2 <= o_form.elements <= LABELS_MAX or len(o_form.shape) > 1:
        raise MappingError(
            f"--input shows which of 2 to {LABELS_MAX} results is the largest; the network has results of shape "
            f"{list(o_form.shape)}"
        )
