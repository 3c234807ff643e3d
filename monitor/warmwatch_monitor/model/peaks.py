"""What GPUs can do at most: dense floating-point operations a second, by NVML's name of the GPU.

From NVIDIA's data sheets, with tensor cores where the type has them, without sparsity. What is not
listed here is not known, and then no utilization is said. ``docs/worth.md`` shows this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
_AMPERE = Peaks(311.9, 311.9, None, 155.9, 19.5)
# by words of the name: the first holds whose words are all in it
PEAKS: Mapping[tuple[str, ...], Peaks] = {
    ("B200",): Peaks(2250.0, 2250.0, 4500.0, 1125.0, 75.0),
    ("H200", "NVL"): _HOPPER_NVL,
    ("H200",): _HOPPER,
    ("GH200",): _HOPPER,
    ("H100", "NVL"): _HOPPER_NVL,
    ("H100", "PCIe"): Peaks(756.4, 756.4, 1512.9, 378.2, 51.2),
    ("H100",): _HOPPER,
    ("H800",): _HOPPER,
    ("A100",): _AMPERE,
    ("A800",): _AMPERE,
    ("A30",): Peaks(165.1, 165.1, None, 82.6, 10.3),
    ("A40",): Peaks(149.7, 149.7, None, 74.8, 37.4),
    ("A10",): Peaks(125.0, 125.0, None, 62.5, 31.2),
    ("L40S",): Peaks(362.1, 362.1, 733.0, 183.2, 91.6),
    ("L40",): Peaks(181.1, 181.1, 362.1, 90.5, 90.5),
    ("L4",): Peaks(121.0, 121.0, 242.5, 60.0, 30.3),
    ("V100",): Peaks(None, 125.0, None, None, 15.7),
    ("T4",): Peaks(None, 65.1, None, None, 8.1),
    ("RTX", "4090"): Peaks(165.2, 165.2, 330.3, 82.6, 82.6),
    ("RTX", "3090"): Peaks(71.2, 71.2, None, 35.6, 35.6),
}


def peak_flops(gpu: str, dtype: str) -> float | None:
    """Dense operations a second of the GPU of this name; ``None`` where that is not known.

    A MIG device is a part of a GPU, and nobody says which part of its peak it has.
    """
    words = set(gpu.replace("-", " ").split())
    if "MIG" in words:
        return None
    for name, peaks in PEAKS.items():
        if words.issuperset(name):
            peak: float | None = getattr(peaks, dtype, None)
            return None if peak is None else peak * _TERA
    return None
