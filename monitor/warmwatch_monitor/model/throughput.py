"""Work per step, tokens per second and MFU, and the peak FLOPS of known GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from warmwatch.shared import record

_TERA = 1e12


class Peaks(NamedTuple):
    """Teraflops of one kind of GPU, by the type that it computes in; ``None`` where it has none."""

    bfloat16: float | None
    float16: float | None
    float8: float | None
    tf32: float | None
    float32: float | None


_HOPPER = Peaks(989.4, 989.4, 1978.9, 494.7, 66.9)
_HOPPER_NVL = Peaks(835.5, 835.5, 1670.9, 417.8, 60.0)
_HOPPER_PCIE = Peaks(756.4, 756.4, 1512.9, 378.2, 51.2)
_AMPERE = Peaks(311.9, 311.9, None, 155.9, 19.5)
# By words of the GPU name: the first entry whose words are all in the name applies.
PEAKS: Mapping[tuple[str, ...], Peaks] = {
    ("B200",): Peaks(2250.0, 2250.0, 4500.0, 1125.0, 75.0),
    ("H200", "NVL"): _HOPPER_NVL,
    ("H200",): _HOPPER,
    ("GH200",): _HOPPER,
    ("H100", "NVL"): _HOPPER_NVL,
    ("H100", "PCIe"): _HOPPER_PCIE,
    ("H100",): _HOPPER,
    ("H800", "PCIe"): _HOPPER_PCIE,
    ("H800",): _HOPPER,
    ("A100",): _AMPERE,
    ("A800",): _AMPERE,
    ("A30",): Peaks(165.1, 165.1, None, 82.6, 10.3),
    ("A40",): Peaks(149.7, 149.7, None, 74.8, 37.4),
    ("A10",): Peaks(125.0, 125.0, None, 62.5, 31.2),
    ("L40S",): Peaks(362.1, 362.1, 733.0, 183.2, 91.6),
    ("L40",): Peaks(181.1, 181.1, 362.1, 90.5, 90.5),
    ("L4",): Peaks(121.0, 121.0, 242.5, 60.0, 30.3),
    ("V100", "PCIE"): Peaks(None, 112.0, None, None, 14.0),
    ("V100",): Peaks(None, 125.0, None, None, 15.7),
    ("T4",): Peaks(None, 65.1, None, None, 8.1),
    ("RTX", "4090"): Peaks(165.2, 165.2, 330.3, 82.6, 82.6),
    ("RTX", "3090"): Peaks(71.2, 71.2, None, 35.6, 35.6),
}
# another chip by the same number, or a share of one: a MIG device, a vGPU such as A40-8Q
_ANOTHER = frozenset(("Laptop", "Max", "Ti", "SUPER", "D", "MIG"))
_SHARE = re.compile(r"\d+[ABCQ]")


def peak_flops(gpu: str, dtype: str) -> float | None:
    """Dense operations a second of the GPU of this name; ``None`` where that is not known.

    A MIG device or a vGPU is a part of a GPU; its share of the peak is not known.
    """
    words = set(gpu.replace("-", " ").split())
    if words & _ANOTHER or any(map(_SHARE.fullmatch, words)):
        return None
    for name, peaks in PEAKS.items():
        if words.issuperset(name):
            peak: float | None = getattr(peaks, dtype, None)
            return None if peak is None else peak * _TERA
    return None


DTYPE = "bfloat16"  # the MFU refers to its peak, unless the user sets another type
_FLOPS_PER_PARAMETER = 6  # for each token: 2 in the forward, 4 in the backward
HALF_A_BIN = record.HALF_A_BIN  # of a median: how far off one is that is read off its bins


# origins of the operations of a step
FORMULA, COUNTED = "6 x parameters x tokens", "counted in the compiled graphs"
EAGER_CODE = "eager code"  # excluded: what runs outside of the compiled graphs


class Worth(Struct, frozen=True, kw_only=True):
    """Work per step of a rank; ``None`` if not reported.

    Attributes:
        tokens, samples: per step. flops: per step, as the user reported. counted: per step, as
        counted in its compiled graphs; excluded: names of operations that are not counted.
        parameters: of the model; estimated: they are those that its optimizers hold.
        dtype: in which it computes, as the user reported.
    """

    tokens: int | None = None
    samples: int | None = None
    flops: float | None = None
    counted: float | None = None
    excluded: tuple[str, ...] = ()
    parameters: int | None = None
    estimated: bool = False
    dtype: str | None = None

    @property
    def operations(self) -> float | None:
        """Floating-point operations of a step, from the best origin that is known."""
        if self.origin == FORMULA:
            return float(_FLOPS_PER_PARAMETER * (self.parameters or 0) * (self.tokens or 0))
        return self.counted if self.origin == COUNTED else self.flops

    @property
    def origin(self) -> str | None:
        """Where ``operations`` come from; ``None`` if the user set them, or nothing is known.

        A formula with the user's parameters precedes the count, which misses what runs eagerly. The
        count precedes a formula with an estimated number of parameters.
        """
        formula = self.parameters is not None and self.tokens is not None
        if self.flops is not None or not (formula or self.counted is not None):
            return None
        return FORMULA if formula and not (self.estimated and self.counted) else COUNTED


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
        estimated=worth.estimated and worth.origin == FORMULA,
    )
