"""The agent's settings, all from the environment; the README's table is checked against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WARM_STEPS = 3

# name -> (default in words, meaning); the monitor's own variables are in its config.py
VARIABLES: Mapping[str, tuple[str, str]] = {
    "WARMWATCH_RUN": ("the launcher's id, else the script's name", "name of the run"),
    "WARMWATCH_DIR": (
        "/run/warmwatch, the user's runtime directory, or one under the temporary directory",
        "directory of the records",
    ),
    "WARMWATCH_WARM_STEPS": (str(WARM_STEPS), "clean steps in a row that make a rank warm"),
    "WARMWATCH_DISABLE": ("unset", "1: `import warmwatch.auto` and `attach()` do nothing"),
}
MONITOR_VARIABLES = (
    "WARMWATCH_ADDRESS",
    "WARMWATCH_GPU_INTERVAL",
    "WARMWATCH_INTERVAL",
    "WARMWATCH_OBSERVE",
    "WARMWATCH_OTLP",
    "WARMWATCH_RETENTION",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says.

    Attributes:
        run: the run's name, or ``None``. warm_steps: K, at least 1. disabled: do not attach.
        complaints: what is wrong with the environment, one sentence each.
    """

    run: str | None = None
    warm_steps: int = WARM_STEPS
    disabled: bool = False
    complaints: tuple[str, ...] = ()


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings; a bad value is a complaint and its default, never an error here."""
    complaints = list(_unknown(environ))
    warm_steps = WARM_STEPS
    text = environ.get("WARMWATCH_WARM_STEPS")
    if text:
        if text.isdecimal() and int(text) >= 1:
            warm_steps = int(text)
        else:
            complaints.append(
                f"WARMWATCH_WARM_STEPS={text!r} is not a number of steps from 1 on; "
                f"using {WARM_STEPS}"
            )
    return Settings(
        run=environ.get("WARMWATCH_RUN") or None,
        warm_steps=warm_steps,
        disabled=environ.get("WARMWATCH_DISABLE", "").lower() in ("1", "true", "yes", "on"),
        complaints=tuple(complaints),
    )


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = (*VARIABLES, *MONITOR_VARIABLES)
    strange = [n for n in sorted(environ) if n.startswith("WARMWATCH_") and n not in known]
    return [_complaint(name, known) for name in strange]


def _complaint(name: str, known: tuple[str, ...]) -> str:
    import difflib  # here: every training pays for what this module imports

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{name} is not a setting of warmwatch; {hint}"
