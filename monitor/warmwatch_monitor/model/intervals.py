"""95 % intervals of few values. Pure."""

from __future__ import annotations

# of Student's t, two-sided, by degrees of freedom
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def t_95(freedom: int) -> float:
    """How many standard errors a 95 % interval extends to each side."""
    return _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96 + 2.6 / freedom
