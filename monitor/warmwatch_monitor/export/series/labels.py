"""Labels of a series, and how the text format spells them: sorted by name, values escaped.

The five hundred ranks of one host have some fifty thousand series, and each rank's labels stand in
a hundred of them: so what is around a series' own label is spelled once for each rank and name.
"""

from __future__ import annotations

from collections.abc import Mapping

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Labels:
    """The labels that the samples of one row share, in order of their names."""

    __slots__ = ("_around", "values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {name: _utf8(values[name]) for name in sorted(values)}
        self._around: dict[str, tuple[str, str]] = {}

    def around(self, own: str) -> tuple[str, str]:
        """What stands before and after the label ``own``, commas included; all, where it is ""."""
        if own not in self._around:
            before = [pair(n, v) for n, v in self.values.items() if n < own]
            after = [pair(n, v) for n, v in self.values.items() if n > own]
            if own:
                self._around[own] = (
                    "".join(f"{p}," for p in before),
                    "".join(f",{p}" for p in after),
                )
            else:
                self._around[own] = "", ",".join(after)
        return self._around[own]

    def with_own(self, own: str, value: str) -> dict[str, str]:
        """All labels of a sample with the label ``own``; these alone, where it is ""."""
        return {**self.values, own: value} if own else self.values


def pair(name: str, value: str) -> str:
    """``name="value"``, escaped."""
    return f'{name}="{value.translate(ESCAPES)}"'


def _utf8(value: str) -> str:
    """Fit for UTF-8: a script's name may hold bytes that are not."""
    return value.encode("utf-8", "replace").decode()
