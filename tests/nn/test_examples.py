"""The MNIST examples: they load, export, are exact, and classify as many digits as their README says."""

import copy
import gzip
import importlib
import os
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from nnhw.nn import UInt

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = ("mnist_mlp", "mnist_cnn")
CORRECT_OF_10000 = {"mnist_mlp": 9510, "mnist_cnn": 9903}
CORRECT_OF_300 = {"mnist_mlp": 292, "mnist_cnn": 300}

needs_mnist = pytest.mark.skipif(not os.environ.get("NNHW_DATA"), reason="NNHW_DATA names no folder that holds mnist/")


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(request.param)


@pytest.fixture
def mnist_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("mnist_data")


def count_correct(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> int:
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch in torch.from_numpy(images).split(1000)])
    return int((outputs.argmax(dim=1).numpy() == labels).sum())


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_offers_a_model_and_real_digits(example: ModuleType) -> None:
    assert isinstance(example.model, nn.Module)
    assert not example.model.training
    assert example.example_input.dtype == torch.float32
    assert tuple(example.example_input.shape) == (8, 1, 28, 28)
    assert example.model(example.example_input).argmax(dim=1).tolist() == [7, 2, 1, 0, 4, 1, 4, 9]


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_weights_are_bipolar(example: ModuleType) -> None:
    weights = [module.weight for module in example.model if isinstance(module, nn.Linear | nn.Conv2d)]
    assert len(weights) == 4
    assert all(set(weight.unique().tolist()) == {-1.0, 1.0} for weight in weights)


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_pools_signs_of_rising_norms_only(example: ModuleType) -> None:
    norms = [module for module in example.model if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(norms) == 3
    assert all(bool((norm.weight > 0).all()) for norm in norms)


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_counts_the_same_in_float32_and_float64(example: ModuleType, mnist_data: ModuleType) -> None:
    images = torch.from_numpy(mnist_data.sample_digits()[0])
    narrow = example.model(images).detach().numpy()
    wide = copy.deepcopy(example.model).double()(images.double()).detach().numpy()
    assert np.array_equal(narrow, wide)
    sums = wide / example.model[-1].factor.item()
    assert np.array_equal(sums, np.rint(sums))


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_decides_the_same_in_float32_and_float64(example: ModuleType) -> None:
    """Each norm, on each sum that its layer can reach, in steps of the input's scale."""
    modules, step = list(example.model), 1.0
    for layer, norm in pairwise(modules):
        if isinstance(layer, UInt):
            step = layer.scale.item()
        if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        reach = int(layer.weight[0].numel() / step)
        sums = torch.arange(-reach, reach + 1)[:, None].expand(-1, norm.num_features) * step
        sums = sums[..., None, None] if isinstance(norm, nn.BatchNorm2d) else sums
        wide = copy.deepcopy(norm).double()(sums.double().contiguous())
        assert torch.equal(norm(sums.contiguous()) >= 0, wide >= 0)
        step = 1.0


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_exports_with_a_free_batch_size(example: ModuleType) -> None:
    shapes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(example.model, (example.example_input,), dynamic_shapes=shapes)
    targets = [str(node.target) for node in exported.graph.nodes]
    assert targets.count("nnhw.quantize.default") == 8  # the input, three signs, four weights
    first = example.example_input[:1]
    assert torch.equal(exported.module()(first), example.model(first))


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_is_right_on_the_digits_in_the_repository(example: ModuleType, mnist_data: ModuleType) -> None:
    assert count_correct(example.model, *mnist_data.sample_digits()) == CORRECT_OF_300[example.__name__]


@needs_mnist
@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_example_is_right_on_the_whole_test_set(example: ModuleType, mnist_data: ModuleType) -> None:
    assert count_correct(example.model, *mnist_data.load_mnist("test")) == CORRECT_OF_10000[example.__name__]


@needs_mnist
def test_sample_digits_are_the_first_test_digits(mnist_data: ModuleType) -> None:
    images, labels = mnist_data.load_mnist("test")
    sample_images, sample_labels = mnist_data.sample_digits()
    assert np.array_equal(sample_images, images[:300])
    assert np.array_equal(sample_labels, labels[:300])


@needs_mnist
def test_train_mnist_writes_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("train_mnist")
    script.main("mlp", seed=3, epochs=1, out=tmp_path / "mlp.npz")
    assert (tmp_path / "mlp.npz").stat().st_size < 20_000
    assert "of 10000 digits are right" in capsys.readouterr().out


def test_train_mnist_pools_before_signs_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("train_mnist")
    model = importlib.import_module("mnist_cnn").model
    twin = script.pool_before_sign(model)
    kinds = [type(module).__name__ for module in twin]
    assert kinds[1:6] == ["QuantConv2d", "ChannelsLast", "MaxPool2d", "BatchNorm2d", "Sign"]
    images = importlib.import_module("mnist_cnn").example_input
    assert torch.equal(twin(images), model(images))


def test_train_mnist_splits_behind_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("train_mnist")
    model = importlib.import_module("mnist_mlp").model
    assert [len(script.split_after_block(model, blocks)[0]) for blocks in range(4)] == [0, 6, 9, 12]


def test_train_mnist_augments_each_image_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("train_mnist")
    images = importlib.import_module("mnist_cnn").example_input[:1].repeat(4, 1, 1, 1)
    moved = script.augment(images, script.RECIPES["cnn"], torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert len({image.numpy().tobytes() for image in moved}) == 4


def test_mnist_data_rejects_a_missing_folder(mnist_data: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNHW_DATA", raising=False)
    with pytest.raises(FileNotFoundError) as caught:
        mnist_data.load_mnist("test")
    assert str(caught.value) == f"No folder with the MNIST files is given. {mnist_data.HOW_TO_GET_MNIST}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "must be an IDX file of unsigned bytes, but starts with 00000d01"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x02\x00", "must hold (2,) bytes, but holds 1; get the file again"),
    ],
    ids=["floats", "cut"],
)
def test_read_idx_rejects_other_files(mnist_data: ModuleType, tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(raw))
    with pytest.raises(ValueError, match=re.escape(f"{path} {message}")):
        mnist_data.read_idx(path)
