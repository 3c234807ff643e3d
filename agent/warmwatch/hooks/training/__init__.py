"""Hook points of the training loop: optimizer steps, batches, checkpoints, notebook cells, GPU
memory.
"""
