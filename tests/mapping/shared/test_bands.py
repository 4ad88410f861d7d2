"""Programs that begin in bands of rows: equal to the interpreter, and faster where they wait for their input."""

from __future__ import annotations

import pytest

from nnhw.engines.shared import Compute, Fill
from nnhw.mapping.shared import compile_network, network_of
from nnhw.mapping.shared.compile import WHOLE
from nnhw.mapping.shared.program.bands import Bands
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import array_of, check_program

ARRAYS = {"8x2x8": array_of(8, 2, 8), "4x2x4": array_of(4, 2, 4), "16x4x4": array_of(16, 4, 4, drains=2)}


@pytest.mark.parametrize("bands", [Bands(1, 3), Bands(2, 5), Bands(9, 4)], ids=str)
@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", ["plain", "depthwise", "pooled", "residual"])
def test_bands_compute_what_the_whole_does(name: str, array: str, bands: Bands) -> None:
    body = NETWORKS[name](1)
    compiled = compile_network(network_of(body), ARRAYS[array], bands)
    check_program(body, compiled)
    assert sum(isinstance(record, Fill) for record in compiled.config.records) == min(
        bands.count, body.inputs[0].type.shape[1]
    )


def test_bands_leave_products_and_values_complete() -> None:
    network = network_of(NETWORKS["depthwise"](0))
    whole, parts = (compile_network(network, ARRAYS["8x2x8"], bands) for bands in (WHOLE, Bands(3, 4)))
    assert whole.config.products == parts.config.products
    assert whole.config.i_beats == parts.config.i_beats
    assert len(whole.config.records) < len(parts.config.records)


def test_no_more_tasks_take_turns_than_are_a_chain() -> None:
    network = network_of(NETWORKS["residual"](0))
    compiled = compile_network(network, ARRAYS["8x2x8"], Bands(9, 4))
    parts = {record.layer for record in compiled.config.records if isinstance(record, Compute) and record.first_pixel}
    assert parts == {network.tasks[0].name, network.tasks[1].name}
