"""The networks of the benchmarks: each is captured and lowered, equal behind every pass; two against golden files."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import nnhw
from benchmarks.networks import NETWORKS, Network
from benchmarks.networks import data as network_data
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from tests.marks import covering

GOLDEN_IMAGES = 1000
GOLDEN_RIGHT = 993  # of them, by ai8x_mnist; of all 10,000, 9,944 are
SMALL = ("tfc", "sensor", "ecg", "mlp", "cnn_small")  # 2 images of these, 1 of those that take seconds
# One of each kind and of each width of codes; `benchmarks whole` runs all of them, up to RTL.
KEPT = ("ai8x_mnist", "tfc_w1a1", "sensor_cnn1d", "ecg_autoencoder", "mlp784_w8a8", "resnet8_all4", "ds_cnn_all2")
HOME = Path(network_data.__file__).parent


def require(network: Network) -> None:
    """Skip a test whose data or package is not here."""
    root = os.environ.get("NNHW_DATA")
    if network.needs and not (root and (Path(root) / network.needs).is_dir()):
        pytest.skip(f"the weights are read from {network.needs}/ in the folder NNHW_DATA, which is not here")
    if network.package and importlib.util.find_spec(network.package) is None:
        pytest.skip(f"the package {network.package} is not installed")


def test_networks_have_a_row_each() -> None:
    files = {path.stem for path in HOME.glob("*.py")} - {"__init__", "data", "keyword_transformer", "settling", "train"}
    assert {network.module for network in NETWORKS.values()} == files


@pytest.mark.parametrize("name", covering(NETWORKS, KEPT))
def test_network_equals_its_reference_behind_every_pass(name: str) -> None:
    require(NETWORKS[name])
    model, example = NETWORKS[name].load()
    assert not model.training
    images = example[: 2 if name.startswith(SMALL) else 1]
    graph = capture(model, images, name)
    reference = nnhw.reference(model, images)(images.numpy())
    with torch.no_grad():
        plain = model(images).numpy()
        double = copy.deepcopy(model).double()(images.double()).numpy()
    _, facts = lower_graph(graph, {"inputs": images.numpy(), "torch": plain})
    assert set(facts["passes"].values()) == {0}
    # A network whose layers died would be equal, too.
    assert len(np.unique(reference)) > min(4, reference.size - 1)
    assert np.array_equal(double, reference)


def test_network_ai8x_mnist_has_the_golden_accumulators() -> None:
    require(NETWORKS["ai8x_mnist"])
    model, _ = NETWORKS["ai8x_mnist"].load()
    pixels, labels = network_data.mnist_pixels()
    with np.load(network_data.data_path("ai8x", "golden_mnist_test_first1000.npz"), allow_pickle=False) as file:
        golden = file["fc_acc"]
    sums = nnhw.reference(model)(pixels[:GOLDEN_IMAGES].astype(np.float32) - 128)
    assert golden.shape == (GOLDEN_IMAGES, 10)
    assert np.array_equal(sums, golden)
    # All its numbers are integers below 2**24, so that float32 is exact, and quick.
    parts = torch.from_numpy(pixels[:GOLDEN_IMAGES].astype(np.float32) - 128).split(500)
    with torch.no_grad():
        answers = np.concatenate([model(part).numpy() for part in parts])
    assert np.array_equal(answers, golden)
    assert (answers.argmax(axis=1) == labels[:GOLDEN_IMAGES]).sum() == GOLDEN_RIGHT


def test_network_tfc_w1a1_has_the_golden_sums_and_logits() -> None:
    require(NETWORKS["tfc_w1a1"])
    model, _ = NETWORKS["tfc_w1a1"].load()
    pixels, labels = network_data.mnist_pixels()
    with np.load(network_data.data_path("qonnx", "golden_TFC_1W1A_mnist_first1000.npz"), allow_pickle=False) as file:
        golden = file["logits"]
    logits = nnhw.reference(model)(pixels.astype(np.float32) / np.float32(255))
    assert (logits.argmax(axis=1) == labels).mean() == 0.9296
    mean, variance, weight, bias = (
        model.get_buffer(f"tail.{name}").numpy() for name in ("mean", "variance", "weight", "bias")
    )

    def sums_of(values: np.ndarray) -> np.ndarray:
        return np.rint((values - bias.astype(np.float64)) / weight * np.sqrt(variance.astype(np.float64)) + mean)

    sums = sums_of(logits[:GOLDEN_IMAGES])
    assert golden.shape == (GOLDEN_IMAGES, 10)
    assert np.array_equal(sums, sums_of(golden.astype(np.float64)))
    # The file's tail in its own precision and order gives its logits; in float64, rounded once, 850 of 10,000 differ.
    tail = (sums.astype(np.float32) - mean) / np.power(variance, np.float32(0.5)) * weight + bias
    assert np.array_equal(tail, golden)


def test_network_data_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNHW_DATA", str(tmp_path))
    with pytest.raises(nnhw.errors.InputError) as error:
        network_data.data_path("ai8x", "x.pt")
    missing = tmp_path / "ai8x" / "x.pt"
    assert str(error.value) == f"{missing} does not exist; put it there, or set NNHW_DATA to the folder that has it"
    monkeypatch.delenv("NNHW_DATA")
    with pytest.raises(nnhw.errors.InputError) as error:
        network_data.data_path("ai8x", "x.pt")
    assert str(error.value) == "ai8x/x.pt is read from the folder NNHW_DATA, which is not set"
