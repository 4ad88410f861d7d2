"""PT2E programs come in as they are: equal to their own evaluation, at half-way points, too; or refused by name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn import functional
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.errors import CaptureError, ExactnessError, InputError, NnhwError
from nnhw.flow.commands.inspection import check_file
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture, load_source, pt2e, pt2e_evaluating
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.archive import load_archive
from nnhw.frontend.capture import capture_quantizers
from nnhw.frontend.pt2e_rewriter import Rewriter
from nnhw.ir import graph_hash, run
from nnhw.ir.ops import Quantize
from tests.frontend.models import binary_mlp, images
from tests.frontend.pt2e_models import CASES, INT8, OPS, SCALE, UINT8, Shared, Weight, exported, pair
from tests.sim.test_benches import pytestmark as needs_simulator

WAY = "quantize with PT2E (prepare_pt2e, calibrate, convert_pt2e), or give the float model to nnhw.quantize"


def program_of(name: str) -> ExportedProgram:
    return exported(*CASES[name])


def half_way(shape: tuple[int, ...], scale: float, count: int = 64) -> Tensor:
    """Return images of numbers between two codes."""
    steps = torch.from_numpy(np.random.default_rng(2).integers(-140, 140, (count, *shape))) + 0.5
    return (steps * scale).float()


@pytest.mark.parametrize("name", CASES)
def test_program_equals_its_own_evaluation(name: str) -> None:
    program, shape = program_of(name), CASES[name][1]
    x = torch.cat([images(16, shape) * 4 - 2, half_way(shape, SCALE), half_way(shape, SCALE / 4)])
    captured = capture_quantizers(program)
    assert isinstance(captured.traced, ExportedProgram)
    assert torch.equal(captured.traced.module()(x), program.module()(x))
    answers = own_answers(program, captured, x.numpy())
    assert np.array_equal(answers.own, program.module()(x).numpy())
    parts, facts = lower_graph(captured.graph, {"inputs": x.numpy()})
    assert set(facts["passes"].values()) == {0}
    assert all(node.op.reciprocal for node in captured.graph.nodes if isinstance(node.op, Quantize))
    assert parts.body.nodes


def test_codes_of_the_input_are_those_of_torch_at_half_way_points() -> None:
    x = half_way((6,), SCALE)
    graph = capture(program_of("inductor"))
    codes: dict[str, np.ndarray] = {}
    run(graph, x.numpy(), codes.__setitem__)
    first = next(node.name for node in graph.nodes if isinstance(node.op, Quantize))
    own = OPS.quantize_per_tensor(x, SCALE, 0, *UINT8)
    assert codes[first].tolist() == own.tolist()
    assert own.tolist() != (x / SCALE).round().clamp(0, 255).tolist()


def test_graph_module_with_a_guard_of_its_batch_takes_any() -> None:
    module = exported(*CASES["inductor"], batch=4).module()
    with pytest.raises(AssertionError):
        module(images(3, (6,)))
    x = images(3, (6,))
    assert torch.equal(nnhw.reference(module)(x), nnhw.reference(program_of("inductor"))(x))


@pytest.mark.parametrize("kind", ["program", "module", "wrapped"])
def test_programs_and_graph_modules_give_the_same_graph(kind: str) -> None:
    program = program_of("xnnpack_int8")
    module = program.module()
    model = {"program": program, "module": module, "wrapped": nn.Sequential(module)}[kind]
    x = images(3)
    example = x if kind == "wrapped" else None  # shapes are in the graph, if it is the model itself
    assert torch.equal(nnhw.reference(model, example)(x), nnhw.reference(program)(x))


def test_batch_of_one_size_stays_so() -> None:
    program = exported(*CASES["inductor"], batch=4)
    made = pt2e.traceable(program, None, {})
    assert isinstance(made, ExportedProgram)
    assert made.graph_signature.user_inputs == ("x",)
    assert next(node.meta["val"].shape[0] for node in made.graph.nodes if node.name == "x") == 4
    x = images(4, (6,))
    assert torch.equal(made.module()(x), program.module()(x))
    assert nnhw.reference(program)(images(7, (6,))).shape == (7, 6)


def test_files_hold_programs_and_modules(tmp_path: Path) -> None:
    program = program_of("xnnpack_int8")
    torch.export.save(program, tmp_path / "net.pt2")
    (tmp_path / "net.py").write_text(
        "from tests.frontend.models import images\n"
        "from tests.frontend.pt2e_models import CASES, exported\n"
        "program = exported(*CASES['xnnpack_int8'])\n"
        "model = program.module()\nexample_input = images(2)\n"
    )
    graphs = [load_source(tmp_path / name).capture() for name in ("net.pt2", "net.py", "net.py:program")]
    x = images(5).numpy()
    results = [run(graph, x)[0].tolist() for graph in graphs]
    assert results[0] == results[1] == results[2]
    assert graph_hash(load_source(tmp_path / "net.pt2").capture()) == graph_hash(graphs[0])


def test_operators_are_registered_when_a_file_needs_them(tmp_path: Path) -> None:
    torch.export.save(program_of("inductor"), tmp_path / "net.pt2")
    torch.export.save(torch.export.export(binary_mlp(), (images(),)), tmp_path / "own.pt2")
    script = (
        "import sys\nfrom nnhw.frontend import load_source\n"
        "name = 'torch.ao.quantization.fx._decomposed'\n"
        f"load_source({str(tmp_path / 'own.pt2')!r}); assert name not in sys.modules\n"
        f"load_source({str(tmp_path / 'net.pt2')!r}); assert name in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_check_finds_no_problem_in_a_program(tmp_path: Path) -> None:
    torch.export.save(program_of("xnnpack_int8"), tmp_path / "net.pt2")
    check_file(str(tmp_path / "net.pt2"), "ulx3s_85f")  # raises what it finds


@needs_simulator
def test_program_equals_reference_in_rtl(tmp_path: Path) -> None:
    build = nnhw.build(
        program_of("xnnpack_int8"), images(8), board="ulx3s_85f", out=tmp_path / "build", frames=4, stop_at="simulate"
    )
    assert build.report["exactness"]["ir_rtl"] == 0


@pytest.mark.parametrize("change", ["scale", "convention"])
def test_comparison_names_the_first_quantizer_that_differs(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The convention alone shows at half-way points only, which the example does not have."""
    own = Rewriter._call

    def changed(self: Rewriter, where: fx.Node, x: fx.Node, given: Any, *, reciprocal: bool) -> fx.Node:
        if change == "convention":
            return own(self, where, x, given, reciprocal=False)
        return own(self, where, x, replace(given, scale=given.scale * 1.001), reciprocal=reciprocal)

    capture(program_of("inductor"))
    monkeypatch.setattr(Rewriter, "_call", changed)
    if change == "convention":  # it is part of what calls are known by: let the evaluation say the same
        monkeypatch.setattr(pt2e_evaluating, "RECIPROCAL", False)
    with pytest.raises(ExactnessError) as caught:
        capture(program_of("inductor"))
    assert "(pt2e_models.py:" in str(caught.value)
    assert "is the first quantizer that gives another code than its framework for the same number" in str(caught.value)


