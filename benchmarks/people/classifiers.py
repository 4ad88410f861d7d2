"""Image classifiers: LeNet, VGG, ResNet, SqueezeNet, DenseNet, Inception."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import PeopleModel


def lenet_tanh() -> nn.Module:
    """LeNet-5 as it was: average pooling and tanh."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.Tanh(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    )


class LeNetRelu(nn.Module):
    """LeNet-5 as tutorials have it: max pooling and ReLU, written with functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class MnistExample(nn.Module):
    """Two convolutions, dropout, two linear layers, log-softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout2d(0.25)
        self.fc1 = nn.Linear(16 * 12 * 12, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def vgg(*plan: int | str, channels: int = 3, classes: int = 10) -> nn.Module:
    """Return a VGG: 3 x 3 convolutions with batch norm and ReLU; "M" pools."""
    layers: list[nn.Module] = []
    for step in plan:
        if isinstance(step, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, step, 3, padding=1), nn.BatchNorm2d(step), nn.ReLU(inplace=True)]
            channels = step
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    """A ResNet for small images, or with the stem of the large ones."""

    def __init__(self, blocks: int, widths: tuple[int, ...], classes: int = 10, large: bool = False) -> None:
        super().__init__()
        first = widths[0]
        stem: list[nn.Module] = [
            nn.Conv2d(3, first, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False)
        ]
        stem += [nn.BatchNorm2d(first), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*stem, *([nn.MaxPool2d(3, 2, 1)] if large else []))
        layers, inner = [], first
        for number, width in enumerate(widths):
            for block in range(blocks):
                layers.append(BasicBlock(inner, width, 2 if number and not block else 1))
                inner = width
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class Fire(nn.Module):
    """SqueezeNet's module: squeeze, then two expansions side by side."""

    def __init__(self, inner: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1(x)), F.relu(self.expand3(x))], 1)


def squeezenet() -> nn.Module:
    """SqueezeNet for images of 32 x 32, its classifier a convolution."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(32, 8, 32),
        Fire(64, 8, 32),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        nn.Dropout(0.5),
        nn.Conv2d(128, 10, 1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class DenseLayer(nn.Module):
    """Batch norm, ReLU, convolution, and everything so far beside its result."""

    def __init__(self, inner: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inner)
        self.conv = nn.Conv2d(inner, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


def densenet(growth: int = 8) -> nn.Module:
    """DenseNet with two blocks of three layers and a transition."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    width = 16
    for block in range(2):
        for _ in range(3):
            layers.append(DenseLayer(width, growth))
            width += growth
        if not block:
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


class Inception(nn.Module):
    """Four branches: 1 x 1, 3 x 3, 5 x 5, and pooling; concatenated."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        half = outer // 2
        self.branch1 = nn.Sequential(nn.Conv2d(inner, outer, 1), nn.ReLU())
        self.branch2 = nn.Sequential(
            nn.Conv2d(inner, half, 1), nn.ReLU(), nn.Conv2d(half, outer, 3, padding=1), nn.ReLU()
        )
        self.branch3 = nn.Sequential(
            nn.Conv2d(inner, half, 1), nn.ReLU(), nn.Conv2d(half, outer, 5, padding=2), nn.ReLU()
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(inner, outer, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


def inception() -> nn.Module:
    """A stem, one Inception block, a classifier."""
    stem = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*stem, Inception(16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS: dict[str, PeopleModel] = {
    "lenet5_tanh": PeopleModel(lenet_tanh, (1, 28, 28)),
    "lenet5_relu": PeopleModel(LeNetRelu, (3, 32, 32)),
    "mnist_example": PeopleModel(MnistExample, (1, 28, 28)),
    "vgg_small": PeopleModel(lambda: vgg(16, 16, "M", 32, 32, "M", 64, "M"), (3, 32, 32)),
    "vgg11": PeopleModel(lambda: vgg(64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"), (3, 32, 32)),
    "resnet8": PeopleModel(lambda: ResNet(1, (16, 32, 64)), (3, 32, 32)),
    "resnet20": PeopleModel(lambda: ResNet(3, (16, 32, 64)), (3, 32, 32)),
    "resnet18": PeopleModel(lambda: ResNet(2, (64, 128, 256, 512), 1000, large=True), (3, 224, 224)),
    "squeezenet": PeopleModel(squeezenet, (3, 32, 32)),
    "densenet": PeopleModel(densenet, (3, 32, 32)),
    "inception": PeopleModel(inception, (3, 32, 32)),
}
