"""Post-training quantization: a float model and data --> the same network with quantized layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, NnhwError, raise_all

from .attention import ShareSoftmax
from .bits import WIDTH_MAX, LayerBits, Widths
from .calibration import all_zero, batches_of
from .comparing import few_of
from .decomposing import written_out
from .frames import place_of
from .given import class_name, half_floats, unready
from .input_quantizers import (
    OfFile,
    described,
    float_inputs,
    in_front_of,
    input_quantizers,
    inserted,
    layer_of,
    own_quantizers,
    reads_input_of_brevitas,
)
from .kinds import KNOWN, RECURRENT, operation
from .quantized import Accuracy, QuantizedModel, Summary
from .quantizer_plan import QuantizerPlan
from .quantizers import Quantizer
from .recurrent_formats import LEAST_BITS
from .remedies import remedy_for
from .tracing import exported, traced
from .written.rewriting import Marked, mark, may_quantize

INPUT_BITS = 8
"""Bits of a model's input unless the user says otherwise, as pixels have."""
ALL_ZERO = "calibration data is 0 everywhere, which shows the range of no value; give images that the model will see"


def quantized(
    model: nn.Module | ExportedProgram,
    calibration_batches: Any,
    weight_bits: Widths,
    act_bits: Widths,
    *,
    input_bits: int = INPUT_BITS,
    evaluate: tuple[Any, Any] | None = None,
    example_input: Tensor | None = None,
) -> tuple[Any, Tensor]:
    """Return (a quantized copy of a model, a few of the images); see `nnhw.quantize`.

    Nothing here says whether the copy can be captured.
    """
    weights, acts = LayerBits(weight_bits, "weight_bits"), LayerBits(act_bits, "act_bits")
    problems: list[NnhwError] = [
        *weights.problems(),
        *acts.problems(),
        *LayerBits(input_bits, "input_bits").problems(),
    ]
    # Wrong widths are noted; planning goes on with others, to find all further problems at once.
    bits = (WIDTH_MAX, WIDTH_MAX) if problems else (weights.most, max(acts.most, input_bits))
    shape = _image_shape(model, example_input)
    # Where the labels of a loader's images are given, all of them are evaluated.
    is_labelled = isinstance(evaluate, tuple | list) and len(evaluate) == 2 and evaluate[0] is calibration_batches
    images = _images(calibration_batches, "calibration data", shape, problems, whole=is_labelled)
    if images.sound and all_zero(images.batches):
        problems.append(InputError(ALL_ZERO))
    if isinstance(model, nn.Module) and (layers_of_brevitas := _layers_of_brevitas(model)):
        labelled = _labelled(evaluate, images, shape, problems)
        raise_all(problems)
        made = _in_front_of_brevitas(
            model, layers_of_brevitas[0], images.batches, labelled, min(acts.least, input_bits)
        )
        return made, few_of(model, images.batches[0])
    graph_module = _traced(model, images.batches, problems)
    graph_module, marked = _marked(model, graph_module, images.batches)
    if not marked and (own := own_quantizers(graph_module)):
        labelled = _labelled(evaluate, images, shape, problems)
        raise_all(problems)
        made = _completed(model, graph_module, own, images.batches, labelled, min(acts.least, input_bits))
        return made, few_of(model, images.batches[0])
    modules = dict(graph_module.named_modules())
    problems += _unsupported(graph_module, modules)
    loops = [node for node in graph_module.graph.nodes if operation(node, modules) in RECURRENT]
    # Wrong widths have a problem of their own already.
    if loops and not problems and min(weights.least, acts.least) < LEAST_BITS:
        problems.append(
            InputError(
                f"layer '{loops[0].target}' ({type(modules[str(loops[0].target)]).__name__}) needs weights and "
                f"activations of {LEAST_BITS} bits or more, got {weights.least} and {acts.least}"
            )
        )
    labelled = _labelled(evaluate, images, shape, problems)
    dtype = next((value.dtype for value in graph_module.parameters()), torch.float32)
    batches = [batch.to(dtype) for batch in images.batches]
    plan = _plan(graph_module, modules, batches, bits, problems)
    raise_all(problems)
    assert plan is not None
    added = _added(marked, plan)
    # Both must be known before the graph is changed below.
    before = _accuracy(graph_module, labelled, dtype)
    layers = plan.layers
    plan.observe(batches)
    plan.insert(acts, input_bits)
    plan.replace_mixing()
    plan.replace_weights(weights)
    # Last: it runs the whole quantized model to observe what formats of loops need.
    plan.replace_loops(weights, acts, batches)
    raise_all([*weights.unused(plan.weighted), *acts.unused(plan.coded)])
    graph_module.graph.lint()
    graph_module.recompile()
    after = _accuracy(graph_module, labelled, dtype)
    accuracy = Accuracy(before, after, len(labelled[1])) if labelled else None
    name = class_name(model) if isinstance(model, nn.Module) else type(graph_module).__name__
    made = QuantizedModel.of(graph_module, Summary(name, layers, accuracy, added), batches)
    return made, few_of(model, batches[0])


