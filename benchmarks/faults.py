"""A million inferences through the driver while the link and the board fail: every row that comes back is right.

The link loses, cuts, flips, repeats and inserts bytes, loses, repeats and swaps whole frames, and loses 1 to 4,096
frames in a row, in both directions. The process forks, and its child uses the device as well. The board is reset, or
gets the bitstream of another model of the same shapes, for good or for a while; between batches, between any two
frames, and, as often, where the sequence numbers begin anew, so that those of a board just started fit. Rows are
counted whichever way they come: from a batch that ended, or beside the error of one that was stopped.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cobs import cobs
from rich.console import Console
from torch import nn

import nnhw
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver import BatchError, Device
from nnhw.driver import open as open_link
from nnhw.driver.connecting import make_model_link
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.errors import LinkError
from nnhw.flow.options import Options
from nnhw.flow.pipeline import run_build
from nnhw.flow.tools.progress import Progress, SilentProgress, make_progress
from nnhw.frontend import Source
from nnhw.nn import Int, QuantLinear, Scale, Sign, UInt
from nnhw.protocol import PAYLOAD_LIMIT_BYTES, Command
from sim.noise import FrameBursts, FrameNoise, Noise

INFERENCES = 1_000_000
POOL = 2000
"""Images of each case, whose results are known; batches are drawn from them."""
ROUNDS_OF_A_DEVICE = 40
"""After so many batches at the most, the device is opened anew."""
QUIET, BYTES, FRAMES, BURSTS = "quiet", "bytes harmed", "frames harmed", "frames lost in a row"
FORK = "fork"
FORKS = 1 / 8
"""Share of batches at whose beginning the process forks."""
RESET, OTHER, BACK = "board reset", "other model", "other model and back"
Row = dict[str, Any]
MakeBoard = Callable[[], ModelBoard]


@dataclass(frozen=True)
class Case:
    """A model, one of the same shapes whose answers differ, and boards that run them.

    Parameters
    ----------
    folder: of the model's build.
    images, expected: of the model.
    own, other: return a board of the model, and of the other one, as after power-up.
    most: images of a batch.
    image_bytes: of an image, packed.
    """

    name: str
    folder: Path
    images: np.ndarray
    expected: np.ndarray
    own: MakeBoard
    other: MakeBoard
    most: int
    image_bytes: int


def bits(seed: int) -> nn.Sequential:
    """Return a network of 32 signs: some sixty images a frame."""
    torch.manual_seed(seed)
    hidden = QuantLinear(32, 16, bias=False), nn.BatchNorm1d(16), Sign()
    return nn.Sequential(Sign(), *hidden, QuantLinear(16, 10, bias=False), Scale(2**-3)).eval()


def frames(seed: int) -> nn.Sequential:
    """Return a network whose image is a frame and whose output is one, so that both sequences begin anew together."""
    torch.manual_seed(seed)
    return nn.Sequential(UInt(8, scale=2**-8), QuantLinear(240, 10, bias=False, weight_quant=Int(4, "max_abs"))).eval()


def wide(seed: int) -> nn.Sequential:
    """Return a network whose output comes in two frames."""
    torch.manual_seed(seed)
    return nn.Sequential(UInt(4, scale=2**-4), QuantLinear(60, 130, bias=False, weight_quant=Int(4, "max_abs"))).eval()


CASES: Mapping[str, tuple[Callable[[int], nn.Sequential], int, str, int]] = {
    "bits": (bits, 32, "streaming", 6000),
    "frames": (frames, 240, "streaming", 3000),
    "wide": (wide, 60, "streaming", 3000),
    "program": (bits, 32, "shared", 6000),
}
"""Network, inputs, style and images of a batch at the most."""


def make_case(name: str, board: str, scratch: Path) -> Case:
    """Build both models of a case as far as the model link needs it; of engines that run programs, on one array."""
    make, inputs, style, most = CASES[name]
    images = np.random.default_rng(0).random((POOL, inputs), np.float32) - np.float32(make is bits) / 2
    folders, array = [scratch / f"{name}-{seed}" for seed in (1, 2)], None
    for seed, folder in enumerate(folders, 1):
        source = Source(make(seed), torch.from_numpy(images[:4]), name)
        options = Options(
            frames=0, style=style, fast_for="engine", array=array, reusable=style == "shared" and array is None
        )
        accelerator = run_build(source, name, board, options, out=folder, stop_at="map").accelerator
        array = accelerator.programs[0].array if accelerator.programs else None
    expected, differing = (np.asarray(nnhw.reference(make(seed))(images)) for seed in (1, 2))
    assert (expected != differing).any(axis=1).mean() > 0.9, "the other model must be seen to be another one"
    own, other = (board_maker(folder) for folder in folders)
    # As float64, the results have all bits of the reference.
    images = images.astype(np.float64)
    return Case(name, folders[0], images, expected, own, other, most, accelerator.input_format.frame_bytes)


def board_maker(folder: Path) -> MakeBoard:
    """Return a function that returns a board of a build, as after power-up; its program comes from flash."""
    accelerator, body = Accelerator.load(folder), ir.load(folder / "lower.ir")
    image = ProgramImage.read(folder)

    def make() -> ModelBoard:
        board = make_model_link(accelerator, body).board
        if board.memory is not None and image is not None:
            board.memory.take(image.data)
        return board

    return make


@dataclass(frozen=True)
class Swap:
    """A board that is there from a certain DATA frame of the host on.

    Parameters
    ----------
    frames: that pass before; None: it comes with the next one whose sequence is 0, as a board expects it that was just
        started.
    """

    frames: int | None
    board: MakeBoard


class FaultyLink(ModelLink):
    """A link that harms what it carries, to a board that changes.

    Members
    -------
    outbound, inbound: harm bytes to and from the board.
    swaps: of the board, in their order.
    swapped: how many took place.
    """

    def __init__(self, board: ModelBoard) -> None:
        super().__init__(board)
        # Answers pass through the system, as those of a port do: a process that forks shares them with its child.
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        self.swaps: deque[Swap] = deque()
        self.swapped = self._passed = 0
        self.calm()

    def calm(self) -> None:
        """Harm nothing any more; swaps to come stay."""
        self.outbound: Callable[[bytes], bytes] = bytes
        self.inbound: Callable[[bytes], bytes] = bytes

    def write(self, data: bytes) -> None:
        """Send bytes, up to each swap at once."""
        held = b""
        for frame in data.split(b"\0")[:-1] if self.swaps else ():
            if self._due(frame):
                self._write(self.outbound(held))
                held, self.board = b"", self.swaps.popleft().board()
                self.swapped, self._passed = self.swapped + 1, 0
            held += frame + b"\0"
        self._write(self.outbound(held or data))

    def _write(self, data: bytes) -> None:
        answers = memoryview(self.board.exchange(data))
        while answers:
            try:
                answers = answers[os.write(self._ends[1], answers) :]
            except BlockingIOError:
                self._waiting += os.read(self._ends[0], 1 << 20)

    def _due(self, frame: bytes) -> bool:
        if not self.swaps or not frame:
            return False
        command, sequence = cobs.decode(frame)[:2]
        if command != Command.DATA:
            return False
        self._passed += 1
        after = self.swaps[0].frames
        return sequence == 0 if after is None else self._passed > after

    def read(self, timeout_s: float) -> bytes:
        """Return what has come."""
        self._time_s += 1e-4  # time passes even while bytes come, as on a real line
        with contextlib.suppress(BlockingIOError):
            self._waiting += os.read(self._ends[0], 1 << 20)
        return self.inbound(super().read(timeout_s))

    def close(self) -> None:
        """Close the link."""
        super().close()
        for end in self._ends:
            os.close(end)


@dataclass
class Tally:
    """What came of all batches.

    Members
    -------
    rows: that came back, by case. sent: images given to the driver. wrong: rows that differ from the reference.
    batches: by how they ended. faults: by kind, batches that met them. harmed: places on the line. lost: frames in
    bursts. swapped: boards. children: processes that were forked, by whether the device was refused to them.
    """

    rows: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    wrong: int = 0
    batches: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    harmed: int = 0
    lost: int = 0
    swapped: int = 0
    resets: int = 0
    children: Counter[str] = field(default_factory=Counter)


def campaign(cases: list[Case], inferences: int, seed: int = 1, progress: Progress | None = None) -> Tally:
    """Give batches to devices that fail until so many rows came back; count those that are wrong."""
    progress, rng, tally = progress or SilentProgress(), np.random.default_rng(seed), Tally()
    while (done := tally.rows.total()) < inferences:
        progress.advance(done, inferences)
        case = cases[rng.integers(len(cases))]
        link = FaultyLink(case.own())
        with open_link(case.folder, link, max_retries=5) as device:
            for _ in range(rng.integers(1, ROUNDS_OF_A_DEVICE)):
                if not run_batch(case, device, link, rng, tally):
                    break
        tally.resets += device._session.resets
        tally.swapped += link.swapped
    return tally


def run_batch(case: Case, device: Device, link: FaultyLink, rng: np.random.Generator, tally: Tally) -> bool:
    """Run a batch under faults; return whether the device may go on."""
    # Small and large ones alike: more frames than the longest burst has, and few enough to change boards often.
    count = round(case.most ** rng.random())
    chosen = rng.integers(0, POOL, count)
    plan_swaps(case, link, count, rng, tally)
    noises = make_noise(link, rng, tally)
    goes_on, outcome = True, "whole"
    child = fork(case, device) if rng.random() < FORKS else None
    try:
        results = np.asarray(device(case.images[chosen]))
    except BatchError as error:
        results, outcome = np.asarray(error.results), stopped_by(error)
        goes_on = bool(rng.integers(2))
    if child is not None:
        tally.faults[FORK] += 1
        tally.children["refused" if os.waitpid(child, 0)[1] == 0 else "not refused"] += 1
    tally.harmed += sum(noise.count for noise in noises)
    tally.lost += sum(noise.lost for noise in noises if isinstance(noise, FrameBursts))
    tally.sent += count
    tally.rows[case.name] += len(results)
    tally.wrong += int((results != case.expected[chosen[: len(results)]]).any(axis=1).sum())
    tally.batches[outcome] += 1
    link.calm()
    if outcome != "whole":
        # Somebody loads the right bitstream again; a device that goes on has to find out for itself.
        link.board = case.own()
        link.swaps.clear()
    return goes_on


def fork(case: Case, device: Device) -> int:
    """Let a child of this process use the device, and end with 0 if it is refused; return the child's number."""
    child = os.fork()
    if child:
        return child
    try:
        device(case.images[:100])
    except LinkError as error:
        os._exit(0 if "the device belongs to process" in str(error) else 1)
    # The child must not go on with the campaign, whatever happened.
    finally:
        os._exit(1)


