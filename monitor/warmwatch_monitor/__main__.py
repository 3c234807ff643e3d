"""Console script ``warmwatch``. Imports only the standard library until the extra is found.

The training environment has the agent without the monitor's libraries: ``commands.py`` has what
works there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXTRA = (
    *("bcrypt", "click", "fastapi", "httptools", "msgspec", "prometheus_client", "psutil"),
    *("rich", "textual", "uvicorn", "yaml"),
)


def main() -> None:
    """Run the command line; exits with its code."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        from warmwatch_monitor.commands import without_extra

        sys.exit(without_extra(sys.argv[1:], missing))
    from warmwatch_monitor.cli import cli

    cli(prog_name="warmwatch")


if __name__ == "__main__":
    main()
