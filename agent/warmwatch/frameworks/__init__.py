"""Framework callbacks: they report what PyTorch cannot (steps, evaluations, saves, names).

One file for each, which imports its framework; nothing here is imported by the agent itself.
"""
