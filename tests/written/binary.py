"""Networks with weights and activations of one bit, in the manner of the repositories of their papers."""

# torch gives autograd.Function.apply no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class SignSTE(torch.autograd.Function):
    """The sign, whose gradient passes between -1 and 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return -1, 0 or 1."""
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient where the operand was between -1 and 1."""
        (x,) = ctx.saved_tensors
        return gradients[0] * (x.abs() <= 1)


class BinaryConnect(nn.Module):
    """BinaryConnect: the optimizer's helper writes signs into `.data`, so that layers hold -1 and 1 for evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(54, 10, bias=False)
        self.last = nn.BatchNorm1d(10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 2)
        return self.last(self.fc(x.flatten(1)))

    def binarize(self) -> None:
        """Keep the float weights as `.org`, and put their signs into the layers."""
        for layer in (self.conv, self.fc):
            layer.weight.org = layer.weight.data.clone()  # type: ignore[attr-defined]
            layer.weight.data.copy_(layer.weight.org.ge(0).float() * 2 - 1)  # type: ignore[attr-defined]


class BinaryConnectQuantizedInput(BinaryConnect):
    """The same with activations of 4 bits."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = torch.round(x * 15) / 15
        x = functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 2)
        x = torch.round(x.clamp(0, 2) * 7.5) / 7.5
        return self.last(self.fc(x.flatten(1)))


def binarize(x: Tensor) -> Tensor:
    """Return the sign of a tensor."""
    return x.sign()


class BinarizeLinear(nn.Linear):
    """A layer of BinaryNet: writes into its operand's and its weights' data."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, inputs] --> [N, outputs]."""
        if input.size(1) != 64:
            input.data = binarize(input.data)
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()  # type: ignore[attr-defined]
        self.weight.data = binarize(self.weight.org)  # type: ignore[attr-defined]
        out = functional.linear(input, self.weight)
        if self.bias is not None:
            self.bias.org = self.bias.data.clone()  # type: ignore[attr-defined]
            out += self.bias.view(1, -1).expand_as(out)
        return out


class BinarizeConv2d(nn.Conv2d):
    """The same as a convolution: images with three channels stay as they are."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        if input.size(1) != 3:
            input.data = binarize(input.data)
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()  # type: ignore[attr-defined]
        self.weight.data = binarize(self.weight.org)  # type: ignore[attr-defined]
        out = functional.conv2d(input, self.weight, None, self.stride, self.padding, self.dilation, self.groups)
        if self.bias is not None:
            self.bias.org = self.bias.data.clone()  # type: ignore[attr-defined]
            out += self.bias.view(1, -1, 1, 1).expand_as(out)
        return out


class BinaryNetMLP(nn.Module):
    """BinaryNet's perceptron: the first layer reads pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = BinarizeLinear(64, 24)
        self.htanh1 = nn.Hardtanh()
        self.bn1 = nn.BatchNorm1d(24)
        self.fc2 = BinarizeLinear(24, 16)
        self.htanh2 = nn.Hardtanh()
        self.bn2 = nn.BatchNorm1d(16)
        self.fc3 = nn.Linear(16, 10)
        self.logsoftmax = nn.LogSoftmax(dim=1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = x.view(-1, 64)
        x = self.htanh1(self.bn1(self.fc1(x)))
        x = self.drop(self.fc2(x))
        x = self.htanh2(self.bn2(x))
        return self.logsoftmax(self.fc3(x))


class BinaryNetConv(nn.Module):
    """BinaryNet's network for color images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(BinarizeConv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardtanh(inplace=True)),
            *(BinarizeConv2d(8, 8, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.Hardtanh(inplace=True)),
        )
        self.classifier = nn.Sequential(BinarizeLinear(128, 10), nn.BatchNorm1d(10), nn.LogSoftmax(dim=1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 10]."""
        return self.classifier(self.features(x).view(-1, 128))


class BinActive(torch.autograd.Function):
    """XNOR-Net's activation: signs, and the mean magnitude over the channels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (signs, mean)."""
        ctx.save_for_backward(x)
        mean = torch.mean(x.abs(), 1, keepdim=True)
        return x.sign(), mean

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient of the signs."""
        (x,) = ctx.saved_tensors
        passed = gradients[0].clone()
        passed[x.ge(1)] = 0
        passed[x.le(-1)] = 0
        return passed


class XnorConv(nn.Module):
    """A block of XNOR-Net: norm, signs, convolution, ReLU; its weights are binarized from outside."""

    def __init__(self, inputs: int, outputs: int, kernel: int, padding: int = 0) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(inputs, eps=1e-4, momentum=0.1, affine=True)
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=padding)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        x, _ = BinActive.apply(self.bn(x))
        return self.relu(self.conv(x))


class XnorNet(nn.Module):
    """XNOR-Net: `BinOp` centers, clamps and binarizes the weights of all layers but the first and the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(XnorConv(8, 8, 3, 1), XnorConv(8, 6, 1), nn.AvgPool2d(2))
        self.last = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 10]."""
        x = functional.relu(self.norm(self.first(x)))
        return self.last(self.blocks(x).view(x.size(0), -1))

    def binarize(self) -> None:
        """Put centered, clamped and binarized weights into the layers, times their mean magnitude."""
        for layer in self.modules():
            if isinstance(layer, XnorConv):
                weight = layer.conv.weight.data
                weight.sub_(weight.mean(1, keepdim=True)).clamp_(-1.0, 1.0)
                mean = (
                    weight.norm(1, 3, keepdim=True).sum(2, keepdim=True).sum(1, keepdim=True).div(weight[0].nelement())
                )
                layer.conv.weight.data = weight.sign().mul(mean.expand(weight.size()))


class XnorConvInForward(nn.Conv2d):
    """XNOR-Net's weights, computed with each image; signs come from a function."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        centered = self.weight - self.weight.mean(dim=1, keepdim=True)
        clamped = centered.clamp(-1.0, 1.0)
        alpha = clamped.abs().mean(dim=(1, 2, 3), keepdim=True)
        weight = SignSTE.apply(clamped) * alpha
        return functional.conv2d(SignSTE.apply(x), weight, self.bias, self.stride, self.padding)


