"""Settings of the monitor: one frozen value from environment variables and options."""

import os
import pwd
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec

from msgspec import Struct

from warmwatch.shared import places
from warmwatch.shared.variables import DEFAULTS, PREFIX
from warmwatch_monitor.base.access import ACCESS_KEYS, ANYBODY, Access
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.base.timeouts import DISK_SECONDS, within

NO_SQLITE = (
    "this Python was built without SQLite (it has no module _sqlite3); install warmwatch in one "
    "that has it"
)
_NOT_IN_HOST_NAMES = frozenset(":/@?#*[]%\\ \t")
LOG_FORMATS = ("logfmt", "json")
DEFAULT_ADDRESS = DEFAULTS["WARMWATCH_ADDRESS"]
DEFAULT_SERVICE_USER = DEFAULTS["WARMWATCH_SERVICE_USER"]  # of docker/systemd/warmwatch.service
SERVICE_STATE = "/var/lib/warmwatch"  # of the same unit
SOCKET = "warmwatch-monitor/socket"  # below /run, or the user's runtime directory
INTERVAL_LIMITS = (0.05, 60.0)
GPU_INTERVAL_LIMITS = (0.1, 60.0)
EVER_SECONDS = 10.0 * 365 * 86400  # a retention that includes runs that ended long ago
LONG_COMPILE_LIMITS = (0.0, 30 * 86400.0)
RETENTION_LIMITS = (0.0, 30 * 86400.0)
STATE_DAYS_LIMITS = (1, 36_500)
STATE_MB_LIMITS = (1, 1_000_000)

# spellings of a boolean, case-insensitive
SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("on", "1", "true", "yes"), True),
    **dict.fromkeys(("off", "0", "false", "no"), False),
}


class Address(Struct, frozen=True):
    """Where the daemon listens, and whether with TLS. Port 0: the system chooses a free one."""

    host: str
    port: int
    tls: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HistorySettings(Struct, frozen=True):
    """Location and limits of the history of runs.

    Attributes:
        directory: absolute path; ``None``: no history.
        chosen: the directory was set explicitly.
        able: this Python has SQLite; without it there is no history.
        runs, days, megabytes: limits; beyond any of them, the oldest runs are evicted.
    """

    directory: str | None = None
    chosen: bool = False
    able: bool = True
    runs: int = 10_000
    days: int = int(DEFAULTS["WARMWATCH_STATE_DAYS"])
    megabytes: int = int(DEFAULTS["WARMWATCH_STATE_MB"])


class Settings(Struct, frozen=True):
    """Settings of a command or of the daemon.

    Attributes:
        directories: absolute paths of the record directories, best first.
        chosen: the directory was set explicitly, so it is the only one.
        address: address of the daemon.
        address_set: the address was set explicitly, so the daemon must answer.
        interval: seconds between two polls of the records.
        gpu_interval: seconds between two polls of the GPUs; ``None``: do not use NVML.
        observe: look for trainings without the agent.
        otlp: export metrics by OTLP.
        retention: seconds for which a run stays visible after its end.
        long_compile: seconds after which any activity counts as long; ``None``: never.
        tls_cert, tls_key: files of the daemon's certificate and its key; ``None``: no TLS.
        insecure: no authentication, on any address.
        allowed_hosts: additional host names in requests.
        log_format: format of the daemon's log, ``logfmt`` or ``json``; ``None``: no log.
        access: credentials of commands.
        history: location and limits of the history.
        service_user: user that may run the daemon at the default address, besides root and the
            caller.
        sockets: paths of the daemon's UNIX socket, best first; empty if it is not used.
        socket_set: the path was set explicitly, so it is the only one.
        awaits: id of the launch that the daemon was started with, by ``run --serve``.
    """

    directories: tuple[str, ...]
    chosen: bool
    address: Address
    address_set: bool = False
    interval: float = float(DEFAULTS["WARMWATCH_INTERVAL"])
    gpu_interval: float | None = float(DEFAULTS["WARMWATCH_GPU_INTERVAL"])
    observe: bool = True
    otlp: bool = False
    retention: float = float(DEFAULTS["WARMWATCH_RETENTION"])
    long_compile: float | None = float(DEFAULTS["WARMWATCH_LONG_COMPILE"])
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    log_format: str | None = DEFAULTS["WARMWATCH_LOG_FORMAT"]
    access: Access = ANYBODY
    history: HistorySettings = HistorySettings()
    service_user: str = DEFAULT_SERVICE_USER
    sockets: tuple[str, ...] = ()
    socket_set: bool = False
    awaits: str | None = None


