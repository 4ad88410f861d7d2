"""Packed checkpoints: one bit per binary weight, no pickle."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nnhw.errors import InputError
from nnhw.reading import load_npz

from .linear import QuantLayer

SIGNS_SUFFIX = ":signs"
"""End of the names of packed entries: bits, the most significant first of each byte; the model knows the shape."""


def save_packed(model: nn.Module, path: str | Path) -> None:
    """Write parameters and buffers of `model` to an .npz file in one step (a temporary file, then a rename).

    Weights of a bipolar quantizer are saved as signs, one bit each (1 is +1): the model computes the same with them,
    but training cannot be continued from the file, as their magnitudes are lost.

    Raises
    ------
    OSError if the file cannot be written; an older file of this name is then still whole.
    """
    binary = _binary_weight_names(model)
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in model.state_dict().items():
        values = tensor.detach().cpu().numpy()
        if name in binary:
            # As the quantizer has it: the sign of 0 is +1.
            arrays[name + SIGNS_SUFFIX] = np.packbits(values.reshape(-1) >= 0)
        else:
            arrays[name] = values
    _write_atomically(Path(path), arrays)


def load_packed(model: nn.Module, path: str | Path) -> nn.Module:
    """Load a file of `save_packed` into `model` and put it in eval mode; packed weights become -1 and +1.

    Returns
    -------
    The model that was given.

    Raises
    ------
    InputError if the file does not belong to a model of these layers and shapes, or holds pickled objects.
    """
    try:
        arrays = load_npz(Path(path))
    except FileNotFoundError:
        raise InputError(f"checkpoint {path} does not exist; train the model to make it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"checkpoint {path} must be an .npz file of save_packed: {error}") from error
    state = {name: _unpacked(name, tensor, arrays, path) for name, tensor in model.state_dict().items()}
    unknown = sorted({name.removesuffix(SIGNS_SUFFIX) for name in arrays} - set(state))
    if unknown:
        raise InputError(f"checkpoint {path} has entries that the model has not: {', '.join(unknown)}")
    model.load_state_dict(state)
    return model.eval()


def _binary_weight_names(model: nn.Module) -> set[str]:
    layers = ((name, module) for name, module in model.named_modules())
    return {
        f"{name}.weight" if name else "weight"
        for name, module in layers
        if isinstance(module, QuantLayer) and _keeps_only_signs(module)
    }


def _keeps_only_signs(layer: QuantLayer) -> bool:
    # A scale of 'max_abs' is computed from the magnitudes, so they are needed then.
    return layer.weight_quant.bipolar and layer.weight_quant.scale_source == "fixed"


def _unpacked(name: str, tensor: Tensor, arrays: Mapping[str, np.ndarray], path: str | Path) -> Tensor:
    if name + SIGNS_SUFFIX in arrays:
        bits = arrays[name + SIGNS_SUFFIX]
        if bits.dtype != np.uint8 or bits.size != (tensor.numel() + 7) // 8:
            raise InputError(f"checkpoint {path} needs {tensor.numel()} signs for {name}, got {bits.size} bytes")
        signs = np.unpackbits(bits, count=tensor.numel()).astype(np.float32) * 2 - 1
        return torch.from_numpy(signs).to(tensor.dtype).reshape(tensor.shape)
    if name not in arrays:
        raise InputError(f"checkpoint {path} has no entry {name}, which the model needs; train the model again")
    values = arrays[name]
    if values.shape != tuple(tensor.shape):
        raise InputError(f"checkpoint {path} needs shape {tuple(tensor.shape)} for {name}, got {values.shape}")
    return torch.from_numpy(values).to(tensor.dtype)


def _write_atomically(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    # In the same folder: a rename replaces a file at once only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        # mkstemp makes files that only this user can read.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    # Also when the user interrupts it: nothing else removes the temporary file.
    except BaseException:
        os.unlink(temporary)
        raise