def accuracy_of(model: object) -> Accuracy | None:
    """Return the accuracy that `quantize` measured; None for any other model."""
    accuracy = getattr(model, "accuracy", None)
    return accuracy if isinstance(accuracy, Accuracy) else None


def _traced(model: nn.Module | ExportedProgram, batches: list[Tensor], problems: list[NnhwError]) -> fx.GraphModule:
    """Return a copy of the model as a graph of modules and functions; an empty graph after a problem."""
    if not isinstance(model, nn.Module | ExportedProgram):
        given = type(model).__name__
        problems.append(InputError(f"a model is an nn.Module or an ExportedProgram, got {given}; give a float model"))
        return fx.GraphModule(nn.Module(), fx.Graph())
    if of_pt2e := _quantizers_of_pt2e(model):
        problems.append(_quantized_already(of_pt2e))
        return fx.GraphModule(nn.Module(), fx.Graph())
    if missing := list(unready(model)):
        problems += missing
        return fx.GraphModule(nn.Module(), fx.Graph())
    # Reported, but no reason to stop: the model can be traced, which may show further problems.
    problems += half_floats(model)
    try:
        return written_out(traced(model, batches))
    except InputError as error:
        modules = model.named_modules() if isinstance(model, nn.Module) else ()
        own = [name for name, module in modules if isinstance(module, Quantizer)]
        problems.append(_quantized_already(own) if own else error)
        return fx.GraphModule(nn.Module(), fx.Graph())


def _marked(
    model: nn.Module | ExportedProgram, graph_module: fx.GraphModule, batches: list[Tensor]
) -> tuple[fx.GraphModule, tuple[Marked, ...]]:
    """Return a trace of a model in which the quantizers that it computes by itself are marked, and these.

    Parameters
    ----------
    graph_module: the traced model, which is returned as it is if there are none.

    Raises
    ------
    InputError, or ProblemList: quantizers whose values are no codes, and would become others at more bits.
    """
    if not batches or not may_quantize(graph_module.graph):
        return graph_module, ()
    dtype = next((value.dtype for value in graph_module.parameters()), torch.float32)
    batches = [batch.to(dtype) for batch in batches]
    try:
        made = exported(model, batches)
    # Its graph of layers is right all the same, and shows what it cannot do.
    except InputError:
        return graph_module, ()
    if len(made.graph.find_nodes(op="placeholder")) != 1:
        return graph_module, ()
    few = batches[0][:2].repeat_interleave(3 - len(batches[0][:2]), dim=0)
    marks = mark(made, few, batches)
    raise_all([InputError(one.text(place_of(one.node))) for one in marks.uneven])
    return (made, marks.quantizers) if marks.quantizers else (graph_module, ())


def _added(marked: Sequence[Marked], plan: QuantizerPlan) -> str:
    """Return what is added to a model's own quantizers, in words. Raises: InputError if nothing is missing."""
    if not marked:
        return ""
    nodes = plan.added()
    named = ("the input" if node.op == "placeholder" else place_of(node) for node in nodes)
    places = list(dict.fromkeys(named))
    bounds = [f"bounds of '{one.name}'" for one in marked if not one.is_bounded]
    if not places and not bounds:
        raise _quantized_already([f"'{one.name}'" for one in marked])
    return f"the model's own quantizers stay as they are; added: {', '.join([*places, *bounds])}"


def _completed(
    model: nn.Module | ExportedProgram,
    graph_module: fx.GraphModule,
    own: list[str],
    batches: list[Tensor],
    labelled: tuple[list[Tensor], Tensor] | None,
    bits: int,
) -> Any:
    """Return a model that has quantizers everywhere but at its input with one there.

    Parameters
    ----------
    graph_module: the traced model.
    own: names of its quantizers.

    Raises
    ------
    InputError: nothing reads the input as floats, so that no quantizer is missing there; what `input_quantizers` does.
    """
    nodes = float_inputs(graph_module)
    if not nodes:
        raise _quantized_already(own)
    dtype = next((value.dtype for value in graph_module.parameters()), torch.float32)
    quantizers = input_quantizers(graph_module, nodes, [batch.to(dtype) for batch in batches], bits)
    before = _accuracy(graph_module, labelled, dtype)
    named = {layer_of(node): quantizer for node, quantizer in quantizers.items()}
    added = described(named)
    # A file's own framework evaluates its quantizers, and is to evaluate the new one with them.
    own_form: Any = model if isinstance(model, OfFile) else None
    made: Any = inserted(graph_module, quantizers) if own_form is None else own_form.with_quantizers(named)
    accuracy = Accuracy(before, _accuracy(made, labelled, dtype), len(labelled[1])) if labelled else None
    if own_form is None:
        return QuantizedModel.of(made, Summary(type(made).__name__, 0, accuracy, added), batches)
    made.accuracy, made.added = accuracy, added
    return made