def load(environ: Mapping[str, str], uid: int, options: Mapping[str, str | None]) -> Settings:
    """Settings from the environment and from ``options`` (``{"interval": "1"}``).

    Options take precedence.

    Raises:
        UsageError: a value is invalid; the message names the option or variable.
    """
    if options.get("dir") == "":  # such as --dir "$UNSET": not the default directories
        raise UsageError("--dir: the name is empty; give a directory, or leave the option out")
    directory = options.get("dir") or environ.get("WARMWATCH_DIR")
    directories = places.directories({**environ, "WARMWATCH_DIR": directory or ""}, uid)
    path = _absolute(directory) if directory else ""

    def raw(key: str, default: str | None = None) -> tuple[str, str]:
        usual = DEFAULTS[PREFIX + key.upper()] if default is None else default
        return _raw(key, environ, options, usual)

    if path and within(DISK_SECONDS, partial(_is_other, path), False, path=path):
        name, _ = raw("dir")
        raise UsageError(f"{name}: {directory} is a file; use a directory, or remove the file")
    return Settings(
        directories=tuple(dict.fromkeys(map(_absolute, directories))),
        chosen=bool(directory),
        service_user=environ.get("WARMWATCH_SERVICE_USER") or DEFAULT_SERVICE_USER,
        address=parse_address(*raw("address", DEFAULT_ADDRESS)),
        address_set=bool(options.get("address") or environ.get("WARMWATCH_ADDRESS")),
        interval=_seconds(*raw("interval"), INTERVAL_LIMITS),
        gpu_interval=_seconds_or_off(*raw("gpu_interval"), GPU_INTERVAL_LIMITS),
        observe=_switch(*raw("observe")),
        otlp=_switch(*raw("otlp")),
        retention=_seconds(*raw("retention"), RETENTION_LIMITS),
        long_compile=_seconds_or_off(*raw("long_compile"), LONG_COMPILE_LIMITS) or None,
        tls_cert=raw("tls_cert", "")[1] or None,
        tls_key=_tls_key(raw("tls_cert", "")[1], *raw("tls_key", "")),
        insecure=_switch(*raw("insecure")),
        allowed_hosts=tuple(_names(*raw("allowed_hosts", ""))),
        log_format=_log_format(*raw("log_format")),
        access=load_access(environ, options),
        history=load_history_settings(environ),
        sockets=_sockets(environ, uid),
        socket_set=bool(environ.get("WARMWATCH_SOCKET")),
    )


