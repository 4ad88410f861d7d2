"""Networks for small devices: MobileNet V1 to V3, EfficientNet, ShuffleNet, MCUNet."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import PeopleModel

Act = Callable[[], nn.Module]


def conv_bn(
    inner: int, outer: int, size: int, stride: int = 1, groups: int = 1, act: Act | None = nn.ReLU6
) -> nn.Module:
    """Return convolution, batch norm, and an activation if there is one."""
    conv = nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer), *([act()] if act else []))


def mobilenet_v1(width: float, classes: int) -> nn.Module:
    """MobileNet V1: pairs of depthwise and pointwise convolutions."""
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    inner = int(32 * width)
    layers = [conv_bn(3, inner, 3, 2, act=nn.ReLU)]
    for full, stride in plan:
        outer = int(full * width)
        layers += [conv_bn(inner, inner, 3, stride, inner, nn.ReLU), conv_bn(inner, outer, 1, act=nn.ReLU)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


class StochasticDepth(nn.Module):
    """Leaves a branch out at random while it is trained; does nothing in eval mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        keep = 1.0 - self.p
        noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1), device=x.device).bernoulli_(keep).div_(keep)
        return x * noise


class SqueezeExcitation(nn.Module):
    """Weighs channels by what a small network makes of their means."""

    def __init__(self, channels: int, inner: int, act: Act, gate: Act) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, inner, 1)
        self.fc2 = nn.Conv2d(inner, channels, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.gate(self.fc2(self.act(self.fc1(self.pool(x)))))
        return scale * x


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, squeeze-and-excitation if asked for, project; a sum where shapes allow."""

    def __init__(
        self,
        inner: int,
        hidden: int,
        outer: int,
        stride: int,
        size: int = 3,
        act: Act = nn.ReLU6,
        excite: Callable[[int], nn.Module] | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        layers = [] if hidden == inner else [conv_bn(inner, hidden, 1, act=act)]
        layers.append(conv_bn(hidden, hidden, size, stride, hidden, act))
        if excite:
            layers.append(excite(hidden))
        layers.append(conv_bn(hidden, outer, 1, act=None))
        self.block = nn.Sequential(*layers)
        self.drop = StochasticDepth(drop)
        self.residual = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.block(x)) if self.residual else self.block(x)


def mobilenet_v2(width: float, classes: int) -> nn.Module:
    """MobileNet V2."""
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    inner = max(8, int(32 * width) // 8 * 8)
    layers: list[nn.Module] = [conv_bn(3, inner, 3, 2)]
    for expansion, full, repeats, first in plan:
        outer = max(8, int(full * width + 4) // 8 * 8)
        for number in range(repeats):
            layers.append(InvertedResidual(inner, inner * expansion, outer, 1 if number else first))
            inner = outer
    layers += [conv_bn(inner, 320, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(320, classes)]
    return nn.Sequential(*layers)


def mobilenet_v3(classes: int) -> nn.Module:
    """MobileNet V3 small, a third of its width."""

    def excite(channels: int) -> nn.Module:
        return SqueezeExcitation(channels, max(8, channels // 4), nn.ReLU, nn.Hardsigmoid)

    def block(inner: int, hidden: int, outer: int, size: int, se: bool, hard: bool, stride: int) -> nn.Module:
        act = nn.Hardswish if hard else nn.ReLU
        return InvertedResidual(inner, hidden, outer, stride, size, act, excite if se else None)

    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=nn.Hardswish),
        block(8, 8, 8, 3, True, False, 2),
        block(8, 24, 8, 3, False, False, 2),
        block(8, 32, 8, 3, False, False, 1),
        block(8, 32, 16, 5, True, True, 2),
        block(16, 64, 16, 5, True, True, 1),
        conv_bn(16, 96, 1, act=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 128),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(128, classes),
    )


def efficientnet(plan: list[tuple[int, int, int, int, int]], stem: int, last: int, classes: int) -> nn.Module:
    """EfficientNet: inverted residuals with SiLU, squeeze-and-excitation and stochastic depth."""
    layers: list[nn.Module] = [conv_bn(3, stem, 3, 2, act=nn.SiLU)]
    inner = stem
    for expansion, outer, repeats, first, size in plan:
        for number in range(repeats):

            def excite(channels: int, small: int = max(1, inner // 4)) -> nn.Module:
                return SqueezeExcitation(channels, small, nn.SiLU, nn.Sigmoid)

            stride = 1 if number else first
            layers.append(InvertedResidual(inner, inner * expansion, outer, stride, size, nn.SiLU, excite, 0.1))
            inner = outer
    layers += [conv_bn(inner, last, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*layers)


B0 = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5)]


class ShuffleUnit(nn.Module):
    """ShuffleNet V2: half of the channels goes on as it is, the other through convolutions; then they are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        depthwise = conv_bn(half, half, 3, groups=half, act=None)
        self.branch = nn.Sequential(conv_bn(half, half, 1, act=nn.ReLU), depthwise, conv_bn(half, half, 1, act=nn.ReLU))

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(changed)), dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def shufflenet() -> nn.Module:
    """A stem, two shuffle units, a classifier."""
    stem = [conv_bn(3, 24, 3, 2, act=nn.ReLU), nn.MaxPool2d(2)]
    head = [conv_bn(24, 64, 1, act=nn.ReLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*stem, ShuffleUnit(24), ShuffleUnit(24), *head)


class GlobalMean(nn.Module):
    """The mean over both axes, and a classifier."""

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.fc = body, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.body(x)).mean([2, 3]))


def mcunet() -> nn.Module:
    """Inverted residuals with kernels of 3, 5 and 7, as searches for microcontrollers find them."""
    body = nn.Sequential(
        conv_bn(3, 8, 3, 2),
        InvertedResidual(8, 24, 8, 1),
        InvertedResidual(8, 32, 16, 2, 5),
        InvertedResidual(16, 48, 16, 1, 7),
        InvertedResidual(16, 64, 24, 2),
        InvertedResidual(24, 72, 24, 1, 5),
        conv_bn(24, 48, 1, act=None),
    )
    return GlobalMean(body, 48, 2)


MODELS: dict[str, PeopleModel] = {
    "mobilenet_v1": PeopleModel(lambda: mobilenet_v1(0.25, 2), (3, 96, 96)),
    "mobilenet_v2": PeopleModel(lambda: mobilenet_v2(0.25, 10), (3, 96, 96)),
    "mobilenet_v2_full": PeopleModel(lambda: mobilenet_v2(1.0, 1000), (3, 224, 224)),
    "mobilenet_v3": PeopleModel(lambda: mobilenet_v3(10), (3, 64, 64)),
    "efficientnet_small": PeopleModel(
        lambda: efficientnet([(1, 8, 1, 1, 3), (4, 16, 2, 2, 3)], 8, 64, 10), (3, 32, 32)
    ),
    "efficientnet_b0": PeopleModel(lambda: efficientnet([*B0, (6, 320, 1, 1, 3)], 32, 1280, 1000), (3, 224, 224)),
    "shufflenet": PeopleModel(shufflenet, (3, 32, 32)),
    "mcunet": PeopleModel(mcunet, (3, 64, 64)),
}
