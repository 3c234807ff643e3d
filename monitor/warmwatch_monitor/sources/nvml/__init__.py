"""GPUs and MIG devices, read through NVML: driver (the one door), devices, source."""

from warmwatch_monitor.sources.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
