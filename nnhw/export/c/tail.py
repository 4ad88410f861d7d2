"""The float operations behind a model's last integers, in C."""

from __future__ import annotations

import numpy as np

from nnhw.errors import ExportError
from nnhw.ir import Graph, Node
from nnhw.ir.ops import ArgMax, FixedSoftmax, LogSoftmax, Op, Softmax

from .c_text import loop
from .floats import Expression, FloatWriter, applied
from .value_storage import c_strides


class TailWriter(FloatWriter):
    """Writes `NAME_finish(const TYPE *codes, double *result, ..)`."""

    def body(self, graph: Graph) -> list[str]:
        """Return the statements of the function, for the float tail of a model.

        Raises
        ------
        ExportError: an operator has no form in C.
        """
        entry = graph.inputs[0]
        known = {entry.name: Expression("(double)codes", _indices(entry.type.shape))}
        arrays: list[str] = []
        for number, node in enumerate(one for one in graph.nodes if one.inputs):
            data = graph.data_inputs(node)
            if len(data) != 1:
                raise ExportError(f"{node} joins several values behind the last integers, which has no C")
            value = known[data[0].name]
            if isinstance(node.op, Softmax | LogSoftmax | ArgMax | FixedSoftmax):
                name = f"value_{number}"
                # As large as the input: it is copied there first, and argmax leaves fewer elements.
                arrays += [f"double {name}[{max(node.type.size, data[0].type.size)}];"]
                self._along(node, value, name)
                known[node.name] = Expression(name, _indices(node.type.shape))
            else:
                known[node.name] = applied(node, graph, value)
        results = [
            line
            for number, name in enumerate(graph.outputs)
            for line in self.elements(known[name], f"{result_name(graph, number)}[i] = v;")
        ]
        return [*arrays, *self.statements, *results]

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.statements: list[str] = []

    def _along(self, node: Node, value: Expression, name: str) -> None:
        """Write an operator along an axis, in place on a copy of its input, one row of the axis at a time."""
        shape, op = value.index.shape, node.op
        assert isinstance(op, Softmax | LogSoftmax | ArgMax | FixedSoftmax)
        step = c_strides(shape)[op.axis]
        count = shape[op.axis]
        groups = int(np.prod(shape)) // count
        self.statements += self.elements(value, f"{name}[i] = v;")
        # Argmax writes result `group` no farther than where row `group` begins, so no later row is overwritten.
        first = (
            f"{name} + group / {step} * {step * count} + group % {step}" if step > 1 else f"{name} + group * {count}"
        )
        kind = _KINDS[type(op)]
        self.helpers.append(kind)
        self.needs_math |= kind in ("softmax", "log_softmax")
        extra = f", {op.multiplier}, {op.left}, {op.least}" if isinstance(op, FixedSoftmax) else ""
        if isinstance(op, ArgMax):
            body = [f"{name}[group] = arg_max({first}, {count}, {step});"]
        else:
            body = [f"{kind}({first}, {count}, {step}{extra});"]
        self.statements += loop("group", groups, body)


_KINDS: dict[type[Op], str] = {
    Softmax: "softmax",
    LogSoftmax: "log_softmax",
    ArgMax: "arg_max",
    FixedSoftmax: "fixed_softmax",
}


def result_name(graph: Graph, number: int) -> str:
    """Return the name of the C parameter of an output."""
    return "result" if len(graph.outputs) == 1 else f"result_{number}"


def _indices(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)


TAIL_HELPERS: dict[str, list[str]] = {
    "arg_max": [
        "/* Index of the greatest of so many elements, the first of equal ones. */",
        "static double arg_max(const double *x, int count, int step)",
        "{",
        "    int best = 0;",
        "    for (int k = 1; k < count; ++k) {",
        "        best = x[k * step] > x[best * step] ? k : best;",
        "    }",
        "    return (double)best;",
        "}",
        "",
    ],
    "softmax": [
        "/* exp(x - max) / sum of exp(x - max), in place. */",
        "static void softmax(double *x, int count, int step)",
        "{",
        "    double most = x[0], sum = 0.0;",
        "    for (int k = 1; k < count; ++k) {",
        "        most = x[k * step] > most ? x[k * step] : most;",
        "    }",
        "    for (int k = 0; k < count; ++k) {",
        "        x[k * step] = exp(x[k * step] - most);",
        "        sum += x[k * step];",
        "    }",
        "    for (int k = 0; k < count; ++k) {",
        "        x[k * step] /= sum;",
        "    }",
        "}",
        "",
    ],
    "log_softmax": [
        "/* x - max - log(sum of exp(x - max)), in place. */",
        "static void log_softmax(double *x, int count, int step)",
        "{",
        "    double most = x[0], sum = 0.0;",
        "    for (int k = 1; k < count; ++k) {",
        "        most = x[k * step] > most ? x[k * step] : most;",
        "    }",
        "    for (int k = 0; k < count; ++k) {",
        "        x[k * step] -= most;",
        "        sum += exp(x[k * step]);",
        "    }",
        "    for (int k = 0; k < count; ++k) {",
        "        x[k * step] -= log(sum);",
        "    }",
        "}",
        "",
    ],
}
