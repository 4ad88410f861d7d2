"""Five mixed models: quantized networks between operations that an accelerator has not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nnhw
from benchmarks.mnist import EXAMPLES
from benchmarks.networks import NETWORKS
from nnhw.frontend import load_source
from nnhw.nn import Int, QuantConv2d, QuantIdentity, QuantLinear, QuantReLU

SEED = 1


@dataclass(frozen=True)
class MixedModel:
    """A mixed model.

    Parameters
    ----------
    nets: submodules that the accelerator computes --> the quantizer in front of it that others read as well, or ''.
    make: returns the model in eval mode, and images.
    link: that answers in the benchmark.
    """

    name: str
    about: str
    nets: Mapping[str, str]
    make: Callable[[], tuple[nn.Module, Tensor]]
    link: str = "model"

    def composed(self, model: nn.Module) -> nn.Module:
        """Return a copy of a model in which `nnhw.reference` computes what the accelerator has to."""
        made = copy.deepcopy(model)
        for name, quantizer in self.nets.items():
            net = model.get_submodule(name)
            # To quantize once more what is quantized changes nothing.
            made.set_submodule(name, _Exact(nn.Sequential(model.get_submodule(quantizer), net) if quantizer else net))
        return made


class _Exact(nn.Module):
    """What `nnhw.reference` computes of a network, in the dtype of the images."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self._reference = nnhw.reference(net)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self._reference(x).to(x.dtype)
        return result


class Stem(nn.Module):
    """A float stem and head around quantized convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.trunk = nn.Sequential(
            QuantIdentity(4),
            *(QuantConv2d(4, 8, 3, padding=1, weight_quant=Int(4)), nn.BatchNorm2d(8), QuantReLU(4), nn.MaxPool2d(2)),
            *(QuantConv2d(8, 8, 3, padding=1, weight_quant=Int(4)), nn.BatchNorm2d(8), QuantReLU(4)),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.LayerNorm(72), nn.GELU(), nn.Linear(72, 10))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 12, 12] --> [N, 10]."""
        result: Tensor = self.head(self.trunk(self.stem(x)))
        return result


class Towers(nn.Module):
    """Two quantized towers, of an image and of features, compared by the cosine between them."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(
            QuantIdentity(4), QuantConv2d(1, 4, 3, stride=2), QuantReLU(2), nn.Flatten(), QuantLinear(36, 8)
        )
        self.words = nn.Sequential(QuantIdentity(8), QuantLinear(20, 16), QuantReLU(2), QuantLinear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 69]: 7 x 7 pixels and 20 features --> [N]."""
        image, words = self.image(x[:, :49].reshape(-1, 1, 7, 7)), self.words(x[:, 49:])
        return F.cosine_similarity(image, words, dim=-1)


class Sensor(nn.Module):
    """The network of a sensor behind a resampling and a normalization of each signal by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net, example = NETWORKS["sensor_cnn1d"].load()
        self.samples = int(example.shape[-1])

    def forward(self, x: Tensor) -> Tensor:
        """[N, axes, any number of samples] --> probabilities [N, motions]."""
        x = F.interpolate(x, self.samples, mode="linear")
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)
        return torch.softmax(self.net(x), -1)


class Block(nn.Module):
    """A block of a transformer with quantized projections; attention and norms are float."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.quant = QuantIdentity(4)
        self.query, self.key, self.value = (QuantLinear(width, width, weight_quant=Int(4)) for _ in range(3))
        self.out = nn.Sequential(QuantIdentity(4), QuantLinear(width, width, weight_quant=Int(4)))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(
            QuantIdentity(4),
            *(QuantLinear(width, 2 * width, weight_quant=Int(4)), QuantReLU(4)),
            QuantLinear(2 * width, width, weight_quant=Int(4)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, tokens, width] --> [N, tokens, width]."""
        codes = self.quant(self.norms[0](x))
        query, key, value = self.query(codes), self.key(codes), self.value(codes)
        attention = torch.softmax(query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, -1)
        x = x + self.out(attention @ value)
        result: Tensor = x + self.mlp(self.norms[1](x))
        return result


def _seeded(model: type[nn.Module], *shape: int) -> Callable[[], tuple[nn.Module, Tensor]]:
    """Return a function that makes a model with random weights and statistics, and images."""

    def make() -> tuple[nn.Module, Tensor]:
        torch.manual_seed(SEED)
        made = model()
        for module in made.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
                nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
        return made.eval(), torch.randn(shape)

    return make


def _frames() -> tuple[nn.Module, Tensor]:
    source = load_source(EXAMPLES / "compile_mixed.py")
    assert isinstance(source.model, nn.Module)
    return source.model, source.example_input


def _sensor() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(SEED)
    return Sensor().eval(), torch.randn(50, 6, 90)


MODELS = (
    MixedModel("frames", "noisy frames, resampled and pooled by attention; digits", {"net": ""}, _frames, "sim"),
    MixedModel("stem", "float stem and head around convolutions", {"trunk": ""}, _seeded(Stem, 50, 1, 12, 12)),
    MixedModel("towers", "two towers and a cosine", {"image": "", "words": ""}, _seeded(Towers, 50, 69)),
    MixedModel("sensor", "resampled and normalized signals; motions", {"net": ""}, _sensor),
    MixedModel(
        "transformer",
        "block of a transformer, attention and norms in float",
        {"query": "quant", "key": "quant", "value": "quant", "out": "", "mlp": ""},
        _seeded(Block, 50, 6, 16),
    ),
)
