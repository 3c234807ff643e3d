"""What an hour of one GPU costs, of which reports make what compiling cost."""

from __future__ import annotations

from collections.abc import Mapping

from warmwatch_monitor.errors import UsageError

PRICE = "WARMWATCH_PRICE_PER_GPU_HOUR"


def price_per_gpu_hour(environ: Mapping[str, str]) -> float | None:
    """What an hour of one GPU costs, in whatever currency. Raises UsageError: it is no price."""
    text = environ.get(PRICE, "").strip()
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e9:  # which neither NaN nor an infinity is
        raise UsageError(f"{PRICE}: {text!r} is no price; give a number such as 2.5, or unset it")
    return price
