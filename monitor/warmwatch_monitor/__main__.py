"""Console script ``warmwatch``. Imports only the standard library until the extra is found.

The training environment has the agent without the monitor's libraries, and there the command says
how to get them instead of failing on an import.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXTRA = (
    *("bcrypt", "click", "fastapi", "httptools", "msgspec", "prometheus_client", "psutil"),
    *("rich", "textual", "uvicorn", "yaml"),
)
MISSING = 2


def main() -> None:
    """Run the command line; exits with its code."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"warmwatch: the monitor's libraries are not installed ({', '.join(missing)}); "
            "get them with: pip install 'warmwatch[monitor]'\n"
        )
        sys.exit(MISSING)
    from warmwatch_monitor.cli import cli

    cli(prog_name="warmwatch")


if __name__ == "__main__":
    main()
