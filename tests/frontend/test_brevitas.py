"""Models of Brevitas layers: each of Brevitas's own quantizers and layers is built and equal, or refused by name."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import nnhw
import nnhw.frontend
from nnhw.cli import app
from nnhw.errors import ExactnessError, InputError, ModelFileError, NnhwError, ProblemList
from nnhw.frontend import capture, load_source
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.frontend.doors import is_foreign
from nnhw.frontend.probes import probes
from nnhw.ir import run
from nnhw.nn import QuantLinear, UInt
from tests.frontend import brevitas_table
from tests.frontend.cases import Case, check, check_names, rows
from tests.frontend.doors_table import check_row
from tests.sim.test_benches import pytestmark as needs_simulator

qnn = pytest.importorskip("brevitas.nn", reason="needs Brevitas: pip install 'nnhw[brevitas]'")
quant = pytest.importorskip("brevitas.quant")
brevitas_cases = pytest.importorskip("tests.frontend.brevitas_cases")

EXAMPLES = Path(__file__).parents[2] / "examples"


def mlp(act: nn.Module | None = None, **options: object) -> nn.Sequential:
    """Return a network of two layers, used a few times in training mode."""
    torch.manual_seed(1)
    linear = qnn.QuantLinear(8, 8, **{"bias": False, **options})
    model = nn.Sequential(
        act or qnn.QuantIdentity(), linear, qnn.QuantReLU(bit_width=4), qnn.QuantLinear(8, 4, bias=True)
    )
    for _ in range(3):
        model(torch.randn(16, 8))
    return model


def digits(count: int = 4) -> Tensor:
    """Return an example input of `mlp`."""
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(2))


def refusal(model: nn.Module, example: Tensor | None = None) -> str:
    """Return what is said of a model that is refused."""
    with pytest.raises(NnhwError) as raised:
        capture(model, digits() if example is None else example)
    return str(raised.value)


@pytest.mark.parametrize("case", rows(brevitas_cases.cases(), brevitas_cases.long()))
def test_case_is_built_and_equal_or_refused_by_name(case: Case) -> None:
    check(case)


def test_page_counts_the_cases_as_they_are() -> None:
    check_names(brevitas_cases.cases())
    text = brevitas_table.PAGE.read_text(encoding="utf-8")
    assert brevitas_table.page(text) == text, "run: python -m tests.frontend.doors_table"
    check_row("Brevitas")


def test_model_is_not_changed() -> None:
    model = mlp(bias=True, bias_quant=quant.Int8BiasPerTensorFloatInternalScaling)
    before = copy.deepcopy(model.state_dict())
    capture(model, digits())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module for module in model.modules() if getattr(module, "export_handler", None) is not None] == []


def test_reference_is_the_graph_that_was_compared_with_brevitas() -> None:
    model = mlp().eval()
    images = digits(200)
    captured = capture_quantizers(model, images)
    own_answers(model, captured, images.numpy())  # an ExactnessError where more than rounding differs
    assert np.array_equal(nnhw.reference(model, images)(images).numpy(), run(captured.graph, images.numpy())[0])


def test_weights_are_known_by_the_names_of_the_model() -> None:
    graph = capture(mlp(), digits())
    assert {"1.weight", "3.weight"} <= {node.name for node in graph.nodes}


def test_value_of_quant_tensors_and_isinstance_are_read() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = qnn.QuantIdentity(return_quant_tensor=True)
            self.linear = qnn.QuantLinear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            from brevitas.quant_tensor import QuantTensor

            y = self.act(x)
            assert isinstance(y, QuantTensor)
            total = self.act(self.linear(y)) + y
            return self.linear(self.act(total.view(-1, 8)).value)

    model = Reads()
    assert len(capture(model.eval(), digits()).output_nodes) == 1


def test_scale_of_quant_tensors_is_refused() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = qnn.QuantIdentity(return_quant_tensor=True)

        def forward(self, x: Tensor) -> Tensor:
            y = self.act(x)
            return y.value * y.scale

    message = refusal(Reads())
    assert message.startswith("the model does not run at test_brevitas.py:")
    assert message.endswith(
        "while it is captured, when a QuantTensor has its value and nothing else: AttributeError: 'PlainQuantTensor' "
        "object has no attribute 'scale'; leave out what reads scales, zero points and bit widths"
    )


def test_layers_of_nnhw_and_of_brevitas_mix() -> None:
    linear = qnn.QuantLinear(8, 4, bias=False)
    model = nn.Sequential(UInt(8, scale=2**-6), linear, qnn.QuantReLU(bit_width=4), QuantLinear(4, 4))
    graph = capture(model.eval(), digits())
    assert [node.op.name for node in graph.nodes].count("linear") == 2


def test_model_with_all_kinds_of_problems_gets_them_all_at_once() -> None:
    model = nn.Sequential(
        qnn.QuantIdentity(bit_width=24),
        qnn.QuantLinear(8, 4, bias=False, weight_quant=quant.Fp8e4m3Weight),
        qnn.QuantIdentity(float_to_int_impl_type="dpu"),
    )
    with pytest.raises(ProblemList) as raised:
        capture(model, digits())
    assert str(raised.value) == (
        "3 problems:\n"
        "  1. quantizer '0.act_quant' has 24 bits, but codes have 1 to 16 whole bits; set bit_width\n"
        "  2. quantizer '1.weight_quant' makes minifloats (WeightFloatQuantProxyFromInjector), whose products are no "
        "integers; use integers with one scale for the tensor or for each channel, such as Int8WeightPerChannelFloat\n"
        "  3. quantizer '2.act_quant' rounds by DPURoundSte, which the hardware does not do; use "
        "float_to_int_impl_type 'round', 'floor' or 'ceil'"
    )


def test_capture_rejects_quantizers_that_are_switched_off() -> None:
    model = mlp()
    model[0].act_quant.disable_quant = True
    assert refusal(model) == (
        "quantizer '0.act_quant' is switched off (disable_quant); switch it on, such as by leaving calibration_mode"
    )


def test_capture_rejects_quantizers_that_wait() -> None:
    assert "lets numbers through for" in refusal(mlp(qnn.QuantIdentity(quant_delay_steps=100)))


def test_capture_rejects_quantizers_that_draw_random_numbers() -> None:
    model = mlp(weight_float_to_int_impl_type="stochastic_round")
    capture(model, digits())
    model[1].weight_quant.tensor_quant.int_quant.float_to_int_impl.deterministic_inference = False
    assert refusal(model) == (
        "quantizer '1.weight_quant' draws random numbers (StochasticRoundSte) in eval mode, too; set "
        "deterministic_inference=True"
    )


def test_capture_rejects_scales_of_each_image() -> None:
    quantizers = pytest.importorskip("brevitas_examples.common.generative.quantizers")
    assert refusal(mlp(qnn.QuantIdentity(quantizers.Int8DynamicActPerTensorFloat))) == (
        "quantizer '0.act_quant' finds its scale from each image (DynamicActQuantProxyFromInjector); use integers with "
        "one scale for the tensor or for each channel, such as Int8ActPerTensorFloat"
    )


def test_capture_rejects_weights_that_are_computed_in_each_call() -> None:
    from torch.nn.utils import prune

    model = mlp()
    prune.random_unstructured(model[1], "weight", 0.5)
    assert refusal(model) == (
        "QuantLinear '1' computes its weight anew in each call; make it a parameter, such as by "
        "torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove"
    )
    prune.remove(model[1], "weight")
    capture(model, digits())


def test_capture_rejects_a_layer_whose_bias_depends_on_the_call() -> None:
    linear = qnn.QuantLinear(8, 8, bias=True, bias_quant=quant.Int8Bias)
    acts = [qnn.QuantIdentity(bit_width=bits, return_quant_tensor=True) for bits in (8, 3)]
    model = nn.Sequential(acts[0], linear, acts[1], linear)
    model(digits())
    assert refusal(model.eval()) == (
        "QuantLinear '1' has another quantized bias from one call to the next; give each call a layer of its own"
    )


def _double_scale(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    handlers = pytest.importorskip("nnhw.frontend.brevitas.handlers")
    handler = getattr(handlers, name)
    made = handler.__init__

    def broken(self: nn.Module, coding: object) -> None:
        made(self, coding)
        self.scale *= 2

    monkeypatch.setattr(handler, "__init__", broken)


def _round_down(monkeypatch: pytest.MonkeyPatch) -> None:
    coding = pytest.importorskip("nnhw.frontend.brevitas.coding")
    monkeypatch.setattr(coding, "rounding_of", lambda kernel, qmin: "floor")


def _lose_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = pytest.importorskip("nnhw.frontend.brevitas.handlers")
    monkeypatch.setattr(handlers.BiasHandler, "forward", lambda self, x, *context: (x * 0, None, None, None))


def _forget_shared_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = pytest.importorskip("nnhw.frontend.brevitas.opening")
    monkeypatch.setattr(opening, "_keep_values", lambda model, uses, places: None)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], dict[str, object]]] = {
    "scale of weights": (lambda patch: _double_scale(patch, "WeightHandler"), {}),
    "scale of activations": (lambda patch: _double_scale(patch, "ActivationHandler"), {}),
    "rounding": (_round_down, {}),
    "bias": (_lose_bias, {"bias": True, "bias_quant": "Int8BiasPerTensorFloatInternalScaling"}),
    "weights that are rounded in another way": (_forget_shared_weights, {"weight_float_to_int_impl_type": "floor"}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_comparison_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, options = MUTANTS[name]
    given = {key: getattr(quant, value) if key.endswith("_quant") else value for key, value in options.items()}
    model = mlp(**given)
    capture(model, digits())
    mutate(monkeypatch)
    with pytest.raises(ExactnessError):
        capture(model, digits())


def test_comparison_looks_at_edges_of_the_first_quantizer() -> None:
    graph = capture(mlp(qnn.QuantIdentity(quant.Int8ActPerTensorFixedPoint)), digits())
    scale = next(graph.constants[node.inputs[1]] for node in graph.nodes if node.op.name == "quantize")
    images = probes(graph, digits().numpy())
    assert len(images) == 4 + 16 + 16 + 16
    halves, near = images[20:36] / scale * 2, images[36:] / scale * 2
    assert np.array_equal(halves, np.rint(halves))
    assert (halves % 2 == 1).any()
    assert (near != np.rint(near)).all()


def test_model_file_goes_through_check_and_ir(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\nfrom torch import nn\nimport brevitas.nn as qnn\n"
        "model = nn.Sequential(\n"
        "    qnn.QuantIdentity(),\n"
        "    qnn.QuantLinear(8, 4, bias=False),\n"
        ").eval()\n"
        "example_input = torch.linspace(-1, 1, 32).reshape(4, 8)\n"
    )
    for command in ("check", "ir"):
        done = CliRunner().invoke(app, [command, str(file)])
        assert done.exit_code == 0, done.output
    assert str(load_source(file).capture().node("linear_1").location) == "'1' (net.py:6)"


def test_model_file_without_brevitas_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "net.py"
    file.write_text("import brevitas.nn\n")
    monkeypatch.setitem(sys.modules, "brevitas", None)  # as if it were not installed
    with pytest.raises(ModelFileError) as raised:
        load_source(file)
    assert str(raised.value) == (
        "net.py:1: the package 'brevitas' is not installed; it comes by: pip install 'nnhw[brevitas]'"
    )


def test_capture_rejects_another_version_of_brevitas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("nnhw.frontend.brevitas")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(nnhw.frontend, "brevitas", raising=False)
    monkeypatch.setitem(sys.modules, "brevitas.export.manager", None)
    with pytest.raises(InputError, match="of another version than nnhw knows"):
        capture(mlp(), digits())


def test_capture_rejects_compiled_quantizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brevitas.config.JIT_ENABLED", True)
    assert refusal(mlp()).startswith("Brevitas compiles its quantizers, for BREVITAS_JIT=1 is set; unset it")


def test_packages_of_doors_are_imported_for_their_own_models_alone() -> None:
    program = (
        "import sys, torch, nnhw, nnhw.frontend\n"
        "from nnhw.nn import QuantLinear, Sign\n"
        "nnhw.frontend.capture(torch.nn.Sequential(Sign(), QuantLinear(4, 4)), torch.randn(2, 4))\n"
        "print({'brevitas', 'onnx', 'onnxruntime', 'qonnx', 'tflite'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "set()"


def test_models_are_known_by_their_layers() -> None:
    assert is_foreign(mlp())
    assert not is_foreign(nn.Sequential(nn.Linear(2, 2)))


@needs_simulator
def test_tfc_equals_brevitas_in_rtl(tmp_path: Path) -> None:
    model, example = brevitas_cases.bnn_pynq("tfc_1w1a")
    build = nnhw.build(model, example, out=tmp_path / "tfc", frames=2, fast_for="engine", stop_at="simulate")
    assert build.report["exactness"]["ir_rtl"] == 0
    assert build.report["cycles"]["interval"]["simulated"] == 196


@needs_simulator
def test_example_equals_brevitas_in_rtl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    source = load_source(EXAMPLES / "brevitas_mlp.py")
    build = nnhw.build(source.model, source.example_input, out=tmp_path / "mlp", frames=2, stop_at="simulate")
    assert build.report["exactness"]["ir_rtl"] == 0


def test_example_tells_real_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    source = load_source(EXAMPLES / "brevitas_mlp.py")
    with np.load(EXAMPLES / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        images = samples["images"][:, None].astype(np.float32) / np.float32(255)
        captured = capture_quantizers(source.model, source.example_input)
        own_answers(source.model, captured, images)  # an ExactnessError where more than rounding differs
        assert (run(captured.graph, images)[0].argmax(1) == samples["labels"]).sum() == 296
