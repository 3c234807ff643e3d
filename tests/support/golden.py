"""Golden files: reviewed outputs that a change must not alter unseen.

With ``ACCEPT_GOLDEN=1``, a test writes its output into the golden file: read the diff before you
commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def check(name: str, actual: str, scratch: Path) -> None:
    """Compare with the reviewed file; on a difference, describe how to view and accept it.

    ``name``: in ``FOLDER``, or an absolute path.
    """
    golden, new = FOLDER / name, scratch / Path(name).name
    if golden.exists() and golden.read_text() == actual:
        return
    if os.environ.get("ACCEPT_GOLDEN"):
        golden.write_text(actual)
        return
    new.write_text(actual)
    raise AssertionError(f"see `diff {golden} {new}`; if it is right: `cp {new} {golden}`")
