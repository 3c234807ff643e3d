"""Hugging Face Accelerate with your own loop: ``watch(accelerator)``.

The wrapped optimizer marks the steps; Accelerate does not call it while gradients accumulate.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from warmwatch.frameworks._reporting import guarded, suggest
from warmwatch.lifecycle import api

if TYPE_CHECKING:
    from accelerate import Accelerator

_SAVES = ("save_state", "save_model")
_OURS = "_warmwatch_reports"


def watch(accelerator: Accelerator) -> None:
    """Attach, name the run after the trackers' project, and report saves."""
    api.attach()
    _wrap(accelerator)


@guarded
def _wrap(accelerator: Any) -> None:
    for name in _SAVES:
        present = getattr(accelerator, name)
        if not hasattr(present, _OURS):  # else it is watched already
            reporting = api.saving()(present)
            setattr(reporting, _OURS, True)
            setattr(accelerator, name, reporting)
    init_trackers = accelerator.init_trackers

    @functools.wraps(init_trackers)
    def named(project_name: str, *args: Any, **kwargs: Any) -> Any:
        guarded(suggest)(run=project_name)
        return init_trackers(project_name, *args, **kwargs)

    accelerator.init_trackers = named