def _sockets(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    named = environ.get("WARMWATCH_SOCKET", "")
    if SWITCHES.get(named.strip().lower()) is False:
        return ()
    if named:
        return (_absolute(named),)
    return tuple(f"{base}/{SOCKET}" for base in ("/run", places.runtime_directory(environ, uid)))


def _tls_key(cert: str, name: str, key: str) -> str | None:
    if key and not cert:
        raise UsageError(f"{name} is the key of a certificate; give --tls-cert too")
    return key or None


def load_history_settings(environ: Mapping[str, str], *, daemon: bool = False) -> HistorySettings:
    """Location and limits of the history. Raises UsageError.

    Root's commands read the service's, if there is one. ``daemon``: for a daemon, which writes.
    """
    named = environ.get("WARMWATCH_STATE", "")
    off = named.strip().lower() == "off"
    able = off or find_spec("_sqlite3") is not None
    return HistorySettings(
        directory=None if off or not able else _state_directory(environ, named, daemon=daemon),
        chosen=bool(named),
        able=able,
        days=_whole("WARMWATCH_STATE_DAYS", environ, STATE_DAYS_LIMITS),
        megabytes=_whole("WARMWATCH_STATE_MB", environ, STATE_MB_LIMITS),
    )


def _state_directory(environ: Mapping[str, str], named: str, *, daemon: bool) -> str | None:
    """``None`` if no directory is set and the user has no home."""
    if named:
        return _absolute(named)
    home = environ.get("XDG_STATE_HOME", "")
    if not home.startswith("/"):  # the XDG specification: ignore a relative path
        if os.geteuid() == 0 and not daemon and os.path.exists(f"{SERVICE_STATE}/history.db"):
            return SERVICE_STATE
        home = os.path.join(_home(environ), ".local", "state")
    return _absolute(os.path.join(home, "warmwatch")) if home.startswith("/") else None


def _home(environ: Mapping[str, str]) -> str:
    """The user's home; empty if there is none. An empty HOME counts as unset."""
    if environ.get("HOME"):
        return environ["HOME"]
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _absolute(path: str) -> str:
    """``path`` as an absolute path. ``..`` stays, since the part before it may be a link.

    Raises:
        UsageError: the path is relative, and the working directory was removed.
    """
    if not path.startswith("/"):
        try:
            path = os.path.join(os.getcwd(), path)
        except OSError:
            raise UsageError(
                f"{path!r} is relative, and the working directory was removed; use an absolute "
                "path, or change to another directory"
            ) from None
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _names(option: str, text: str) -> Iterator[str]:
    for name in (item.strip() for item in text.split(",")):
        if set(name) & _NOT_IN_HOST_NAMES:  # it would never match the Host header
            shown = "--allowed-host" if option.startswith("-") else option  # a repeatable option
            raise UsageError(
                f"{shown}: {name!r} is not a host name; give it without scheme, port and path,"
                " such as monitor.example"
            )
        if name:
            yield name


def _is_other(path: str) -> bool:
    """Whether ``path`` exists and is not a directory."""
    return os.path.exists(path) and not os.path.isdir(path)


def load_access(environ: Mapping[str, str], options: Mapping[str, str | None]) -> Access:
    """Credentials of a command. Raises UsageError if settings contradict each other."""
    groups = {key: _raw(key, environ, options, "") for key in ACCESS_KEYS}
    if empty := [name for key, (name, text) in groups.items() if options.get(key) == "" == text]:
        raise UsageError(f"{empty[0]} is empty: name a file, or leave the option out")
    given = {key: text for key, (_, text) in groups.items() if text}
    if "token_file" in given and "user_file" in given:
        names = f"{groups['token_file'][0]} and {groups['user_file'][0]}"
        raise UsageError(f"{names} exclude each other: give one")
    if "key" in given and "cert" not in given:
        raise UsageError(f"{groups['key'][0]} is the key of a certificate; give --cert too")
    return Access(**given, names={key: name for key, (name, _) in groups.items()})


def _raw(
    key: str, environ: Mapping[str, str], options: Mapping[str, str | None], default: str
) -> tuple[str, str]:
    """The option or variable of a setting, for messages, and its text."""
    if (option := options.get(key)) is not None:
        return f"--{key.replace('_', '-')}", option
    variable = PREFIX + key.upper()
    return variable, environ.get(variable) or default


def parse_address(name: str, text: str) -> Address:
    """Parse ``HOST:PORT`` or ``[IPV6]:PORT``, with an optional ``http://`` or ``https://``.

    Raises:
        UsageError: it is invalid; the message begins with ``name``.
    """
    scheme, has_scheme, rest = text.strip().rpartition("://")
    host, colon, port = rest.removesuffix("/" if has_scheme else "").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    valid = colon and host and not {"[", "]"} & {*host} and port.isdecimal() and int(port) <= 65535
    if not valid or (has_scheme and scheme not in ("http", "https")):
        raise UsageError(f"{name}: {text!r} is not HOST:PORT, such as {DEFAULT_ADDRESS}")
    return Address(host=host, port=int(port), tls=scheme == "https")


def _seconds(name: str, text: str, limits: tuple[float, float], unless: str = "not") -> float:
    """Parse seconds. Raises UsageError if it ``is {unless} a number`` within the limits."""
    low, high = limits
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        span = f"from {low:,.12g} to {high:,.12g}"
        raise UsageError(f"{name}: {text!r} is {unless} a number of seconds {span}")
    return value


def _whole(name: str, environ: Mapping[str, str], limits: tuple[int, int]) -> int:
    """Parse an integer. Raises UsageError if it is not within the limits."""
    text, (low, high) = environ.get(name) or DEFAULTS[name], limits
    if not text.isdecimal() or not low <= int(text) <= high:
        raise UsageError(f"{name}: {text!r} is not an integer from {low:,} to {high:,}")
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


def _seconds_or_off(name: str, text: str, limits: tuple[float, float]) -> float | None:
    off = SWITCHES.get(text.strip().lower()) is False
    return None if off else _seconds(name, text, limits, "neither off nor")
