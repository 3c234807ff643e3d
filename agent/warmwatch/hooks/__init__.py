"""Hook points: what the agent patches in PyTorch and in other compilers, one file each.

A hook calls a ``Listener`` (``points.py``) and imports no other part of the agent. When PyTorch
renames something, change the one file that hooks it. A new hook is one file and one entry in
``registry.py``. Folders: ``dynamo``, ``inductor``, ``compilers`` (Triton, C++ extensions),
``training`` (the loop).
"""
