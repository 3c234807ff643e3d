"""``python -m warmwatch``: the monitor's command line, if it is installed.

Imports it by name, because the agent must not depend on the monitor.
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Run the monitor's command line; without it, print how to install it and exit with 2."""
    try:
        monitor = importlib.import_module("warmwatch_monitor.__main__")
    except ModuleNotFoundError:
        sys.stderr.write(
            "warmwatch: this command needs the monitor, which is not installed; "
            "get it with: pip install 'warmwatch[monitor]'\n"
        )
        sys.exit(2)
    monitor.main()


if __name__ == "__main__":
    main()