def plan_swaps(case: Case, link: FaultyLink, count: int, rng: np.random.Generator, tally: Tally) -> None:
    """Let boards come and go in the batch, or none; at the latest in the one that comes next."""
    frames = 2 + count * case.image_bytes // PAYLOAD_LIMIT_BYTES
    for _ in range(int(rng.choice((0, 1, 1, 2)))):
        kind = (RESET, OTHER, BACK)[rng.integers(3)]
        boards = {RESET: (case.own,), OTHER: (case.other,), BACK: (case.other, case.own)}[kind]
        tally.faults[kind] += 1
        for board in boards:
            link.swaps.append(Swap(None if rng.integers(2) else int(rng.integers(frames)), board))


def make_noise(link: FaultyLink, rng: np.random.Generator, tally: Tally) -> list[Noise]:
    """Harm bytes, or whole frames, or lose many of these in a row, or harm nothing."""
    kind = (QUIET, QUIET, BYTES, FRAMES, BURSTS, BURSTS)[rng.integers(6)]
    tally.faults[kind] += 1
    if kind == QUIET:
        return []
    chance = float(10 ** rng.uniform(-5, -3.5)) * {BYTES: 1, FRAMES: 30, BURSTS: 100}[kind]
    seeds = [int(seed) for seed in rng.integers(0, 2**31, 2)]
    made: list[Noise]
    if kind == BURSTS:
        # Both directions at once would hide that one of them goes on without what it has lost.
        link.outbound = FrameBursts(seeds[0], chance * int(rng.integers(2)), Command.DATA)
        link.inbound = FrameBursts(seeds[1], chance, Command.RESULT)
        made = [link.outbound, link.inbound]
    else:
        made = [(Noise if kind == BYTES else FrameNoise)(seed, chance) for seed in seeds]
        link.outbound, link.inbound = made
    return made


