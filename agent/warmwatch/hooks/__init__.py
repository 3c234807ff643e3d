"""Hook points: what the agent patches in PyTorch and in other compilers, one file each.

May import: ``shared``. A hook calls a ``Listener`` (``points.py``) and imports no other part of
the agent. A change begins in the hook's file; a new hook is one file and one entry in
``registry.py``. Folders: ``dynamo``, ``inductor``, ``compilers`` (Triton, C++ extensions),
``training`` (the loop).
"""