def _quantized_already(names: list[str]) -> InputError:
    return InputError(
        f"the model is quantized already: it has quantizers at {', '.join(names[:3])}; give a float model, or build "
        f"this one as it is"
    )


def _quantizers_of_pt2e(model: nn.Module | ExportedProgram) -> list[str]:
    """Return the names of the quantizers that PT2E has put into a model."""
    graph = getattr(model, "graph", None)
    nodes = graph.nodes if isinstance(graph, fx.Graph) else ()
    return [node.name for node in nodes if str(node.target).startswith("quantized_decomposed.")]


def _layers_of_brevitas(model: nn.Module) -> list[str]:
    """Return the names of a model's layers that are Brevitas's, which is not imported."""
    return [name for name, module in model.named_modules() if type(module).__module__.startswith("brevitas.")]


def _in_front_of_brevitas(
    model: nn.Module, layer: str, batches: list[Tensor], labelled: tuple[list[Tensor], Tensor] | None, bits: int
) -> Any:
    """Return a model of Brevitas layers behind a quantizer of its input.

    Raises
    ------
    InputError: none of its layers reads the input as floats. `layer`: the name of one of them, for the message.
    """
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    batches = [batch.to(dtype) for batch in batches]
    if not reads_input_of_brevitas(model, batches[0]):
        raise InputError(
            f"layer '{layer}' is a Brevitas layer, and no Brevitas layer of the model reads the input as floats; the "
            f"model's own quantizers stay as they are: build it as it is, or give a float model"
        )
    before = _accuracy(model, labelled, dtype)
    made: Any
    made, quantizer = in_front_of(model, batches, bits)
    made.accuracy = Accuracy(before, _accuracy(made, labelled, dtype), len(labelled[1])) if labelled else None
    made.added = described({"": quantizer})
    return made


def _unsupported(graph_module: fx.GraphModule, modules: Mapping[str, nn.Module]) -> Iterator[InputError]:
    """Yield a problem for each layer that has no quantized form."""
    for node in graph_module.graph.nodes:
        if node.op == "call_module":
            module = modules[str(node.target)]
            name = operation(node, modules)
            place = f"layer '{node.target}' ({type(module).__name__})"
            if name not in KNOWN:
                remedy = remedy_for(type(module).__name__, quantized=False)
                yield InputError(f"{place} has no quantized form; {remedy}")
            elif getattr(module, "padding_mode", "zeros") != "zeros":
                yield InputError(f"{place} has padding_mode='{module.padding_mode}'; use padding_mode='zeros'")
            elif name == "batch_norm" and module.running_mean is None:
                yield InputError(f"{place} has no statistics of training; use track_running_stats=True")
    masks = _masks(graph_module, modules)
    for key, value in graph_module.state_dict().items():
        if key not in masks and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            yield InputError(f"the model holds NaN or infinity in '{key}'; train again, or load another file")


def _masks(graph_module: fx.GraphModule, modules: Mapping[str, nn.Module]) -> set[str]:
    """Return the names of constants that are only read as masks of attention, and may hold minus infinity."""

    def reads_mask(node: fx.Node) -> bool:
        return node.op == "call_module" and isinstance(modules[str(node.target)], ShareSoftmax)

    constants = [node for node in graph_module.graph.nodes if node.op == "get_attr"]
    return {str(node.target) for node in constants if all(map(reads_mask, node.users))}


def _plan(
    graph_module: fx.GraphModule,
    modules: Mapping[str, nn.Module],
    batches: list[Tensor],
    bits: tuple[int, int],
    problems: list[NnhwError],
) -> QuantizerPlan | None:
    """Return the plan of quantizers; None without a model, or without data with which it runs."""
    if not batches or not graph_module.graph.nodes:
        return None
    try:
        plan = QuantizerPlan(graph_module, modules, batches[0], *bits)
    except InputError as error:
        problems.append(error)
        return None
    problems += plan.problems
    return plan


