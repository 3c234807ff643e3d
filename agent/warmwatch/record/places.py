"""Where records are kept."""

from __future__ import annotations

from collections.abc import Mapping


def directories(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where records may be, best first. An agent takes the first it can write, a reader all.

    ``WARMWATCH_DIR`` alone where it is set; else ``/run/warmwatch``, the user's runtime
    directory, and a folder of the user's own under the temporary directory.
    """
    if chosen := environ.get("WARMWATCH_DIR"):
        return (chosen,)
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the agent checks its owner
    return ("/run/warmwatch", f"{runtime}/warmwatch", f"{temporary}/warmwatch-{uid}")
