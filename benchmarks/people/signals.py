"""Signals: ECG, vibration, audio, keywords; temporal convolutions, recurrence, attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import PeopleModel


def ecg() -> nn.Module:
    """A 1-D network for heartbeats, with LeakyReLU."""
    layers: list[nn.Module] = []
    for inner, outer in ((1, 8), (8, 16), (16, 16)):
        layers += [nn.Conv1d(inner, outer, 5, padding=2), nn.BatchNorm1d(outer), nn.LeakyReLU(0.01), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 23, 32), nn.LeakyReLU(0.01), nn.Linear(32, 5))


def vibration() -> nn.Module:
    """Wide first kernel with a large stride, for faults of bearings."""
    return nn.Sequential(
        nn.Conv1d(1, 16, 64, stride=16, padding=24),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 3, padding=1),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def audio() -> nn.Module:
    """M5's shape on raw audio, small."""
    layers: list[nn.Module] = [nn.Conv1d(1, 16, 80, stride=16), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4)]
    for inner, outer in ((16, 16), (16, 32)):
        layers += [nn.Conv1d(inner, outer, 3), nn.BatchNorm1d(outer), nn.ReLU(), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 10), nn.LogSoftmax(dim=1))


class TemporalBlock(nn.Module):
    """Two causal dilated convolutions and a residual sum."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.padding = 2 * dilation
        self.conv1 = nn.Conv1d(inner, outer, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(outer, outer, 3, dilation=dilation)
        self.down = nn.Conv1d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.conv1(F.pad(x, (self.padding, 0))))
        out = F.relu(self.conv2(F.pad(out, (self.padding, 0))))
        return F.relu(out + self.down(x))


class Tcn(nn.Module):
    """A temporal convolutional network that answers at the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(TemporalBlock(2, 16, 1), TemporalBlock(16, 16, 2), TemporalBlock(16, 16, 4))
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(x)[:, :, -1])


def ds_cnn() -> nn.Module:
    """Depthwise separable convolutions on 49 x 10 features of a second of speech."""
    layers: list[nn.Module] = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU(), nn.Dropout(0.2)]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


class KeywordResNet(nn.Module):
    """res8-like: residual pairs of 3 x 3 convolutions without bias, mean at the end."""

    def __init__(self, width: int = 19) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.pool = nn.AvgPool2d((4, 2))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(6))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, affine=False) for _ in range(6))
        self.output = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = old = self.pool(F.relu(self.conv0(x)))
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(conv(x))
            if number % 2:
                x = old = x + old
            x = norm(x)
        return self.output(x.flatten(2).mean(2))


class PointNet(nn.Module):
    """Shared layers on each point, the greatest over all points, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1), nn.Conv1d(32, 64, 1)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(16), nn.BatchNorm1d(32), nn.BatchNorm1d(64)
        self.fc1, self.fc2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 64)
        return self.fc2(F.relu(self.fc1(x)))


class Siamese(nn.Module):
    """Two images, as the two channels of one input, through one network; the distance of what it makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.embed = nn.Linear(16 * 6 * 6, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.embed(self.body(x[:, :1])), self.embed(self.body(x[:, 1:]))
        return torch.sigmoid(self.out(torch.abs(left - right)))


class LstmClassifier(nn.Module):
    """An LSTM over a sequence, and a classifier on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, batch_first=True)
        self.fc = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


class TinyTransformer(nn.Module):
    """One encoder layer over eight tokens, mean, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.position = nn.Parameter(0.1 * torch.randn(1, 8, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(self.embed(x) + self.position).mean(1))


MODELS: dict[str, PeopleModel] = {
    "ecg": PeopleModel(ecg, (1, 187)),
    "vibration": PeopleModel(vibration, (1, 1024)),
    "audio_raw": PeopleModel(audio, (1, 4000)),
    "tcn": PeopleModel(Tcn, (2, 64)),
    "ds_cnn": PeopleModel(ds_cnn, (1, 49, 10)),
    "kws_residual": PeopleModel(KeywordResNet, (1, 40, 32)),
    "pointnet": PeopleModel(PointNet, (3, 128)),
    "siamese": PeopleModel(Siamese, (2, 28, 28)),
    "lstm": PeopleModel(LstmClassifier, (32, 6), steps=True),
    "transformer": PeopleModel(TinyTransformer, (8, 8), steps=True),
}
