"""Settings of the monitor: one frozen value made of environment variables and options; the
price.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

from warmwatch.shared import places
from warmwatch_monitor.access import ACCESS_KEYS, ANYBODY, Access
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.timeouts import DISK_SECONDS, within

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


PREFIX = "WARMWATCH_"
NO_SQLITE = (
    "this Python was built without SQLite (it has no module _sqlite3); install warmwatch in one "
    "that has it"
)
_NO_NAME = frozenset(":/@?#*[]%\\ \t")  # what no host's name has, so it would never match
LOG_FORMATS = ("logfmt", "json")
DEFAULT_ADDRESS = "127.0.0.1:10464"
DEFAULT_SERVICE_USER = "warmwatch"  # of docker/systemd/warmwatch.service
DEFAULT_INTERVAL = 0.2
DEFAULT_GPU_INTERVAL = 1.0
DEFAULT_RETENTION = 900.0
INTERVAL_LIMITS = (0.05, 60.0)
GPU_INTERVAL_LIMITS = (0.1, 60.0)
EVER_SECONDS = 10.0 * 365 * 86400  # a retention for who asks of runs that ended long ago
DEFAULT_LONG_COMPILE = 3600.0
LONG_COMPILE_LIMITS = (0.0, 30 * 86400.0)
RETENTION_LIMITS = (0.0, 30 * 86400.0)
DEFAULT_STATE_RUNS, STATE_RUNS_LIMITS = 10_000, (1, 1_000_000)
DEFAULT_STATE_DAYS, STATE_DAYS_LIMITS = 365, (1, 36_500)
DEFAULT_STATE_MB, STATE_MB_LIMITS = 512, (1, 1_000_000)

# how a setting that is on or off may be spelled, in any case
SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("on", "1", "true", "yes"), True),
    **dict.fromkeys(("off", "0", "false", "no"), False),
}


class Address(NamedTuple):
    """Where the daemon listens, and whether over TLS. Port 0 asks the system for a free one."""

    host: str
    port: int
    tls: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CleanupLock(NamedTuple):
    """Where runs are remembered, and how many.

    Attributes:
        directory: absolute; ``None``: none are. chosen: whether somebody named it.
        able: whether this Python has SQLite; where it has none, none are.
        runs, days, megabytes: beyond any of them, the runs that were seen longest ago leave.
    """

    directory: str | None = None
    chosen: bool = False
    able: bool = True
    runs: int = DEFAULT_STATE_RUNS
    days: int = DEFAULT_STATE_DAYS
    megabytes: int = DEFAULT_STATE_MB


class Settings(NamedTuple):
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
        long_compile: seconds that an activity may take at most; ``None``: as long as it likes.
        web_config: path of the file with TLS and who may ask. insecure: whether anybody may, from
        wherever. allowed_hosts: further names by which the daemon may be asked.
        log_format: of the daemon's log, ``logfmt`` or ``json``; ``None`` for no log.
        access: what a command shows to whom it asks.
        keeping: where runs are remembered.
        service_user: who may listen at the default address beside root and the caller.
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
    long_compile: float | None = DEFAULT_LONG_COMPILE
    web_config: str | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    log_format: str | None = "logfmt"
    access: Access = ANYBODY
    keeping: CleanupLock = CleanupLock()
    service_user: str = DEFAULT_SERVICE_USER


def load(environ: Mapping[str, str], uid: int, options: Mapping[str, str | None]) -> Settings:
    """Settings from the environment and from ``options`` (``{"interval": "1"}``), which win.

    Raises:
        UsageError: a value that cannot be used; the message names the option or variable.
    """
    directory = options.get("dir") or environ.get("WARMWATCH_DIR")
    found = places.directories({**environ, "WARMWATCH_DIR": directory or ""}, uid)
    path = _absolute(directory) if directory else ""
    if path and within(DISK_SECONDS, partial(_is_other, path), False, path=path):
        name, _ = _raw("dir", environ, options, "")
        raise UsageError(f"{name}: {directory} is a file; name a directory, or remove the file")
    return Settings(
        directories=tuple(dict.fromkeys(map(_absolute, found))),
        chosen=bool(directory),
        service_user=environ.get("WARMWATCH_SERVICE_USER") or DEFAULT_SERVICE_USER,
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
        long_compile=_long_compile(
            *_raw("long_compile", environ, options, str(DEFAULT_LONG_COMPILE))
        ),
        web_config=_raw("web_config", environ, options, "")[1] or None,
        insecure=_switch(*_raw("insecure", environ, options, "off")),
        allowed_hosts=tuple(_names(*_raw("allowed_hosts", environ, options, ""))),
        log_format=_log_format(*_raw("log_format", environ, options, LOG_FORMATS[0])),
        access=load_access(environ, options),
        keeping=load_keeping(environ),
    )


def load_keeping(environ: Mapping[str, str]) -> CleanupLock:
    """Where runs are remembered. Raises UsageError."""
    named = environ.get("WARMWATCH_STATE", "")
    off, able = named.strip().lower() == "off", find_spec("_sqlite3") is not None
    return CleanupLock(
        directory=None if off or not able else _state_directory(environ, named),
        chosen=bool(named),
        able=off or able,
        runs=_whole("WARMWATCH_STATE_RUNS", environ, DEFAULT_STATE_RUNS, STATE_RUNS_LIMITS),
        days=_whole("WARMWATCH_STATE_DAYS", environ, DEFAULT_STATE_DAYS, STATE_DAYS_LIMITS),
        megabytes=_whole("WARMWATCH_STATE_MB", environ, DEFAULT_STATE_MB, STATE_MB_LIMITS),
    )


def _state_directory(environ: Mapping[str, str], named: str) -> str | None:
    """``None``: nobody named one, and the user has no home."""
    if named:
        return _absolute(named)
    home = environ.get("XDG_STATE_HOME", "")
    if not home.startswith("/"):  # a relative one is to be ignored, says its specification
        home = os.path.join(_home(environ), ".local", "state")
    return _absolute(os.path.join(home, "warmwatch")) if home.startswith("/") else None


def _home(environ: Mapping[str, str]) -> str:
    """The user's; empty where there is none. An empty HOME is none, and not the root's folder."""
    if environ.get("HOME"):
        return environ["HOME"]
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _absolute(path: str) -> str:
    """``path`` from the root; ``..`` stays, since what is before it may be a link.

    Raises UsageError: there is nothing that it is relative to.
    """
    if not path.startswith("/"):
        try:
            path = os.path.join(os.getcwd(), path)
        except OSError:
            raise UsageError(
                f"{path!r} is relative, and the working directory was removed; give it from the "
                "root, or go to another directory"
            ) from None
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _names(option: str, text: str) -> Iterator[str]:
    for name in (one.strip() for one in text.split(",")):
        if set(name) & _NO_NAME:  # the header's is held against it without the port
            said = "--allowed-host" if option.startswith("-") else option  # each is given alone
            raise UsageError(
                f"{said}: {name!r} is no name; give it alone, without scheme, port and path,"
                " such as monitor.example"
            )
        if name:
            yield name


def _is_other(path: str) -> bool:
    """Whether something is there that is no directory."""
    return os.path.exists(path) and not os.path.isdir(path)


def load_access(environ: Mapping[str, str], options: Mapping[str, str | None]) -> Access:
    """What a command shows to whom it asks. Raises UsageError: it says two things at once."""
    found = {key: _raw(key, environ, options, "") for key in ACCESS_KEYS}
    given = {key: text for key, (_, text) in found.items() if text}
    if "token_file" in given and "user_file" in given:
        names = f"{found['token_file'][0]} and {found['user_file'][0]}"
        raise UsageError(f"{names} exclude each other: give one")
    if "key" in given and "cert" not in given:
        raise UsageError(f"{found['key'][0]} is the key of a certificate; give --cert too")
    return Access(**given, names={key: name for key, (name, _) in found.items()})


def _raw(
    key: str, environ: Mapping[str, str], options: Mapping[str, str | None], default: str
) -> tuple[str, str]:
    """A setting's text, and what to call it in a message: the option or the variable."""
    if (option := options.get(key)) is not None:
        return f"--{key.replace('_', '-')}", option
    variable = PREFIX + key.upper()
    return variable, environ.get(variable) or default


