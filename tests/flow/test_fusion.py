"""Shared engines whose layers take turns by bands of rows: their hardware stores what the IR says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver import Device
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.hardware import HardwareLink
from nnhw.engines.shared.counters import program_parts
from nnhw.flow.running.measuring import measure_parts
from nnhw.flow.verification.record_cycles import program_rows
from nnhw.flow.virtual.device_hardware import make_device
from nnhw.flow.virtual.virtual_board import CompiledHardware, compile_component
from nnhw.ir import Graph
from nnhw.mapping.shared.compile import compile_network, network_of
from nnhw.mapping.shared.program.fusion import Fusion
from nnhw.mapping.shared.shared_accelerator import assemble
from tests.flow.test_style import check_hardware
from tests.flow.test_virtual import needs_compiler
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import array_of
from tests.mapping.shared.test_fusion import separable
from tests.marks import covering

CLOCK_HZ = 12_000_000
CASES = {
    "three layers": (separable(9), array_of(8, 2, 4), (Fusion(0, 3, 3),)),
    "planes": (separable(9), array_of(16, 1, 4), (Fusion(1, 3, 2), Fusion(3, 4, 5))),
    "output channels": (separable(9), array_of(16, 4, 4, drains=2), (Fusion(1, 2, 4), Fusion(2, 4, 2))),
    "residual": (NETWORKS["residual"](0), array_of(8, 2, 4), (Fusion(0, 1, 3), Fusion(1, 2, 2))),
    "zero point": (NETWORKS["zero_point"](0), array_of(4, 4, 8), (Fusion(0, 1, 3),)),
}


def accelerator_of(name: str) -> tuple[Graph, Accelerator]:
    """Return a network, and it on a shared engine."""
    body, array, fusions = CASES[name]
    compiled = compile_network(network_of(body), array, fusions=fusions)
    return body, assemble(body, "icebreaker", (), (compiled,))


@needs_compiler
@pytest.mark.parametrize("name", covering(CASES, ("planes", "residual", "zero point")))
def test_layers_that_take_turns_equal_the_ir_at_everything_they_store(name: str) -> None:
    body, accelerator = accelerator_of(name)
    check_hardware(accelerator, body)


@needs_compiler
def test_cycles_of_layers_that_take_turns_are_counted_for_each_of_them() -> None:
    body, accelerator = accelerator_of("three layers")
    plain, _ = check_hardware(accelerator, body)
    rows = {row["name"]: row for row in program_rows(plain.counted) if row["kind"] == "layer"}
    tasks = network_of(body).tasks
    assert list(rows) == [task.name for task in tasks]
    assert all(rows[task.name]["records"] > 3 for task in tasks[:3])


@needs_compiler
def test_a_device_measures_layers_that_take_turns(compiled_cache: Path) -> None:
    body, accelerator = accelerator_of("three layers")
    library = compile_component(make_device(accelerator, CLOCK_HZ), (), compiled_cache)
    assert accelerator.image is not None
    image, kind = ProgramImage(accelerator.image), body.inputs[0].type
    codes = codes_of(kind.int_dtype, (2, *kind.shape), np.random.default_rng(0))
    with Device(HardwareLink(CompiledHardware(library), CLOCK_HZ), accelerator, program=image) as device:
        assert (device.infer_codes(codes) == ir.run(body, codes)[0]).all()
        assert list(measure_parts(device)) == [part.cycles for part in program_parts(accelerator.programs[0])]
        assert (device.infer_codes(codes) == ir.run(body, codes)[0]).all()
