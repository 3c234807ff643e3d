"""Hook points of Dynamo: compile events, compilations, recompiles, graph breaks, calls of
``torch.compile``.
"""
