"""The monitor's settings: one table of variables, one frozen value made of them.

A command-line option overrides its variable and is checked by the same code. A bad value, and at
the daemon's start a ``WARMWATCH_*`` variable that nobody knows, is a UsageError that says what to
do.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warmwatch import record
from warmwatch_monitor.errors import UsageError

PREFIX = "WARMWATCH_"
DEFAULT_ADDRESS = "127.0.0.1:10464"
DEFAULT_INTERVAL = 0.2
DEFAULT_GPU_INTERVAL = 1.0
DEFAULT_RETENTION = 900.0
INTERVAL_LIMITS = (0.05, 60.0)
GPU_INTERVAL_LIMITS = (0.1, 60.0)
RETENTION_LIMITS = (0.0, 30 * 86400.0)

# name -> (default in words, meaning); the README's table is made of these and the agent's
VARIABLES: Mapping[str, tuple[str, str]] = {
    "WARMWATCH_DIR": (
        "/run/warmwatch, the user's runtime directory, and those in /dev/shm and /tmp",
        "directory of the records; the same in the training and in the monitor",
    ),
    "WARMWATCH_ADDRESS": (DEFAULT_ADDRESS, "HOST:PORT where the daemon listens and is asked"),
    "WARMWATCH_INTERVAL": (f"{DEFAULT_INTERVAL:g}", "seconds between two looks at the records"),
    "WARMWATCH_GPU_INTERVAL": (
        f"{DEFAULT_GPU_INTERVAL:g}",
        "seconds between two looks at the GPUs, or `off` to leave NVML alone",
    ),
    "WARMWATCH_OBSERVE": (
        "on",
        "look for trainings without the agent among the processes; `off`: do not",
    ),
    "WARMWATCH_OTLP": (
        "off",
        "`on`: send the metrics by OTLP too, to where OpenTelemetry's own variables say",
    ),
    "WARMWATCH_RETENTION": (
        f"{DEFAULT_RETENTION:g}",
        "seconds for which a run that ended stays visible",
    ),
}
# how a setting that is on or off may be spelled, in any case
SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("on", "1", "true", "yes"), True),
    **dict.fromkeys(("off", "0", "false", "no"), False),
}
AGENT_VARIABLES = (
    "WARMWATCH_RUN",
    "WARMWATCH_WARM_STEPS",
    "WARMWATCH_DISABLE",
    "WARMWATCH_READERS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the daemon listens. Port 0 asks the system for a free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the monitor was told.

    Attributes:
        directories: absolute paths of the record directories to look into, best first.
        chosen: whether somebody named the directory, so that it is the only one.
        address: of the daemon. asked: whether somebody named it, so that it has to answer.
        interval: seconds between two looks at the records.
        gpu_interval: seconds between two looks at the GPUs; ``None`` to leave NVML alone.
        observe: whether to look for trainings without the agent.
        otlp: whether to send the metrics by OTLP.
        retention: seconds for which a record stays visible after its process ended.
    """

    directories: tuple[str, ...]
    chosen: bool
    address: Address
    asked: bool = False
    interval: float = DEFAULT_INTERVAL
    gpu_interval: float | None = DEFAULT_GPU_INTERVAL
    observe: bool = True
    otlp: bool = False
    retention: float = DEFAULT_RETENTION


def load(environ: Mapping[str, str], uid: int, options: Mapping[str, str | None]) -> Settings:
    """Settings from the environment and from ``options`` (``{"interval": "1"}``), which win.

    Raises:
        UsageError: a value that cannot be used; the message names the option or variable.
    """
    directory = options.get("dir") or environ.get("WARMWATCH_DIR")
    found = record.directories({**environ, "WARMWATCH_DIR": directory or ""}, uid)
    if directory and Path(directory).exists() and not Path(directory).is_dir():
        name, _ = _raw("dir", environ, options, "")
        raise UsageError(f"{name}: {directory} is a file; name a directory, or remove the file")
    return Settings(
        directories=tuple(dict.fromkeys(str(Path(path).absolute()) for path in found)),
        chosen=bool(directory),
        address=parse_address(*_raw("address", environ, options, DEFAULT_ADDRESS)),
        asked=bool(options.get("address") or environ.get("WARMWATCH_ADDRESS")),
        interval=_seconds(
            *_raw("interval", environ, options, str(DEFAULT_INTERVAL)), INTERVAL_LIMITS
        ),
        gpu_interval=_gpu_interval(
            *_raw("gpu_interval", environ, options, str(DEFAULT_GPU_INTERVAL))
        ),
        observe=_switch(*_raw("observe", environ, options, "on")),
        otlp=_switch(*_raw("otlp", environ, options, "off")),
        retention=_seconds(
            *_raw("retention", environ, options, str(DEFAULT_RETENTION)), RETENTION_LIMITS
        ),
    )


def _raw(
    key: str, environ: Mapping[str, str], options: Mapping[str, str | None], default: str
) -> tuple[str, str]:
    """A setting's text, and what to call it in a message: the option or the variable."""
    if (option := options.get(key)) is not None:
        return f"--{key.replace('_', '-')}", option
    variable = PREFIX + key.upper()
    return variable, environ.get(variable) or default


def parse_address(name: str, text: str) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT``.

    Raises:
        UsageError: it is neither; ``name`` is what the message calls it.
    """
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{name}: {text!r} is not HOST:PORT, such as {DEFAULT_ADDRESS}")
    return Address(host=host, port=int(port))


def _seconds(name: str, text: str, limits: tuple[float, float]) -> float:
    low, high = limits
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UsageError(f"{name}: {text!r} is not a number of seconds from {low:g} to {high:g}")
    return value


def _switch(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in SWITCHES:
        raise UsageError(f"{name}: {text!r} is neither on nor off (or yes and no, 1 and 0)")
    return SWITCHES[word]


def _gpu_interval(name: str, text: str) -> float | None:
    off = SWITCHES.get(text.strip().lower()) is False
    return None if off else _seconds(name, text, GPU_INTERVAL_LIMITS)


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each ``WARMWATCH_*`` variable that nobody knows, with the nearest one."""
    known = (*VARIABLES, *AGENT_VARIABLES)
    complaints = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        complaints.append(f"{name} is not a setting of warmwatch; {hint}")
    return tuple(complaints)


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raises UsageError where the environment sets a ``WARMWATCH_*`` that nobody knows."""
    if complaints := unknown_variables(environ):
        raise UsageError("; ".join(complaints))
