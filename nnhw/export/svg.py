"""Graphs as SVG pictures: boxes with text, and lines with shapes and widths. They are made without other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from nnhw.ir import Graph, IntType, Node, TensorType
from nnhw.ir.attributes import fields_of
from nnhw.ir.ops import Constant, Input

from .box_layout import Box, Drawing, Point, lay_out

_CHAR, _LINE, _PADDING = 7.3, 17.0, 10.0  # pixels: of a character of 12, of a line, around the text of a box
_LABEL_CHAR, _TITLE = 6.6, 34.0
"""Width of a character of a label, and height of the title, in pixels."""
_LONGEST = 60  # characters of a line in a box
_COLOURS: Mapping[str, tuple[str, str]] = {
    "input": ("#e8eaed", "#5f6368"),
    "products": ("#d2e3fc", "#1a56b0"),
    "codes": ("#fde2c8", "#a8500a"),
    "windows": ("#d5efd9", "#1c6b30"),
    "shape": ("#f1f3f4", "#80868b"),
    "floats": ("#eadcf8", "#6a2c9e"),
}
"""Colours of (fill, stroke) for each kind of box."""
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("linear", "conv2d", "weighted_sum", "product", "matrix_product"), "products"),
    **dict.fromkeys(("threshold", "step_table", "rescale", "quantize", "dequantize"), "codes"),
    **dict.fromkeys(("integer_softmax", "integer_norm"), "codes"),
    **dict.fromkeys(("max_pool2d", "sum_pool2d", "pad", "upsample"), "windows"),
    **dict.fromkeys(("concat", "flatten", "reshape", "permute", "slice", "argmax", "broadcast"), "shape"),
    **dict.fromkeys(("last_step", "reverse_steps"), "shape"),
    "input": "input",
}
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12">
<title>{title}</title>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#5f6368"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>
<text x="24" y="26" font-size="16" font-weight="bold" fill="#202124">{title}</text>
<g transform="translate(0 {top:g})">"""
_BODY = """\
<rect x="4" y="{top:g}" width="{width}" height="{height:g}" fill="#f8f9fa" stroke="#dadce0"/>
<text x="24" y="{top:g}" dy="26" font-size="14" font-weight="bold" fill="#202124">{title}</text>
<g transform="translate(0 {below:g})">"""


@dataclass(frozen=True)
class Shown:
    """A box of a picture.

    Parameters
    ----------
    title: first line, in bold.
    lines: lines below it.
    kind: key of `_COLOURS`.
    hint: text that a browser shows when the mouse rests on the box.
    """

    title: str
    lines: tuple[str, ...]
    kind: str
    hint: str = ""


@dataclass(frozen=True)
class Picture:
    """The boxes and lines of a picture, without positions.

    Parameters
    ----------
    title: heading of the picture.
    boxes: by name; each box stands behind all that it reads.
    edges: label of each line by (from, to).
    bodies: pictures of loops' bodies, drawn below.
    """

    title: str
    boxes: Mapping[str, Shown]
    edges: Mapping[tuple[str, str], str]
    bodies: tuple[Picture, ...] = ()


def graph_picture(graph: Graph, notes: Mapping[str, Sequence[str]] | None = None, title: str = "") -> Picture:
    """Return the picture of a graph: operators with their parameters, values with shape and width.

    Parameters
    ----------
    notes: further lines for a node's box, by name, such as the engine that runs it.
    title: heading; default: the graph's name.
    """
    notes = notes or {}
    boxes: dict[str, Shown] = {}
    edges: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            continue
        boxes[node.name] = _shown(graph, node, notes.get(node.name, ()))
        for operand in graph.data_inputs(node):
            edges[operand.name, node.name] = _type(operand.type)
    for index, node in enumerate(graph.output_nodes):
        name = f"\0output {index}"  # no node can have a name with a NUL in it
        boxes[name] = Shown("output", (_cut(node.name),), "input")
        edges[node.name, name] = _type(node.type)
    bodies = tuple(graph_picture(scan.body, title=f"{loop.name}: what each step does") for loop, scan in graph.loops)
    return Picture(_cut(title or graph.name), boxes, edges, bodies)


def to_svg(picture: Picture) -> str:
    """Return a picture as the text of an SVG file; the same picture gives the same text."""
    pictures = _with_bodies(picture)
    drawings = [_drawing(each) for each in pictures]
    width = max(right for right, _, _ in drawings)
    height = sum(below + round(_TITLE) for _, below, _ in drawings)
    lines = [_HEAD.format(width=width, height=height, title=escape(picture.title), top=_TITLE), *drawings[0][2], "</g>"]
    top = drawings[0][1] + _TITLE
    for body, (_, below, drawn) in zip(pictures[1:], drawings[1:], strict=True):
        title = escape(body.title)
        lines += [_BODY.format(title=title, top=top, below=top + _TITLE, width=width, height=below + _TITLE)]
        lines += [*drawn, "</g>"]
        top += below + round(_TITLE)
    return "\n".join([*lines, "</svg>", ""])


