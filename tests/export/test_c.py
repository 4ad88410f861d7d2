"""Exported C: compiled with all warnings as errors and with sanitizers, equal to the interpreter on every element."""

from __future__ import annotations

import ctypes
import math
import platform
import shutil
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.random_models import random_model
from benchmarks.random_networks import extreme_images
from nnhw import ir
from nnhw.errors import ExportError
from nnhw.export.c import CProgram, make_c
from nnhw.export.c.arena import Lifetime, place
from nnhw.export.c.c_text import c_type, comment, identifier
from nnhw.flow.commands.inspection import captured, lowered
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.virtual.compiled import find_cc
from nnhw.flow.virtual.native import STRICT_FLAGS, measure_cortex_m4, stack_depth, write_files
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir.ops import ArgMax, Concat, Conv2d, FixedSoftmax, MaxPool2d, Permute, Rescale, Softmax
from nnhw.ir.types import BIPOLAR, FLOAT, IntType, TensorType
from nnhw.passes import Parts, lower, split
from tests.mapping.products import PRODUCTS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 13)
CC = find_cc()
pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")


@dataclass
class Library:
    """Several models compiled into one library."""

    handle: ctypes.CDLL

    def run(self, program: CProgram, parts: Parts, images: np.ndarray) -> list[np.ndarray]:
        """Return codes, the network's results, and the outputs of the model."""
        entry, result = parts.body.inputs[0].type, parts.body.output_nodes[0].type
        codes = np.zeros((len(images), *entry.shape), c_type(entry.int_dtype).removesuffix("_t"))
        made = np.zeros((len(images), *result.shape), c_type(result.int_dtype).removesuffix("_t"))
        outputs = [np.zeros((len(images), *node.type.shape)) for node in parts.tail.output_nodes]
        given = np.ascontiguousarray(images, dtype=np.float32)
        scratch = np.full(program.scratch_bytes // 8, 0xAAAAAAAAAAAAAAAA, np.uint64)
        for k in range(len(images)):
            self.call(program, "quantize", given[k], codes[k : k + 1])
            self.call(program, "run", codes[k : k + 1], made[k : k + 1], scratch)
            self.call(program, "finish", made[k : k + 1], *(output[k : k + 1] for output in outputs))
        return [codes, made, *outputs]

    def call(self, program: CProgram, name: str, *arrays: np.ndarray) -> None:
        """Call a function with arrays."""
        getattr(self.handle, f"{program.name}_{name}")(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))


