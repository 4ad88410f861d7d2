"""One trace has to stand for every call: models that branch on the batch, or that keep something, are refused."""

import pytest
import torch
from torch import Tensor, nn

from nnhw.errors import CaptureError
from nnhw.frontend import capture
from nnhw.nn import Int, QuantLinear

EXAMPLE = torch.linspace(-1, 1, 40).reshape(8, 5)


class Front(nn.Module):
    """A layer behind a function of the module and the images."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.zeros(1))
        self.calls, self.mask = 0, None
        self.quantizer, self.layer = Int(4, 0.25), QuantLinear(5, 2, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        """Apply function, quantizer and layer."""
        return self.layer(self.quantizer(self.function(self, x)))


def add_in_place(model: Front, x: Tensor) -> Tensor:
    model.count.add_(1)
    return x + model.count


def add_to_part(model: Front, x: Tensor) -> Tensor:
    model.count[0] += 1
    return x + model.count


def assign(model: Front, x: Tensor) -> Tensor:
    model.count = model.count + 1
    return x + model.count


def count_calls(model: Front, x: Tensor) -> Tensor:
    model.calls += 1
    return x * model.calls


def count_only(model: Front, x: Tensor) -> Tensor:
    model.count += 1
    return x


def keep_once(model: Front, x: Tensor) -> Tensor:
    if model.mask is None:
        model.mask = torch.ones(5)
    return x * model.mask


BRANCH = "what it computes of an image must not depend on how many there are: leave out the branch"
KEEPS = "an accelerator keeps nothing from one image to the next, so leave that out in eval mode"
CHANGES = f"forward changes 'count' of the model (HERE), on which its result depends; {KEEPS}"
AGAIN = "the model gives another result when it is called again with the same images"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(
            lambda model, x: x * 2 if x.shape[0] > 4 else x,
            f"the model branches on the size of the batch: what was traced holds only where x.shape[0] > 4; {BRANCH}",
            id="more than four",
        ),
        pytest.param(
            lambda model, x: x * 2 if x.shape[0] % 2 == 0 else x,
            "the model branches on the size of the batch: what was traced holds only where (x.shape[0] % 2) == 0; "
            f"{BRANCH}",
            id="even",
        ),
        pytest.param(
            lambda model, x: x * 2 if x.shape[0] == 1 else x,
            "the model computes something else of a single image than of the same image in a batch (torch.Tensor.mul "
            "instead of nnhw.quantize.default); leave out the branch on x.shape[0]",
            id="one",
        ),
        (add_in_place, CHANGES),
        (add_to_part, CHANGES),
        (assign, CHANGES),
        (count_calls, f"{AGAIN}: it draws random numbers, or forward changes an attribute; {KEEPS}"),
    ],
)
def test_capture_rejects_what_depends_on_batch_or_call(function: object, message: str) -> None:
    model = Front(function).eval()
    with pytest.raises(CaptureError) as caught:
        capture(model, EXAMPLE)
    line = Front.forward.__code__.co_firstlineno + 2
    assert str(caught.value) == message.replace("HERE", f"test_trial_calls.py:{line}")
    assert model.count.item() == 0
    assert model.calls == 0


@pytest.mark.parametrize("function", [count_only, keep_once])
def test_capture_takes_what_no_result_depends_on(function: object) -> None:
    plain = capture(Front(lambda model, x: x * torch.ones(5)).eval(), EXAMPLE)
    graph = capture(Front(function).eval(), EXAMPLE)
    assert graph.output_nodes[0].type == plain.output_nodes[0].type
