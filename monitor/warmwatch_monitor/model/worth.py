"""What a step is worth, and what that comes to: tokens a second, and MFU. Pure.

All of it is at the recent speed (``Steps.length``): the median of the clean steps of the last
minute.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from warmwatch import record
from warmwatch_monitor.model.peaks import peak_flops

DTYPE = "bfloat16"  # against whose peak an MFU is held where nobody said another
_FLOPS_PER_PARAMETER = 6  # for each token: 2 in the forward, 4 in the backward
HALF_A_BIN = record.HALF_A_BIN  # of a median: how far off one is that is read off its bins


class Worth(Struct, frozen=True, kw_only=True):
    """What one step of a rank is worth; ``None`` where nobody said.

    Attributes:
        tokens, samples: that it trains on. flops: that it takes, as the user said.
        parameters: of the model; estimated: they are those that its optimizers hold.
        dtype: in which it computes, as the user said.
    """

    tokens: int | None = None
    samples: int | None = None
    flops: float | None = None
    parameters: int | None = None
    estimated: bool = False
    dtype: str | None = None

    @property
    def operations(self) -> float | None:
        """Floating-point operations of a step: as the user said, else 6 x parameters x tokens."""
        if self.flops is not None:
            return self.flops
        if self.parameters is None or self.tokens is None:
            return None
        return float(_FLOPS_PER_PARAMETER * self.parameters * self.tokens)


class Utilization(Struct, frozen=True, kw_only=True):
    """Model FLOPs utilization of clean steps.

    Attributes:
        ratio: of the peak. peak_flops: dense operations a second of the rank's GPUs together.
        dtype: whose peak that is. estimated: the parameters are, see ``Worth``.
    """

    ratio: float
    peak_flops: float
    dtype: str
    estimated: bool


def utilization(
    worth: Worth, step_seconds: float | None, gpus: Iterable[str | None]
) -> Utilization | None:
    """Of a rank that has the GPUs of these names; ``None`` where anything of it is not known."""
    operations, dtype = worth.operations, worth.dtype or DTYPE
    peaks = [peak_flops(name, dtype) if name else None for name in gpus]
    known = [peak for peak in peaks if peak is not None]
    if operations is None or not step_seconds or not known or len(known) != len(peaks):
        return None
    return Utilization(
        ratio=operations / step_seconds / sum(known),
        peak_flops=sum(known),
        dtype=dtype,
        estimated=worth.estimated and worth.flops is None,
    )
