"""Operators that are more than a layer of one graph: states, loops, code of another device; and what to do then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHOWN = 3
_PAGE = "docs/tflite.md"


@dataclass(frozen=True)
class Beyond:
    """What some operators mean for a whole file.

    Parameters
    ----------
    means: what is said of the file.
    remedy: what to do.
    page: of the documentation, which helps.
    kinds: operators of the format, or the names of custom ones.
    """

    means: str
    remedy: str
    page: str
    kinds: tuple[str, ...]

    def message(self, operators: Iterable[str]) -> str:
        """Return what is said of a file with these operators, each a kind and a tensor's name."""
        named = list(dict.fromkeys(operators))
        rest = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        return f"{self.means} ({', '.join(named[:_SHOWN])}{rest}); {self.remedy} ({self.page})"


WINDOW = (
    "an accelerator built from a TFLite file keeps nothing from one image to the next: convert the model before it is "
    "made streaming, so that one call gets the whole window"
)
"""What to do about a file whose tensors keep a state."""
_ALL = (
    Beyond(
        "keeps a state in variables from one call to the next",
        WINDOW,
        f"{_PAGE}, 'Networks with a state'",
        ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"),
    ),
    Beyond(
        "keeps the frames of earlier calls in the state of a filter over time",
        "write that filter as a convolution over the whole window of frames, and convert again",
        f"{_PAGE}, 'Networks with a state'",
        ("SVDF",),
    ),
    Beyond(
        "has recurrent layers, which keep a state from one step to the next",
        "write the network in PyTorch with nnhw.nn.QuantLSTM, QuantGRU or QuantRNN, which are supported",
        "docs/sequences.md",
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            "LSTM",
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            "BIDIRECTIONAL_SEQUENCE_RNN",
            "RNN",
        ),
    ),
    Beyond(
        "has loops or branches, whose bodies are graphs of their own",
        "unroll them before it is converted, or write a recurrent network in PyTorch",
        "docs/sequences.md",
        ("WHILE", "IF", "CALL"),
    ),
    Beyond(
        "was compiled for an Arm Ethos-U: its layers are commands of that device",
        "use the .tflite file that was the input of vela",
        f"{_PAGE}, 'Files for another device'",
        ("CUSTOM (ethos-u)",),
    ),
    Beyond(
        "was compiled for a Coral Edge TPU: its layers are commands of that device",
        "use the .tflite file that was the input of edgetpu_compiler",
        f"{_PAGE}, 'Files for another device'",
        ("CUSTOM (edgetpu-custom-op)",),
    ),
)
_FLEX = Beyond(
    "has TensorFlow operators, which are not part of TFLite",
    "convert it with TFLITE_BUILTINS_INT8 alone, without SELECT_TF_OPS",
    f"{_PAGE}, 'From Keras and QKeras'",
    (),
)
_BY_KIND = {kind: beyond for beyond in _ALL for kind in beyond.kinds}


def beyond_of(kind: str) -> Beyond | None:
    """Return what an operator means for its whole file; None for a layer of a graph."""
    # The converter calls them Flex and the name in TensorFlow.
    return _FLEX if kind.startswith("CUSTOM (Flex") else _BY_KIND.get(kind)
