"""What the default run name of this process is made of, apart from its arguments and variables."""

from __future__ import annotations

import sys
from pathlib import Path


def working_directory() -> str:
    """The working directory; empty if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def notebook_of_vscode() -> str | None:
    """The notebook's path, which VS Code stores as a global of the notebook."""
    path = getattr(sys.modules.get("__main__"), "__vsc_ipynb_file__", None)
    return path if isinstance(path, str) else None
