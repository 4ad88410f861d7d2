"""Run one bench: `python -m sim.run JOB.json`, in a process of its own because cocotb ends with exit().

The job: `simulator`, 'verilator' or 'icarus'; `source`, the Verilog; `module`, the bench; `environments`, with each of
which the bench runs once; `plusargs`, arguments of the simulation. Everything is written below the current folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Runner, get_runner

TIMESCALE = ("1ns", "1ps")
# cocotb lets pytest rewrite every module that a bench imports, for better words where an assertion fails. That takes as
# long as most benches, and these raise `BenchFailure` with their own words.
PLAIN = {"COCOTB_REWRITE_ASSERTION_FILES": ""}


def main(path: Path) -> int:
    """Run the job; return the exit status: 0 when every test ran and passed."""
    job = json.loads(path.read_text(encoding="utf-8"))
    runner = get_runner(job["simulator"])
    if job["simulator"] == "icarus":  # Verilator's program is in its place already
        runner.build(sources=[job["source"]], hdl_toplevel="top", build_dir="build", timescale=TIMESCALE, always=True)
    statuses = [run_once(runner, job, number, environment) for number, environment in enumerate(job["environments"])]
    return max(statuses, default=1)


def run_once(runner: Runner, job: dict[str, Any], number: int, environment: dict[str, str]) -> int:
    """Run the bench with one environment; return the exit status."""
    try:
        results = runner.test(
            test_module=job["module"],
            hdl_toplevel="top",
            hdl_toplevel_lang="verilog",
            build_dir="build",
            test_dir=".",
            results_xml=str(Path(f"results-{number}.xml").resolve()),
            extra_env={**PLAIN, **environment},
            plusargs=job["plusargs"],
            timescale=None if job["simulator"] == "verilator" else TIMESCALE,
        )
    except SystemExit as failure:  # the runner's way to say that a test failed; the other environments still run
        print(failure, file=sys.stderr)
        return 1
    ran, failed = get_results(results)
    return 0 if ran and not failed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
