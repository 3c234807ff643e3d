"""Attaches as ``warmwatch run`` does: nobody has said that this process trains.

So it speaks when it does: at its first step or compile activity.
"""

from warmwatch import _guard, _lifecycle
from warmwatch._imports import ImportWatch
from warmwatch._version import __version__


def _join() -> None:
    """The ``Trainer`` tells of its steps and evaluations by itself."""
    try:
        from warmwatch.frameworks import transformers

        transformers.join()
    except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
        _guard.report("frameworks", error)


_lifecycle.attach(__version__, {}, quiet=True)
ImportWatch({"transformers.trainer": _join}).start()
