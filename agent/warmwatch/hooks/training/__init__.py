"""Hook points of the training loop: optimizer steps, batches, checkpoints, notebook cells, GPU
memory.

May import: ``hooks`` and ``shared``. When PyTorch renames something, change the one file that
hooks it.
"""
