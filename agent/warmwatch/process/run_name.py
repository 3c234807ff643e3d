"""The default run name: from the launcher, the script or the notebook.

Only names that a person gave to a job, a script, a notebook or a folder are looked at.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

_NOTEBOOKS = ("ipykernel_launcher", "colab_kernel_launcher")


def launcher_run(environ: Mapping[str, str]) -> str | None:
    """The id that somebody gave to this launch; ``None`` where nobody chose one.

    ``torchrun`` says ``none`` without ``--rdzv-id`` and draws a random UUID with
    ``--standalone``: neither is a name that a person would look for.
    """
    elastic = environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none" and not _is_uuid(elastic):
        return elastic
    if job := environ.get("SLURM_JOB_ID"):
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        job = f"{array}_{task}" if array and task else job  # as squeue calls it
        return f"{environ.get('SLURM_JOB_NAME') or 'slurm'}-{job}"
    if job := environ.get("RAY_JOB_ID"):  # Ray's workers all run the same script, its own
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
    """The script's name without its suffix; a package's for ``-m package``; a notebook's.

    Without a script (``-c``, standard input, a prompt) that of the working ``directory``.
    ``notebook``: the notebook's path as VS Code says it.
    """
    path = Path(argv[0] if argv else "")
    stem = path.parent.name if path.stem == "__main__" else path.stem
    if stem in _NOTEBOOKS:
        stem = _notebook(notebook) or _notebook(environ.get("JPY_SESSION_NAME")) or "notebook"
    elif stem in ("", "-c", "-m", "-"):
        stem = Path(directory).name or "python"
    return re.sub(r"[^\w.+@-]+", "_", stem)


def _notebook(path: str | None) -> str | None:
    """A notebook's name; Jupyter's consoles have a session of a random name."""
    return Path(path).stem if path and path.endswith(".ipynb") else None


def working_directory() -> str:
    """Where this process works; empty where that was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def notebook_of_vscode() -> str | None:
    """The notebook's path, which VS Code leaves in the notebook's own names."""
    path = getattr(sys.modules.get("__main__"), "__vsc_ipynb_file__", None)
    return path if isinstance(path, str) else None
