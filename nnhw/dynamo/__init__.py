"""`torch.compile(model, backend="nnhw")`: quantized parts of a model on the accelerator, the rest in PyTorch.

`Backend` is the backend with its options, `backend` the function that PyTorch finds by the entry point, `close` frees
the devices. See `docs/torch-compile.md`.
"""

from .backend import Backend, backend
from .graph_partition import AcceleratedPart, GraphPartition, Placed
from .graph_parts import close

__all__ = ["AcceleratedPart", "Backend", "GraphPartition", "Placed", "backend", "close"]