class Of(nn.Module):
    """A function of the input's numbers as a model."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = Weight(6, 6, seed=1)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] --> whatever."""
        return self.function(self, x)


def dynamic(model: nn.Module, x: Tensor) -> Tensor:
    scale, zero_point = OPS.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    codes = OPS.quantize_per_tensor.tensor(x, scale, zero_point, *INT8)
    return functional.linear(OPS.dequantize_per_tensor.tensor(codes, scale, zero_point, *INT8), model.weight())


def unequal(model: nn.Module, x: Tensor) -> Tensor:
    codes = OPS.quantize_per_tensor(x, 0.5, 0, *INT8)
    return functional.linear(OPS.dequantize_per_tensor(codes, 0.25, 0, *INT8), model.weight())


def computed(model: nn.Module, x: Tensor) -> Tensor:
    codes = OPS.quantize_per_tensor(x, 0.5, 0, *INT8)
    return functional.linear(OPS.dequantize_per_tensor(codes.neg(), 0.5, 0, *INT8), model.weight())


def returned(model: nn.Module, x: Tensor) -> Tensor:
    codes: Tensor = OPS.quantize_per_tensor(functional.linear(pair(x), model.weight()), 0.5, 0, *INT8)
    return codes


def wide(model: nn.Module, x: Tensor) -> Tensor:
    return functional.linear(pair(x, 2.0**-20, 0, (-(2**31), 2**31 - 1, torch.int32)), model.weight())


def per_token(model: nn.Module, x: Tensor) -> Tensor:
    scales, zeros = OPS.choose_qparams_per_token(x, torch.int8)
    codes = OPS.quantize_per_token(x, scales, zeros, *INT8)
    return functional.linear(OPS.dequantize_per_token(codes, scales, zeros, *INT8, torch.float32), model.weight())


def double_scale(model: nn.Module, x: Tensor) -> Tensor:
    return functional.linear(pair(x, 0.004), model.weight())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            dynamic,
            ("dequantize_per_tensor of the model (test_pt2e.py:LINE) computes its scale from the model's input; an "
            "accelerator has fixed ones: quantize with is_dynamic=False, and calibrate"),
        ),
        (
            unequal,
            ("dequantize_per_tensor of the model (test_pt2e.py:LINE) takes codes for others than they are: it has "
            "scale 0.25, zero point 0, codes -128..127, axis -1, its quantize scale 0.5, zero point 0, codes "
            "-128..127, axis -1; dequantize with the numbers that the codes were made with"),
        ),
        (
            computed,
            ("dequantize_per_tensor of the model (test_pt2e.py:LINE) reads codes that 'neg' has computed; quantize and "
            "dequantize need to follow one another, with the operation between them on numbers"),
        ),
        (
            returned,
            ("quantize_per_tensor of the model (test_pt2e.py:LINE) is what the model returns as codes; dequantize them "
            "first"),
        ),
        (wide, ("dequantize_per_tensor of the model (test_pt2e.py:LINE) has codes of more than 16 bits; use "
               "int8, uint8 or int16")),
        (per_token, "has no counterpart; use quantize_per_tensor or quantize_per_channel, and the dequantize of"),
        (double_scale, "has the scale 0.004, which is no float32; use .float() of it"),
    ],
)  # fmt: skip
def test_door_rejects_what_has_no_counterpart(function: Callable[[nn.Module, Tensor], Tensor], message: str) -> None:
    with pytest.raises(NnhwError) as caught:
        capture(exported(Of(function), (6,)))
    assert message in re.sub(r"\.py:\d+", ".py:LINE", str(caught.value))


