"""Figures, each declared once: what ``/status`` publishes as the pipeline makes it.

Below every other room of the monitor: a command that shows a daemon's answer loads these types,
and nothing that makes them.
"""
