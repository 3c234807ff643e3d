"""GPUs and MIG devices, read through NVML: driver (the only caller of pynvml), devices, source."""

from warmwatch_monitor.sources.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
