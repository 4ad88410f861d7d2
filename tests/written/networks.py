"""Networks that quantize by themselves, as people write them: what becomes of each, and which codes its layers have."""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import NnhwError
from nnhw.frontend.capture import capture
from nnhw.ir import Graph, IntType, run
from nnhw.passes import lower
from tests.written import binary, low_bit, spellings, torchs

KEPT, ADDED, REFUSED, WRONG = "kept as trained", "quantized in addition", "refused by name", "wrong"
KINDS = (KEPT, ADDED, REFUSED, WRONG)
LINEAR = ("linear", "conv2d", "matmul")
IMAGES = 24


@dataclass(frozen=True)
class Network:
    """A network, and what its author means.

    Parameters
    ----------
    make: returns it untrained, or trained if `is_trained`.
    manner: the paper, repository or habit in whose manner it is written.
    layers: of each layer in order, the codes of its weights and of the values that it reads: '-1..1 x 0..15'; weights
        need not use all of theirs.
    kind: what becomes of it; one of `KINDS`.
    shape: of an image.
    message: part of the refusal.
    fault: what is wrong with its outcome; empty if nothing is.
    """

    make: Callable[[], nn.Module]
    manner: str
    layers: tuple[str, ...]
    kind: str = KEPT
    shape: tuple[int, ...] = (1, 8, 8)
    message: str = ""
    fault: str = ""
    is_trained: bool = False


@dataclass(frozen=True)
class Outcome:
    """What becomes of a network.

    Parameters
    ----------
    kind: one of `KINDS`.
    message: of a refusal, or what is wrong.
    graph: captured from the model as it was trained, or quantized in addition; None: refused.
    integers: what `graph` is lowered to.
    """

    kind: str
    message: str = ""
    graph: Graph | None = None
    integers: Graph | None = None

    def layers(self) -> tuple[str, ...]:
        """Return the codes of weights and values of each layer in order; see `Network`."""
        read = _layers(self.graph) if self.graph else ()
        return tuple(f"{weights.min()}..{weights.max()} x {str(kind).removeprefix('int ')}" for weights, kind in read)

    def bits(self) -> str:
        """Return the bits of weights and activations of each layer in order, as the device has them: 'W8A8, W1A1'."""
        read = [f"W{_width(weights)}A{kind.bits}" for weights, kind in _layers(self.integers)] if self.integers else []
        groups = [(one, len(list(same))) for one, same in itertools.groupby(read)]
        return ", ".join(one if count == 1 else f"{count} x {one}" for one, count in groups)


def _layers(graph: Graph) -> Iterator[tuple[np.ndarray, IntType]]:
    """Yield the weights of each layer, and the type of what it reads."""
    for node in graph.nodes:
        weights = [graph.constants[name] for name in node.inputs if name in graph.constants]
        if weights and any(node.op.name.startswith(name) for name in LINEAR):
            value = next(name for name in node.inputs if name not in graph.constants)
            yield weights[0], graph.node(value).type.int_dtype


def _width(weights: np.ndarray) -> int:
    """Return the bits that tell as many levels as weights have from their least to their greatest."""
    step = int(np.gcd.reduce(weights.ravel().astype(np.int64) - int(weights.min())))
    return (int(weights.max() - weights.min()) // step).bit_length() if step else 1


def images(shape: tuple[int, ...], count: int = IMAGES, seed: int = 5) -> Tensor:
    """Return seeded images [count, *shape] of numbers from 0 to 1."""
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(seed))


def train(model: nn.Module, shape: tuple[int, ...], steps: int = 4) -> nn.Module:
    """Train a model for some steps on random images; return it in eval mode."""
    model.train()
    parameters = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    for step in range(steps):
        optimizer.zero_grad()
        result = model(images(shape, 32, seed=10 + step))
        if result.ndim == 2:
            loss = functional.cross_entropy(result, torch.arange(32) % result.shape[1])
        else:
            loss = result.square().mean()
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
    return model.eval()


