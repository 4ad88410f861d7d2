"""Pictures of graphs: every box and line is there, nothing overlaps, text stays text."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.engines.shared.counters import program_parts
from nnhw.export.box_layout import Box, Drawing, lay_out
from nnhw.export.svg import graph_picture, to_svg
from nnhw.flow.array_work import works
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.commands.drawing import graph_svg
from nnhw.flow.options import Options
from nnhw.frontend import load_source
from nnhw.ir import Builder, Graph
from nnhw.passes import lower, split
from tests.ir.graphs import random_graphs
from tests.mapping import networks

BY_HAND = Path(__file__).resolve().parents[2] / "examples" / "hand_written.ir"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text")]


def inception() -> Graph:
    """Return a graph of four branches of different lengths from one value."""
    builder = Builder("inception", locations=False)
    x = builder.input("x", (2, 8, 8), low=0, high=3)
    weight = [[[[1]], [[-1]]]] * 2
    middle = x.conv2d(weight, name="b1").threshold([[0], [1]], name="b2").conv2d(weight, name="b3")
    long = x.conv2d(weight, name="c1").threshold([[0], [1]], name="c2").conv2d(weight, name="c3")
    long = long.threshold([[0], [1]], name="c4").conv2d(weight, name="c5")
    pooled = x.max_pool2d((3, 3), (1, 1), before=(1, 1), after=(1, 1), name="d1")
    return builder.build(x.conv2d(weight, name="a1").concat(middle, long, pooled, name="all"))


def check_layout(layout: Drawing, boxes: dict[str, Box]) -> None:
    """Check that everything is inside of the picture, and that no box touches another one."""
    for name, box in boxes.items():
        x, y = layout.corners[name]
        assert 0 <= x <= x + box.width <= layout.width
        assert 0 <= y <= y + box.height <= layout.height
    for one, other in combinations(boxes, 2):
        (x, y), (u, v) = layout.corners[one], layout.corners[other]
        beside = x + boxes[one].width <= u or u + boxes[other].width <= x
        assert beside or y + boxes[one].height <= v or v + boxes[other].height <= y, (one, other)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_layout_of_any_graph_has_boxes_apart_and_lines_around_them(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    sizes = st.builds(Box, st.floats(20, 300), st.floats(20, 150))
    boxes = {f"n{number}": data.draw(sizes) for number in range(count)}
    pairs = [(f"n{one}", f"n{other}") for one, other in combinations(range(count), 2)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    layout = lay_out(boxes, edges)
    check_layout(layout, boxes)
    assert layout == lay_out(boxes, edges)
    for (start, end), points in layout.edges.items():
        assert points[0][1] == layout.corners[start][1] + boxes[start].height
        assert points[-1][1] == layout.corners[end][1]
        assert [y for _, y in points] == sorted(y for _, y in points)
        # Where a line passes the height of a box it runs straight down, beside it.
        for (x, top), (_, bottom) in zip(points[1:-1:2], points[2:-1:2], strict=True):
            for name, box in boxes.items():
                left, y = layout.corners[name]
                assert not (left < x < left + box.width and top < y + box.height and y < bottom), (start, end, name)


@settings(max_examples=20, deadline=None)
@given(random_graphs())
def test_picture_of_any_graph_is_well_formed_and_has_every_value(graph: Graph) -> None:
    svg = to_svg(graph_picture(graph))
    root = ElementTree.fromstring(svg)
    hints = [element.text or "" for element in root.iter(f"{NAMESPACE}title")]
    computed = [node for node in graph.nodes if node.inputs]
    assert sum(" = " in hint for hint in hints) == len(computed) + len(graph.inputs)
    arrows = [path for path in root.iter(f"{NAMESPACE}path") if path.get("marker-end")]
    assert len(arrows) == sum(len(set(graph.data_inputs(node))) for node in computed) + len(graph.outputs)
    assert svg == to_svg(graph_picture(graph))


def test_picture_says_shapes_widths_and_attributes() -> None:
    said = texts(graph_svg(inception()))
    assert said[0] == "inception"
    lines = {"conv2d", "a1", "weight: 2x2x1x1, 2 bits signed", "= int -3..3", "2x8x8, 2 bits", "2x8x8, 3 bits signed"}
    assert lines | {"kernel 3x3", "before 1x1", "8x8x8, 3 bits signed"} <= set(said)


def mapped(graph: Graph, style: str) -> Accelerator:
    return map_on_board(graph, load_board("icebreaker"), Options(style=style))[0].accelerator


def test_picture_of_engines_says_their_arrays_and_cycles() -> None:
    graph = split(lower(load_source(BY_HAND).capture())).body
    accelerator = mapped(graph, "streaming")
    said = texts(graph_svg(graph, accelerator))
    assert said[0] == f"hand_written_body on icebreaker: a frame in {accelerator.schedule.interval_cycles} cycles"
    boxes = " ".join(said[1:])
    for work in works(accelerator):
        assert f"{work.engine} {work.pe} PE x {work.simd}: {work.cycles} cycles" in said
    assert re.search(r" conv2d edges .* matmul \d+ PE x \d+: \d+ cycles .*threshold codes ", boxes)
    for kind in {type(stage.config).__name__.removesuffix("Config").lower() for stage in accelerator.stages}:
        assert re.search(rf" {kind}( \d+ PE x \d+)?: \d+ (cycles|beats)", boxes), kind


def test_picture_of_a_shared_engine_says_the_cycles_of_each_part() -> None:
    graph = networks.rescaled()
    accelerator = mapped(graph, "shared")
    said = texts(graph_svg(graph, accelerator))
    parts = program_parts(accelerator.programs[0])
    notes = [line for line in said if line.startswith("shared engine")]
    assert sorted(line.split(": ")[1] for line in notes) == sorted(f"{part.cycles:,} cycles" for part in parts)


def test_picture_escapes_names() -> None:
    builder = Builder("<b>&", locations=False)
    graph = builder.build(builder.input("<x>", (2,), low=0, high=1).linear([[1, 1]], name='"&' + "y" * 90))
    said = texts(graph_svg(graph))
    assert {"<b>&", "<x>"} <= set(said)
    assert max(map(len, said)) <= 60