class XnorInForward(nn.Module):
    """XNOR-Net written in `forward`, binary from the input on."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(2)
        self.conv1 = XnorConvInForward(2, 8, 3, stride=2)
        self.bn2 = nn.BatchNorm2d(8)
        self.conv2 = XnorConvInForward(8, 8, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(8)
        self.conv3 = XnorConvInForward(8, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2, 8, 8] --> [N, 10]."""
        x = self.conv1(self.bn1(x))
        x = self.conv2(self.bn2(x))
        return self.conv3(self.bn3(x)).flatten(1)


class XnorWithK(nn.Module):
    """XNOR-Net with a scale K for each place, which is the mean magnitude of what the kernel reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.last = nn.Linear(216, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.norm(self.first(x))
        k = functional.avg_pool2d(x.abs().mean(1, keepdim=True), 3, stride=1, padding=1)
        alpha = self.conv.weight.abs().mean(dim=(1, 2, 3), keepdim=True)
        x = functional.conv2d(SignSTE.apply(x), SignSTE.apply(self.conv.weight) * alpha, padding=1)
        return self.last(functional.relu(x * k).flatten(1))


class BinaryActivation(nn.Module):
    """Bi-Real's sign with the gradient of a piecewise polynomial."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the sign."""
        out_forward = torch.sign(x)
        mask1, mask2, mask3 = x < -1, x < 0, x < 1
        out1 = (-1) * mask1.type(torch.float32) + (x * x + 2 * x) * (1 - mask1.type(torch.float32))
        out2 = out1 * mask2.type(torch.float32) + (-x * x + 2 * x) * (1 - mask2.type(torch.float32))
        out3 = out2 * mask3.type(torch.float32) + 1 * (1 - mask3.type(torch.float32))
        return out_forward.detach() - out3.detach() + out3


