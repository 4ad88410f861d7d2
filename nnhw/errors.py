"""Exceptions and warnings of nnhw. `except NnhwError` catches all that nnhw raises on purpose, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class NnhwError(Exception):
    """Root of all errors that nnhw raises on purpose.

    A message says what happened, where (layer and source line of the user's model),
    what is needed, what was given, and what to do.

    Parameters
    ----------
    cause: all but what to do.
    remedy: what to do; empty where the cause says it, or nothing helps.
    """

    def __init__(self, cause: str = "", remedy: str = "") -> None:
        self.cause, self.remedy = cause, remedy
        super().__init__(f"{cause}; {remedy}" if remedy else cause)


class InputError(NnhwError):
    """A file, an array or an option given by the user that cannot be used."""


class CaptureError(NnhwError):
    """A model that cannot be traced to a dataflow graph."""


class ModelFileError(InputError, CaptureError):
    """A model's file that fails when it is run."""


class IrError(NnhwError):
    """A graph that violates a rule of the IR."""


class LoweringError(NnhwError):
    """A graph that has no exact integer form."""


class ExactnessError(NnhwError):
    """Two evaluations of one model that differ: PyTorch and the captured graph, or the graph before and after a pass.

    It must never be caught to try something else: the result of the conversion does not compute the model.
    """


class MappingError(NnhwError):
    """An integer graph that the board or the engines cannot hold."""


@dataclass(frozen=True)
class LayerNeed:
    """The least resources that the engines of one layer take, in a network that does not fit.

    Parameters
    ----------
    name: of the layer.
    lc, ff, dsp: logic cells; flip-flops, where they are counted apart from logic cells; DSP blocks.
    weight_rams, step_rams, buffer_rams: block RAMs for weights, for the constants of requantization, and for line
        buffers and FIFOs.
    """

    name: str
    lc: float
    ff: float
    dsp: int
    weight_rams: int
    step_rams: int
    buffer_rams: int

    @property
    def ebr(self) -> int:
        """Block RAMs in all."""
        return self.weight_rams + self.step_rams + self.buffer_rams


class DoesNotFitError(MappingError):
    """A network that takes more than a board has, or more time than was asked for.

    Parameters
    ----------
    cause, remedy: see `NnhwError`.
    layers: the least resources of each layer, in the model's order: of the first layers where these alone do not fit;
        empty where they are not known.

    Members
    -------
    graph: the network as it was captured, so that advice need not capture it again; None: not available.
    """

    graph: Any = None

    def __init__(self, cause: str, remedy: str = "", layers: Sequence[LayerNeed] = ()) -> None:
        self.layers = tuple(layers)
        super().__init__(cause, remedy)


class StuckError(NnhwError):
    """Engines that wait for each other for ever.

    A search for the depths of FIFOs provokes and handles it; anywhere else it is a mistake of nnhw. So it is no
    MappingError: after one of these another mapping is tried, and the mistake would go unnoticed.
    """


class UnsettledError(NnhwError):
    """A network of engines whose schedule did not become periodic within the frames that were stepped."""


class BoardError(NnhwError):
    """An unknown board, or a board file with a mistake."""


class ToolError(NnhwError):
    """A tool that is missing, too old, or that failed."""


class BuildError(NnhwError):
    """A build folder that is missing, incomplete, or from another model or version."""


class ExportError(NnhwError):
    """A model that another format cannot hold."""


class TimingError(NnhwError):
    """A design that does not reach the required clock."""


class LinkError(NnhwError):
    """A link to a device that is absent, silent, garbled, or that belongs to another model."""


class OtherDeviceError(LinkError):
    """A device that was loaded with another bitstream while its link was open."""


class ClosedError(LinkError):
    """A device or a link that is used after it was closed."""


class SaturationWarning(UserWarning):
    """Inputs that a model's input quantizer clips far more often than those that it was calibrated with."""


class ProblemList(NnhwError):
    """Several problems of one model, listed at once.

    Parameters
    ----------
    problems: the errors, in the order of the model's layers; at least one.
    """

    def __init__(self, problems: Sequence[NnhwError]) -> None:
        self.problems = tuple(problems)
        lines = [f"{len(self.problems)} problems:"]
        lines += [f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1)]
        super().__init__("\n".join(lines))


class MappingProblems(ProblemList, MappingError):
    """Several layers that the board or the engines cannot hold; code that catches MappingError catches these, too."""


def raise_all(problems: Sequence[NnhwError]) -> None:
    """Raise nothing for no problem, the problem itself for one, and a `ProblemList` for more."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        # Callers that try another mapping after a MappingError must see several of them as one, too.
        mapping = all(isinstance(problem, MappingError) for problem in problems)
        raise MappingProblems(problems) if mapping else ProblemList(problems)


# In this order: a DoesNotFitError is a MappingError, too.
_HEADINGS: tuple[tuple[tuple[type[NnhwError], ...], str], ...] = (
    ((InputError, BoardError), "Input"),
    ((DoesNotFitError,), "Does not fit"),
    ((CaptureError, LoweringError, MappingError, ExportError), "Not supported"),
)


def heading(error: NnhwError) -> str:
    """Return the word in front of an error's message: 'Input', 'Does not fit', 'Not supported' or 'Error'."""
    if isinstance(error, ProblemList):
        # Problems of different kinds have no common word.
        words = {heading(problem) for problem in error.problems}
        return words.pop() if len(words) == 1 else "Error"
    return next((word for classes, word in _HEADINGS if isinstance(error, classes)), "Error")


def first_of(error: NnhwError) -> str:
    """Return a message as part of a sentence: of several problems the first, and how many more there are."""
    if isinstance(error, ProblemList):
        return f"{error.problems[0]} (and {len(error.problems) - 1} more)"
    return str(error)


def cause_of(error: NnhwError) -> str:
    """Return the same as `first_of`, without what to do."""
    if isinstance(error, ProblemList):
        return f"{error.problems[0].cause} (and {len(error.problems) - 1} more)"
    return error.cause
