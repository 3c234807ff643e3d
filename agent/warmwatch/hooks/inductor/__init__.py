"""Hook points of Inductor: caches, kernels, autotuning, skipped CUDA graphs.

May import: ``hooks`` and ``shared``. When PyTorch renames something, change the one file that
hooks it.
"""
