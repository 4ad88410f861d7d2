"""Engines from outside of nnhw: users register an operator with its meaning, and the engine that runs it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.join import JoinedPipelineModel
from nnhw.engines.network import CycleModel, NetworkModel
from nnhw.errors import InputError
from nnhw.ir.ops import OPS, Op
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class Port:
    """A value that an engine reads or makes.

    Parameters
    ----------
    element: type of its elements.
    shape: (channels, height, width), (channels, length) or (elements,). It streams row by row, pixel by pixel, and the
        channels of a pixel follow one another.
    """

    element: IntType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements of a frame."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class OwnEngine(EngineConfig):
    """Base of the parameters of a registered engine: a frozen dataclass of numbers, `IntType`s, arrays and tuples.

    The engine reads one stream for each value that its operator reads, and makes one. A beat has `i_lanes` elements at
    each input and `lanes` at the output: unsigned or two's complement numbers, or one bit if bipolar, 1 for +1.

    Raises
    ------
    InputError: a subclass has a field with the name of a property of all engines; raised when the class is defined.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A field without a default would take the property of that name for its default.
        fields = [name for name in vars(cls).get("__annotations__", {}) if name not in vars(cls)]
        taken = [name for name in fields if not name.startswith("_") and hasattr(OwnEngine, name)]
        if taken:
            raise InputError(
                f"engine '{cls.__name__}' has a field '{taken[0]}', and every engine has a property of that name; "
                "give the field another name"
            )

    @classmethod
    @abstractmethod
    def plan(cls, op: Any, inputs: Sequence[Port], output: Port, lanes: int) -> OwnEngine:
        """Return the engine for an operator of the graph.

        Parameters
        ----------
        op: the operator, with its attributes.
        inputs, output: the values that it reads and makes.
        lanes: elements of an output beat; nnhw tries every divisor of the channels.

        Raises
        ------
        ValueError: the engine cannot have so many lanes; nnhw then leaves them out.
        """

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Elements of an output beat."""

    @property
    def i_lanes(self) -> int:
        """Elements of an input beat; as many as of an output beat, unless a subclass says otherwise."""
        return self.lanes

    @property
    @abstractmethod
    def i_beats(self) -> int | tuple[int, ...]:
        """Beats of a frame at each input; a number if it is the same for all."""

    @property
    @abstractmethod
    def o_beats(self) -> int:
        """Beats of a frame at the output."""

    @abstractmethod
    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [o_beats, lanes] of the beats int64 [i_beats, i_lanes] of every input."""

    @abstractmethod
    def model(self) -> CycleModel | NetworkModel:
        """Return a new cycle model, which says in which cycle a beat is taken, and one is given; see `pipeline`."""

    @abstractmethod
    def hardware(self) -> Any:
        """Return the Amaranth component, with streams `i` (or `i0`, `i1`, .. if it has several inputs) and `o`."""

    @abstractmethod
    def cost(self, wide_luts: bool) -> Mapping[str, float]:
        """Return an estimate of its size: `lc` logic cells, `ebr` block RAMs, `dsp` DSP blocks, `ff` flip-flops.

        Parameters
        ----------
        wide_luts: the family joins LUTs to wider ones and has flip-flops apart from them (ECP5); else each logic cell
            is a LUT4 with a flip-flop (iCE40).
        """


def pipeline(inputs: int, latency: int) -> JoinedPipelineModel:
    """Return the cycle model of a pipeline: a beat of every input in a cycle, a result `latency` cycles later.

    It is that of the hardware `nnhw.hdl.own.Pipeline`.

    Parameters
    ----------
    inputs: how many.
    latency: register stages of the pipeline, and one more for the buffer at the output.
    """
    return JoinedPipelineModel(inputs, latency)


ENGINES: dict[type[Op], type[OwnEngine]] = {}
"""The class of the registered engine of each operator."""
_BUILT_IN = frozenset(OPS)
"""Names of the operators that nnhw has itself: registered ones are added to `OPS` later."""


def register(operator: type[Op], engine: type[OwnEngine]) -> None:
    """Make an operator and the engine that runs it known to nnhw.

    If the file that defines them is read again, the new classes replace those that were registered from it before.

    Parameters
    ----------
    operator: subclass of `nnhw.ir.Op`, a frozen dataclass, with a `name` that no operator of nnhw has. Its `evaluate`
        is its meaning, on integers.
    engine: subclass of `OwnEngine`, a frozen dataclass.

    Raises
    ------
    InputError: one of them is no such class, or its name is taken.
    """
    for kind, base in ((operator, Op), (engine, OwnEngine)):
        if not (isinstance(kind, type) and issubclass(kind, base) and kind is not base):
            raise InputError(f"register needs a subclass of {base.__name__}, given {kind!r}")
        # In `vars`, as a subclass that forgot the decorator inherits the parameters of its base.
        if "__dataclass_params__" not in vars(kind) or not vars(kind)["__dataclass_params__"].frozen:
            raise InputError(f"'{kind.__name__}' must be a frozen dataclass; write @dataclass(frozen=True) above it")
    name = getattr(operator, "name", "")
    if not (isinstance(name, str) and name.isidentifier()):
        raise InputError(f"'{operator.__name__}' needs a `name` of letters, digits and underscores, given {name!r}")
    if name in _BUILT_IN:
        raise InputError(f"the operator '{name}' is one of nnhw's; give '{operator.__name__}' another `name`")
    known = OPS.get(name)
    if known is not None and _home(known) != _home(operator):
        raise InputError(f"'{known.__qualname__}' of {_home(known)[0]} is registered as '{name}'; take another `name`")
    # Files of builds have engines by the names of their classes, so these must be different.
    other = next(
        (key for key, value in ENGINES.items() if value.__name__ == engine.__name__ and key is not known), None
    )
    if other is not None:
        raise InputError(f"an engine '{engine.__name__}' is registered, of operator '{other.name}'; rename one of them")
    annotations = _resolved(engine)
    # The same file was read before: the new classes replace those of then.
    if known is not None:
        ENGINES.pop(known, None)
    engine.__annotations__ = annotations
    # Last, when nothing can fail any more: a refused pair leaves no trace.
    OPS[name] = operator
    ENGINES[operator] = engine


def _home(operator: type[Op]) -> tuple[str, str]:
    """Return (file, name) of a class, which are the same if the file is read a second time as another module."""
    code = getattr(operator.evaluate, "__code__", None)
    return getattr(code, "co_filename", operator.__module__), operator.__qualname__


def _resolved(engine: type[OwnEngine]) -> dict[str, Any]:
    """Return the annotations of a class as types instead of strings.

    They are needed when builds are read back; the user's module, in which the strings mean something, may then be gone.
    """
    try:
        hints = get_type_hints(engine)
    except NameError as error:
        raise InputError(f"the fields of '{engine.__name__}' have a type that is not known: {error}") from error
    return {name: hints[name] for name in vars(engine).get("__annotations__", {})}


def engine_types() -> dict[str, type]:
    """Return the classes of registered engines by the names under which files of builds have them."""
    return {engine.__name__: engine for engine in ENGINES.values()}