def _image_shape(model: nn.Module | ExportedProgram, example_input: Tensor | None) -> list[int] | None:
    """Return the shape of an image, from the example or from an exported program; None if it is not known."""
    if example_input is None and isinstance(model, ExportedProgram):
        names = model.graph_signature.user_inputs
        example_input = next((node.meta["val"] for node in model.graph.nodes if node.name in names), None)
    shape = None if example_input is None else list(example_input.shape[1:])
    return shape if shape and all(isinstance(size, int) for size in shape) else None


@dataclass(frozen=True)
class _Images:
    """Data as the user gave it, and those batches of it that have no problem.

    Parameters
    ----------
    sound: no batch has a problem.
    count: number of all images; None if it is not known.
    """

    data: Any
    batches: list[Tensor]
    sound: bool
    count: int | None


def _images(
    data: Any, what: str, shape: list[int] | None, problems: list[NnhwError], *like: str, whole: bool = True
) -> _Images:
    """Return data in batches, and append its problems to `problems`; see `batches_of`."""
    known = len(problems)
    batches = batches_of(data, what, problems, shape, *like, whole=whole)
    sound = len(problems) == known
    count = sum(len(batch) for batch in batches) if sound else None
    # Images with NaN are not sound, but can be counted, so that wrong labels are reported at the same time.
    if isinstance(data, Tensor | np.ndarray) and shape is not None and data.ndim == len(shape) + 1:
        count = len(data) or None
    return _Images(data, batches, sound, count)


def _labelled(
    evaluate: tuple[Any, Any] | None, calibration: _Images, shape: list[int] | None, problems: list[NnhwError]
) -> tuple[list[Tensor], Tensor] | None:
    """Return (batches, labels), and append their problems, but not again those of the calibration data."""
    if evaluate is None:
        return None
    if not isinstance(evaluate, tuple | list) or len(evaluate) != 2:
        problems.append(InputError("evaluate needs a pair: images [N, ..] and labels [N]"))
        return None
    what, data = "evaluation data", evaluate[0]
    if data is calibration.data:
        images = calibration
    elif shape is None and calibration.sound:
        like = calibration.batches[0]
        images = _images(data, what, list(like.shape[1:]), problems, "the calibration data")
    else:
        images = _images(data, what, shape, problems)
    try:
        labels = torch.as_tensor(evaluate[1])
    except (TypeError, ValueError, RuntimeError):
        labels = torch.empty(0)
    count = "N" if images.count is None else images.count
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if not whole or labels.ndim != 1 or count not in ("N", len(labels)):
        given = f"{str(labels.dtype).removeprefix('torch.')} {list(labels.shape)}"
        problems.append(InputError(f"labels need the shape [{count}], whole numbers, one per image, got {given}"))
    return images.batches, labels


def _accuracy(model: nn.Module, labelled: tuple[list[Tensor], Tensor] | None, dtype: torch.dtype) -> float:
    """Return the share of images, 0 to 1, whose greatest output is at their label; 0 without labels.

    Raises
    ------
    InputError: the model's outputs are not [N, classes], or a label is no class.
    """
    if labelled is None:
        return 0.0
    with torch.no_grad():
        results = [model(batch.to(dtype)) for batch in labelled[0]]
    if not all(isinstance(result, Tensor) for result in results):
        raise InputError(f"accuracy needs one tensor of outputs, got {type(results[0]).__name__}; leave evaluate out")
    outputs = torch.cat(results)
    if outputs.is_floating_point():
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise InputError(f"accuracy needs outputs [N, classes], got {list(outputs.shape)}; leave evaluate out")
        _check_labels(labelled[1], outputs.shape[1])
        outputs = outputs.argmax(dim=1)
    if outputs.numel() != len(labelled[1]):
        raise InputError(
            f"accuracy needs one class for each image, got outputs {list(outputs.shape)} for {len(labelled[1])} "
            f"images; leave evaluate out"
        )
    return float((outputs.reshape(-1) == labelled[1].reshape(-1)).double().mean())


def _check_labels(labels: Tensor, classes: int) -> None:
    """Check that each label is the number of an output. Raises: InputError."""
    astray = ((labels < 0) | (labels >= classes)).nonzero().flatten().tolist()
    if astray:
        raise InputError(
            f"labels need numbers from 0 to {classes - 1}, for the model has {classes} outputs, got others in "
            f"{len(astray)} of {len(labels)} places, first {int(labels[astray[0]])} at [{astray[0]}]; number the "
            f"classes as the outputs, from 0"
        )