def stopped_by(error: BatchError) -> str:
    """Return why a batch was stopped, without numbers."""
    message = str(error)
    reasons = {"another bitstream": "another bitstream", "of this build: it was restarted": "another program, or none"}
    return next((reason for text, reason in reasons.items() if text in message), "faults without an end")


def run(board: str) -> Row:
    """Run a million inferences.

    Returns
    -------
    `inferences`: rows that came back, by case. `wrong`: those that differ from the reference. `images`: given to the
    driver. `batches`: by how they ended. `faults`: batches by what they met. `harmed`: places at which the line did
    harm. `lost`: frames lost in bursts. `swapped`: boards that came in place of another. `resets`: that the driver
    sent. `children`: processes that were forked, by whether the device was refused to them.
    """
    progress, start = make_progress(Console(stderr=True)), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        cases = [make_case(name, board, Path(scratch)) for name in CASES]
        with progress.stage(f"{INFERENCES:,} inferences under faults"):
            tally = campaign(cases, INFERENCES, progress=progress)
    return {"board": board, **as_row(tally), "seconds": round(time.monotonic() - start, 1)}


def as_row(tally: Tally) -> Row:
    """Return a tally as a row."""
    return {
        "inferences": tally.rows.total(),
        "wrong": tally.wrong,
        "by_case": dict(sorted(tally.rows.items())),
        "images": tally.sent,
        "batches": dict(sorted(tally.batches.items())),
        "faults": dict(sorted(tally.faults.items())),
        "harmed": tally.harmed,
        "lost": tally.lost,
        "children": dict(sorted(tally.children.items())),
        "swapped": tally.swapped,
        "resets": tally.resets,
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    print(f"{row['inferences']:,} inferences under faults, {row['wrong']} wrong")
    kinds = {"rows of": "by_case", "batches": "batches", "met": "faults", "children": "children"}
    for title, counts in ((title, row[name]) for title, name in kinds.items()):
        for name, count in counts.items():
            print(f"  {title:8} {name:26} {count:9,}")
    print(f"  {row['harmed']:,} places of the line harmed, {row['lost']:,} frames lost in bursts")
    print(f"  {row['swapped']:,} boards swapped, {row['resets']:,} resets")
