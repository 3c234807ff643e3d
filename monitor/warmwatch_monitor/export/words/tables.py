"""Tables of words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from warmwatch_monitor.export.document import Column, Table

_RIGHT = ">"


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, sparse: bool = False
) -> Table | None:
    """``names``: of the columns; behind that of numbers stands a ``>``. ``None`` without rows.

    ``sparse``: a column in which nothing is known is left out.
    """
    if not rows:
        return None
    kept = [at for at in range(len(names)) if not sparse or any(row[at] for row in rows)]
    columns = [Column(names[at].rstrip(_RIGHT), names[at].endswith(_RIGHT)) for at in kept]
    return Table(tuple(columns), tuple(tuple(row[at] for at in kept) for row in rows))
