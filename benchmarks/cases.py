"""The networks of the zoo that `benchmarks.whole` measures, and for each what is asked for.

A result depends on its own case alone: the others may change without making it old (`benchmarks.remaking`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One network on one board.

    Parameters
    ----------
    board: on which it is measured where no other is asked for.
    network: of `NETWORKS`; the case's own name otherwise.
    style: see `nnhw.flow.options.Options`.
    frames: through the RTL, under every pair of stall patterns.
    patterns: of them, so many.
    placed: a bitstream is built; on a large device that takes an hour.
    seeds: place-and-route runs at each clock, at most; those of large devices take long, so one or two.
    netlist: frames through the netlist that is placed; that of a large device takes long to compile.
    clock_hz: that must be reached; None: the fastest that holds.
    target_fps: frames a second that suffice; None: as many as fit, for which place and route of a device of 84,000
        logic cells takes hours.
    """

    board: str
    network: str = ""
    style: str = "streaming"
    frames: int = 8
    patterns: int = 2
    placed: bool = True
    seeds: int = 5
    netlist: int = 1
    clock_hz: float | None = None
    target_fps: float | None = None


CASES: dict[str, Case] = {
    "mlp784_w8a8": Case("ulx3s_25f", seeds=2),
    "mlp784_w4a4": Case("icebreaker"),
    "cnn_small": Case("icebreaker"),
    "tfc_w1a1": Case("icebreaker", frames=32),
    "ai8x_mnist": Case("ulx3s_25f", frames=2, seeds=2),
    "ds_cnn_w4a4": Case("ulx3s_25f", frames=3, seeds=2),
    "ds_cnn_w8a8": Case("ulx3s_25f", frames=2, seeds=2, clock_hz=90e6),
    "sensor_cnn1d": Case("ulx3s_25f", seeds=2),
    "ecg_autoencoder": Case("icebreaker", frames=16),
    "resnet8_w2a2": Case("ulx3s_85f", frames=2, placed=False),
    "resnet8_w4a4": Case("ulx3s_85f", frames=2, seeds=1, netlist=0, clock_hz=75e6, target_fps=8000),
    "resnet8_w8a8": Case("ulx3s_85f", frames=2, seeds=1, netlist=0, clock_hz=75e6, target_fps=4000),
    "ds_cnn_w8a8_85f": Case("ulx3s_85f", "ds_cnn_w8a8", frames=2, seeds=1, netlist=0, clock_hz=66.6e6, target_fps=8000),
    "cnv_half_w2a2": Case("ulx3s_25f", frames=2, seeds=2),
    "cnv_w1a1": Case("ulx3s_85f", frames=2, patterns=1, seeds=2, netlist=0, clock_hz=82e6, target_fps=10_000),
    # One engine for all layers. The clocks asked for are known to hold. Left to itself, a build takes a slower one if
    # the serial port has so much more baud with it that the host gets more results, at a lower rate of the engine.
    "ds_cnn_w8a8_shared": Case("icebreaker", "ds_cnn_w8a8", "shared", frames=3, seeds=1),
    "ds_cnn_all4_shared": Case("icebreaker", "ds_cnn_all4", "shared", frames=3, seeds=2, clock_hz=48.75e6),
    "ds_cnn_all2_shared": Case("icebreaker", "ds_cnn_all2", "shared", frames=3, seeds=2, clock_hz=45.75e6),
    "resnet8_w8a8_shared": Case("icebreaker", "resnet8_w8a8", "shared", frames=2, seeds=1),
    "resnet8_all4_shared": Case("icebreaker", "resnet8_all4", "shared", frames=2, seeds=2, clock_hz=48e6),
    "resnet8_all2_shared": Case("icebreaker", "resnet8_all2", "shared", frames=2, seeds=2, clock_hz=50.25e6),
    "mobilenet_w2a4_shared": Case("icebreaker", "mobilenet_w2a4", "shared", frames=2, seeds=2, clock_hz=45.75e6),
    "autoencoder_w2a8_shared": Case("icebreaker", "autoencoder_w2a8", "shared", frames=4, seeds=4, clock_hz=48e6),
    "cnv_half_w2a2_shared": Case("icebreaker", "cnv_half_w2a2", "shared", frames=2, seeds=2, clock_hz=45.75e6),
    "wide_maps_w8a8_shared": Case("icebreaker", "wide_maps_w8a8", "shared", frames=2, seeds=2),
    "resnet8_w8a8_shared_85f": Case("ulx3s_85f", "resnet8_w8a8", "shared", frames=2, placed=False),
    "mobilenet_w8a8_shared_85f": Case("ulx3s_85f", "mobilenet_w8a8", "shared", frames=2, placed=False),
}
STREAMING = tuple(name for name, case in CASES.items() if case.style == "streaming")
SHARED = tuple(name for name, case in CASES.items() if case.style == "shared")
SHARED_GROUPS = {
    "ds_cnn": tuple(name for name in SHARED if name.startswith("ds_cnn")),
    "resnet8": tuple(name for name in SHARED if name.startswith("resnet8")),
    "mobilenet": tuple(name for name in SHARED if name.startswith("mobilenet")),
    "autoencoder": ("autoencoder_w2a8_shared",),
    "wide_maps": ("wide_maps_w8a8_shared",),
    "cnv_half_up5k": ("cnv_half_w2a2_shared",),
}
