"""Attaches the agent under ``warmwatch run``, and installs the frameworks' callbacks.

A process below ``warmwatch run`` may not train at all, so its record is deferred until its first
step or compile activity.
"""

from functools import partial
from importlib import import_module

from warmwatch import _guard
from warmwatch.hooks.installation import ImportWatch
from warmwatch.lifecycle import api

_FRAMEWORKS = ("transformers", "torchtitan")


def _install(framework: str) -> None:
    try:
        import_module(f"warmwatch.frameworks.{framework}").install()
    except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
        _guard.report("frameworks", error)


api.attach_launched()
ImportWatch({f"{name}.trainer": partial(_install, name) for name in _FRAMEWORKS}).start()