def test_door_names_all_problems_at_once() -> None:
    model = exported(Of(lambda model, x: unequal(model, x) + computed(model, x)), (6,))
    with pytest.raises(NnhwError) as caught:
        capture(model)
    assert "takes codes for others" in str(caught.value)
    assert "reads codes that 'neg' has computed" in str(caught.value)


def test_capture_says_what_to_do_about_a_module_that_calls_the_operators() -> None:
    with pytest.raises(NnhwError) as caught:
        capture(Shared(), images(2, (6,)))
    assert "export the module that calls it, and give the program: torch.export.export(model, (" in str(caught.value)


def test_door_rejects_an_example_of_another_shape() -> None:
    with pytest.raises(InputError) as caught:
        capture(program_of("inductor"), images(2, (5,)))
    assert str(caught.value) == (
        "the program takes [batch, ..] with images of shape [6] and torch.float32, got [5] and torch.float32; give an "
        "example_input as it was exported with"
    )


def test_door_calls_no_operator_that_opens_files(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    program = program_of("inductor")
    output = next(node for node in program.graph.nodes if node.op == "output")
    with program.graph.inserting_before(output):
        program.graph.call_function(torch.ops.aten.from_file.default, (str(file), True, 6), {"dtype": torch.float32})
    with pytest.raises(CaptureError) as caught:
        capture(program)
    assert "operator aten.from_file.default is not supported" in str(caught.value)
    assert not file.exists()


class Eager(nn.Module):
    """Torch's eager quantization, as far as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.fc = torch.ao.quantization.QuantStub(), nn.Linear(6, 3)
        self.dequant = torch.ao.quantization.DeQuantStub()
        self.qconfig = torch.ao.quantization.get_default_qconfig("x86")

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] --> [N, 3]."""
        result: Tensor = self.dequant(self.fc(self.quant(x)))
        return result


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_only_observes_is_refused_by_name() -> None:
    prepared = torch.ao.quantization.prepare(Eager().eval())
    prepared(images(4, (6,)))
    for call in (lambda: capture(prepared, images(2, (6,))), lambda: nnhw.quantize(prepared, [images(2, (6,))])):
        with pytest.raises(NnhwError) as caught:
            call()
        assert "is a HistogramObserver, an observer: the model is not quantized yet" in str(caught.value)


def test_tensors_of_torchao_are_refused_by_name() -> None:
    Packed = type("Int8Tensor", (torch.Tensor,), {"__module__": "torchao.quantization"})
    model = nn.Sequential(nn.Linear(6, 3))
    model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Packed))
    with pytest.raises(NnhwError) as caught:
        capture(model, images(2, (6,)))
    assert str(caught.value) == (
        "'0.weight' of the model is torchao's Int8Tensor, which is unpacked, and for dynamic quantization scaled, at "
        "run time; an accelerator has fixed scales: " + WAY
    )


def test_float_quantization_of_a_program_says_that_it_is_quantized() -> None:
    with pytest.raises(NnhwError) as caught:
        nnhw.quantize(program_of("inductor"), [images(2, (6,))])
    assert "the model is quantized already" in str(caught.value)


PAGE = (Path(__file__).parents[2] / "docs" / "pt2e.md").read_text(encoding="utf-8")
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
    results = [CliRunner().invoke(app, command.split()[1:]) for command in commands]
    assert [result.exit_code for result in results] == [0, 0], [result.output for result in results]
    assert "no problems" in results[0].output


def test_programs_of_the_page_run() -> None:
    programs = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    compile(programs, "pt2e.md", "exec")
    pytest.importorskip("torchao")
    done = subprocess.run([sys.executable, "-c", programs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_example_classifies_digits_and_equals_pt2e() -> None:
    source = load_source(EXAMPLES / "mnist_pt2e.pt2")
    with np.load(EXAMPLES / "data" / "mnist_300.npz", allow_pickle=False) as digits:
        x, labels = digits["images"][:, np.newaxis].astype(np.float32) / np.float32(255), digits["labels"]
    results = run(source.capture(), x)[0]
    assert int((results.argmax(axis=1) == labels).sum()) == 300
    own = load_archive(EXAMPLES / "mnist_pt2e.pt2").module()(torch.from_numpy(x)).detach().numpy()
    assert (np.abs(own - results).max(axis=1) > 1e-4).sum() <= 3  # a rounding decides
    assert source.own_answers(source.capture_quantizers(), x).precision == "float32"