def _with_bodies(picture: Picture) -> list[Picture]:
    return [picture, *(inner for body in picture.bodies for inner in _with_bodies(body))]


def _drawing(picture: Picture) -> tuple[int, int, list[str]]:
    """Return width and height of a picture without its title, and its lines."""
    sizes = {name: _box(shown) for name, shown in picture.boxes.items()}
    layout = lay_out(sizes, list(picture.edges))
    labels = _labels(picture, layout)
    right = max([layout.width, *(x + len(text) * _LABEL_CHAR + 12 for x, _, text in labels)])
    right = max(right, len(picture.title) * 9.5 + 48)
    lines = [_line(points) for points in layout.edges.values()]
    boxes = [_drawn(shown, layout.corners[name], sizes[name]) for name, shown in picture.boxes.items()]
    return round(right), round(layout.height), [*lines, *boxes, *(_label(*label) for label in labels)]


def _shown(graph: Graph, node: Node, notes: Sequence[str]) -> Shown:
    op = node.op
    lines = [node.name] if node.op.name != node.name else []
    for name, field in fields_of(type(op)).items():
        value = getattr(op, name)
        if value != field.default and not isinstance(value, Graph):
            lines.append(f"{name} {_value(value)}")
    if isinstance(op, Input):
        lines.append(_type(node.type))
    for name in node.inputs:
        if name in graph.constants:
            lines.append(f"{_short_name(name, node.name)}: {_type(graph.node(name).type)}")
    if node.type.is_int and not isinstance(op, Input):
        lines.append(f"= {node.type.dtype}")
    place = str(node.location) if node.location.file else ""
    hint = f"{node.name} = {op.name}: {node.type}" + (f"\n{place}" if place else "")
    kind = _KINDS.get(op.name, "floats")
    return Shown(op.name, (*map(_cut, lines), *map(_cut, notes)), kind, hint)


def _short_name(constant: str, node: str) -> str:
    """Return a constant's name without that of the node that reads it."""
    return constant.removeprefix(f"{node}.") or constant


def _type(type: TensorType) -> str:
    """Return shape and width: 16x26x26, 5 bits."""
    shape = ("steps of " if type.is_sequence else "") + ("x".join(map(str, type.shape)) or "one")
    if not isinstance(type.dtype, IntType):
        return f"{shape}, float64"
    if type.dtype.bipolar:
        return f"{shape}, bipolar"
    bits = type.dtype.bits
    return f"{shape}, {bits} bit{'s' * (bits > 1)}{' signed' * type.dtype.signed}"


def _value(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _cut(line: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}.."


def _box(shown: Shown) -> Box:
    longest = max(len(line) for line in (shown.title, *shown.lines))
    return Box(longest * _CHAR + 2 * _PADDING, (1 + len(shown.lines)) * _LINE + _PADDING)


def _labels(picture: Picture, layout: Drawing) -> list[tuple[float, float, str]]:
    """Return (x, y, text) of the labels: each value has one, at the beginning of its first line."""
    found: dict[str, tuple[float, float, str]] = {}
    for (start, end), text in picture.edges.items():
        x, y = layout.edges[start, end][0]
        if text:
            found.setdefault(start, (x + 7, y + 14, text))
    return list(found.values())


def _label(x: float, y: float, text: str) -> str:
    """Return a label that stays readable where lines pass behind it."""
    behind = f'<rect x="{x - 2:.1f}" y="{y - 10:.1f}" width="{len(text) * _LABEL_CHAR + 4:.1f}" height="14"'
    return (
        f'{behind} fill="#ffffff" fill-opacity="0.85"/>'
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="#3c4043">{escape(text)}</text>'
    )


def _line(points: Sequence[Point]) -> str:
    """Return the path of a line that leaves and arrives vertically, curved where x changes."""
    x, y = points[0]
    path = [f"M{x:.1f} {y:.1f}"]
    for left, top in points[1:]:
        if left == x:
            path.append(f"L{left:.1f} {top:.1f}")
        else:
            middle = (y + top) / 2
            path.append(f"C{x:.1f} {middle:.1f} {left:.1f} {middle:.1f} {left:.1f} {top:.1f}")
        x, y = left, top
    return f'<path d="{"".join(path)}" fill="none" stroke="#5f6368" stroke-width="1.3" marker-end="url(#end)"/>'


def _drawn(shown: Shown, corner: Point, box: Box) -> str:
    """Return one box with its text."""
    (x, y), (fill, stroke) = corner, _COLOURS[shown.kind]
    middle = x + box.width / 2
    texts = []
    for row, line in enumerate((shown.title, *shown.lines)):
        style = f'font-weight="bold" fill="{stroke}"' if row == 0 else 'fill="#202124"'
        top = y + _PADDING / 2 + _LINE * (row + 0.75)
        texts.append(f'<text x="{middle:.1f}" y="{top:.1f}" text-anchor="middle" {style}>{escape(line)}</text>')
    rect = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )
    hint = f"<title>{escape(shown.hint)}</title>" if shown.hint else ""
    return f"<g>{hint}{rect}{''.join(texts)}</g>"
