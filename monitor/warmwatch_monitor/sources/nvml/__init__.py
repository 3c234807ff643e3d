"""GPUs and MIG devices, read through NVML: driver (the only caller of pynvml), devices, source."""

NVML = "libnvidia-ml.so.1"
MISSING = f"no NVIDIA driver here ({NVML} is not found); normal without NVIDIA GPUs"
