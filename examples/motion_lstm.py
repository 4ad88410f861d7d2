"""An LSTM that tells standing, running, walking and badminton by the six sensors of a watch: 20 units, 8 bits.

It runs with any number of steps, on a board (`stream_motion.py`) and as C with a call for each. The weights are of
`train_motion.py`; the recordings that they were trained with are not part of this repository.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from nnhw.nn import Int, QuantLinear, QuantLSTM, load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "motion_lstm.npz"
SENSORS, UNITS = 6, 20
CLASSES = ("badminton", "running", "standing", "walking")


class Motion(nn.Module):
    """[N, steps, 6] --> [N, 4]: logits behind the last step.

    Parameters
    ----------
    bits: of weights, states and gates, while the cell has 16; None: a float network with the same parameters.
    """

    def __init__(self, bits: int | None = None) -> None:
        super().__init__()
        self.lstm: nn.LSTM
        if bits is None:
            self.codes: nn.Module = nn.Identity()
            self.lstm, self.last = nn.LSTM(SENSORS, UNITS, batch_first=True), nn.Linear(UNITS, len(CLASSES))
        else:
            self.codes = Int(8, 2.0**-5)
            formats = {"weight_quant": Int(bits, axis=0), "state_quant": Int(bits, 2.0 ** (1 - bits))}
            self.lstm = QuantLSTM(SENSORS, UNITS, batch_first=True, **formats)
            self.last = QuantLinear(UNITS, len(CLASSES), weight_quant=Int(bits))

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits."""
        states, _ = self.lstm(self.codes(sequences))
        logits: Tensor = self.last(states[:, -1])
        return logits


def scaled(recordings: Tensor) -> Tensor:
    """Return recordings of the watch as the model takes them: acceleration and turning, about -4 to 4."""
    return (recordings / 4).clamp(-4, 4)


def swings(count: int, steps: int = 50) -> Tensor:
    """Return made-up movements, swings of several speeds, float32 [count, steps, 6]."""
    seconds = torch.arange(steps)[:, None] / 10
    speeds = torch.linspace(0.5, 3, count)[:, None, None]
    return scaled(8 * torch.sin(2 * torch.pi * speeds * seconds + torch.arange(SENSORS)))


model = load_packed(Motion(8), CHECKPOINT) if CHECKPOINT.exists() else None  # train_motion.py makes it
example_input = swings(8)
