"""Hook points of compilers other than ``torch.compile``: Triton kernels and C++ extensions.

May import: ``hooks`` and ``shared``. They can be armed before Dynamo is imported.
"""
