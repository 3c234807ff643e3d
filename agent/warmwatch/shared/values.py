"""Bounds of recorded values, and how text is made printable. Pure.

The agent applies the bounds where a user passes a value; the monitor applies them again where it
reads a record.
"""

from __future__ import annotations

TEXT_LIMIT = 200  # characters of a name
LARGEST = 2**53  # every whole number up to here survives JSON and a Prometheus sample
LARGEST_AMOUNT = 1e300  # with room to multiply and divide in
MOST_RANKS = 1_000_000  # of a run, and restarts: more than any launcher starts
MOST_OPTIONS = 50  # of those that torch.compile was given
VERDICTS = ("hit", "miss", "bypass")  # of a compile cache that was asked
DTYPES = ("bfloat16", "float16", "float8", "tf32", "float32")  # in which a GPU computes
FEWEST_EAGER, MOST_EAGER = 2, 10_000  # eager baseline steps; the first one has no length


def printable(text: str, keep: str = "") -> str:
    r"""``text`` with what cannot be printed spelled out, as in ``\x1b``; ``keep`` stays."""
    if text.isprintable():
        return text
    return "".join(s if s.isprintable() or s in keep else ascii(s)[1:-1] for s in text)
