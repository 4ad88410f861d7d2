"""Random small PyTorch networks of everything that nnhw documents as supported: layers, activations, formats, joins.

Whoever makes the choices (`Draws`) decides the structure: layers, widths, strides, scales, branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.draws import Draws, Seeded
from nnhw.nn import Bipolar, Int, QuantConv1d, QuantConv2d, Quantizer, QuantLinear, Scale, Sign, Ternary, UInt

OBSERVED = 6
"""Images that scales and statistics are taken from."""
MOST_ELEMENTS = 600
"""Elements of a feature map beyond which nothing is made larger: networks stay small."""
TRIES = 8
"""Formats and functions that are tried until one keeps what the images differ in."""
Spread = Literal["power", "short", "any"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "clamp": lambda x: torch.clamp(x, -0.75, 1.25),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "falling_leaky_relu": lambda x: functional.leaky_relu(x, -0.5),
    "elu": functional.elu,
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 0.5),
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "mish": functional.mish,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "softplus": lambda x: functional.softplus(x, 2.0, 5.0),
    "log_sigmoid": functional.logsigmoid,
    "abs": torch.abs,
    "square": torch.square,
    "sqrt": lambda x: torch.sqrt(torch.relu(x)),
    "exp": lambda x: torch.exp(torch.clamp(x, max=3.0)),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "neg": torch.neg,
    "affine": lambda x: 0.75 - x * 1.5,
    "divide": lambda x: (x + 0.125) / 3.0,
    "reciprocal": lambda x: 1 / (1 + torch.square(x)),
    "gate": lambda x: x * torch.sigmoid(1.5 * x),
    "residue": lambda x: x - torch.round(x),
    "minimum": lambda x: torch.minimum(x, torch.tanh(x) + 0.25),
    "maximum": lambda x: torch.maximum(0.5 * x, 0.25 - x),
}
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(tuple(range(2, x.dim()))),
    "mean_kept": lambda x: x.mean(2, keepdim=True),
    "sum": lambda x: x.sum(tuple(range(2, x.dim()))),
    "amax": lambda x: x.amax(tuple(range(2, x.dim()))),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels_last": lambda x: x.movedim(1, -1),
    "swapped": lambda x: x.transpose(-2, -1),
}
TAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "argmax": lambda x: torch.argmax(x, 1),
    "tanh": torch.tanh,
    "half": lambda x: x * 0.5,
}


class Pointwise(nn.Module):
    """A function of one tensor, by its name in a table."""

    def __init__(self, table: dict[str, Callable[[Tensor], Tensor]], name: str) -> None:
        super().__init__()
        self.function, self.name = table[name], name

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.function(x)

    def extra_repr(self) -> str:
        return self.name


class Part(nn.Module):
    """A slice along one axis."""

    def __init__(self, axis: int, start: int, stop: int, step: int) -> None:
        super().__init__()
        self.axis, self.start, self.stop, self.step = axis, start, stop, step

    def forward(self, x: Tensor) -> Tensor:
        """Take it."""
        return x[(slice(None),) * self.axis + (slice(self.start, self.stop, self.step),)]

    def extra_repr(self) -> str:
        return f"axis={self.axis}, {self.start}:{self.stop}:{self.step}"


class Channelwise(nn.Module):
    """x * factor + addend, with one factor and one addend for each channel."""

    factor: Tensor
    addend: Tensor

    def __init__(self, factor: Tensor, addend: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)
        self.register_buffer("addend", addend)

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, ..]; the shape stays."""
        return x * self.factor + self.addend


PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


