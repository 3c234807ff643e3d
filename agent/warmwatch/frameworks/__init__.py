"""Framework callbacks: they report a framework's steps, evaluations, saves and run names.

One file per framework, which imports it. The agent itself never imports this package.
A change begins in the file of the framework.
"""
