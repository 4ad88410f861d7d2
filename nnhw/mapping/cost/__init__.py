"""What engines are made of, and what that costs: an engine lists its parts once, and a family prices them.

Block RAMs and DSP blocks are exact. Logic is a model: the parts are the adders, registers and multiplexers of the
hardware, their prices (`nnhw.families.prices`) were measured, and the few factors beside them were fitted to runs of
`yosys` and `nextpnr`, see `benchmarks/`.
"""

from nnhw.mapping.cost.engines import accelerator_cost, cost, packing_cost, parts, stages_cost

__all__ = ["accelerator_cost", "cost", "packing_cost", "parts", "stages_cost"]