def parse_address(name: str, text: str) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT``; ``https://`` before it says that TLS is spoken there.

    Raises:
        UsageError: it is neither; ``name`` is what the message calls it.
    """
    scheme, has_scheme, rest = text.strip().rpartition("://")
    host, colon, port = rest.removesuffix("/" if has_scheme else "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    right = colon and host and port.isdecimal() and int(port) <= 65535
    if not right or (has_scheme and scheme not in ("http", "https")):
        raise UsageError(f"{name}: {text!r} is not HOST:PORT, such as {DEFAULT_ADDRESS}")
    return Address(host=host, port=int(port), tls=scheme == "https")


_NOR_OFF = "neither off nor"


def _seconds(name: str, text: str, limits: tuple[float, float], what: str = "not") -> float:
    """Raises UsageError: it is ``what`` a number within the limits."""
    low, high = limits
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        span = f"from {low:,.12g} to {high:,.12g}"
        raise UsageError(f"{name}: {text!r} is {what} a number of seconds {span}")
    return value


def _whole(name: str, environ: Mapping[str, str], default: int, limits: tuple[int, int]) -> int:
    """Raises UsageError: it is not a whole number within the limits."""
    text, (low, high) = environ.get(name) or str(default), limits
    if not text.isdecimal() or not low <= int(text) <= high:
        raise UsageError(f"{name}: {text!r} is not a whole number from {low:,} to {high:,}")
    return int(text)


def _switch(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in SWITCHES:
        raise UsageError(f"{name}: {text!r} is neither on nor off (or yes and no, 1 and 0)")
    return SWITCHES[word]


def _log_format(name: str, text: str) -> str | None:
    word = text.strip().lower()
    if SWITCHES.get(word) is False:
        return None
    if word not in LOG_FORMATS:
        raise UsageError(f"{name}: {text!r} is none of {', '.join(LOG_FORMATS)}, off")
    return word


def _gpu_interval(name: str, text: str) -> float | None:
    off = SWITCHES.get(text.strip().lower()) is False
    return None if off else _seconds(name, text, GPU_INTERVAL_LIMITS, _NOR_OFF)


def _long_compile(name: str, text: str) -> float | None:
    off = SWITCHES.get(text.strip().lower()) is False
    return None if off else _seconds(name, text, LONG_COMPILE_LIMITS, _NOR_OFF) or None
