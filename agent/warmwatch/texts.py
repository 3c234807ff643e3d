"""Texts of a record, fit to be shown anywhere. Pure.

In a shared directory anybody can write a record, and a run is named by whoever starts it. What
steers a terminal, turns the direction of writing or cannot be encoded is spelled out where a record
is read, so nothing after it meets such a text: no terminal, no page, no series, no log.
"""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""``text`` with what cannot be printed spelled out, as in ``\x1b``; ``keep`` stays."""
    if text.isprintable():
        return text
    return "".join(s if s.isprintable() or s in keep else ascii(s)[1:-1] for s in text)
