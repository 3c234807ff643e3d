"""The default run name: from the launcher, the script or the notebook. Pure.

Only names that a person chose are used: of a job, a script, a notebook or a folder.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path

_NOTEBOOKS = ("ipykernel_launcher", "colab_kernel_launcher")


def launcher_run(environ: Mapping[str, str]) -> str | None:
    """The name of the launch that a person chose; ``None`` if there is none.

    ``torchrun`` sets ``none`` without ``--rdzv-id``, a random UUID with ``--standalone``. Neither
    is a name that a person would look for.
    """
    elastic = environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none" and not _is_uuid(elastic):
        return elastic
    if task := environ.get("SKYPILOT_TASK_ID"):  # Slurm and Ray, which it uses, count per cluster
        return task
    if job := environ.get("SLURM_JOB_ID"):
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        job = f"{array}_{task}" if array and task else job  # as squeue shows it
        return f"{environ.get('SLURM_JOB_NAME') or 'slurm'}-{job}"
    if job := environ.get("RAY_JOB_ID"):  # all of Ray's workers run the same script, Ray's own
        return f"ray-{job}"
    return None


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def program_name(
    argv: list[str], environ: Mapping[str, str], *, directory: str, notebook: str | None
) -> str:
    """Name of the script without its suffix, of the package for ``-m package``, or of the notebook.

    Without a script (``-c``, standard input, a prompt), the name of the working ``directory``.
    ``notebook``: the notebook's path from VS Code.
    """
    path = Path(argv[0] if argv else "")
    stem = path.parent.name if path.stem == "__main__" else path.stem
    if stem in _NOTEBOOKS:
        stem = _notebook(notebook) or _notebook(environ.get("JPY_SESSION_NAME")) or "notebook"
    elif stem in ("", "-c", "-m", "-"):
        stem = Path(directory).name or "python"
    return re.sub(r"[^\w.+@-]+", "_", stem)


def _notebook(path: str | None) -> str | None:
    """Name of a notebook; ``None`` for a console of Jupyter, whose session has a random name."""
    return Path(path).stem if path and path.endswith(".ipynb") else None
