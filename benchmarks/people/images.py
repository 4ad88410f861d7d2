"""Images in, images out: U-Nets, autoencoders, super resolution, generators; and detectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import PeopleModel


def double(inner: int, outer: int) -> nn.Module:
    """Return two 3 x 3 convolutions with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (inner, outer):
        layers += [nn.Conv2d(width, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Two levels down and up, with concatenations; up by transposed convolution or by upsampling."""

    def __init__(self, width: int, transposed: bool) -> None:
        super().__init__()
        self.down1, self.down2 = double(1, width), double(width, 2 * width)
        self.middle = double(2 * width, 4 * width)
        self.up2, self.up1 = self.up(4 * width, transposed), self.up(2 * width, transposed)
        self.dec2, self.dec1 = double(4 * width, 2 * width), double(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def up(inner: int, transposed: bool) -> nn.Module:
        """Return what doubles height and width and halves the channels."""
        if transposed:
            return nn.ConvTranspose2d(inner, inner // 2, 2, stride=2)
        return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(inner, inner // 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.middle(F.max_pool2d(two, 2))
        x = self.dec2(torch.cat([self.up2(x), two], dim=1))
        x = self.dec1(torch.cat([self.up1(x), one], dim=1))
        return self.head(x)


class Autoencoder(nn.Module):
    """Linear layers from 784 to 16 and back, sigmoid at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x)).view(-1, 1, 28, 28)


def conv_autoencoder() -> nn.Module:
    """Convolutions with stride down, transposed ones up."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 3, stride=2, padding=1, output_padding=1),
        nn.Sigmoid(),
    )


def super_resolution() -> nn.Module:
    """ESPCN: convolutions on the small image, then pixel shuffle."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(16, 4, 3, padding=1),
        nn.PixelShuffle(2),
    )


class ResidualSuperResolution(nn.Module):
    """Residual blocks with a global residual, then pixel shuffle and a last convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(2)
        )
        self.up = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.PixelShuffle(2))
        self.tail = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = first = self.head(x)
        for block in self.blocks:
            x = x + block(x)
        return self.tail(self.up(x + first))


class Generator(nn.Module):
    """DCGAN's generator: noise to an image of 28 x 28."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32 * 7 * 7)
        self.main = nn.Sequential(
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.main(self.fc(z).view(-1, 32, 7, 7))


class YoloHead(nn.Module):
    """A small backbone and three outputs of a detector: boxes, confidence, classes."""

    def __init__(self, coarse: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inner, outer in ((3, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(inner, outer, 3, 2, 1, bias=False), nn.BatchNorm2d(outer), nn.LeakyReLU(0.1)]
        self.backbone = nn.Sequential(*layers)
        self.boxes, self.confidence, self.classes = nn.Conv2d(32, 8, 1), nn.Conv2d(32, 2, 1), nn.Conv2d(32, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.backbone(x)
        return self.boxes(x), torch.sigmoid(self.confidence(x)), self.classes(x)


class TwoScales(nn.Module):
    """A detector with heads at two scales, in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.fine, self.coarse = nn.Conv2d(16, 5, 1), nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.stem(x)
        return {"fine": self.fine(fine), "coarse": self.coarse(self.down(fine))}


MODELS: dict[str, PeopleModel] = {
    "unet_transposed": PeopleModel(lambda: UNet(8, True), (1, 32, 32)),
    "unet_upsampled": PeopleModel(lambda: UNet(8, False), (1, 32, 32)),
    "autoencoder": PeopleModel(Autoencoder, (1, 28, 28)),
    "autoencoder_conv": PeopleModel(conv_autoencoder, (1, 28, 28)),
    "super_resolution": PeopleModel(super_resolution, (1, 24, 24)),
    "super_resolution_residual": PeopleModel(ResidualSuperResolution, (1, 24, 24)),
    "gan_generator": PeopleModel(Generator, (32,)),
    "yolo_head": PeopleModel(YoloHead, (3, 64, 64)),
    "two_scales": PeopleModel(TwoScales, (1, 32, 32)),
}
