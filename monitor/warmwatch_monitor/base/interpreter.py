"""Python processes that commands start. They import nothing from the working directory.

``python -m`` puts the working directory first on ``sys.path``. A file there named like a module of
ours, of a library or of Python would run, as root where the command does. ``PYTHONPATH`` and
installations in development mode work as always.
"""

from __future__ import annotations

import sys

_OPTION_SINCE = (3, 11)
# Python 3.10 has no ``-P``. `sys` is built in, so this imports nothing before the path is changed.
_WITHOUT_OPTION = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); import runpy; "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def python(module: str) -> list[str]:
    """The first words of the command line that runs a module as ``python -m`` does."""
    if sys.version_info >= _OPTION_SINCE:
        return [sys.executable, "-P", "-m", module]
    return [sys.executable, "-c", _WITHOUT_OPTION.format(module=module)]