class Join(nn.Module):
    """Branches of one value, joined by one of `PAIRS`, or one behind the other along an axis."""

    def __init__(self, kind: str, branches: Sequence[nn.Module], axis: int = 1) -> None:
        super().__init__()
        self.kind, self.axis = kind, axis
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Join what the branches make of x."""
        values = [branch(x) for branch in self.branches]
        if self.kind == "concat":
            return torch.cat(values, self.axis)
        total = values[0]
        for value in values[1:]:
            total = PAIRS[self.kind](total, value)
        return total

    def extra_repr(self) -> str:
        return self.kind


class Path:
    """Modules in a row, and the values that some images have behind them; scales and statistics follow from these.

    Parameters
    ----------
    x: float [N, ..], codes times scale if quantized.
    reorders: elements may change places, and maps may be joined along any axis.
    """

    def __init__(self, draws: Draws, x: Tensor, reorders: bool = False) -> None:
        self.draws, self.x, self.reorders = draws, x, reorders
        self.modules: list[nn.Module] = []

    def put(self, module: nn.Module) -> None:
        """Append a module and send the images through it."""
        with torch.no_grad():
            self.x = module.eval()(self.x)
        self.modules.append(module)

    def branch(self) -> Path:
        """Return an empty path that begins where this one ends."""
        return Path(self.draws, self.x, self.reorders)

    def sequence(self) -> nn.Sequential:
        """Return the modules as one."""
        return nn.Sequential(*self.modules)

    @property
    def rank(self) -> int:
        """Axes of an image: 1 for a vector, 2 for a series, 3 for an image."""
        return self.x.dim() - 1

    @property
    def channels(self) -> int:
        """Channels of an image, or numbers of a vector."""
        return self.x.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Height and width, or length."""
        return tuple(self.x.shape[2:])

    @property
    def is_far_off(self) -> bool:
        """Whether the values lie so far from 0 that few codes tell them apart."""
        return float(self.x.mean().abs()) > 3 * float(self.x.std())

    # Formats

    def scale(self, near: float, spread: Spread) -> float:
        """Return a scale near a number: a power of two, one of 12 significant bits, or any of float32."""
        near = float(np.float32(near * self.draws.factor(0.4, 1.4))) or 1.0
        mantissa, exponent = math.frexp(near)
        if spread == "power":
            return math.ldexp(1.0, exponent - 1)
        return math.ldexp(round(mantissa * 2**12), exponent - 12) if spread == "short" else near

    def try_some(self, make: Callable[[], nn.Module]) -> None:
        """Append a module behind which most values differ from image to image, if one is soon found."""
        for _ in range(TRIES):
            module = make().eval()
            with torch.no_grad():
                values = module(self.x)
            if float((values != values[:1]).any(0).float().mean()) > 0.5:
                break
        self.put(module)

    def quantizer(self, spread: Spread | None = None) -> None:
        """Append a quantizer of any format."""
        self.try_some(lambda: self._quantizer(spread or self.draws.pick("power", "power", "short", "any")))

    def activation(self) -> None:
        """Append a function of each element."""
        if self.draws.flip(0.1):
            self.put(self._prelu())
        else:
            self.try_some(lambda: Pointwise(ACTIVATIONS, self.draws.pick(*ACTIVATIONS)))

    def _quantizer(self, spread: Spread) -> Quantizer:
        peak = float(torch.quantile(self.x.abs().flatten()[:4000], 0.98)) or 1.0
        bits = self.draws.pick(2, 2, 3, 3, 4, 4, 5, 6, 8)
        kind = self.draws.pick("sign", "bipolar", "bit", "ternary", "int", "int", "narrow", "uint", "uint", "offset")
        if kind == "sign":
            return Sign()
        if kind == "bipolar":
            return Bipolar(self.scale(peak, spread))
        if kind == "bit":
            return Quantizer(0, 1, self.scale(peak, spread))
        if kind == "ternary":
            return Ternary(self.scale(peak, spread))
        if kind == "uint":
            return UInt(bits, self.scale(peak / 2**bits, spread))
        if kind == "offset":
            return UInt(bits, self.scale(2 * peak / 2**bits, spread), zero_point=self.draws.between(1, 2**bits - 1))
        return Int(bits, self.scale(2 * peak / 2**bits, spread), narrow_range=kind == "narrow")

    def weights(self, outputs: int, spread: Spread | None = None) -> Quantizer:
        """Return a number format of weights with one scale, or one for each output."""
        spread = spread or self.draws.pick("power", "short", "any")
        kind = self.draws.pick("bipolar", "bipolar", "ternary", "int", "int", "narrow", "uint")
        bits = self.draws.pick(2, 3, 4, 5, 6, 8)
        axis = self.draws.pick(-1, 0)
        unit = 0.3 if kind in ("bipolar", "ternary") else 0.6 / 2 ** (bits - 1)
        scale: Any = [self.scale(unit, spread) for _ in range(outputs if axis == 0 else 1)]
        if kind == "bipolar":
            return Bipolar(scale, axis)
        scale = "max_abs" if spread == "power" and self.draws.flip(0.5) else scale
        if kind == "ternary":
            return Ternary(scale, axis)
        return UInt(bits, scale, axis) if kind == "uint" else Int(bits, scale, axis, narrow_range=kind == "narrow")

    # Layers

    def linear(self, outputs: int) -> None:
        """Append a linear layer; a series or an image is flattened before."""
        if self.rank > 1:
            self.put(nn.Flatten())
        self.put(QuantLinear(self.channels, outputs, weight_quant=self.weights(outputs), bias=self.draws.flip(0.4)))

    def convolution(self, outputs: int, spread: Spread | None = None, keep: bool = False, stride: int = 0) -> None:
        """Append a convolution over whatever fits.

        Parameters
        ----------
        keep: the size of the image.
        stride: in all directions; 0 for any.
        """
        groups = self._groups(outputs)
        outputs = self.channels if groups == self.channels and keep is False and self.draws.flip(0.6) else outputs
        kernel: list[int] = []
        padding: list[int] = []
        dilation: list[int] = []
        strides: list[int] = []
        for size in self.sizes:
            taps = self.draws.pick(1, 3) if keep else self.draws.between(1, 3)
            step = self.draws.pick(1, 1, 2)
            border = step * (taps - 1) // 2 if keep else self.draws.between(0, min(taps - 1, 2))
            if size + 2 * border < step * (taps - 1) + 1:
                taps, step, border = 1, 1, 0
            for numbers, number in ((kernel, taps), (dilation, step), (padding, border)):
                numbers.append(number)
            strides.append(stride or (1 if keep else self.draws.pick(1, 1, 2)))
        same = not keep and set(strides) == {1} and self.draws.flip(0.3)
        make = QuantConv2d if self.rank == 3 else QuantConv1d
        self.put(
            make(
                self.channels,
                outputs,
                tuple(kernel),  # type: ignore[arg-type]
                weight_quant=self.weights(outputs, spread),
                stride=tuple(strides),
                padding="same" if same else tuple(padding),
                dilation=tuple(dilation),
                groups=groups,
                bias=self.draws.flip(0.4),
            )
        )

    def _groups(self, outputs: int) -> int:
        shared = [count for count in range(1, self.channels + 1) if self.channels % count == 0 == outputs % count]
        if self.draws.flip(0.25) and outputs % self.channels == 0:
            return self.channels
        return int(self.draws.pick(*shared)) if self.draws.flip(0.2) else 1

    def chain(self) -> None:
        """Append what stands between sums and codes: batch normalization, activations, a quantizer; and pooling."""
        if self.draws.flip(0.6) or self.is_far_off:
            self.put(self._batch_norm())
        elif self.draws.flip(0.3):
            shape = (1, self.channels) + (1,) * (self.rank - 1)
            factor = self.draws.numbers.choice([-2.0, -0.75, 0.5, 1.0, 1.25], shape)
            addend = self.draws.numbers.normal(0, 0.2, shape)
            self.put(Channelwise(torch.tensor(factor).float(), torch.tensor(addend).float()))
        for _ in range(self.draws.pick(0, 1, 1, 1, 2)):
            self.activation()
        if self.rank > 1 and self.draws.flip(0.2):
            self.max_pool()
        self.quantizer()

    def _prelu(self) -> nn.Module:
        prelu = nn.PReLU(self.draws.pick(1, self.channels))
        prelu.weight.data = torch.tensor(self.draws.numbers.normal(0.2, 0.3, prelu.weight.shape)).float()
        return prelu

    def _batch_norm(self) -> nn.Module:
        make = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[self.rank - 1]
        norm = make(self.channels)
        axes = [axis for axis in range(self.x.dim()) if axis != 1]

        def spread(values: np.ndarray) -> Tensor:
            return torch.tensor(values).float()

        norm.running_mean = self.x.mean(axes) + spread(self.draws.numbers.normal(0, 0.1, self.channels))
        norm.running_var = self.x.var(axes) * spread(self.draws.numbers.uniform(0.5, 1.5, self.channels)) + 1e-3
        # Falling channels, and constant ones.
        signs = self.draws.numbers.choice([1.0, 1.0, 1.0, -1.0, 0.0], self.channels, p=[0.3, 0.3, 0.2, 0.18, 0.02])
        norm.weight.data = spread(signs * self.draws.numbers.uniform(0.5, 1.5, self.channels))
        norm.bias.data = spread(self.draws.numbers.normal(0, 0.3, self.channels))
        return norm

    def max_pool(self) -> None:
        """Append max pooling, if anything is left to be pooled."""
        if max(self.sizes) < 2:
            return
        if self.draws.flip(0.1):
            self.put((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)[self.rank - 2](1))
            return
        make = (nn.MaxPool1d, nn.MaxPool2d)[self.rank - 2]
        self.put(make(*self._pooling(), ceil_mode=self.draws.flip(0.2)))

    def average_pool(self) -> None:
        """Append average pooling with the chain that has to follow it."""
        if max(self.sizes) < 2 or self.draws.flip(0.3):
            self.put((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)[self.rank - 2](1))
        elif self.draws.flip(0.3):
            self.put(Pointwise(REDUCTIONS, self.draws.pick(*REDUCTIONS)))
        else:
            self.put((nn.AvgPool1d, nn.AvgPool2d)[self.rank - 2](*self._pooling()))
        self.chain_without_pool()

    def _pooling(self) -> tuple[Any, Any, Any]:
        """Return kernel, stride and padding."""
        kernel = [self.draws.between(1, min(3, size)) for size in self.sizes]
        stride = [self.draws.pick(size, size, self.draws.between(1, 2)) for size in kernel]
        padding = [self.draws.between(0, size // 2) if self.draws.flip(0.3) else 0 for size in kernel]
        return tuple(kernel), tuple(stride), tuple(padding)

    # Blocks

    def layer(self) -> None:
        """Append a layer with all that follows it."""
        if self.rank == 1:
            self.linear(self.draws.between(2, 12))
        else:
            self.convolution(self.draws.between(1, 8))
        self.chain()
        if self.rank > 1 and self.draws.flip(0.3):
            self.draws.pick(self.max_pool, self.average_pool)()

    def joined(self, keep: bool = False) -> None:
        """Append branches whose sum is quantized again; with `keep`, of the same size."""
        outputs = self.channels if self.draws.flip(0.6) else self.draws.between(2, 8)
        parts: list[Path] = []
        stride = self.draws.pick(1, 1, 1, 2) if outputs != self.channels and not keep else 1
        count = self.draws.pick(2, 2, 2, 2, 3)
        sums = count == 2 and self.draws.late_flip(0.15)
        paired = count == 2 and not sums and self.draws.gate_flip(0.25)
        kinds = ("multiply", "multiply", "maximum", "minimum") if paired else ("add", "add", "subtract")
        for number in range(count):
            part = self.branch()
            if number == 1 and sums:
                part.plain_sums(outputs, stride)
            elif number == 0 and outputs == self.channels:
                part.quantizer(self.draws.pick("power", "short")) if self.draws.flip(0.8) else part.put(nn.Identity())
            else:
                self._branch(part, outputs, stride)
            parts.append(part)
        self.put(Join(self.draws.pick(*kinds), [part.sequence() for part in parts]))
        if self.draws.flip(0.4):
            self.put(Pointwise(ACTIVATIONS, "relu")) if sums or paired else self.activation()
        self.quantizer(self.draws.pick("power", "short"))

    def gated(self) -> None:
        """Append a product with codes of a sigmoid for each channel, computed from all of the map, or of the vector."""
        gate = self.branch()
        if self.rank > 1:
            gate.put((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)[self.rank - 2](1))
            gate.chain_without_pool()
            gate.convolution(self.channels, keep=True, stride=1)
        else:
            gate.linear(self.channels)
        gate.put(Pointwise(ACTIVATIONS, self.draws.pick("sigmoid", "hardsigmoid")))
        bits = self.draws.pick(2, 4, 6, 8)
        gate.put(UInt(bits, 2.0**-bits))
        self.put(Join("multiply", [nn.Identity(), gate.sequence()]))
        bits = self.draws.pick(4, 6, 8)  # signed, for a gate leaves the sign of what it multiplies
        peak = float(self.x.abs().max()) or 1.0
        self.put(Int(bits, self.scale(2 * peak / 2**bits, "short")))

    def plain_sums(self, outputs: int, stride: int) -> None:
        """Append a layer with one scale that no quantizer follows."""
        weight, bias = Int(4, self.scale(0.1, "short")), self.draws.flip(0.4)
        if self.rank == 1:
            self.put(QuantLinear(self.channels, outputs, weight_quant=weight, bias=bias))
            return
        make: Any = QuantConv2d if self.rank == 3 else QuantConv1d
        self.put(make(self.channels, outputs, 3, weight_quant=weight, stride=stride, padding=1, bias=bias))

    def _branch(self, part: Path, outputs: int, stride: int) -> None:
        """Append layers that keep the size, or divide it by the stride, up to a quantizer."""
        if part.rank == 1:
            part.linear(outputs)
        else:
            if self.draws.flip(0.1):
                part.joined(keep=True)
            elif self.draws.flip(0.3):
                part.convolution(self.draws.between(1, 6), keep=True, stride=1)
                part.chain_without_pool()
            part.convolution(outputs, keep=True, stride=stride)
        part.chain_without_pool(self.draws.pick("power", "short"))

    def chain_without_pool(self, spread: Spread | None = None) -> None:
        """Append batch normalization, an activation and a quantizer."""
        if self.draws.flip(0.6) or self.is_far_off:
            self.put(self._batch_norm())
        if self.draws.flip(0.7):
            self.activation()
        self.quantizer(spread)

    def concatenated(self) -> None:
        """Append branches one behind the other, with one quantizer behind or one in each."""
        parts = [self.branch() for _ in range(self.draws.pick(2, 2, 3))]
        axis = self.draws.between(1, self.rank) if self.reorders else 1
        if self.draws.flip(0.3):
            parts[0].put(nn.Identity())
        same = self.channels if parts[0].modules or axis == 1 else self.draws.between(1, 4)
        for part in parts[1:] if parts[0].modules else parts:
            self._branch(part, same if axis > 1 else self.draws.between(1, 4), 1)
        self.put(Join("concat", [part.sequence() for part in parts], axis))
        if self.draws.flip(0.3):
            self.activation()
        self.quantizer()

    def reordered(self) -> None:
        """Append what lets elements change places, as far as the shape allows, or a part of them."""
        channels, *sizes = self.x.shape[1:]
        found: list[nn.Module] = [nn.ChannelShuffle(count) for count in range(2, channels) if channels % count == 0]
        found += [Pointwise(LAYOUTS, name) for name in LAYOUTS]
        found += [self._part(axis, size) for axis, size in enumerate(self.x.shape) if axis and size > 2]
        if self.rank == 3:
            found += [nn.PixelUnshuffle(2)] if all(size % 2 == 0 for size in sizes) else []
            found += [nn.PixelShuffle(2)] if channels % 4 == 0 else []
        self.put(self.draws.pick(*found))

    def _part(self, axis: int, size: int) -> nn.Module:
        """Return a slice along an axis that keeps two elements or more."""
        start = self.draws.between(0, size - 2)
        stop = self.draws.between(start + 2, size)
        return Part(axis, start, stop, self.draws.between(1, stop - start - 1))

    def upsampled(self) -> None:
        """Append nearest-neighbour upsampling, unless the image is large."""
        if self.x[0].numel() * 4 <= MOST_ELEMENTS:
            factor: Any = self.draws.pick(2, 3, (1, 2), (2, 1)) if self.rank == 3 else self.draws.pick(2, 3)
            self.put(nn.Upsample(scale_factor=factor))

    def bordered(self) -> None:
        """Append a border of zeros or of another code, with different widths."""
        widths = [self.draws.between(0, 2) for _ in range(2 * len(self.sizes))]
        if self.x[0].numel() * 4 <= MOST_ELEMENTS and any(widths):
            last, value = self.modules[-1], 0.0
            if isinstance(last, Quantizer) and last.scale is not None and self.draws.flip(0.3):
                value = float(last.scale[0]) if last.zero_point < last.qmax else 0.0
            self.put((nn.ConstantPad1d, nn.ConstantPad2d)[self.rank - 2](tuple(widths), value))  # type: ignore[arg-type]

    def block(self) -> None:
        """Append one block of any kind."""
        joins = [self.joined, self.concatenated]
        self.draws.pick(
            *[self.layer] * 6,
            *joins,
            *joins,
            self.chain_without_pool,
            *([self.upsampled, self.bordered] if self.rank > 1 else []),
            *([self.reordered] * 4 if self.rank > 1 and self.reorders else []),
        )()


def random_model(seed: int) -> tuple[nn.Sequential, Tensor]:
    """Return a random network in eval mode, and images that its scales were taken from, the same for each seed.

    Returns
    -------
    The network; float32 [6, *shape].
    """
    return drawn_model(Seeded(seed))


def drawn_model(draws: Draws, reorders: bool = False) -> tuple[nn.Sequential, Tensor]:
    """Return a network of someone's choices in eval mode, and images that its scales were taken from.

    Parameters
    ----------
    reorders: elements may change places, and maps may be joined along any axis.

    Returns
    -------
    The network; float32 [6, *shape].
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.seed)
        for _ in range(TRIES):
            shape = _shape(draws)
            images = torch.tensor(draws.numbers.uniform(-1, 1, (OBSERVED, *shape))).float()
            path = _random_path(Path(draws, images, reorders))
            if bool((path.x != path.x[:1]).any()):  # no network whose answer is always the same
                break
    return path.sequence().eval(), images


def _random_path(path: Path) -> Path:
    if path.draws.flip(0.3):
        path.put(Pointwise(ACTIVATIONS, path.draws.pick("affine", "divide", "tanh", "neg")))
    path.quantizer()
    for _ in range(path.draws.between(1, 3)):
        path.block()
        if path.draws.gate_flip(0.15):
            path.gated()
    _finish(path)
    return path


def _shape(draws: Draws) -> tuple[int, ...]:
    """Return the shape of an image, a series or a vector."""
    kind = draws.between(0, 9)
    if kind < 6:
        return draws.between(1, 4), draws.between(3, 8), draws.between(3, 8)
    if kind < 8:
        return draws.between(1, 4), draws.between(4, 19)
    return (draws.between(2, 23),)


def _finish(path: Path) -> None:
    """Append a last layer, and what the host computes behind it."""
    if path.rank > 1 and path.draws.flip(0.3):
        path.convolution(path.draws.between(1, 5))
        if path.draws.flip(0.5):
            path.put(path._batch_norm())
    elif path.rank == 1 or path.draws.flip(0.8):
        if path.rank > 1 and path.draws.flip(0.15):
            path.put(Pointwise(LAYOUTS, path.draws.pick(*LAYOUTS)))
        path.linear(path.draws.between(1, 10))
        if path.draws.flip(0.4):
            path.put(path._batch_norm())
    else:
        path.layer()
    if path.draws.flip(0.2):
        path.put(Scale(0.125))
    if path.draws.flip(0.3):
        path.put(Pointwise(TAILS, path.draws.pick(*TAILS)))
