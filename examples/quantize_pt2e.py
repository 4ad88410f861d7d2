"""Quantize the float network of `mnist_float.py` by PT2E, and write mnist_pt2e.pt2. Needs `pip install torchao`."""

from pathlib import Path

import torch
import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
from mnist_float import CALIBRATION_DIGITS, float_model, sample_images
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

FILE = Path(__file__).resolve().parent / "mnist_pt2e.pt2"
BATCH = 50


def quantized(model: torch.nn.Module, images: torch.Tensor) -> torch.fx.GraphModule:
    """Quantize a float model with images [N, ..]."""
    any_batch = ({0: torch.export.Dim.AUTO},)
    traced = torch.export.export(model.eval(), (images[:2],), dynamic_shapes=any_batch).module()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(traced, quantizer)
    for batch in images.split(BATCH):
        prepared(batch)
    return convert_pt2e(prepared)


if __name__ == "__main__":
    images = sample_images(CALIBRATION_DIGITS)
    model = quantized(float_model, images)  # nnhw.build takes it as it is, too
    program = torch.export.export(model, (images[:2].clone(),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names folders of this computer
    torch.export.save(program, FILE)
