"""Mixed models: quantized networks between operations of PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nnhw.nn import QuantConv2d, QuantIdentity, QuantLinear, QuantReLU, Scale, Sign


def small_net() -> nn.Sequential:
    """Return a quantized network: [N, 16] --> [N, 4]."""
    return nn.Sequential(
        QuantIdentity(4),
        QuantLinear(16, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(inplace=True),
        QuantReLU(2),
        QuantLinear(8, 4),
    )


class Mixed(nn.Module):
    """A resampling and an attention in PyTorch, a quantized network behind them, a softmax behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.net = small_net()

    def before(self, x: Tensor) -> Tensor:
        """[N, 1, H, W] --> [N, 16]."""
        x = F.interpolate(x, (4, 4), mode="bilinear")
        rows = self.query(x.view(x.shape[0], 4, 4))
        attention = torch.softmax(rows @ rows.transpose(-1, -2), -1)
        return (attention @ rows).reshape(x.shape[0], -1)

    def after(self, x: Tensor) -> Tensor:
        """[N, 4] --> [N, 4]."""
        return torch.softmax(x, -1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.net(self.before(x)))


class Residual(nn.Module):
    """Convolutions with a branch around them and a flattened end: all of it one part."""

    def __init__(self) -> None:
        super().__init__()
        self.quant = QuantIdentity(4)
        self.conv = QuantConv2d(2, 2, 3, padding=1)
        self.act = QuantReLU(2)
        self.second = QuantConv2d(2, 2, 3, padding=1)
        self.third = QuantIdentity(4, scale=1.0)
        self.head = QuantLinear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.quant(x)
        x = self.third(self.second(self.act(self.conv(x))) + self.act(self.conv(x)))
        return self.head(x.view(x.shape[0], -1))


class Heads(nn.Module):
    """A trunk whose codes two heads read: three parts."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(Sign(), QuantLinear(16, 8), nn.BatchNorm1d(8), Sign())
        self.first = nn.Sequential(QuantLinear(8, 6), Sign(), QuantLinear(6, 3))
        self.second = nn.Sequential(QuantLinear(8, 5), Scale(0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(x)
        return self.first(x), self.second(x)


def seeded(model: type[nn.Module] | nn.Module, seed: int = 1) -> nn.Module:
    """Return a model in eval mode, with seeded weights and statistics of batch norms."""
    torch.manual_seed(seed)
    made = model() if isinstance(model, type) else model
    for module in made.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean = torch.randn(module.num_features)
            module.running_var = torch.rand(module.num_features) + 0.5
    return made.eval()