def compiled(programs: list[CProgram], folder: Path, *flags: str) -> Library:
    """Compile models into one library, all warnings being errors."""
    assert CC
    for program in programs:
        write_files(program, folder)
    sources = [f"{program.name}.c" for program in programs]
    command = [*CC, *STRICT_FLAGS, *flags, "-shared", "-fPIC", *sources, "-o", "library.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return Library(ctypes.CDLL(str(folder / "library.so")))


def expected(parts: Parts, images: np.ndarray) -> list[np.ndarray]:
    """Return what the interpreter makes of images: codes, results, outputs."""
    codes = ir.run(parts.head, images)
    made = ir.run(parts.body, codes)
    return [*codes, *made, *ir.run(parts.tail, made)]


def random_parts(seed: int) -> tuple[Parts, np.ndarray]:
    """Return a random network and images at the ends of its range and beyond."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, example = random_model(seed)
        parts = split(lower(capture_quantizers(model, example).graph))
    return parts, extreme_images(example.numpy(), np.random.default_rng(seed))


def float_ends(body: ir.Graph) -> Parts:
    """Return an integer graph with a head and a tail that change nothing."""
    given, made = body.inputs[0].type, body.output_nodes[0].type
    head, tail = ir.GraphBuilder("head"), ir.GraphBuilder("tail")
    one = TensorType((), FLOAT)
    x = head.input("x", TensorType(given.shape, FLOAT))
    kind = given.int_dtype
    op = ir.ops.Quantize(kind.low, kind.high, kind.bipolar)
    codes = head.add("codes", op, [x, head.constant("scale", np.array(1.0), one)])
    y = tail.input("y", made)
    value = tail.add("value", ir.ops.Dequantize(), [y, tail.constant("scale", np.array(1.0), one)])
    return Parts(head.build([codes]), body, tail.build([value]))


def weights(builder: ir.GraphBuilder, shape: tuple[int, ...], kind: IntType, seed: int) -> str:
    """Add random weights of a range."""
    rng = np.random.default_rng(seed)
    array = rng.integers(kind.low, kind.high + 1, shape)
    array = np.where(array >= 0, 1, -1) if kind.bipolar else array
    return builder.constant("weight", array.astype(np.int64), TensorType(shape, kind))


def operators() -> dict[str, ir.Graph]:
    """Return small graphs of what random networks seldom have."""
    made = {}
    for name, kind, weight_kind, op, shape, weight in (
        ("grouped", IntType(-8, 7), IntType(-128, 127), Conv2d((2, 1), (0, 0), (1, 2), 2), (4, 7, 9), (6, 2, 3, 2)),
        ("deep", IntType(0, 255), IntType(-128, 127), Conv2d((1, 2), (0, 0), (2, 1), 5), (5, 6, 8), (5, 1, 2, 3)),
        ("wide", IntType(0, 70_000), IntType(-70_000, 70_000), Conv2d(), (3, 4, 4), (2, 3, 2, 2)),
        ("bits", BIPOLAR, BIPOLAR, Conv2d((1, 1), (0, 0), (2, 1)), (19, 6, 5), (3, 19, 2, 2)),
        ("one_bit", BIPOLAR, BIPOLAR, Conv2d(), (1, 4, 4), (1, 1, 2, 2)),
        ("many_bits", BIPOLAR, BIPOLAR, Conv2d(), (70, 4, 3), (21, 70, 3, 2)),
        ("bytes", IntType(0, 255), IntType(-128, 127), Conv2d(), (3, 5, 13), (17, 3, 3, 3)),
        (
            "signed_bytes",
            IntType(-128, 127),
            IntType(-128, 127),
            Conv2d((2, 1), (0, 0), (2, 1)),
            (5, 9, 7),
            (4, 5, 2, 3),
        ),
        ("pointwise", IntType(-128, 127), IntType(-2, 1), Conv2d(), (18, 3, 7), (33, 18, 1, 1)),
        (
            "channels",
            IntType(0, 255),
            IntType(-128, 127),
            Conv2d((1, 1), (0, 0), (1, 2), 21),
            (21, 5, 9),
            (21, 1, 3, 2),
        ),
        (
            "signed",
            IntType(-128, 127),
            IntType(-128, 127),
            Conv2d((2, 1), (0, 0), (1, 1), 16),
            (16, 5, 4),
            (16, 1, 2, 3),
        ),
        ("strided_point", IntType(0, 15), IntType(-8, 7), Conv2d((2, 2)), (7, 5, 9), (16, 7, 1, 1)),
    ):
        builder = ir.GraphBuilder(name)
        x = builder.input("x", TensorType(shape, kind))
        made[name] = builder.build([builder.add("conv", op, [x, weights(builder, weight, weight_kind, 5)])])
    builder = ir.GraphBuilder("moved")
    x = builder.input("x", TensorType((3, 4, 5), IntType(-3, 3)))
    pool = builder.add("pool", MaxPool2d((2, 3), (2, 1), (1, 1), (0, 2)), [x])
    turned = builder.add("turn", Permute((2, 0, 1)), [pool])
    both = builder.add("both", Concat(1), [turned, turned])
    made["moved"] = builder.build([builder.add("best", ArgMax(1), [both])])
    for rounding in ("single", "double"):
        builder = ir.GraphBuilder(f"rescale_{rounding}")
        x = builder.input("x", TensorType((4,), IntType(-40_000, 40_000)))
        numbers = ([1 << 30, 2147483647, 12345, 1 << 30], [0, -7, 3, -9], [0, 11, -5, 128])
        constants = [
            builder.constant(name, np.array(values, np.int64), TensorType((4,), IntType(min(values), max(values))))
            for name, values in zip(("multiplier", "exponent", "bias"), numbers, strict=True)
        ]
        made[builder.name] = builder.build([builder.add("y", Rescale(-3, -128, 127, rounding), [x, *constants])])
    # The line through its steps rises by 60 a sum, and leaves 32 bits where sums are large.
    steep = ir.Builder("steep")
    x = steep.input("x", (4,), low=-8, high=7)
    sums = x.weighted_sum(x, factors=(1 << 23, 1 << 23))
    made["steep"] = steep.build(sums.threshold([np.repeat([0, 1, 2, 3], 60)] * 4))
    return made


def operator_images(body: ir.Graph) -> np.ndarray:
    """Return codes of the whole range, as numbers."""
    type, rng = body.inputs[0].type, np.random.default_rng(3)
    kind = type.int_dtype
    ends = [np.full((1, *type.shape), kind.low), np.full((1, *type.shape), kind.high)]
    codes = np.concatenate([*ends, rng.integers(kind.low, kind.high + 1, (20, *type.shape))])
    return np.where(codes >= 0, 1, -1) if kind.bipolar else codes


def has_softmax(parts: Parts) -> bool:
    return any(isinstance(node.op, Softmax | ir.ops.LogSoftmax) for node in parts.tail.nodes)


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Parts, np.ndarray]]:
    """Networks and images by name."""
    found = {f"random_{seed}": random_parts(seed) for seed in SEEDS}
    graphs = operators() | {name: make() for name, make in PRODUCTS.items()}
    return found | {name: (float_ends(body), operator_images(body)) for name, body in graphs.items()}


def machine_flags() -> dict[str, tuple[str, ...]]:
    """Return flags of each set of instructions that kernels are written for and this processor has."""
    here = platform.machine().lower() in ("x86_64", "amd64")
    known = Path("/proc/cpuinfo").read_text().split() if here and Path("/proc/cpuinfo").is_file() else []
    found = {"portable": ("-O1", "-U__SSE2__"), "unoptimized": ("-O0",)}
    if "avx2" in known:
        found["avx2"] = ("-O1", "-mavx2", "-mpopcnt")
    if {"avx512f", "avx512_vnni", "avx512_vpopcntdq"} <= set(known):
        found["avx512"] = ("-O1", "-mavx2", "-mavx512f", "-mavx512vnni", "-mavx512vpopcntdq", "-mpopcnt")
    return found


@pytest.mark.parametrize(
    ("small", "flags"), [(True, ("-O1",)), *((False, flags) for flags in machine_flags().values())]
)
def test_c_equals_the_interpreter(
    cases: dict[str, tuple[Parts, np.ndarray]], tmp_path: Path, small: bool, flags: tuple[str, ...]
) -> None:
    programs = [
        make_c(parts.body, parts.head, parts.tail, name=name, small=small) for name, (parts, _) in cases.items()
    ]
    library = compiled(programs, tmp_path, *flags)
    compared = 0
    for program, (parts, images) in zip(programs, cases.values(), strict=True):
        pairs = list(zip(library.run(program, parts, images), expected(parts, images), strict=True))
        for made, wanted in pairs[: 2 if has_softmax(parts) else None]:
            assert made.shape == wanted.shape
            assert (made == wanted).all(), program.name
            compared += made.size
    assert compared > 1000


def test_c_of_sums_of_two_axes_has_steps_of_each_channel(tmp_path: Path) -> None:
    builder = ir.Builder("rows")
    x = builder.input("x", (6, 4), low=-8, high=7)
    steps = np.arange(6)[:, None] * 3 - 8 + np.arange(3) * 2
    body = builder.build(x.weighted_sum(x, factors=(2, 1)).threshold(steps, name="codes"))
    ends = float_ends(body)
    parts = Parts(ends.head, body, ends.tail)
    program = make_c(parts.body, parts.head, parts.tail, name="rows")
    images = operator_images(body)
    made = compiled([program], tmp_path, "-O1").run(program, parts, images)
    assert (made[1] == expected(parts, images)[1]).all()
    assert len(np.unique(made[1])) > 2


def test_c_of_constants_keeps_the_signs_of_zeros(tmp_path: Path) -> None:
    builder, tail = ir.GraphBuilder("body"), ir.GraphBuilder("tail")
    x = builder.input("x", TensorType((4,), IntType(-8, 7)))
    body = builder.build([builder.add("same", Permute((0,)), [x])])
    y = tail.input("y", body.output_nodes[0].type)
    value = tail.add("value", ir.ops.Dequantize(), [y, tail.constant("s", np.array(1.0), TensorType((), FLOAT))])
    zeros = tail.constant("zeros", np.array([0.0, -0.0, 1.0, 1.0]), TensorType((4,), FLOAT))
    product = tail.add("p", ir.ops.Multiply(), [value, zeros])
    # Ends that are infinite have no literal in C.
    above = tail.add("above", ir.ops.Clamp(-6.0, float("inf")), [product])
    parts = Parts(
        float_ends(body).head, body, tail.build([tail.add("below", ir.ops.Clamp(float("-inf"), 5.0), [above])])
    )
    program = make_c(parts.body, parts.head, parts.tail, name="zeros")
    images = operator_images(body)
    made, wanted = compiled([program], tmp_path, "-O1").run(program, parts, images)[2], expected(parts, images)[2]
    assert made.tobytes() == wanted.tobytes()


def test_c_of_softmax_is_exp_of_the_c_library(tmp_path: Path) -> None:
    builder, tail = ir.GraphBuilder("body"), ir.GraphBuilder("tail")
    x = builder.input("x", TensorType((3, 2, 1), IntType(-8, 7)))
    body = builder.build([builder.add("turn", Permute((1, 0, 2)), [x])])
    y = tail.input("y", body.output_nodes[0].type)
    value = tail.add("value", ir.ops.Dequantize(), [y, tail.constant("s", np.array(0.3), TensorType((), FLOAT))])
    parts = Parts(float_ends(body).head, body, tail.build([tail.add("p", Softmax(1), [value])]))
    program = make_c(parts.body, parts.head, parts.tail, name="soft")
    images = operator_images(body)
    made = compiled([program], tmp_path, "-O1").run(program, parts, images)[2]
    numbers = images.transpose(0, 2, 1, 3) * 0.3
    for row, wanted in zip(made.reshape(-1, 3), numbers.reshape(-1, 3), strict=True):
        powers = [math.exp(v - max(wanted)) for v in wanted.tolist()]
        assert row.tolist() == [power / sum(powers) for power in powers]


def test_c_of_fixed_softmax_equals_the_interpreter(tmp_path: Path) -> None:
    builder, tail = ir.GraphBuilder("body"), ir.GraphBuilder("tail")
    x = builder.input("x", TensorType((10,), IntType(-128, 127)))
    body = builder.build([builder.add("best", Permute((0,)), [x])])
    y = tail.input("y", body.output_nodes[0].type)
    parts = Parts(float_ends(body).head, body, tail.build([tail.add("p", FixedSoftmax(0, 1539614720, 24, -124), [y])]))
    program = make_c(parts.body, parts.head, parts.tail, name="fixed")
    images = operator_images(body)
    made = compiled([program], tmp_path, "-O1").run(program, parts, images)
    assert all((a == b).all() for a, b in zip(made, expected(parts, images), strict=True))


def test_c_runs_under_the_sanitizers_as_a_program(tmp_path: Path) -> None:
    parts = lowered(captured(str(ROOT / "examples" / "mnist_int8.tflite"), None, SilentProgress()), SilentProgress())
    program = make_c(parts.body, parts.head, parts.tail, name="int 8", program=True)
    write_files(program, tmp_path)
    assert CC
    sanitizers = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    command = [*CC, *STRICT_FLAGS, *sanitizers, "int_8.c", "int_8_main.c", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    images = np.random.default_rng(2).random((3, 28, 28, 1)).astype(np.float32)
    np.save(tmp_path / "images.npy", images)
    images.tofile(tmp_path / "images.raw")
    wanted = "".join(" ".join(f"{v:.17g}" for v in row) + "\n" for row in expected(parts, images)[2])
    for file in ("images.npy", "images.raw"):
        by_name = subprocess.run(["./program", file], cwd=tmp_path, capture_output=True, text=True, check=True)
        with (tmp_path / file).open("rb") as stream:
            piped = subprocess.run(
                ["./program"], cwd=tmp_path, stdin=stream, capture_output=True, text=True, check=True
            )
        assert by_name.stdout == piped.stdout == wanted
    codes = subprocess.run(["./program", "images.npy", "--codes"], cwd=tmp_path, capture_output=True, text=True)
    assert codes.stdout == "".join(" ".join(map(str, row)) + "\n" for row in expected(parts, images)[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((1, 4)), "the .npy file needs float32, uint8 or int8 in C order"),
        (np.zeros((1, 3), np.float32), "each image has the shape [4]; the .npy file has another one: (1, 3)"),
        (np.zeros((4, 1), np.float32), "each image has the shape [4]; the .npy file has another one: (4, 1)"),
        (np.zeros(8, np.float32), "each image has the shape [4]; the .npy file has another one: (8,)"),
        (np.full((1, 4), np.nan, np.float32), "the image holds NaN, which has no code"),
    ],
)
def test_program_rejects_files(tmp_path: Path, content: np.ndarray, message: str) -> None:
    builder = ir.GraphBuilder("tiny_body")
    x = builder.input("x", TensorType((4,), IntType(0, 3)))
    parts = float_ends(builder.build([builder.add("y", Permute((0,)), [x])]))
    write_files(make_c(parts.body, parts.head, parts.tail, program=True), tmp_path)
    assert CC
    subprocess.run([*CC, *STRICT_FLAGS, "tiny.c", "tiny_main.c", "-o", "tiny"], cwd=tmp_path, check=True)
    np.save(tmp_path / "x.npy", content)
    done = subprocess.run(["./tiny", "x.npy"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"tiny: {message}\n")
    two = subprocess.run(["./tiny", "x.npy", "y.npy"], cwd=tmp_path, capture_output=True, text=True)
    assert (two.returncode, two.stderr) == (1, "tiny: it takes one FILE, and behind it --codes; nothing else\n")


@pytest.mark.parametrize(("flag", "said"), [("-ffast-math", "without -ffast-math"), ("-mfpmath=387", "-mfpmath=sse")])
def test_c_rejects_other_float_arithmetic(flag: str, said: str, tmp_path: Path) -> None:
    if CC is None or "gcc" not in Path(CC[0]).name or platform.machine() != "x86_64":
        pytest.skip("flags of gcc for x86")
    builder = ir.GraphBuilder("tiny_body")
    x = builder.input("x", TensorType((4,), IntType(0, 3)))
    parts = float_ends(builder.build([builder.add("y", Permute((0,)), [x])]))
    write_files(make_c(parts.body, parts.head, parts.tail), tmp_path)
    for flags, good in (((), True), ((flag,), False)):
        command = [*CC, *STRICT_FLAGS, *flags, "-fsyntax-only", "tiny.c"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode == 0) is good
        assert (said in done.stderr) is not good


@pytest.mark.parametrize("count", [1, 2, 3])
def test_program_reads_raw_images_of_few_bytes(tmp_path: Path, count: int) -> None:
    """The six bytes by which a .npy is known reach into the second image, and there may be fewer in the file."""
    builder = ir.GraphBuilder("tiny_body")
    x = builder.input("x", TensorType((count,), IntType(0, 3)))
    parts = float_ends(builder.build([builder.add("y", Permute((0,)), [x])]))
    write_files(make_c(parts.body, parts.head, parts.tail, program=True), tmp_path)
    assert CC
    sanitizers = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    subprocess.run([*CC, *STRICT_FLAGS, *sanitizers, "tiny.c", "tiny_main.c", "-o", "tiny"], cwd=tmp_path, check=True)
    images = (np.arange(5 * count, dtype=np.float32) % 4).reshape(5, count)
    for given in (images.tobytes(), images[:1].tobytes(), images[:2].tobytes() + b"\0\0\0", b"\0", b""):
        done = subprocess.run(["./tiny", "--codes"], cwd=tmp_path, input=given, capture_output=True)
        whole, cut = divmod(len(given), 4 * count)
        rows = "".join(" ".join(f"{number:.0f}" for number in row) + "\n" for row in images[:whole])
        said = f"tiny: the last image is cut; each has the shape [{count}]\n" if cut else ""
        assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (bool(cut), rows, said)


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc (gcc-arm-none-eabi)")
def test_c_compiles_for_a_cortex_m4(cases: dict[str, tuple[Parts, np.ndarray]]) -> None:
    parts, _ = cases["random_3"]
    program = make_c(parts.body, parts.head, parts.tail, name="m", small=True)
    found = measure_cortex_m4(program)
    assert found is not None
    assert found.scratch == program.scratch_bytes
    assert min(found.code, found.data, found.stack) > 0


def test_stack_depth_is_of_the_deepest_calls() -> None:
    nodes = {"run": 16, "m.c:layer": 40, "m.c:helper": 8, "other": 500}
    text = "".join(f'node: {{ title: "{n}" label: "{n}\\nm.c:1:1\\n{b} bytes (static)" }}\n' for n, b in nodes.items())
    edges = (("run", "m.c:layer"), ("m.c:layer", "m.c:helper"), ("run", "memcpy"))
    text += "".join(f'edge: {{ sourcename: "{a}" targetname: "{b}" label: "m.c:2" }}\n' for a, b in edges)
    assert stack_depth(text, "run") == 64


def test_export_rejects_an_operator_without_c_by_name(cases: dict[str, tuple[Parts, np.ndarray]]) -> None:
    parts, _ = cases["moved"]
    head = ir.GraphBuilder("head")
    x = head.input("x", TensorType((3, 4, 5), FLOAT))
    root = head.add("root", ir.ops.Sqrt(), [x])
    scale = head.constant("scale", np.array(1.0), TensorType((), FLOAT))
    codes = head.add("codes", ir.ops.Quantize(-3, 3), [root, scale])
    with pytest.raises(ExportError) as caught:
        make_c(parts.body, head.build([codes]), parts.tail)
    assert str(caught.value) == (
        "sqrt 'root' has no C at the float ends of a model; docs/c.md lists the operators that have; 'codes' exports "
        "the integer network alone"
    )


def test_identifiers_and_comments_are_safe() -> None:
    assert [identifier(name) for name in ("a.b-c", "3d", "int", "", "é/..")] == [
        "a_b_c",
        "m_3d",
        "m_int",
        "model",
        "model",
    ]
    assert comment("x */ system() /* ??/\n") == "/* x * / system() / * ? ?/? */"


def test_arena_overlaps_only_what_never_lives_together() -> None:
    rng = np.random.default_rng(0)
    spans = [sorted(rng.integers(0, 12, 2).tolist()) for _ in range(40)]
    buffers = [Lifetime(str(k), int(rng.integers(1, 100)), *span) for k, span in enumerate(spans)]
    offsets, size = place(buffers)
    for a in buffers:
        assert offsets[a.name] % 8 == 0
        assert offsets[a.name] + a.bytes <= size
        for b in buffers:
            together = a is not b and a.first <= b.last and b.first <= a.last
            apart = offsets[a.name] + a.bytes <= offsets[b.name] or offsets[b.name] + b.bytes <= offsets[a.name]
            assert apart or not together


def test_export_is_deterministic(cases: dict[str, tuple[Parts, np.ndarray]]) -> None:
    parts, _ = cases["random_5"]
    assert make_c(parts.body, parts.head, parts.tail).files == make_c(parts.body, parts.head, parts.tail).files


def test_torch_is_one_thread_in_the_comparison() -> None:
    from benchmarks import exported_c

    model, example = random_model(4)
    row = exported_c.measure("random", model, example)
    assert row["differences"] == 0
    assert row["frames"] > 0
    assert torch.get_num_threads() == 1
