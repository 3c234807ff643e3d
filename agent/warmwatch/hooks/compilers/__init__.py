"""Hook points of compilers other than ``torch.compile``: Triton kernels and C++ extensions.

They can be armed before Dynamo is imported.
"""
