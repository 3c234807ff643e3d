"""``python -m warmwatch``: the monitor's command line, if it is installed.

By name and not by import: the agent knows nothing of the monitor.
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Hand over to the monitor; without it, say how to get it and exit with 2."""
    try:
        monitor = importlib.import_module("warmwatch_monitor.__main__")
    except ModuleNotFoundError:
        sys.stderr.write(
            "warmwatch: the command is the monitor's, which is not installed; "
            "get it with: pip install 'warmwatch[monitor]'\n"
        )
        sys.exit(2)
    monitor.main()


if __name__ == "__main__":
    main()
