"""The tables of the docs that are written from results: `python -m tests.benchmarks.page_tables` writes them all.

They are not in `benchmarks`, whose hashes results carry: a word in a table makes no result older.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import links_table, recurrent_table
from .markdown_table import PageTable, Rows, result

SIDE = 28
"""Pixels of a side of a digit."""
STYLES = {"streaming": "an engine for each layer", "shared": "shared engine"}
SHARED = {
    "ds_cnn_w8a8_shared": "DS-CNN, 8 bit (49 x 10 input, 2.6 M products)",
    "ds_cnn_all4_shared": "DS-CNN, 4 bit",
    "ds_cnn_all2_shared": "DS-CNN, 2 bit",
    "resnet8_w8a8_shared": "ResNet-8, 8 bit (CIFAR-10 input, 11.6 M products)",
    "resnet8_all4_shared": "ResNet-8, 4 bit",
    "resnet8_all2_shared": "ResNet-8, 2 bit",
    "cnv_half_w2a2_shared": "CNV at half width, 2 bit (CIFAR-10 input, 15.3 M products)",
    "mobilenet_w2a4_shared": "MobileNetV1-0.25, 2-bit weights, 4-bit codes (96 x 96 x 3 input)",
    "wide_maps_w8a8_shared": "depthwise-separable on 64 x 64 x 3, 8 bit (6.4 M products), in turns",
    "autoencoder_w2a8_shared": "autoencoder (640 inputs), 2-bit weights, 8-bit codes",
}
"""Benchmark --> the network, as the page calls it."""


def _activations() -> Rows:
    for name, row in result("activations-icebreaker")["rows"].items():
        shared = row["shared"]
        steps = " + ".join(map(str, row["steps_ebr"]))
        cells = f"{row['cycles']}", _counts(row["common"]), steps, _counts(row["apart"])
        yield f"`{name}`", *cells, f"{shared['cycles']}", _counts(shared)


def _doors() -> Rows:
    for one in result("doors")["networks"]:
        used = [f"{one['resources'][kind]:,}" for kind in ("lc", "ebr", "spram", "dsp")]
        rate = f"{one['fmax_hz'] / 1e6:.1f}", f"{one['interval_cycles']:,}"
        differ = f"{one['mismatches']} of {one['frames']}"
        yield one["door"], f"`{one['file']}`", STYLES[one["style"]], *used, *rate, differ


def _front() -> Rows:
    for trial in result("search-icebreaker")["front"]:
        chosen, figures = trial["params"], trial["figures"]
        side = SIDE - 2 * chosen["edge"]
        widths = "-".join(str(chosen[f"width_{layer}"]) for layer in range(chosen["depth"]))
        layers = f"{widths}-10, {chosen['weights']}, {chosen['activation']}"
        yield (
            f"{trial['number']}",
            f"{figures['accuracy']:.2%}",
            *(f"{figures[name]:,.0f}" for name in ("cycles", "rate")),
            f"{side} x {side}",
            f"{chosen['pixel_bits']}",
            layers,
            *(f"{figures[name]:,.0f}" for name in ("lc", "ebr")),
        )


def _shared() -> Rows:
    for name, title in SHARED.items():
        row = result(f"{name}-icebreaker")
        cycles, clock = row["cycles"]["interval"]["simulated"], row["clock_hz"]
        products = {layer["pe"] * layer["simd"] for layer in row["layers"] if layer["engine"] == "shared"}
        used = ", ".join(f"{row['resources'][kind]['used']:,}" for kind in ("lc", "ebr", "spram", "dsp"))
        milliseconds = 1e3 * cycles / clock
        yield (
            title,
            ", ".join(map(str, sorted(products))),
            f"{cycles:,}",
            f"{100 * row['utilization']:.1f} %",
            f"{clock / 1e6:g}",
            f"{milliseconds:.{2 if milliseconds < 10 else 1}f}",
            used,
        )


def _counts(row: Mapping[str, Any]) -> str:
    return f"{row['lc']:,}, {row['ebr']}, {row['dsp']}"


TABLES = {
    "links": links_table.TABLE,
    "recurrent": recurrent_table.TABLE,
    "activations": PageTable(
        "activations.md",
        (
            "activation",
            "cycles",
            "LC, EBR, DSP",
            "steps",
            "own steps: LC, EBR, DSP",
            "shared: cycles",
            "LC, EBR, DSP",
        ),
        _activations,
    ),
    "doors": PageTable(
        "doors.md",
        ("door", "file", "style", "LC", "block RAM", "large RAM", "DSP", "Fmax, MHz", "cycles", "RTL differs"),
        _doors,
    ),
    "search": PageTable(
        "search.md",
        (
            "trial",
            "accuracy on validation",
            "cycles",
            "images/s at 48 MHz",
            "pixels",
            "bits of a pixel",
            "layers",
            "LC",
            "EBR",
        ),
        _front,
    ),
    "shared": PageTable(
        "shared-engine.md",
        ("network", "products a cycle", "cycles", "use", "clock, MHz", "ms", "LC, EBR, SPRAM, DSP"),
        _shared,
    ),
}


def main() -> None:
    """Write the tables into their pages."""
    for name, table in TABLES.items():
        text = table.path.read_text(encoding="utf-8")
        table.path.write_text(table.place(name).sub(lambda _, made=table: made.text(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
