"""Hook points of Dynamo: compile events, compilations, recompiles, graph breaks, calls of
``torch.compile``.

May import: ``hooks`` and ``shared``. When PyTorch renames something, change the one file that
hooks it.
"""