class HardBinaryConv(nn.Module):
    """Bi-Real's convolution: one flat parameter, signs times the mean magnitude of each output."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int = 1) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        self.shape = (outputs, inputs, kernel, kernel)
        self.weights = nn.Parameter(torch.randn(outputs * inputs * kernel * kernel, 1) * 0.001)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        real = self.weights.view(self.shape)
        factor = torch.mean(
            torch.mean(torch.mean(abs(real), dim=3, keepdim=True), dim=2, keepdim=True), dim=1, keepdim=True
        )
        factor = factor.detach()
        binary_no_grad = factor * torch.sign(real)
        clipped = torch.clamp(real, -1.0, 1.0)
        binary = binary_no_grad.detach() - clipped.detach() + clipped
        return functional.conv2d(x, binary, stride=self.stride, padding=self.padding)


class BiRealBlock(nn.Module):
    """A block of Bi-Real: the numbers in front of the signs pass by."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.binary_activation = BinaryActivation()
        self.binary_conv = HardBinaryConv(channels, channels)
        self.bn1 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> the same."""
        residual = x
        out = self.bn1(self.binary_conv(self.binary_activation(x)))
        out += residual
        return out


class BiReal(nn.Module):
    """Bi-Real: float layers first and last, shortcuts between."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layers = nn.Sequential(BiRealBlock(8), BiRealBlock(8))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 10]."""
        x = self.layers(self.bn1(self.conv1(x)))
        x = self.avgpool(x)
        return self.fc(x.view(x.size(0), -1))


class BiRealWithoutShortcut(nn.Module):
    """Bi-Real's activation and weights in a plain chain, also for the input."""

    def __init__(self) -> None:
        super().__init__()
        self.act = BinaryActivation()
        self.bn0, self.bn1, self.bn2 = nn.BatchNorm2d(1), nn.BatchNorm2d(6), nn.BatchNorm2d(8)
        self.conv1, self.conv2 = HardBinaryConv(1, 6, stride=2), HardBinaryConv(6, 8, padding=0)
        self.conv3 = HardBinaryConv(8, 10, 2, padding=0)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.conv1(self.act(self.bn0(x)))
        x = self.conv2(self.act(self.bn1(x)))
        return self.conv3(self.act(self.bn2(x))).flatten(1)


class LearnableBias(nn.Module):
    """ReActNet's bias for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return x + self.bias.expand_as(x)


class ReActBlock(nn.Module):
    """A block of ReActNet: shifted sign, binary convolution, norm, shortcut, RPReLU."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.move0, self.act, self.conv = (
            LearnableBias(channels),
            BinaryActivation(),
            HardBinaryConv(channels, channels),
        )
        self.bn = nn.BatchNorm2d(channels)
        self.move1, self.prelu, self.move2 = LearnableBias(channels), nn.PReLU(channels), LearnableBias(channels)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> the same."""
        out = self.bn(self.conv(self.act(self.move0(x))))
        out = x + out if self.shortcut else out
        return self.move2(self.prelu(self.move1(out)))


class ReActNet(nn.Module):
    """ReActNet: float layers first and last."""

    def __init__(self, shortcut: bool = True) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(ReActBlock(8, shortcut), ReActBlock(8, shortcut))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 10]."""
        x = self.blocks(self.bn1(self.conv1(x)))
        return self.fc(torch.flatten(self.pool(x), 1))


class BinaryQuantize(torch.autograd.Function):
    """IR-Net's sign, whose gradient follows a tanh that grows steep."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, t: Tensor) -> Tensor:
        """Return the sign."""
        ctx.save_for_backward(x, k, t)
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return k t (1 - tanh(t x)^2) times the gradient."""
        x, k, t = ctx.saved_tensors
        return k * t * (1 - torch.pow(torch.tanh(x * t), 2)) * gradients[0], None, None