def made(network: Network) -> nn.Module:
    """Return the trained network; its weights are binarized where its author does that from outside."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = network.make()
        model = model if network.is_trained else train(model, network.shape)
        model.apply(torchs.disable_observer)
        if callable(binarize := getattr(model, "binarize", None)):
            binarize()
    return model.eval()


@functools.cache
def outcome(name: str) -> Outcome:
    """Capture a network as it is, else quantize what it lacks; compare with its own forward and with the integers."""
    network = NETWORKS[name]
    model, x, kind = made(network), images(network.shape), KEPT
    try:
        try:
            graph = capture(model, x[:4])
        except NnhwError:
            kind = ADDED
            model = nnhw.quantize(model, images(network.shape, 64, seed=7))
            graph = capture(model, x[:4])
        integers = lower(graph)
    except NnhwError as error:
        return Outcome(REFUSED, str(error))
    except Exception as error:
        return Outcome(WRONG, f"ends with a {type(error).__name__}, which is no message")
    problem = _difference(model, graph, integers, x) or _other_codes(network, Outcome(kind, "", graph))
    return Outcome(WRONG if problem else kind, problem, graph, integers)


def _difference(model: nn.Module, graph: Graph, integers: Graph, x: Tensor) -> str:
    """Return how the reference differs from the model's own forward, or the integers from the reference; else nothing.

    The forward is in float64; of models that compute some of it in float32 by themselves, in float32.
    """
    ours = run(graph, x.numpy())[0]
    with torch.no_grad():
        try:
            if torchs.imitates(model):
                raise RuntimeError("torch's fake quantizers and int8 modules compute in float32")
            theirs, roundings = copy.deepcopy(model).double()(x.double()).numpy(), 2.0**-46
        except RuntimeError:
            theirs, roundings = copy.deepcopy(model)(x.clone()).double().numpy(), 2.0**-18
    apart = np.abs(theirs - ours).max()
    if not apart <= roundings * np.abs(theirs).max():
        return f"the reference differs from the model's own forward by {apart:.3g}"
    if (theirs.reshape(len(x), -1).argmax(1) != ours.reshape(len(x), -1).argmax(1)).any():
        return "the reference has another greatest result than the model's own forward"
    if not np.array_equal(run(integers, x.numpy())[0], ours):
        return "the integers differ from the reference"
    return ""


def _other_codes(network: Network, found: Outcome) -> str:
    """Return in words that layers have other codes than their author means, or nothing."""
    own, meant = found.layers(), network.layers
    return "" if len(own) == len(meant) and all(map(_fits, own, meant)) else f"codes {own}, meant {meant}"


def _fits(own: str, meant: str) -> bool:
    """Return whether the codes of a layer are those that are meant, of whose weights not all need occur."""
    (weights, values), (most, read) = own.split(" x "), meant.split(" x ")
    (low, high), (least, greatest) = (map(int, part.split("..")) for part in (weights, most))
    return least <= low and high <= greatest and values == read


_FLOAT = "-127..127 x 0..255"
"""A layer that its author left in float: nnhw gives it 8 bits."""
_SIGNED = "-127..127 x -128..127"
_BIT = "-1..1 x -1..1"
"""Weights of one bit or ternary ones; values are signs, of which torch.sign(0) = 0 is a third."""
_COLOR = (3, 8, 8)


def _lower(written: object) -> str:
    """Return what a docstring says, as it goes on behind a colon."""
    text = written.__doc__ or ""
    return text[:1].lower() + text[1:]


def _sign(name: str, kind: str = KEPT, values: str = "bipolar", message: str = "", fault: str = "") -> Network:
    layers = (f"-1..1 x {values}",) * 2
    function = spellings.SIGNS[name]
    return Network(
        partial(spellings.spelled_sign, name), f"sign: {_lower(function)}", layers, kind, message=message, fault=fault
    )


def _uniform(name: str, values: str, kind: str = KEPT, message: str = "", fault: str = "", second: str = "") -> Network:
    layers = (f"-7..7 x {values}", f"-7..7 x {second or values}")
    function = spellings.UNIFORM[name]
    return Network(
        partial(spellings.spelled_uniform, name),
        f"steps: {_lower(function)}",
        layers,
        kind,
        message=message,
        fault=fault,
    )


def _scaled(name: str) -> Network:
    second = {"number": "-5..5", "buffer": "-7..7"}.get(name, "-8..7")
    return Network(
        partial(spellings.ScaledNet, name),
        f"scale: {_lower(spellings.SCALES[name])}",
        ("-8..7 x -8..7", f"-8..7 x {second}"),
    )


def _dorefa(weights: int, values: int, pixels: int, *layers: str) -> Network:
    make = partial(low_bit.Dorefa, weights, values, input_bits=pixels)
    return Network(make, "DoReFa-Net", layers, KEPT if pixels < 32 else ADDED, (1, 14, 14))


NETWORKS: Mapping[str, Network] = {
    "BinaryConnect": Network(binary.BinaryConnect, "BinaryConnect", ("-1..1 x 0..255",) * 2, ADDED),
    "BinaryConnect, 4-bit values": Network(
        binary.BinaryConnectQuantizedInput, "BinaryConnect", ("-1..1 x 0..15",) * 2, ADDED
    ),
    "BinaryNet, perceptron": Network(
        binary.BinaryNetMLP, "BinaryNet.pytorch", ("-1..1 x 0..255", _BIT, _SIGNED), ADDED
    ),
    "BinaryNet, convolutions": Network(
        binary.BinaryNetConv, "BinaryNet.pytorch", ("-1..1 x 0..255", _BIT, _BIT), ADDED, _COLOR
    ),
    "XNOR-Net": Network(binary.XnorNet, "XNOR-Net-PyTorch", (_FLOAT, _BIT, _BIT, _FLOAT), ADDED, _COLOR),
    "XNOR-Net in forward": Network(binary.XnorInForward, "XNOR-Net", (_BIT,) * 3, KEPT, (2, 8, 8)),
    "XNOR-Net with K": Network(binary.XnorWithK, "XNOR-Net's paper", (_FLOAT, _BIT, _FLOAT), ADDED),
    "Bi-Real": Network(binary.BiReal, "Bi-Real-net", (_FLOAT, _BIT, _BIT, _SIGNED), ADDED, _COLOR),
    "Bi-Real, plain": Network(binary.BiRealWithoutShortcut, "Bi-Real-net", (_BIT,) * 3),
    "ReActNet": Network(binary.ReActNet, "ReActNet", (_FLOAT, _BIT, _BIT, _SIGNED), ADDED, _COLOR),
    "ReActNet, plain": Network(
        partial(binary.ReActNet, False), "ReActNet", (_FLOAT, _BIT, _BIT, _SIGNED), ADDED, _COLOR
    ),
    "IR-Net": Network(binary.IRNet, "IR-Net", (_FLOAT, _BIT, _BIT, _SIGNED), ADDED, _COLOR),
    "ABC-Net": Network(
        partial(binary.AbcNet, summed=False),
        "ABC-Net",
        (_FLOAT, *("-1..1 x -1..1",) * 6, _FLOAT),
        ADDED,
    ),
    "ABC-Net, summed": Network(
        partial(binary.AbcNet, summed=True),
        "ABC-Net",
        (),
        REFUSED,
        message="evenly",
    ),
    "BNN+": Network(binary.BnnPlus, "BNN+", (_BIT,) * 3, KEPT, (2, 8, 8)),
    "XNOR-Net++": Network(binary.XnorPlusPlus, "XNOR-Net++", (_BIT,) * 2),
    "BinaryDenseNet": Network(binary.BinaryDense, "BinaryDenseNet", (_FLOAT, _BIT, _BIT, _FLOAT), ADDED),
    "Real-to-binary": Network(
        binary.RealToBinary, "Real-to-binary networks", (_FLOAT, _SIGNED, _FLOAT, _BIT, _FLOAT), ADDED
    ),
    "binary keywords": Network(binary.BinaryKeywords, "courses", ("-1..1 x bipolar",) * 3, KEPT, (10, 16)),
    "stochastic binarization": Network(
        binary.StochasticBinarization, "BinaryConnect's paper", ("-1..1 x 0..1", "-1..1 x bipolar")
    ),
    "DoReFa, 1 and 1 bits": _dorefa(1, 1, 32, _FLOAT, "-1..1 x 0..1", "-127..127 x 0..1"),
    "DoReFa, 1 and 2 bits": _dorefa(1, 2, 32, _FLOAT, "-1..1 x 0..3", "-127..127 x 0..3"),
    "DoReFa, 2 and 2 bits": _dorefa(2, 2, 8, "-255..255 x 0..255", "-3..3 x 0..3", "-255..255 x 0..3"),
    "DoReFa, 4 and 4 bits": _dorefa(4, 4, 8, "-255..255 x 0..255", "-15..15 x 0..15", "-255..255 x 0..15"),
    "DoReFa, 8 and 8 bits": _dorefa(8, 8, 8, *("-255..255 x 0..255",) * 3),
    "DoReFa, 1 and 4 bits": _dorefa(1, 4, 8, "-255..255 x 0..255", "-1..1 x 0..15", "-255..255 x 0..15"),
    "PACT by magnitudes": Network(
        partial(low_bit.Pact, low_bit.PactAbs, 4),
        "PACT's paper",
        (_FLOAT, "-15..15 x 0..15", "-127..127 x 0..15"),
        ADDED,
    ),
    "PACT by .item()": Network(
        partial(low_bit.Pact, low_bit.PactItem, 2),
        "PACT's repositories",
        (_FLOAT, "-3..3 x 0..3", "-127..127 x 0..3"),
        ADDED,
    ),
    "PACT by choices": Network(
        partial(low_bit.Pact, low_bit.PactWhere, 3),
        "PACT",
        (_FLOAT, "-7..7 x 0..7", "-127..127 x 0..7"),
        ADDED,
        fault="bounds behind two choices are taken from the data",
    ),
    "LSQ, 2 bits": Network(
        partial(low_bit.Lsq, 2), "LSQ", ("-128..127 x 0..255", "-2..1 x 0..3", "-128..127 x 0..255")
    ),
    "LSQ, 4 bits": Network(
        partial(low_bit.Lsq, 4), "LSQ", ("-128..127 x 0..255", "-8..7 x 0..15", "-128..127 x 0..255")
    ),
    "LSQ, per channel": Network(
        partial(low_bit.Lsq, 3, per_channel=True), "LSQ", ("-128..127 x 0..255", "-4..3 x 0..7", "-128..127 x 0..255")
    ),
    "LSQ with states": Network(
        low_bit.LsqStateNet,
        "LSQ's repositories",
        (_FLOAT, "-4..3 x 0..3", _FLOAT),
        ADDED,
        fault="the number of elements fixes the size of the batch",
    ),
    "LSQ+": Network(
        low_bit.LsqPlus,
        "LSQ+",
        (_FLOAT, "-4..3 x 0..7", _SIGNED),
        ADDED,
        fault="an offset that is no whole number of steps is refused",
    ),
    "LSQ+, padded": Network(
        partial(low_bit.LsqPlus, 1),
        "LSQ+",
        (_FLOAT, "-4..3 x 0..7", _SIGNED),
        ADDED,
        fault="an offset that is no whole number of steps is refused",
    ),
    "TWN": Network(low_bit.Twn, "ternary weight networks", ("-1..1 x 0..255",) * 2 + (_FLOAT,), ADDED),
    "TWN by masks": Network(
        low_bit.TwnMasks,
        "ternary weight networks",
        ("-1..1 x -1..1",) * 2,
        ADDED,
    ),
    "TTQ": Network(
        low_bit.Ttq,
        "trained ternary quantization",
        (),
        REFUSED,
        message="evenly",
    ),
    "QIL": Network(
        low_bit.Qil,
        "QIL",
        (_FLOAT, "-3..3 x 0..7", _FLOAT),
        ADDED,
        fault="bounds behind two choices are taken from the data",
    ),
    "INQ": Network(low_bit.Inq, "INQ", ("-8..8 x 0..255",) * 3, ADDED),
    "APoT weights": Network(
        partial(low_bit.Apot, levels=False),
        "APoT",
        (_FLOAT, "-48..48 x 0..15", _FLOAT),
        ADDED,
        fault="levels that a float32 buffer has rounded are refused as uneven",
    ),
    "APoT weights and values": Network(partial(low_bit.Apot, levels=True), "APoT", (), REFUSED, message="multiples"),
    "WRPN": Network(low_bit.Wrpn, "WRPN", ("-1..1 x 0..15",) * 3),
    "HWGQ": Network(low_bit.Hwgq, "HWGQ", (_FLOAT, "-1..1 x 0..3", "-127..127 x 0..3"), ADDED),
    "HAWQ": Network(
        low_bit.Hawq,
        "HAWQ",
        ("-128..127 x -128..127", "-8..7 x 0..7", "-2..1 x 0..7", "-128..127 x 0..127"),
    ),
    "sign by where": _sign("where"),
    "sign by where of tensors": _sign("where_tensors"),
    "sign by ge": _sign("greater_or_equal"),
    "sign, 0.5 added": _sign("sign_add_sign"),
    "sign in place": _sign("sign_in_place"),
    "sign by sgn": _sign("sgn", values="-1..1"),
    "sign by heaviside": _sign("heaviside"),
    "sign by copysign": _sign("copysign", REFUSED, message="copysign"),
    "sign by masked_fill": _sign("masked_fill", fault="masked_fill of two masks gives no domain"),
    "sign by indices": _sign("indexed", fault="an assignment to indices gives no domain"),
    "sign by floor": _sign("floor_of_clamp"),
    "sign by its magnitude": _sign("quotient", ADDED, fault="a quotient by its own magnitude is not seen to be a sign"),
    "sign, detached": _sign("softsign_detached", values="-1..1"),
    "sign by two comparisons": _sign(
        "bool_times",
        values="-1..1",
    ),
    "floor of a half more": _uniform("floor_half", "0..15"),
    "int()": _uniform("int_cast", "0..15"),
    "to(torch.uint8)": _uniform("byte_cast", "0..15", fault="a cast to uint8 is refused"),
    "x + (q - x).detach()": _uniform("detach_minus", "0..15"),
    "q.detach() + x - x.detach()": _uniform("detach_plus", "0..15"),
    "q.data = round": _uniform("data_minus", "0..15"),
    "error without gradient": _uniform("no_grad_error", "0..15"),
    "division that rounds down": _uniform("floor_division", "0..15", REFUSED, message="aten.div.Tensor_mode"),
    "remainder": _uniform("remainder", "0..15", REFUSED, message="'%' of the model"),
    "round to a digit": _uniform("decimals", "0..10", fault="round.decimals is called without decimals"),
    "sum of comparisons": _uniform("thresholds", "0..3"),
    "bucketize": _uniform("bucketized", "0..4", REFUSED, message="bucketize of the model"),
    "quantize_per_tensor": _uniform("quantize_per_tensor", "0..255"),
    "fake_quantize_per_tensor_affine": _uniform("fake_quantize", "-3..12"),
    "steps of tanh": _uniform("tanh_steps", "-7..7", second="0..7"),
    "minimum and maximum": _uniform("min_max", "0..15"),
    "6 bits, then 3": _uniform("nested", "0..7"),
    "powers of two of values": _uniform(
        "log_steps", "0..8", fault="a choice between few numbers and a power has no domain"
    ),
    **{f"scale: {name}": _scaled(name) for name in spellings.SCALES},
    "running limits": Network(
        spellings.AffineNet, "tutorials on fake quantization", ("-7..7 x 0..15", "-7..7 x -2..13")
    ),
    "parametrize": Network(spellings.parametrized, "torch.nn.utils.parametrize", ("-1..1 x 0..15",) * 2),
    "pre-hooks": Network(spellings.hooked, "hooks in front of layers", ("-1..1 x 0..15",) * 2),
    "hooks behind ReLU": Network(spellings.hooked_outputs, "forward hooks", ("-127..127 x 0..15",) * 2, ADDED),
    "weight.data in forward": Network(
        spellings.WeightData, "weights written in forward", ("-1..1 x 0..15", "-7..7 x 0..15")
    ),
    "einsum and @": Network(spellings.MatmulNet, "functional layers", ("-3..3 x 0..15", "-3..3 x bipolar")),
    "residual, depthwise": Network(spellings.Residual, "mobile networks", ("-7..7 x 0..15",) * 4),
    "transposed convolution": Network(spellings.Upsampling, "autoencoders", ("-1..1 x 0..15", "-7..7 x 0..15")),
    "dynamic range": Network(spellings.Dynamic, "dynamic quantization", (), REFUSED, message="max of the model"),
    "BitNet b1.58": Network(spellings.Sequence, "BitNet b1.58", ("-1..1 x -7..7",) * 3),
    "recurrent cell": Network(
        spellings.QuantCell,
        "recurrent cells written out",
        ("-3..3 x 0..15", *("-3..3 x 0..15", "-3..3 x -7..7") * 3, "-7..7 x -7..7"),
        KEPT,
        (4, 8),
    ),
    "eager QAT": Network(
        partial(torchs.eager, "qnnpack"), "torch.ao, eager", ("-128..127 x 0..255",) * 2, is_trained=True
    ),
    "eager QAT for x86": Network(
        partial(torchs.eager, "x86"), "torch.ao, eager", ("-128..127 x 0..127",) * 2, is_trained=True
    ),
    "eager QAT, not fused": Network(
        partial(torchs.eager, "qnnpack", fused=False),
        "torch.ao, eager",
        ("-128..127 x 0..255", "-128..127 x 0..129"),
        is_trained=True,
    ),
    "eager QAT, converted": Network(
        partial(torchs.eager, "qnnpack", converted=True),
        "torch.ao, eager",
        ("-128..127 x 0..255",) * 2,
        is_trained=True,
    ),
    "FX QAT": Network(partial(torchs.by_fx, "qnnpack"), "torch.ao, FX", ("-128..127 x 0..255",) * 2, is_trained=True),
    "FX QAT, converted": Network(
        partial(torchs.by_fx, "qnnpack", converted=True),
        "torch.ao, FX",
        ("-128..127 x 0..255",) * 2,
        is_trained=True,
    ),
    "eager, after training, converted": Network(
        torchs.post_training, "torch.ao, eager", ("-128..127 x 0..255",) * 2, is_trained=True
    ),
    "FakeQuantize in forward": Network(partial(torchs.Modules, "plain"), "torch.ao", ("-7..7 x 0..15",) * 2),
    "FusedMovingAvgObsFakeQuantize in forward": Network(
        partial(torchs.Modules, "fused"), "torch.ao", ("-7..7 x 0..15",) * 2
    ),
    "learned scale of torch": Network(
        torchs.LearnableFake, "torch's operator", (), REFUSED, message="_fake_quantize_learnable_per_tensor_affine"
    ),
}
