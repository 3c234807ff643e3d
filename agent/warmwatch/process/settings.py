"""The agent's settings: environment variables, and the arguments of ``attach()``.

Every value is checked where the user passes it. An invalid value is ignored with a warning that
names it; the others apply. ``shared/variables.py`` has the defaults and meanings of the variables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmwatch._guard import pass_on
from warmwatch.shared.values import (
    DTYPES,
    FEWEST_EAGER,
    LARGEST,
    LARGEST_AMOUNT,
    MOST_EAGER,
    MOST_RANKS,
    TEXT_LIMIT,
)
from warmwatch.shared.variables import DEFAULTS, unknown_variables

# why a name is changed
CHANGED = f"unprintable characters, or more than {TEXT_LIMIT} characters"

AFTER_WARM = ("warn", "raise")
READERS = ("owner", "group", "all")

_SIZES = "an integer from 1 to 2**53"


class _InvalidError(ValueError):
    """The message names the argument's value and the valid ones."""


def checked(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The valid arguments as plain Python values, and a complaint for each invalid one."""
    valid: dict[str, Any] = {}
    complaints = []
    for name, value in options.items():
        if value is None:
            continue
        try:
            valid[name] = _CHECKS[name](value)
        except _InvalidError as error:
            complaints.append(f"attach({name}=...) is {error}; it is ignored")
    if "run" in valid and valid["run"] != options["run"]:
        complaints.append(f"attach(run=...) has {CHANGED}; the run is named {valid['run']!r}")
    return valid, tuple(complaints)


def plain_name(name: str) -> str:
    """A name that is safe to display: unprintable characters become ``_``, and it is truncated.

    Path separators stay: file names are derived from it separately.
    """
    return "".join(text if text.isprintable() else "_" for text in name[:TEXT_LIMIT])


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise _InvalidError(f"{_shown(value)}: pass a str")
    if not value.strip():
        raise _InvalidError("an empty str: pass a name")
    return plain_name(value)


def _size(value: Any) -> int:
    if isinstance(value, bool | str | bytes) or _is_tensor(value):
        raise _InvalidError(f"{_shown(value)}: pass {_SIZES}")
    try:
        size = operator.index(value)
    except Exception as error:  # noqa: BLE001 - the object's __index__ may raise anything
        pass_on(error)
        raise _InvalidError(f"{_shown(value)}: pass {_SIZES}") from None
    if not 1 <= size <= LARGEST:
        raise _InvalidError(f"{_shown(size)}: pass {_SIZES}")
    return size


def _steps(value: Any) -> int:
    valid = f"pass an integer from {FEWEST_EAGER} to {MOST_EAGER:,}"
    try:
        steps = _size(value)
    except _InvalidError:
        raise _InvalidError(f"{_shown(value)}: {valid}") from None
    if not FEWEST_EAGER <= steps <= MOST_EAGER:
        raise _InvalidError(f"{_shown(steps)}: {valid}")
    return steps


def _amount(value: Any) -> float:
    valid = f"pass a number above 0, up to {LARGEST_AMOUNT:g}"
    if isinstance(value, bool | str | bytes | bytearray) or _is_tensor(value):
        raise _InvalidError(f"{_shown(value)}: {valid}")
    try:
        amount = float(value)
    except Exception as error:  # noqa: BLE001 - the object's __float__ may raise anything
        pass_on(error)
        raise _InvalidError(f"{_shown(value)}: {valid}") from None
    if not 0 < amount <= LARGEST_AMOUNT:  # refuses NaN, too
        raise _InvalidError(f"{_shown(amount)}: {valid}")
    return amount


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _InvalidError(f"{_shown(value)}: pass True or False")
    return value


def _after_warm(value: Any) -> str:
    if value not in AFTER_WARM or not isinstance(value, str):
        raise _InvalidError(f"{_shown(value)}: pass 'warn' or 'raise'")
    return value


def _dtype(value: Any) -> str:
    """The name of a ``torch.dtype`` or str, without importing PyTorch."""
    kind = type(value)
    is_known = isinstance(value, str) or (kind.__module__, kind.__name__) == ("torch", "dtype")
    name = str(value).removeprefix("torch.") if is_known else ""
    name = next((text for text in DTYPES if name.startswith(text)), "")  # torch.float8_e4m3fn
    if not name:
        raise _InvalidError(
            f"{_shown(value)}: pass torch.bfloat16, or a str of {', '.join(DTYPES)}"
        )
    return name


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "run": _name,
    "tokens_per_step": _size,
    "samples_per_step": _size,
    "flops_per_step": _amount,
    "parameters": _size,
    "dtype": _dtype,
    "say": _flag,
    "baseline_steps": _steps,
    "after_warm": _after_warm,
}


def _is_tensor(value: Any) -> bool:
    """Whether it is a ``torch.Tensor``, without importing PyTorch."""
    kinds = type(value).__mro__
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in kinds)


def _shown(value: Any) -> str:
    """The value as text; the type for a large number or another object."""
    if _is_tensor(value):
        return "a torch.Tensor, which is not read (it could wait for the GPU)"
    if type(value) is int and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if type(value) in (bool, int, float):
        return repr(value)
    if isinstance(value, str):
        return f"the str {value[:40]!r}"
    return f"of type {type(value).__name__}"


WARM_STEPS = int(DEFAULTS["WARMWATCH_WARM_STEPS"])
STACKS = float(DEFAULTS["WARMWATCH_STACKS"])
QUIET = float(DEFAULTS["WARMWATCH_QUIET"])
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 1e6
_MOST_WARM_STEPS = 1_000_000  # more is surely a mistake, and does not fit into the record

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings from the environment.

    Attributes:
        run: name of the run, or ``None``.
        expected_ranks: number of its ranks that have the agent; ``None``: all.
        readers: who may read the record, or ``None``.
        warm_steps: K, at least 1.
        stacks: seconds of one activity after which its stacks are recorded; ``None``: never.
        quiet: seconds without compilation after which a process without steps is warm; ``None``:
            never.
        disabled: do not attach.
        full_reasons: record reasons without redaction (see ``hooks/redaction.py``).
        say: print console messages in the training's terminal. hint: name the run there, once.
        mode: mode of ``torch.compile`` that replaces the program's, or ``None``.
        losses: folder for the losses of ``warmwatch modes``, or ``None``.
        after_warm: ``warn`` or ``raise`` when something compiles after the warm-up, or ``None``.
        complaints: errors in the environment, one sentence each.
    """

    run: str | None = None
    expected_ranks: int | None = None
    readers: str | None = None
    warm_steps: int = WARM_STEPS
    stacks: float | None = STACKS
    quiet: float | None = QUIET
    disabled: bool = False
    full_reasons: bool = False
    say: bool = False
    hint: bool = False
    mode: str | None = None
    losses: str | None = None
    after_warm: str | None = None
    complaints: tuple[str, ...] = ()


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings. An invalid value is a complaint, and its default applies."""
    read = _Variables(environ)
    return Settings(
        run=read.name("WARMWATCH_RUN"),
        expected_ranks=read.count(
            "WARMWATCH_EXPECTED_RANKS", MOST_RANKS, "ranks", "all are expected"
        ),
        readers=read.choice("WARMWATCH_READERS", READERS, f"none of {', '.join(READERS)}"),
        warm_steps=read.count(
            "WARMWATCH_WARM_STEPS", _MOST_WARM_STEPS, "steps", f"using {WARM_STEPS}"
        )
        or WARM_STEPS,
        stacks=read.seconds("WARMWATCH_STACKS", STACKS),
        quiet=read.seconds("WARMWATCH_QUIET", QUIET),
        disabled=read.flag("WARMWATCH_DISABLE"),
        full_reasons=read.flag("WARMWATCH_FULL_REASONS"),
        say=read.flag("WARMWATCH_SAY"),
        hint=not environ.get("WARMWATCH_SAY") and not environ.get("WARMWATCH_STARTED_BY"),
        mode=environ.get("WARMWATCH_MODE") or None,
        losses=environ.get("WARMWATCH_LOSSES") or None,
        after_warm=read.choice("WARMWATCH_AFTER_WARM", AFTER_WARM, "neither warn nor raise"),
        complaints=(*unknown_variables(environ), *read.complaints),
    )


class _Variables:
    """Reads variables by kind. ``complaints``: one sentence for each invalid value so far."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.complaints: list[str] = []

    def _complain(self, name: str, problem: str) -> None:
        self.complaints.append(f"{name}={self._environ[name][:40]!r} is {problem}")

    def name(self, name: str) -> str | None:
        text = self._environ.get(name, "")
        if text != (plain := plain_name(text)):
            self.complaints.append(f"{name} has {CHANGED}; the run is named {plain!r}")
        return plain or None

    def count(self, name: str, most: int, noun: str, instead: str) -> int | None:
        """A number from 1; ``None`` if it is not set or invalid."""
        text = self._environ.get(name, "")
        count = bounded(text, most)
        if text and not count:
            self._complain(name, f"not a number of {noun} from 1 to {most:,}; {instead}")
        return count or None

    def choice(self, name: str, names: Sequence[str], problem: str) -> str | None:
        text = self._environ.get(name) or None
        if text in (None, *names):
            return text
        self._complain(name, problem)
        return None

    def seconds(self, name: str, usual: float) -> float | None:
        """The seconds of a setting that may be off."""
        text = self._environ.get(name) or str(usual)
        if text.strip().lower() in _OFF:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            return seconds
        valid = f"{_LEAST_SECONDS:g} to {_MOST_SECONDS:,.0f}"
        self._complain(name, f"neither off nor a number of seconds from {valid}; using {usual:g}")
        return usual

    def flag(self, name: str) -> bool:
        text = self._environ.get(name, "").strip().lower()
        if text not in (*_ON, *_OFF, ""):
            self.complaints.append(f"{name}={text[:40]!r} is neither 1 nor 0; using 0")
        return text in _ON


def bounded(text: str, most: int) -> int | None:
    """``text`` as an integer from 0 to ``most``; ``None`` if it is not one."""
    # check the length first: int() raises an error for thousands of digits
    if not text.isdecimal() or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None
