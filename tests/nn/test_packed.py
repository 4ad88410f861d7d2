"""Packed checkpoints: what comes back, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nnhw.errors import InputError
from nnhw.nn import Int, QuantConv2d, QuantLinear, Sign, load_packed, save_packed


def make_model(width: int = 5) -> nn.Sequential:
    return nn.Sequential(
        QuantConv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        Sign(),
        nn.Flatten(),
        QuantLinear(27, width),
        QuantLinear(width, 2, weight_quant=Int(4)),
    )


def test_packed_model_computes_the_same(tmp_path: Path) -> None:
    x = torch.randn(6, 1, 5, 5, generator=torch.Generator().manual_seed(3))
    model = make_model()
    model(x)
    save_packed(model, tmp_path / "model.npz")
    again = load_packed(make_model(), tmp_path / "model.npz")
    assert not again.training
    assert torch.equal(again(x), model.eval()(x))
    assert set(again[0].weight.unique().tolist()) == {-1.0, 1.0}


def test_packed_file_holds_one_bit_per_binary_weight(tmp_path: Path) -> None:
    save_packed(make_model(), tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        assert arrays["0.weight:signs"].nbytes == 4  # 27 weights
        assert arrays["4.weight:signs"].nbytes == 17  # 135 weights
        assert arrays["5.weight"].shape == (2, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_save_packed_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    save_packed(make_model(), path)
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        save_packed(make_model(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.npz"]


def test_load_packed_rejects_another_models_file(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_packed(make_model(width=5), path)
    with pytest.raises(InputError) as caught:
        load_packed(make_model(width=6), path)
    assert str(caught.value) == f"checkpoint {path} needs 162 signs for 4.weight, got 17 bytes"


def test_load_packed_rejects_a_file_with_missing_entries(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_packed(nn.Sequential(QuantLinear(2, 2)), path)
    with pytest.raises(InputError) as caught:
        load_packed(nn.Sequential(QuantLinear(2, 2), QuantLinear(2, 2)), path)
    assert str(caught.value) == (
        f"checkpoint {path} has no entry 1.weight, which the model needs; train the model again"
    )


def test_load_packed_rejects_a_file_with_extra_entries(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_packed(nn.Sequential(QuantLinear(2, 2), nn.BatchNorm1d(2, affine=False, track_running_stats=False)), path)
    arrays = dict(np.load(path))
    np.savez(path, extra=np.zeros(1), **arrays)
    with pytest.raises(InputError) as caught:
        load_packed(nn.Sequential(QuantLinear(2, 2)), path)
    assert str(caught.value) == f"checkpoint {path} has entries that the model has not: extra"


def test_load_packed_rejects_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.npz"
    with pytest.raises(InputError) as caught:
        load_packed(make_model(), path)
    assert str(caught.value) == f"checkpoint {path} does not exist; train the model to make it"


def test_load_packed_rejects_pickled_objects(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, weight=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"must be an \.npz file of save_packed: Object arrays cannot be loaded"):
        load_packed(make_model(), path)