class IRConv2d(nn.Conv2d):
    """IR-Net's convolution: standardized weights, signs, a power of two for each output."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.k, self.t = torch.tensor([10.0]).float(), torch.tensor([0.1]).float()

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        w, a = self.weight, x
        bw = w - w.view(w.size(0), -1).mean(-1).view(w.size(0), 1, 1, 1)
        bw = bw / bw.view(bw.size(0), -1).std(-1).view(bw.size(0), 1, 1, 1)
        mean = bw.abs().view(bw.size(0), -1).mean(-1)
        sw = torch.pow(
            torch.tensor([2.0] * bw.size(0)), (torch.log(mean) / torch.log(torch.tensor(2.0))).round().float()
        ).view(bw.size(0), 1, 1, 1)
        bw, ba = BinaryQuantize.apply(bw, self.k, self.t), BinaryQuantize.apply(a, self.k, self.t)
        return functional.conv2d(ba, bw * sw.detach(), self.bias, self.stride, self.padding)


class IRNet(nn.Module):
    """IR-Net: float layers first and last, Hardtanh between."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = IRConv2d(8, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = IRConv2d(8, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.nonlinear = nn.Hardtanh(inplace=True)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 10]."""
        x = self.nonlinear(self.bn1(self.conv1(x)))
        x = self.nonlinear(self.bn2(self.conv2(x)))
        x = self.nonlinear(self.bn3(self.conv3(x)))
        return self.fc(x.view(x.size(0), -1))


class AbcConv(nn.Module):
    """ABC-Net: several binary bases of the weights, each with a learned factor, and of the operand."""

    def __init__(self, inputs: int, outputs: int, *, summed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3) * 0.1)
        self.shifts = (-1.0, 0.0, 1.0)
        self.alphas = nn.Parameter(torch.tensor([0.11, 0.17, 0.06]))
        self.betas, self.v = nn.Parameter(torch.tensor([0.7, 0.45])), nn.Parameter(torch.tensor([0.2, -0.3]))
        self.summed = summed

    def bases(self) -> list[Tensor]:
        """Return the signs of the weights, shifted by multiples of their deviation."""
        mean, std = self.weight.mean(), self.weight.std()
        return [SignSTE.apply(self.weight - mean + shift * std) for shift in self.shifts]

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H, W]."""
        bases = self.bases()
        out: Any = 0
        for beta, v in zip(self.betas, self.v, strict=True):
            a = SignSTE.apply(torch.clamp(x + v, 0, 1) - 0.5)
            if self.summed:
                weight: Any = sum(alpha * base for alpha, base in zip(self.alphas, bases, strict=True))
                out = out + beta * functional.conv2d(a, weight, padding=1)
            else:
                sums = [
                    alpha * functional.conv2d(a, base, padding=1)
                    for alpha, base in zip(self.alphas, bases, strict=True)
                ]
                out = out + beta * sum(sums)
        return out


class AbcNet(nn.Module):
    """ABC-Net: the first and the last layer are float."""

    def __init__(self, *, summed: bool) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4)
        self.conv, self.bn2 = AbcConv(4, 4, summed=summed), nn.BatchNorm2d(4)
        self.fc = nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.bn2(self.conv(self.bn1(self.first(x))))
        return self.fc(functional.relu(x).flatten(1))


class SwishSign(torch.autograd.Function):
    """BNN+'s sign with the derivative of a signed swish."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: float = 5.0) -> Tensor:
        """Return the sign."""
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the derivative times the gradient."""
        (x,) = ctx.saved_tensors
        b, s = ctx.beta, torch.sigmoid(ctx.beta * x)
        return gradients[0] * b * s * (2 + b * x * (1 - 2 * s)) * (1 - s), None


class BnnPlusConv(nn.Conv2d):
    """BNN+'s convolution: one learned scale for all weights."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.alpha = nn.Parameter(self.weight.detach().abs().median())

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, outputs, H', W']."""
        return functional.conv2d(SwishSign.apply(x), self.alpha * SwishSign.apply(self.weight), None, self.stride)


class BnnPlus(nn.Module):
    """BNN+: binary from the input on, PReLU behind the norms."""

    def __init__(self) -> None:
        super().__init__()
        self.bn0, self.conv1 = nn.BatchNorm2d(2), BnnPlusConv(2, 6, 3, bias=False)
        self.bn1, self.act1 = nn.BatchNorm2d(6), nn.PReLU()
        self.conv2, self.bn2 = BnnPlusConv(6, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2, 8, 8] --> [N, 5]."""
        x = self.act1(self.bn1(self.conv1(self.bn0(x))))
        x = self.bn2(self.conv2(x)).flatten(1)
        return functional.linear(SwishSign.apply(x), SwishSign.apply(self.fc.weight), self.fc.bias)


