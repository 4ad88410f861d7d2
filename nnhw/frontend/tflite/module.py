"""A TFLite file as a module of PyTorch that computes with the file's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nnhw.errors import CaptureError, NnhwError, raise_all

from . import elementwise, linear, moving
from .model_file import FileOperator, FileTensor, ModelFile, identifiers
from .requantization import FromReal, Site, ToReal

BUILDERS: Mapping[str, Callable[[Site], nn.Module]] = {**linear.BUILDERS, **moving.BUILDERS, **elementwise.BUILDERS}
"""Operators of the format --> functions that build their layers."""
_SEED = 20_260_101
_IMAGES = 2


class TfliteModel(nn.Module):
    """The network of a file: one layer for each of its operators, named after the tensor that it makes.

    Layers exchange integers in float64: distances of codes from their zero point. The input is real numbers, which the
    input's scale and zero point quantize; the result is the real numbers that the file's codes stand for.

    Parameters
    ----------
    file: the content of the file.
    rounding: 'double' or 'single': how its kernels requantize.

    Raises
    ------
    CaptureError, or ProblemList with all of them at once, for operators and forms that are not supported.
    """

    def __init__(self, file: ModelFile, rounding: str) -> None:
        super().__init__()
        self.file, self.rounding = file, rounding
        self._names = identifiers(file)
        problems: list[NnhwError] = list(_problems_of_ends(file))
        for operator in file.operators:
            try:
                self.add_module(self._names[operator.outputs[0]], _built(Site(file, operator, rounding)))
            # Layers are built though one before was refused: each knows the shapes from the file, so all problems are
            # found.
            except NnhwError as error:
                problems.append(error)
        raise_all(problems)
        given, made = file.tensors[file.input], file.tensors[file.output]
        self.input_codes = FromReal(given) if given.type != "FLOAT32" else None
        self.output_numbers = ToReal(made) if made.type != "FLOAT32" else None

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] of real numbers --> [N, *shape] of real numbers, in float64."""
        values = {self.file.input: x if self.input_codes is None else self.input_codes(x)}
        for operator in self.file.operators:
            # Only computed inputs are handed over: layers have their constants as buffers.
            made = self.layer(operator)(*(values[index] for index in operator.inputs if index in values))
            values.update(zip(operator.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        result: Tensor = values[self.file.output]
        return result if self.output_numbers is None else self.output_numbers(result)

    def layer(self, operator: FileOperator) -> nn.Module:
        """Return the layer that computes an operator."""
        found: nn.Module = getattr(self, self._names[operator.outputs[0]])
        return found


def example_of(file: ModelFile) -> Tensor:
    """Return an example input [2, *shape] in float32: random numbers of the input's range, the same each time."""
    given = file.tensors[file.input]
    stated = given
    if given.type == "FLOAT32":
        # A float input has no range of its own: the QUANTIZE that reads it has one.
        reader = next(operator for operator in file.operators if file.input in operator.inputs)
        stated = file.made(reader)
    generator = torch.Generator().manual_seed(_SEED)
    codes = torch.randint(
        stated.distances.low, stated.distances.high + 1, (_IMAGES, *given.shape[1:]), generator=generator
    )
    return (codes.to(torch.float64) * stated.scale).float()


def _built(site: Site) -> nn.Module:
    if site.operator.kind.startswith("CUSTOM"):
        raise site.refusal("is an operator of somebody's own, whose meaning the file does not state; leave it out")
    if site.operator.kind not in BUILDERS:
        raise site.refusal(f"is not supported; operators that are: {', '.join(sorted(BUILDERS))}")
    # Layers are named after the first result, and all but SPLIT have no other one.
    if len(site.operator.outputs) > 1 and site.operator.kind != "SPLIT":
        raise site.refusal(f"has {len(site.operator.outputs)} results, and one is needed; convert the model again")
    layer = BUILDERS[site.operator.kind](site)
    computed = [tensor for tensor in site.model.given(site.operator) if tensor is not None and tensor.data is None]
    if not computed:
        raise site.refusal("reads constants alone; convert the model again, with constant folding")
    # Operators that move nothing keep the shape; the builders of all others have compared it.
    if site.operator.kind in (*elementwise.BUILDERS, "QUANTIZE", "DEQUANTIZE"):
        linear.check_shape(site, computed[0].shape[1:])
    return layer


def _problems_of_ends(file: ModelFile) -> list[CaptureError]:
    """Return the errors of a file's input and output; none if both can be used."""
    given, made = file.tensors[file.input], file.tensors[file.output]
    problems = []
    for tensor, what in ((given, "input"), (made, "output")):
        if tensor.type not in ("INT8", "UINT8", "FLOAT32"):
            problems.append(
                CaptureError(
                    f"the {what} {tensor.place} of {file.title} is of type {tensor.type}, and INT8 or FLOAT32 is needed"
                )
            )
        elif tensor.type != "FLOAT32" and (tensor.quantization is None or len(tensor.quantization.scale) != 1):
            problems.append(
                CaptureError(f"the {what} {tensor.place} of {file.title} has codes without one scale; convert it again")
            )
        # Shapes in the file are those for one image; the module puts any number of images in the place of this 1.
        if len(tensor.shape) < 2 or tensor.shape[0] != 1:
            problems.append(
                CaptureError(
                    f"the {what} {tensor.place} of {file.title} has the shape {list(tensor.shape)}, and the first axis "
                    f"must be a batch of 1; convert the model so"
                )
            )
    if given.type == "FLOAT32" and not problems:
        readers = [operator for operator in file.operators if file.input in operator.inputs]
        if len(readers) != 1 or readers[0].kind != "QUANTIZE":
            problems.append(
                CaptureError(
                    f"{file.title} computes with real numbers from its input {given.place} on; convert it with full "
                    f"integer quantization: converter.representative_dataset and TFLITE_BUILTINS_INT8"
                )
            )
    return problems


__all__ = ["BUILDERS", "FileOperator", "FileTensor", "TfliteModel", "example_of"]
