"""What an engine costs: block RAM exactly, logic by a model calibrated on place and route.

The logic model counts what the hardware is made of, register by register; its few factors were fitted to
`yosys` and `nextpnr` runs, see `benchmarks/`.
"""

from nnhw.mapping.cost.engines import accelerator_cost, cost, packing_cost, stages_cost

__all__ = ["accelerator_cost", "cost", "packing_cost", "stages_cost"]