class XnorPlusPlus(nn.Module):
    """XNOR-Net++: the scale of the sums is a product of factors for channels, rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.conv = nn.BatchNorm2d(1), nn.Conv2d(1, 6, 3, bias=False)
        self.alpha = nn.Parameter(torch.rand(6, 1, 1) + 0.5)
        self.beta, self.gamma = nn.Parameter(torch.rand(1, 6, 1) + 0.5), nn.Parameter(torch.rand(1, 1, 6) + 0.5)
        self.bn2, self.fc = nn.BatchNorm2d(6), nn.Linear(216, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = functional.conv2d(SignSTE.apply(self.bn1(x)), SignSTE.apply(self.conv.weight))
        x = x.mul(self.alpha).mul(self.beta).mul(self.gamma)
        x = SignSTE.apply(self.bn2(x)).flatten(1)
        return functional.linear(x, SignSTE.apply(self.fc.weight)) * 0.05 + self.fc.bias


class BinaryDense(nn.Module):
    """BinaryDenseNet: binary convolutions whose channels are appended."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(8)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(8, 4, 3, padding=1, bias=False)]
        )
        self.fc = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.first(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            new = functional.conv2d(SignSTE.apply(norm(x)), SignSTE.apply(conv.weight), padding=1)
            x = torch.cat([x, new], dim=1)
        return self.fc(functional.adaptive_avg_pool2d(functional.relu(x), 1).flatten(1))


class RealToBinary(nn.Module):
    """Real-to-binary networks: a small float branch scales the channels of the binary convolution for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn1 = nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8)
        self.conv, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 8)
        self.fc = nn.Linear(72, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = self.bn1(self.first(x))
        gate = torch.sigmoid(self.up(functional.relu(self.down(x.mean(dim=(2, 3))))))
        y = functional.conv2d(SignSTE.apply(x), SignSTE.apply(self.conv.weight), padding=1)
        y = functional.relu(self.bn2(y * gate[:, :, None, None]))
        return self.fc(y.flatten(1))


class BinaryKeywords(nn.Module):
    """Binary convolutions over time for keywords, signs of 1 and -1 by a comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.bn0 = nn.BatchNorm1d(10)
        self.conv1, self.bn1 = nn.Conv1d(10, 8, 3, padding=1, bias=False), nn.BatchNorm1d(8)
        self.conv2, self.bn2 = nn.Conv1d(8, 8, 3, stride=2, bias=False), nn.BatchNorm1d(8)
        self.fc = nn.Linear(8, 6)

    @staticmethod
    def sign(x: Tensor) -> Tensor:
        """Return -1 or 1."""
        hard = (x > 0).to(x.dtype) * 2 - 1
        soft = functional.hardtanh(x)
        return soft + (hard - soft).detach()

    def forward(self, x: Tensor) -> Tensor:
        """[N, 10, 16] --> [N, 6]."""
        x = functional.conv1d(self.sign(self.bn0(x)), self.sign(self.conv1.weight), padding=1)
        x = functional.conv1d(self.sign(self.bn1(x)), self.sign(self.conv2.weight), stride=2)
        x = self.sign(self.bn2(x)).amax(dim=2)
        return functional.linear(x, self.sign(self.fc.weight), self.fc.bias)


class StochasticBinarization(nn.Module):
    """BinaryConnect's random binarization while training; the sign of 0.5 and more behind a hard sigmoid otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn1, self.fc2 = nn.Linear(64, 20, bias=False), nn.BatchNorm1d(20), nn.Linear(20, 10, bias=False)

    def binary(self, w: Tensor) -> Tensor:
        """Return -1 or 1."""
        p = torch.clamp((w + 1.0) / 2.0, 0, 1)
        b = torch.bernoulli(p) if self.training else torch.round(p)
        return w + (torch.where(b > 0, torch.ones_like(w), -torch.ones_like(w)) - w).detach()

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 10]."""
        x = (x.flatten(1) > 0.5).float()
        x = self.bn1(functional.linear(x, self.binary(self.fc1.weight)))
        x = torch.where(x > 0, 1.0, -1.0) if not self.training else functional.hardtanh(x)
        return functional.linear(x, self.binary(self.fc2.weight))
