"""torch's own quantized models: prepared for training, and converted to int8; capture compares each with torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization as ao
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

import nnhw
from nnhw.errors import NnhwError
from nnhw.frontend.capture import capture
from nnhw.ir import run
from nnhw.ir.ops import Quantize
from nnhw.passes import lower

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fbgemm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute int8 layers with FBGEMM, whose sums are exact up to the rounding of their last step."""
    monkeypatch.setattr(torch.backends.quantized, "engine", "fbgemm")


class Network(nn.Module):
    """Convolutions with a branch, pooling and a linear layer, between stubs.

    Parameters
    ----------
    averages: pool by averages behind the branch, where prepared models have no quantizer.
    """

    def __init__(self, averages: bool = True) -> None:
        super().__init__()
        self.quant, self.dequant, self.sum = ao.QuantStub(), ao.DeQuantStub(), FloatFunctional()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.grouped, self.pool, self.mean = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.MaxPool2d(2), nn.AvgPool2d(2)
        if not averages:
            self.mean = nn.MaxPool2d(2)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8] --> [N, 5]."""
        x = self.pool(self.relu(self.norm(self.conv(self.quant(x)))))
        x = self.mean(self.sum.add_relu(x, self.grouped(x)))
        result: Tensor = self.dequant(self.fc(x.flatten(1)))
        return result


def images(count: int = 32) -> Tensor:
    """Return images of [1, 8, 8]."""
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(3)) * 2 - 1


def trained(model: nn.Module) -> nn.Module:
    """Train a prepared model for a few steps, so that it has seen data."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(4):
        optimizer.zero_grad()
        model(images()).square().mean().backward()
        optimizer.step()
    return model.eval()


def eager(engine: str = "x86", *, averages: bool = False) -> nn.Module:
    """Return a model of eager QAT, prepared and trained."""
    torch.manual_seed(4)
    model = Network(averages).train()
    model.qconfig = ao.get_default_qat_qconfig(engine)  # type: ignore[assignment]
    fused = ao.fuse_modules_qat(model, [["conv", "norm", "relu"]])
    return trained(ao.prepare_qat(fused))


def fx() -> nn.Module:
    """Return a model of FX QAT, prepared and trained."""
    torch.manual_seed(5)
    layers = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        nn.Linear(16, 5),
    )
    mapping = ao.get_default_qat_qconfig_mapping("x86")
    return trained(prepare_qat_fx(layers.train(), mapping, (images(2),)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "eager, prepared": eager,
    "eager, one scale": lambda: eager("qnnpack"),
    "eager, converted": lambda: ao.convert(eager(averages=True)),
    "FX, prepared": fx,
    "FX, converted": lambda: convert_fx(fx()),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_has_the_codes_of_torch(name: str) -> None:
    model = MODELS[name]()
    graph = capture(model, images(8))
    # capture has compared all codes with torch's; here the results of images that it has not seen.
    with torch.no_grad():
        for fake in (one for one in model.modules() if isinstance(one, ao.FakeQuantizeBase)):
            fake.disable_observer()
        own = model(images(64)[8:])
    results = torch.from_numpy(run(graph, images(64)[8:].numpy())[0])
    torch.testing.assert_close(results, own.double(), rtol=0, atol=1e-6)
    lowered = lower(graph)
    assert (run(lowered, images(8).numpy())[0] == run(graph, images(8).numpy())[0]).all()


def test_the_codes_are_those_of_8_bits() -> None:
    graph = capture(ao.convert(eager(averages=True)), images(4))
    formats = {(node.op.low, node.op.high) for node in graph.nodes if isinstance(node.op, Quantize)}
    assert all(high - low == 255 for low, high in formats)


def test_a_prepared_model_keeps_observing_nothing() -> None:
    model = eager()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    nnhw.reference(model, images(4))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_without_data_is_refused() -> None:
    model = Network().train()
    model.qconfig = ao.get_default_qat_qconfig("x86")  # type: ignore[assignment]
    with pytest.raises(NnhwError) as caught:
        capture(ao.prepare_qat(model).eval(), images(2))
    assert "has seen no data, so that it has no scale; run the prepared model on some images" in str(caught.value)


def test_weights_changed_behind_convert_are_read() -> None:
    model = ao.convert(eager(averages=True))
    first = run(capture(model, images(4)), images(4).numpy())[0]
    weight, bias = model.fc.weight(), model.fc.bias()
    model.fc.set_weight_bias(torch.quantize_per_tensor(-weight.dequantize(), 0.02, 0, torch.qint8), bias)
    assert (run(capture(model, images(4)), images(4).numpy())[0] != first).any()


class Doubling(ao.FakeQuantize):
    """A fake quantizer that computes something of its own."""

    def forward(self, X: Tensor) -> Tensor:
        """Return twice what torch's returns."""
        result: Tensor = 2 * super().forward(X)
        return result


def test_a_fake_quantizer_with_its_own_forward_is_refused() -> None:
    torch.manual_seed(6)
    layers = nn.Sequential(Doubling(), nn.Flatten(), nn.Linear(64, 3))
    layers(images())
    with pytest.raises(NnhwError) as caught:
        capture(layers.eval(), images(2))
    assert "is a Doubling, which computes something else than torch's FakeQuantize" in str(caught.value)


def test_functions_that_torch_rounds_on_int8_are_refused() -> None:
    class Leaky(Network):
        def forward(self, x: Tensor) -> Tensor:
            """[N, 1, 8, 8] --> [N, 5]."""
            x = self.pool(nn.functional.leaky_relu(self.conv(self.quant(x)), 0.3))
            result: Tensor = self.dequant(self.fc(self.mean(x).flatten(1)))
            return result

    model = Leaky().train()
    model.qconfig = ao.get_default_qat_qconfig("x86")  # type: ignore[assignment]
    with pytest.raises(NnhwError) as caught:
        capture(ao.convert(trained(ao.prepare_qat(model))), images(2))
    assert "torch's operator 'leaky_relu' on int8 tensors is not supported" in str(caught.value)
