"""Engines from outside of nnhw: an operator with its meaning, and the engine that runs it in a stream of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.join import JoinedPipelineModel
from nnhw.engines.timing import CycleModel, NetworkModel
from nnhw.errors import InputError
from nnhw.ir.ops import OPS, Op
from nnhw.ir.types import IntType


@dataclass(frozen=True, eq=False)
class Port:
    """A value that an engine reads or makes.

    Parameters
    ----------
    element: type of its elements.
    shape: [channels, height, width], [channels, length] or [elements]. It streams pixel by pixel, row by row, with the
        channels of a pixel behind one another.
    """

    element: IntType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of a frame."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class OwnEngine(EngineConfig):
    """Parameters of an engine that was registered: a frozen dataclass of numbers, `IntType`s, arrays and tuples.

    It reads one stream for each value that its operator reads, and makes one. A beat has `i_lanes` elements at each
    input and `lanes` at the output, each in its two's complement or, if bipolar, as one bit, 1 for +1.
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
        """Return the engine of an operator that has `lanes` elements at its output in a beat.

        nnhw tries every divisor of the channels. Raises: ValueError for lanes that it cannot have.
        """

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Elements of an output beat."""

    @property
    def i_lanes(self) -> int:
        """Elements of an input beat; as many as leave, unless it says otherwise."""
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
        """Return the cycle model: in which cycle what is taken and given. `pipeline` has that of a pipeline."""

    @abstractmethod
    def hardware(self) -> Any:
        """Return the Amaranth component: streams `i`, or `i0`, `i1`, .. of several inputs, and `o`."""

    @abstractmethod
    def cost(self, wide_luts: bool) -> Mapping[str, float]:
        """Return what it takes, about: `lc` logic cells, `ebr` block RAMs, `dsp` DSP blocks, `ff` flip-flops.

        Parameters
        ----------
        wide_luts: LUTs join to wider ones, and flip-flops lie beside them, as on the ECP5; else as on the iCE40.
        """


def pipeline(inputs: int, latency: int) -> JoinedPipelineModel:
    """Return the cycle model of a pipeline: one beat of every input in a cycle, a result `latency` cycles later.

    `nnhw.hdl.own.Pipeline` is the hardware that does so.

    Parameters
    ----------
    latency: register stages, and one for the buffer at the output.
    """
    return JoinedPipelineModel(inputs, latency)


ENGINES: dict[type[Op], type[OwnEngine]] = {}
"""Registered engines, by operator."""
_BUILT_IN = frozenset(OPS)


def register(operator: type[Op], engine: type[OwnEngine]) -> None:
    """Let nnhw know an operator and the engine that runs it.

    The same two again, as after a module was loaded anew, take the place of those before.

    Parameters
    ----------
    operator: subclass of `nnhw.ir.Op`, a frozen dataclass, whose `name` no operator of nnhw has. Its `evaluate` is its
        meaning, on integers.
    engine: subclass of `OwnEngine`, a frozen dataclass.

    Raises
    ------
    InputError: one of them is something else, or has a name that is taken.
    """
    for kind, base in ((operator, Op), (engine, OwnEngine)):
        if not (isinstance(kind, type) and issubclass(kind, base) and kind is not base):
            raise InputError(f"register needs a subclass of {base.__name__}, given {kind!r}")
        if "__dataclass_params__" not in vars(kind) or not vars(kind)["__dataclass_params__"].frozen:
            raise InputError(f"'{kind.__name__}' must be a frozen dataclass; write @dataclass(frozen=True) above it")
    name = getattr(operator, "name", "")
    if not name.isidentifier():
        raise InputError(f"'{operator.__name__}' needs a `name` of letters, digits and underscores, given {name!r}")
    if name in _BUILT_IN:
        raise InputError(f"the operator '{name}' is one of nnhw's; give '{operator.__name__}' another `name`")
    known = OPS.get(name)
    if known is not None and _home(known) != _home(operator):
        raise InputError(f"'{known.__qualname__}' of {_home(known)[0]} is registered as '{name}'; take another `name`")
    other = next(
        (key for key, value in ENGINES.items() if value.__name__ == engine.__name__ and key is not known), None
    )
    if other is not None:
        raise InputError(f"an engine '{engine.__name__}' is registered, of operator '{other.name}'; rename one of them")
    if known is not None:
        ENGINES.pop(known, None)
    engine.__annotations__ = _resolved(engine)
    OPS[name] = operator
    ENGINES[operator] = engine


def _home(operator: type[Op]) -> tuple[str, str]:
    """Return the file and the name of a class: the same where a file is read a second time, as another module."""
    code = getattr(operator.evaluate, "__code__", None)
    return getattr(code, "co_filename", operator.__module__), operator.__qualname__


def _resolved(engine: type[OwnEngine]) -> dict[str, Any]:
    """Return the annotations of a class as types: its module, where they are words, may be gone when it is needed."""
    try:
        hints = get_type_hints(engine)
    except NameError as error:
        raise InputError(f"the fields of '{engine.__name__}' have a type that is not known: {error}") from error
    return {name: hints[name] for name in vars(engine).get("__annotations__", {})}


def engine_types() -> dict[str, type]:
    """Return the registered engines by the names that files have of them."""
    return {engine.__name__: engine for engine in ENGINES.values()}
