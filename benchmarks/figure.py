"""One measured figure beside its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value`` is to be at most ``limit``; without one it is printed for information.

    A value below 0 is the difference of two times that noise has swallowed, so it meets no limit.
    """

    name: str
    value: float
    limit: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.limit is None or 0 <= self.value <= self.limit

    def __str__(self) -> str:
        bound = "" if self.limit is None else f"at most {self.limit:g}"
        verdict = "" if self.limit is None else ("ok" if self.met else "MISSED")
        return f"{self.name:<52} {self.value:>9.4g}  {bound:<14} {verdict:<7} {self.detail}"
