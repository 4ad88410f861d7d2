"""The support matrix says what the tables and the examples say; the examples go as far as it says."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from benchmarks.random_networks import LC, extreme_codes, golden_difference, rtl_difference
from nnhw.accelerator import Accelerator
from nnhw.errors import NnhwError
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.verification.equality import check_equality
from nnhw.frontend import capture
from nnhw.frontend.capture import HANDLERS
from nnhw.ir import OPS, Graph, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from tests.frontend import tested
from tests.frontend.examples import ENDS, EXACT, SEQUENCES, STEP_BY_STEP, Net, trimmed
from tests.frontend.models import settled
from tests.frontend.operators_page import support_matrix
from tests.sim.test_benches import pytestmark as needs_simulator

INTERVAL = 500
COMPILED = (0, 1, 3)
"""Networks of examples with every engine that the others have, too."""
OTHERS_COMPILED = tuple(n for n in range(len(tested.NETWORKS)) if n not in COMPILED)


@pytest.fixture(scope="module")
def matrix() -> str:
    assert sorted(HANDLERS.keys() - tested.tested().keys()) == [], "operators without an example"
    return support_matrix(tested.tested())


def test_support_matrix_is_the_committed_one(matrix: str) -> None:
    assert tested.MATRIX.read_text(encoding="utf-8") == matrix, "run: python -m tests.frontend.tested"


def test_support_matrix_has_every_operator_and_op(matrix: str) -> None:
    for operator in HANDLERS:
        assert f"`{operator.removeprefix('aten.').removesuffix('.default')}`" in matrix
    for name in OPS:
        assert f"| `{name}` |" in matrix


def test_support_matrix_says_what_each_row_means(matrix: str) -> None:
    rows = [line for line in matrix.splitlines() if line.startswith("| `")]
    assert len(rows) > len(OPS)
    assert all(line.rstrip(" |").rpartition("| ")[2].strip() for line in rows)


@functools.cache
def mapped(network: int) -> tuple[Graph, Accelerator, np.ndarray]:
    """Return a network's integer graph, what it is mapped to, and codes for it; tests of it use `deep_fifos`."""
    parts, facts = lower_graph(tested.on_device(network)[0], {"inputs": tested.example_images(3).numpy()})
    assert set(facts["passes"].values()) == {0}
    accelerator = map_body(parts.body, "any", Budget(LC, LC), target_interval=INTERVAL)
    return parts.body, accelerator, extreme_codes(parts.body, np.random.default_rng(network))


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("network", range(len(tested.NETWORKS)))
def test_examples_equal_reference_to_golden_stages(network: int) -> None:
    body, accelerator, codes = mapped(network)
    assert golden_difference(accelerator, body, codes) == ""


@needs_simulator
@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("network", [*COMPILED, *(pytest.param(n, marks=pytest.mark.long) for n in OTHERS_COMPILED)])
def test_examples_equal_reference_in_rtl(network: int) -> None:
    body, accelerator, codes = mapped(network)
    assert rtl_difference(accelerator, body, codes) == ""


@pytest.mark.usefixtures("deep_fifos")
def test_compiled_examples_have_every_engine_of_the_others() -> None:
    kinds = [{type(stage.config) for stage in mapped(network)[1].stages} for network in range(len(tested.NETWORKS))]
    assert set().union(*(kinds[network] for network in COMPILED)) == set().union(*kinds)


@pytest.mark.parametrize("name", ENDS)
def test_examples_of_ends_equal_reference_on_the_host(name: str) -> None:
    images = tested.example_images(4)
    parts, facts = lower_graph(capture(trimmed(settled(Net(ENDS[name])), images), images), {"inputs": images.numpy()})
    assert set(facts["passes"].values()) == {0}
    assert parts.tail.nodes[-1].op.name == {"glu": "mul"}.get(name, name)


@pytest.mark.parametrize("name", SEQUENCES)
def test_examples_of_sequences_equal_reference(name: str) -> None:
    torch.manual_seed(1)
    model, images = SEQUENCES[name]().eval(), torch.randn(5, 9, 3)
    graph = capture(model, images[:2, :4])
    parts, facts = lower_graph(graph, {"inputs": images.numpy()})
    assert set(facts["passes"].values()) == {0}
    assert torch.equal(torch.from_numpy(parts.run(images.numpy())[0]).float(), model(images))


@needs_simulator
@pytest.mark.parametrize("name", STEP_BY_STEP)
def test_examples_of_loops_equal_reference_in_rtl(name: str) -> None:
    torch.manual_seed(1)
    model, images = STEP_BY_STEP[name]().eval(), torch.randn(4, 9, 3)
    parts, _ = lower_graph(capture(model, images[:2, :4]), {"inputs": images.numpy()})
    accelerator = map_body(parts.body, "any", Budget(LC, LC))
    codes = [sequence[:steps] for sequence, steps in zip(run(parts.head, images.numpy())[0], (9, 1, 5, 2), strict=True)]
    for patterns in (("none", "none"), ("random", "bursts")):
        (found,) = check_equality(accelerator, parts.body, codes, [patterns])
        assert found.equal


@pytest.mark.parametrize(("name", "problem"), tested.REFUSED.items())
def test_examples_that_are_no_network_of_a_device_are_refused(name: str, problem: str) -> None:
    images = tested.example_images(3)
    graph = capture(trimmed(settled(tested.OnDevice([EXACT[name][0]])), images), images)
    with pytest.raises(NnhwError) as error:
        map_body(lower_graph(graph, {"inputs": images.numpy()})[0].body, "any", Budget(LC, LC))
    assert problem in str(error.value)
