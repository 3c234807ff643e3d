"""Hook points of Inductor: caches, kernels, autotuning, skipped CUDA graphs."""
