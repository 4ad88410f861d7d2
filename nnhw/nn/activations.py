"""Activations: each is a quantizer, whose clamping to the range of codes is the nonlinearity."""

from nnhw.errors import InputError

from .quantizers import Bipolar, Int, Quantizer, ScaleChoice, UInt


class Sign(Bipolar):
    """+1 where the input is at least 0 (so for 0 and -0.0), else -1.

    The gradient is that of hardtanh. Source: Courbariaux et al., arXiv:1602.02830.
    """

    def __init__(self) -> None:
        super().__init__(1.0)


class QuantReLU(UInt):
    """ReLU that ends in unsigned codes: negative inputs become code 0.

    Parameters
    ----------
    bits: 1 to 8.
    scale: step between two codes, or "observed"; default: 2**-(bits - 1), which covers [0, 2).

    Source: clipped ReLU with few codes: Zhou et al., DoReFa-Net, arXiv:1606.06160.
    """

    def __init__(self, bits: int = 4, scale: ScaleChoice | None = None) -> None:
        super().__init__(bits, 2.0 ** (1 - bits) if scale is None else scale)
        _check_activation(self)


class QuantHardTanh(Int):
    """Clamp to [-1, 1) in 2**bits equal steps, or to (-1, 1) with one code less if `narrow_range`.

    Parameters
    ----------
    bits: 2 to 8.
    narrow_range: leave out the code of -1, so that the range is symmetric.
    """

    def __init__(self, bits: int = 4, *, narrow_range: bool = False) -> None:
        super().__init__(bits, 2.0 ** (1 - bits), narrow_range=narrow_range)


class QuantIdentity(Int):
    """Signed codes of a value that passes unchanged, such as an input or a branch that is added.

    Parameters
    ----------
    bits: 2 to 8.
    scale: step between two codes, or "observed"; default: 2**-(bits - 1), which covers [-1, 1).
    narrow_range: leave out the lowest code, so that the range is symmetric.
    """

    def __init__(self, bits: int = 8, scale: ScaleChoice | None = None, *, narrow_range: bool = False) -> None:
        super().__init__(bits, 2.0 ** (1 - bits) if scale is None else scale, narrow_range=narrow_range)
        _check_activation(self)


def _check_activation(quantizer: Quantizer) -> None:
    # A scale that is found anew for each input would have to be computed on the device, whose scales are constants.
    if quantizer.scale_source == "max_abs":
        raise InputError(
            f"{type(quantizer).__name__} needs a scale that does not depend on the input: a number or 'observed', "
            "got 'max_abs'"
        )
