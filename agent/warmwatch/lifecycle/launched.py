"""Attaches below ``warmwatch run``: quietly, since the process may not train at all.

So it speaks when it does: at its first step or compile activity.
"""

from functools import partial
from importlib import import_module

from warmwatch import _guard
from warmwatch._version import __version__
from warmwatch.hooks.imports import ImportWatch
from warmwatch.lifecycle import attaching

_FRAMEWORKS = ("transformers", "torchtitan")


def _join(framework: str) -> None:
    """Its ``Trainer`` tells of its steps and evaluations by itself."""
    try:
        import_module(f"warmwatch.frameworks.{framework}").join()
    except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
        _guard.report("frameworks", error)


attaching.attach(__version__, {}, quiet=True)
ImportWatch({f"{name}.trainer": partial(_join, name) for name in _FRAMEWORKS}).start()
