"""The cost of engines: block RAMs and DSP blocks exactly, logic by a model that is calibrated on place and route.

The logic model counts the adders, registers and multiplexers of the hardware; its few factors were fitted to runs of
`yosys` and `nextpnr`, see `benchmarks/`.
"""

from nnhw.mapping.cost.engines import accelerator_cost, cost, packing_cost, stages_cost

__all__ = ["accelerator_cost", "cost", "packing_cost", "stages_cost"]
