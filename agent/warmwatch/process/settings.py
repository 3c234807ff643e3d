"""The agent's settings: environment variables, arguments of ``attach()``, readers of a record.

Every value is checked where the user passes it. An invalid value is ignored with a warning that
names it; the others apply. ``shared/variables.py`` has the defaults and meanings of the variables.
"""

from __future__ import annotations

import contextlib
import operator
import os
import stat
from collections.abc import Callable, Mapping
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
    return "".join(one if one.isprintable() else "_" for one in name[:TEXT_LIMIT])


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
    known = isinstance(value, str) or (kind.__module__, kind.__name__) == ("torch", "dtype")
    name = str(value).removeprefix("torch.") if known else ""
    name = next((one for one in DTYPES if name.startswith(one)), "")  # torch.float8_e4m3fn
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


_BITS = {"owner": 0o700, "group": 0o750, "all": 0o755}
READERS = tuple(_BITS)
_DEFAULT_ACL = "system.posix_acl_default"

# Modes before ``mode()`` masks them. The slot is read-only: the agent has it open already, and no
# program truncates it by accident.
FOLDER, SLOT, OTHER = 0o777, 0o444, 0o666


def readers(directory: str, chosen: str | None) -> str:
    """Readers of records in ``directory``: ``chosen``, else by its set-group-ID bit or ACL.

    With a default ACL, ``group`` means the users that the ACL allows.
    """
    if chosen:
        return chosen
    with contextlib.suppress(OSError, AttributeError):
        if os.stat(directory).st_mode & stat.S_ISGID:  # noqa: PTH116 - no pathlib at import
            return "group"
    with contextlib.suppress(OSError, AttributeError):
        os.getxattr(directory, _DEFAULT_ACL)
        return "group"
    return "owner"


def mode(kind: int, readers: str) -> int:
    """The mode of a file or folder (``FOLDER``, ``SLOT``, ``OTHER``) for these readers."""
    return kind & _BITS[readers]


WARM_STEPS = int(DEFAULTS["WARMWATCH_WARM_STEPS"])
STACKS = float(DEFAULTS["WARMWATCH_STACKS"])
QUIET = float(DEFAULTS["WARMWATCH_QUIET"])
_LEAST_QUIET, _MOST_QUIET = 0.1, 1e6
_LEAST_STACKS, _MOST_STACKS = 0.1, 1e6
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
        say: print console messages in the training's terminal.
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
    mode: str | None = None
    losses: str | None = None
    after_warm: str | None = None
    complaints: tuple[str, ...] = ()


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings. An invalid value is a complaint, and its default applies."""
    complaints = list(unknown_variables(environ))
    warm_steps = WARM_STEPS
    text = environ.get("WARMWATCH_WARM_STEPS")
    if text:
        found = bounded(text, _MOST_WARM_STEPS)
        if found:
            warm_steps = found
        else:
            complaints.append(
                f"WARMWATCH_WARM_STEPS={text[:40]!r} is not a number of steps from 1 to "
                f"{_MOST_WARM_STEPS:,}; using {WARM_STEPS}"
            )
    stacks, complaint = _seconds(environ, "WARMWATCH_STACKS", STACKS, _LEAST_STACKS, _MOST_STACKS)
    complaints += complaint
    quiet, complaint = _seconds(environ, "WARMWATCH_QUIET", QUIET, _LEAST_QUIET, _MOST_QUIET)
    complaints += complaint
    run = environ.get("WARMWATCH_RUN", "")
    if run != plain_name(run):
        complaints.append(f"WARMWATCH_RUN has {CHANGED}; the run is named {plain_name(run)!r}")
    readers = environ.get("WARMWATCH_READERS") or None
    if readers is not None and readers not in READERS:
        complaints.append(f"WARMWATCH_READERS={readers[:40]!r} is none of {', '.join(READERS)}")
        readers = None
    text = environ.get("WARMWATCH_EXPECTED_RANKS", "")
    expected = bounded(text, MOST_RANKS)
    if text and not expected:
        complaints.append(
            f"WARMWATCH_EXPECTED_RANKS={text[:40]!r} is not a number of ranks from 1 to "
            f"{MOST_RANKS:,}; all are expected"
        )
    after_warm = environ.get("WARMWATCH_AFTER_WARM") or None
    if after_warm not in (None, *AFTER_WARM):
        complaints.append(f"WARMWATCH_AFTER_WARM={after_warm[:40]!r} is neither warn nor raise")
        after_warm = None
    return Settings(
        expected_ranks=expected or None,
        readers=readers,
        run=plain_name(run) or None,
        warm_steps=warm_steps,
        stacks=stacks,
        quiet=quiet,
        disabled=_is_on(environ, "WARMWATCH_DISABLE", complaints),
        full_reasons=_is_on(environ, "WARMWATCH_FULL_REASONS", complaints),
        say=_is_on(environ, "WARMWATCH_SAY", complaints),
        mode=environ.get("WARMWATCH_MODE") or None,
        losses=environ.get("WARMWATCH_LOSSES") or None,
        after_warm=after_warm,
        complaints=tuple(complaints),
    )


def _seconds(
    environ: Mapping[str, str], name: str, usual: float, least: float, most: float
) -> tuple[float | None, list[str]]:
    """The seconds of a setting that may be off, and its complaint if it is invalid."""
    text = environ.get(name) or str(usual)
    if text.strip().lower() in _OFF:
        return None, []
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if least <= seconds <= most:
        return seconds, []
    wrong = f"{name}={text[:40]!r} is neither off nor a number of seconds from "
    return usual, [f"{wrong}{least:g} to {most:,.0f}; using {usual:g}"]


def _is_on(environ: Mapping[str, str], name: str, complaints: list[str]) -> bool:
    """Whether a boolean is on. An invalid value is off, and a complaint."""
    text = environ.get(name, "").strip().lower()
    if text not in (*_ON, *_OFF, ""):
        complaints.append(f"{name}={text[:40]!r} is neither 1 nor 0; using 0")
    return text in _ON


def bounded(text: str, most: int) -> int | None:
    """``text`` as an integer from 0 to ``most``; ``None`` if it is not one."""
    # check the length first: int() raises an error for thousands of digits
    if not text.isdecimal() or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None
