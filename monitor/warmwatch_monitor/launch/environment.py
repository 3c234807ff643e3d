"""What a command finds in its environment that is to be attached to. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping

STARTED_BY = "WARMWATCH_STARTED_BY"


def environment(
    environ: Mapping[str, str], boot: str, *, run: str | None = None, started_by: str | None = None
) -> dict[str, str]:
    """``environ`` with the folder ``boot`` first in ``PYTHONPATH``, and nothing else changed.

    ``run``: the run's name, where one was given. ``started_by``: what the records of this launch
    are known by.
    """
    before = environ.get("PYTHONPATH")
    # an empty one is none to Python, while an empty part of one is the working directory
    made = {**environ, "PYTHONPATH": f"{boot}{os.pathsep}{before}" if before else boot}
    if run is not None:
        made["WARMWATCH_RUN"] = run
    if started_by is not None:
        made[STARTED_BY] = started_by
    return made
