"""The style that a network gets, and an accelerator with a shared engine from mapping to compiled hardware."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhw.accelerator import Accelerator, InputFormat
from nnhw.boards import load_board
from nnhw.engines.shared import ArrayConfig, SharedConfig, StepMemory
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.cycle_model import lone_schedule
from nnhw.engines.shared.program import memory_needs
from nnhw.engines.timing import Schedule
from nnhw.errors import DoesNotFitError, InputError, MappingError, MappingProblems, StuckError, first_of
from nnhw.flow import style
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options, load_array
from nnhw.flow.report import link_rate
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import Equality, check_equality
from nnhw.ir import BIPOLAR, Graph, IntType, run
from nnhw.mapping.shared import compile_body, shared_accelerator
from nnhw.mapping.shared.search import arrays
from nnhw.mapping.shared.search.partition import partitions
from nnhw.mapping.shared.shared_accelerator import map_program
from tests.flow.test_orders import ORDERS, Net
from tests.flow.test_rows import lowered
from tests.mapping.bodies import LayerSpec, codes_of, make_body
from tests.mapping.shared.networks import I4, NETWORKS, U2, U4, Lined, decoder
from tests.mapping.shared.programs import array_of

BOARD = load_board("icebreaker")
FRAMES = 2
PATTERNS = (("none", "none"), ("random", "random"))


def mapped(body: Graph, style: str, fast_for: str = "link") -> tuple[Accelerator, dict[str, object]]:
    """Return the accelerator of a network, and what the report says of its style."""
    found, facts = map_on_board(body, BOARD, Options(style=style, fast_for=fast_for))
    return found.accelerator, facts["style"]


def with_room(array: ArrayConfig) -> ArrayConfig:
    """Return an array whose limits other networks keep, too."""
    roomy = {"sum_bits": 24, "factor_bits": 30, "addend_bits": 40, "shifts": (30,), "requantizing": Requantizing.LOGIC}
    return replace(array, i_lanes=1, **roomy)  # type: ignore[arg-type]


def check_hardware(accelerator: Accelerator, body: Graph) -> list[Equality]:
    """Compare golden stages and compiled hardware with the IR at every boundary, and the cycles with the schedule."""
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (FRAMES, *kind.shape), np.random.default_rng(1))
    assert [one for one in compare_stages(accelerator, body, codes) if not one.equal] == []
    found = check_equality(accelerator, body, codes, PATTERNS)
    for equality in found:
        assert equality.equal, equality.row()
    return found


@pytest.mark.parametrize(("name", "in_front"), [("residual", False), ("depthwise", True)])
def test_shared_engine_equals_the_ir_at_everything_it_stores(name: str, in_front: bool) -> None:
    body = NETWORKS[name](0)
    accelerator, style = mapped(body, "shared")
    assert style["name"] == "shared"
    assert len(accelerator.stages) > 1
    if not in_front:
        accelerator, _ = map_program(body, "icebreaker", with_room(accelerator.programs[0].array))
        assert len(accelerator.stages) == 1
    check_hardware(accelerator, body)


def test_function_of_few_unequal_steps_equals_the_ir_on_a_shared_engine() -> None:
    net = Lined((12,), U4)
    codes = net.curve(net.linear(net.input, 5), U2, lambda z: np.sqrt(np.clip(z, 0, 1)))
    body = net.body(net.linear(codes, 3))
    memory = StepMemory(words=16, places=16, place_bits=16)
    accelerator, _ = map_program(body, BOARD.name, replace(array_of(4, 2, 4), step_memory=memory))
    words, places, place_bits = memory_needs(accelerator.programs[0].functions)
    assert max(words, places) < place_bits
    check_hardware(accelerator, body)


def test_shared_engine_makes_borders_of_what_pooling_reads_and_of_what_leaves() -> None:
    body = NETWORKS["bordered"](0)
    accelerator = map_on_board(body, BOARD, Options(style="shared", reusable=True))[0].accelerator
    check_hardware(accelerator, body)


@pytest.mark.parametrize("code", [U4, I4, BIPOLAR], ids=["unsigned", "signed", "bipolar"])
def test_layers_that_no_array_runs_have_engines_behind_the_shared_one(code: IntType) -> None:
    body = decoder(code)
    with pytest.raises(MappingError, match="transpose"):
        compile_body(body, array_of(8, 2, 4))
    accelerator, style = mapped(body, "shared")
    assert "2 layers behind it" in str(style["why"])
    at = next(index for index, stage in enumerate(accelerator.stages) if isinstance(stage.config, SharedConfig))
    assert at < len(accelerator.stages) - 2
    check_hardware(accelerator, body)


def test_codes_of_a_zero_point_come_to_the_shared_engine_as_bytes() -> None:
    body = NETWORKS["zero_point"](0)
    accelerator, _ = mapped(body, "shared")
    form = accelerator.input_format
    assert (form.element, form.offset, form.codes) == (IntType(-128, 127), 1, IntType(-127, 128))
    check_hardware(accelerator, body)


def test_codes_of_a_zero_point_leave_the_shared_engine_as_they_are_stored() -> None:
    body = NETWORKS["zero_point_out"](0)
    accelerator, _ = map_program(body, "icebreaker", array_of(8, 2, 4))
    form = accelerator.output_format
    assert (form.element, set(form.offsets)) == (IntType(-8, 7), {5})
    check_hardware(accelerator, body)


def test_partitions_compute_what_the_whole_does() -> None:
    body = NETWORKS["depthwise"](0)
    codes = codes_of(body.inputs[0].type.int_dtype, (1, *body.inputs[0].type.shape), np.random.default_rng(2))
    (expected,) = run(body, codes)
    found = [partition for behind in range(3) for partition in partitions(body, 2, behind)]
    assert [partition.counts for partition in found] == [(front, behind) for behind in range(3) for front in range(3)]
    for partition in found:
        values = codes
        for part in (partition.front, partition.shared, partition.behind):
            values = values if part is None else run(part, values)[0]
        assert (values == expected).all()


def test_accelerator_with_a_program_is_saved_and_loaded(tmp_path: Path) -> None:
    body = NETWORKS["depthwise"](0)
    shared = mapped(body, "shared")[0].programs[0]
    assert shared is not None
    array = with_room(shared.array)
    accelerator, _ = map_program(body, "icebreaker", array)
    accelerator.save(tmp_path)
    loaded = Accelerator.load(tmp_path)
    assert loaded.programs[0].image == accelerator.programs[0].image
    assert loaded.device_hash == accelerator.device_hash
    assert loaded.schedule == accelerator.schedule == lone_schedule(loaded.programs[0])


def test_program_for_the_array_of_another_network_has_the_same_device() -> None:
    first, _ = mapped(NETWORKS["depthwise"](0), "shared")
    array = with_room(first.programs[0].array)
    programs = [map_program(NETWORKS[name](0), "icebreaker", array)[0] for name in ("depthwise", "plain")]
    assert programs[0].device_hash == programs[1].device_hash
    assert programs[0].model_hash != programs[1].model_hash


def test_auto_takes_streaming_where_no_shared_engine_could_be_faster() -> None:
    accelerator, facts = mapped(NETWORKS["depthwise"](0), "auto")
    assert facts["name"] == "streaming"
    assert not accelerator.programs
    assert "an engine for each layer takes" in str(facts["why"])


def test_auto_tries_other_ways_where_several_layers_run_on_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "least_cycles", lambda *_: 0)
    monkeypatch.setattr(style, "link_rate", lambda *_: inf)
    function, shape = ORDERS["channels_as_rows"]
    accelerator, facts = mapped(lowered(Net(function), shape).body, "auto", "engine")
    assert not accelerator.programs
    assert "with a shared one, 3 layers behind it" in str(facts["why"])


def test_problems_of_a_style_are_part_of_a_sentence() -> None:
    function, shape = ORDERS["pixel_unshuffle"]
    with pytest.raises(MappingError) as caught:
        compile_body(lowered(Net(function), shape).body, array_of(8, 2, 8))
    assert str(caught.value).startswith("2 problems:")
    assert first_of(caught.value).endswith("(and 1 more)")
    assert first_of(MappingError("one")) == "one"


def chosen(monkeypatch: pytest.MonkeyPatch, intervals: tuple[int, int], shared_bytes: int) -> tuple[str, str]:
    """Return the style of a network, and why, whose two ways take these cycles, and the shared one these bytes."""
    body = make_body((8,), U4, [LayerSpec(2, steps=0)])
    accelerator, _ = mapped(body, "streaming")
    form = InputFormat((shared_bytes,), IntType(0, 255), 1)
    ways = [
        style.Mapped(replace(accelerator, schedule=Schedule(9, intervals[0])), "streaming", ""),
        style.Mapped(
            replace(accelerator, schedule=Schedule(9, intervals[1]), input_format=form), "shared", "all layers"
        ),
    ]
    monkeypatch.setattr(style, "_streaming", lambda *_: ways[0])
    monkeypatch.setattr(style, "_shared", lambda *_, **__: ways[1])
    monkeypatch.setattr(style, "least_cycles", lambda *_: 0)
    _, facts = mapped(body, "auto")
    return str(facts["name"]), str(facts["why"])


def test_auto_takes_the_style_that_is_faster_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BOARD.target_clock_hz == 48e6
    assert BOARD.uart.rates(48e6)[0] == 12_000_000
    name, why = chosen(monkeypatch, (200_000, 100_000), 100)
    assert (name, why) == (
        "shared",
        "an engine for each layer takes 200,000 cycles a frame; with a shared one, all layers",
    )
    name, why = chosen(monkeypatch, (200_000, 100_000), 5000)
    assert name == "streaming"
    assert why == (
        "an engine for each layer takes 200,000 cycles a frame; with a shared one, all layers; but the host sees "
        "240 images a second with the one and 232 with the other, through the link at 12,000,000 baud"
    )


def test_auto_seeks_no_other_style_where_the_link_is_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    name, why = chosen(monkeypatch, (300, 10), 1)
    assert name == "streaming"
    assert why == (
        "an engine for each layer takes 300 cycles a frame; at 48 MHz that is faster than the link at 12,000,000 "
        "baud, which brings 118,421 images a second, so with another engine the host would see no more"
    )


def test_auto_takes_a_shared_engine_where_the_layers_do_not_fit() -> None:
    body = NETWORKS["depthwise"](0)
    small = replace(BOARD, resources=replace(BOARD.resources, ebr=26))
    with pytest.raises(MappingError):
        map_on_board(body, replace(small, resources=replace(small.resources, lc=1500)), Options(style="auto"))
    tight = map_on_board(body, small, Options(style="shared"))[0]
    assert tight.style == "shared"


@pytest.mark.parametrize("target_fps", [None, 1.0])
def test_auto_seeks_no_faster_shared_engine_than_the_link_or_the_rate_needs(
    monkeypatch: pytest.MonkeyPatch, target_fps: float | None
) -> None:
    def refuse(*_: object) -> None:
        raise DoesNotFitError("too large")

    compiled: list[object] = []
    choice = arrays.compiled_choice
    monkeypatch.setattr(style, "_streaming", refuse)

    def counted(*given: Any) -> arrays.Choice | None:
        compiled.append(given)
        return choice(*given)

    monkeypatch.setattr(arrays, "compiled_choice", counted)
    monkeypatch.setattr(shared_accelerator, "choose_chain", lambda *_, **__: pytest.fail("engines in a row are sought"))
    slow = BOARD if target_fps else replace(BOARD, uart=replace(BOARD.uart, baud=9600))
    _, facts = map_on_board(NETWORKS["depthwise"](0), slow, Options(style="auto", target_fps=target_fps))
    assert facts["style"]["name"] == "shared"
    assert facts["style"]["why"].endswith("so that no faster one was sought")
    assert len(compiled) == 1


def test_auto_takes_no_other_style_where_engines_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*_: object, **__: object) -> None:
        raise StuckError("stuck")

    monkeypatch.setattr("nnhw.mapping.schedule.run_network", stuck)
    for options in (Options(style="auto"), Options(style="auto", target_fps=1.0)):
        with pytest.raises(StuckError, match=r"^stuck$"):
            map_on_board(NETWORKS["residual"](0), BOARD, options)


def test_unknown_styles_and_arrays_of_streaming_builds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--style is one of auto, streaming, shared; given 'fast'"):
        Options(style="fast")
    with pytest.raises(InputError, match="--for is one of link, engine; given 'host'"):
        Options(fast_for="host")
    accelerator, _ = mapped(NETWORKS["depthwise"](0), "streaming")
    accelerator.save(tmp_path)
    with pytest.raises(InputError, match="its layers have engines of their own"):
        load_array(tmp_path, "icebreaker")


def test_reusable_array_runs_other_networks_of_its_kind_on_its_board(tmp_path: Path) -> None:
    own, reusable = (
        map_on_board(NETWORKS["depthwise"](0), BOARD, Options(style="shared", reusable=reusable))[0].accelerator
        for reusable in (False, True)
    )
    assert len(reusable.stages) == 1
    array = reusable.programs[0].array
    for name in ("sum_bits", "factor_bits", "addend_bits"):
        assert getattr(array, name) > getattr(own.programs[0].array, name)
    with pytest.raises(MappingError, match="use an array with more"):
        map_program(NETWORKS["depthwise"](5), "icebreaker", own.programs[0].array)
    assert map_program(NETWORKS["depthwise"](5), "icebreaker", array)[0].device_hash == reusable.device_hash
    reusable.save(tmp_path)
    assert load_array(tmp_path, "icebreaker") == array
    with pytest.raises(InputError, match=r"is for the board 'icebreaker', .* for 'ulx3s_25f'; give --board icebreaker"):
        load_array(tmp_path, "ulx3s_25f")


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match=r"--overrides fold the engines of single layers, .*; leave out one of them"):
        Options(style="shared", overrides={"0": {"pe": 2}})
    with pytest.raises(InputError, match=r"--reusable .* needs --style shared without --array, given --style auto"):
        Options(reusable=True)


@pytest.mark.parametrize(
    ("shared", "cause"),
    [
        (
            DoesNotFitError("with 8 lanes 3; with 4 lanes 5 too many", "use a larger board"),
            "with 8 lanes 3; with 4 lanes 5 too many",
        ),
        (
            MappingProblems([MappingError("'a' does not run", "use x"), MappingError("b")]),
            "'a' does not run (and 1 more)",
        ),
        (MappingError("nothing reads it"), "nothing reads it"),
    ],
)
def test_message_of_both_styles_gives_no_advice_that_has_failed(
    shared: MappingError, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(error: MappingError) -> Any:
        def raising(*_: object, **__: object) -> None:
            raise error

        return raising

    streaming = DoesNotFitError("it does not fit; the largest is 'x'", "use fewer bits")
    monkeypatch.setattr(style, "_streaming", refuse(streaming))
    monkeypatch.setattr(style, "_shared", refuse(shared))
    with pytest.raises(DoesNotFitError) as caught:
        mapped(NETWORKS["plain"](0), "auto")
    assert str(caught.value) == (
        f"it does not fit; the largest is 'x'. On a shared engine (--style shared): {cause}; use fewer bits"
    )


@pytest.mark.parametrize("kind", ["streaming", "auto"])
def test_streaming_is_as_fast_as_the_link_needs_and_takes_less_logic(kind: str) -> None:
    body = make_body((16,), U4, [LayerSpec(24), LayerSpec(4)])
    slow = replace(BOARD, uart=replace(BOARD.uart, baud=115_200))
    link, engine = (map_on_board(body, slow, Options(style=kind, fast_for=rate)) for rate in ("link", "engine"))
    assert link[0].style == engine[0].style == "streaming"
    clock_hz = slow.target_clock_hz
    seen = link_rate(link[0].accelerator, slow.host_link, clock_hz)
    assert link_rate(engine[0].accelerator, slow.host_link, clock_hz) == seen
    # Both are faster than the link, by a margin: the host sees no difference.
    assert seen * style.LINK_MARGIN <= clock_hz / link[0].interval < clock_hz / engine[0].interval
    assert link[1]["resources"]["lc"] < engine[1]["resources"]["lc"]


def test_streaming_is_as_fast_as_it_can_be_where_no_engine_keeps_up_with_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(style, "_least_of_link", lambda *_: 2)
    body = make_body((16,), U4, [LayerSpec(24), LayerSpec(4)])
    link, engine = (map_on_board(body, BOARD, Options(style="streaming", fast_for=rate)) for rate in ("link", "engine"))
    assert link[0].interval == engine[0].interval > 2
    assert link[1] == engine[1]


def test_streaming_that_was_asked_for_says_where_it_stops() -> None:
    _, facts = mapped(make_body((16,), U4, [LayerSpec(4)]), "streaming")
    assert re.fullmatch(
        r"it was asked for; \d+ cycles per frame keep up with the link, so no faster engines were tried", facts["why"]
    )
    _, facts = mapped(make_body((16,), U4, [LayerSpec(4)]), "streaming", "engine")
    assert facts["why"] == "it was asked for"


def test_rate_that_is_out_of_reach_is_refused_with_that_of_the_fastest_engine() -> None:
    body = make_body((16,), U4, [LayerSpec(24), LayerSpec(4)])
    fastest = map_on_board(body, BOARD, Options(style="streaming", fast_for="engine"))[0].interval
    with pytest.raises(DoesNotFitError, match=f"the fastest mapping that fits 'icebreaker' takes {fastest};"):
        map_on_board(body, BOARD, Options(style="streaming", target_fps=48e6))


def test_weights_that_no_engines_hold_are_refused_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_accelerator, "Pairing", lambda *_: pytest.fail("engines in front are sought"))
    monkeypatch.setattr(shared_accelerator, "memory_bits", lambda *_: 100)
    monkeypatch.setattr(shared_accelerator, "held_bits", lambda *_, **__: 100)
    monkeypatch.setattr(shared_accelerator, "least_weight_bits", lambda *_: 101)
    tight = replace(BOARD, resources=replace(BOARD.resources, spram=0, ebr=8))
    with pytest.raises(DoesNotFitError, match=r"^the weights take [\d,]+ bits, the memory has "):
        map_on_board(make_body((64,), U4, [LayerSpec(64), LayerSpec(64), LayerSpec(4)]), tight, Options(style="shared"))
