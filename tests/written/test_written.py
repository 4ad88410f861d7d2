"""Networks that quantize by themselves: kept with their codes, or refused by name; equal to their own forward."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.boards import load_board
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.options import Options
from tests.sim.test_benches import pytestmark as needs_simulator
from tests.written.networks import NETWORKS, REFUSED, images, outcome
from tests.written.table import PAGE, entry, expected, table

IN_RTL = (
    "XNOR-Net in forward",
    "Bi-Real, plain",
    "BNN+",
    "XNOR-Net++",
    "BinaryNet, convolutions",
    "DoReFa, 1 and 4 bits",
    "LSQ, 2 bits",
    "TWN",
    "WRPN",
    "sign in place",
    "x + (q - x).detach()",
    "scale: power of two",
    "parametrize",
    "weight.data in forward",
    "BitNet b1.58",
    "eager QAT, converted",
)


@pytest.mark.parametrize("name", NETWORKS)
def test_network_becomes_what_the_table_says(name: str) -> None:
    found = entry(outcome(name))
    shown = {key: expected()[name][key] for key in ("kind", "bits")}
    assert shown == {key: found[key] for key in shown}, f"{found['message']}; run: python -m tests.written.table"
    if found["kind"] == REFUSED:
        assert "; " in found["message"]
        assert "this is a mistake of nnhw" not in found["message"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(reason=network.fault, strict=True)] * bool(network.fault))
        for name, network in NETWORKS.items()
    ],
)
def test_table_says_what_authors_mean(name: str) -> None:
    network, found = NETWORKS[name], expected()[name]
    assert found["kind"] == network.kind
    assert network.message in found["message"]


def test_table_is_the_one_of_the_outcomes() -> None:
    assert list(expected()) == list(NETWORKS), "run: python -m tests.written.table"
    assert table() in PAGE.read_text(encoding="utf-8"), "run: python -m tests.written.table"


def test_example_of_the_page_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    torch.manual_seed(1)
    exec(program, {"__name__": "example"})


@needs_simulator
@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", IN_RTL)
def test_network_equals_reference_in_rtl(name: str) -> None:
    graph = outcome(name).graph
    assert graph is not None
    parts, _ = lower_graph(graph, {"inputs": images(NETWORKS[name].shape).numpy()})
    mapped, _ = map_on_board(parts.body, load_board("ulx3s_85f"), Options(style="streaming"))
    codes = extreme_codes(parts.body, np.random.default_rng(1))
    assert rtl_difference(mapped.accelerator, parts.body, codes) == ""
