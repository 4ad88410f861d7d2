"""`python -m benchmarks NAME [--board BOARD] [--json]`, `.. --list`, `.. stale`, `.. remake [FILES]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import (
    activations,
    bnn_pynq,
    cases,
    checks,
    cmsis,
    compiled,
    doors,
    estimates,
    exported_c,
    exported_int8,
    faults,
    lanes,
    links,
    mapping,
    mnist,
    mutants,
    netlists,
    partitions,
    peak,
    planted,
    ports,
    random_networks,
    recheck,
    recurrent,
    remaking,
    search,
    second_network,
    speed,
    splitting,
    structure,
    whole,
)
from benchmarks.networks import NETWORKS
from benchmarks.people import running as people
from nnhw.errors import NnhwError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Parameters
    ----------
    about: one line.
    run: board name --> one row, its keys those of `report.json` where they mean the same. None: each network's own
        board.
    show: prints a row for people.
    board: where none is asked for.
    """

    about: str
    run: Callable[[Any], Row]
    show: Callable[[Row], None]
    board: str | None = "icebreaker"

    @property
    def module(self) -> str:
        """Name of the module that measures."""
        return self.run.__module__


BENCHMARKS: dict[str, Benchmark] = {
    "mnist_mlp": Benchmark("784-64-64-64-10, 1 bit: all test images, every boundary", mnist.mlp, mnist.show),
    "mnist_cnn": Benchmark("convolutional network, 1 bit: the same, 1,000 images in RTL", mnist.cnn, mnist.show),
    "activations": Benchmark("8-32-32-1 of 8 bits with each activation", activations.run, activations.show),
    "estimates": Benchmark("estimated and used resources of 20 random networks", estimates.run, estimates.show),
    "random_networks": Benchmark("random networks, from PyTorch to RTL", random_networks.run, random_networks.show),
    "recurrent": Benchmark("recurrent cells: cycles a step, clock, every value in RTL", recurrent.run, recurrent.show),
    "random_recurrent": Benchmark(
        "random recurrent networks, from graph to RTL", recurrent.random_networks, recurrent.show_random, None
    ),
    "faults": Benchmark("a million inferences while link and board fail: no row is wrong", faults.run, faults.show),
    "planted": Benchmark("mistakes planted in captures, passes, engines: what stops each", planted.run, planted.show),
    "mutants": Benchmark("faults planted in nnhw's source: the test that fails", mutants.run, mutants.show, None),
    "cmsis_nn": Benchmark("CMSIS-NN's int8 operators: its test vectors, from IR to RTL", cmsis.run, cmsis.show),
    "doors": Benchmark("one network from each door to a bitstream", doors.run, doors.show, None),
    "compile": Benchmark("what of five mixed models runs where by torch.compile", compiled.run, compiled.show),
    "bnn_pynq": Benchmark("Brevitas's TFC, SFC, LFC and CNV, all widths, to RTL", bnn_pynq.run, bnn_pynq.show, None),
    "splitting": Benchmark("wide layers in two halves: what mapping gains", splitting.run, splitting.show),
    "structure": Benchmark("what a newcomer to the source has to know, counted", structure.run, structure.show, None),
    "netlists": Benchmark("hashes of the netlists of examples and engines", netlists.run, netlists.show, None),
    "c": Benchmark("exported C: equal, small, and faster than PyTorch", exported_c.run, exported_c.show, None),
    "c_int8": Benchmark("exported C of int8 networks beside ONNX Runtime", exported_int8.run, exported_int8.show, None),
    "lanes": Benchmark("logic cells per product of every number format, by synthesis", lanes.run, lanes.show),
    "links": Benchmark("every link: logic cells, images/s in theory and at its pins, faults", links.run, links.show),
    "ports": Benchmark("logic cells of each kind of link on each family, by synthesis", ports.run, ports.show, None),
    "mapping": Benchmark("large networks: CPU seconds until they map or do not fit", mapping.run, mapping.show, None),
    "checks": Benchmark("nnhw check on networks that people bring", checks.run, checks.show, checks.BOARD),
    "peak": Benchmark("the largest binary engine of a device: products a cycle, clock", peak.run, peak.show, None),
    "speed": Benchmark("seconds to build, from nothing, cold, warm; cycles/s simulated", speed.run, speed.show),
    "networks": Benchmark(
        "all networks of the zoo, each on its own board", whole.network(*cases.STREAMING), whole.show, None
    ),
    "mlp784": Benchmark("784-32-16-10, 8 and 4 bit", whole.network("mlp784_w8a8", "mlp784_w4a4"), whole.show, None),
    **{
        name: Benchmark(NETWORKS[cases.CASES[name].network or name].about, whole.network(name), whole.show, None)
        for name in cases.STREAMING
    },
    **{
        name: Benchmark(f"on a shared engine: {', '.join(group)}", whole.network(*group), whole.show_table, None)
        for name, group in cases.SHARED_GROUPS.items()
    },
    **{name: Benchmark("on a shared engine", whole.network(name), whole.show, None) for name in cases.SHARED},
    "recheck": Benchmark("cycles of the zoo as predicted now, beside the results", recheck.run, recheck.show, None),
    "shared": Benchmark("all networks on shared engines", whole.network(*cases.SHARED), whole.show_table, None),
    "partitions": Benchmark(
        "two shared engines against one, by the cycle model", partitions.run, partitions.show, None
    ),
    "second_network": Benchmark(
        "a second network on the first one's hardware", second_network.run, second_network.show
    ),
    "search": Benchmark("architecture search for MNIST, beside the example made by hand", search.run, search.show),
}


PEOPLE = "people"
ABOUT_PEOPLE = "models as tutorials and model zoos write them, mapped on four boards; has options of its own"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [PEOPLE]:
        return _guarded(lambda: people.main(given[1:], remaking.code_hash(people.__name__, {})))
    if given[:1] in (["stale"], ["remake"]):
        modules = {name: one.module for name, one in BENCHMARKS.items()} | {PEOPLE: people.__name__}
        return _guarded(lambda: remaking.main(given, modules))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*BENCHMARKS, PEOPLE], help="which one; or stale, remake")
    parser.add_argument("--board", help="name or alias of a board; icebreaker, or a network's own, otherwise")
    parser.add_argument("--json", action="store_true", help="one object on one line")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    options = parser.parse_args(given)
    if options.list:
        return _guarded(lambda: show_list(options.json))
    if options.name is None:
        parser.error("a name is needed; --list shows them")
    chosen = BENCHMARKS[options.name]

    def run() -> int:
        start, busy = time.monotonic(), os.times()
        row = {"benchmark": options.name, **chosen.run(options.board or chosen.board)}
        # The first four numbers are processor seconds, of this process and of its children.
        cpu_seconds = sum(os.times()[:4]) - sum(busy[:4])
        row[remaking.MADE] = remaking.made_by(chosen.module, row, time.monotonic() - start, cpu_seconds)
        if options.json:
            print(json.dumps(row))
        else:
            chosen.show(row)
        return 0

    return _guarded(run)


def _guarded(run: Callable[[], int]) -> int:
    """Run a benchmark; return its exit code, 1 with the message where nnhw refuses."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Who read the output has left, as `head` does. What is still buffered goes nowhere, or Python would complain
        # about it when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except NnhwError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def show_list(as_json: bool) -> int:
    """Print the names, each with a line about it; return the exit code."""
    abouts = {name: benchmark.about for name, benchmark in BENCHMARKS.items()}
    for name, about in {**abouts, PEOPLE: ABOUT_PEOPLE}.items():
        print(json.dumps({"benchmark": name, "about": about}) if as_json else f"{name:16} {about}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
