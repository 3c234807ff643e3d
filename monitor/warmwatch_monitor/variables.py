"""Every ``WARMWATCH_*`` variable, its meaning, and the message for an unknown one.

:mod:`settings` parses the values. Only commands that list or check the variables load this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.settings import (
    DEFAULT_ADDRESS,
    DEFAULT_GPU_INTERVAL,
    DEFAULT_INTERVAL,
    DEFAULT_LONG_COMPILE,
    DEFAULT_RETENTION,
    DEFAULT_SERVICE_USER,
    DEFAULT_STATE_DAYS,
    DEFAULT_STATE_MB,
    DEFAULT_STATE_RUNS,
    PREFIX,
    PRICE,
)


class Setting(Struct, frozen=True, kw_only=True):
    """One setting of the monitor."""

    variable: str
    """Name of the variable, and of the key in a file."""
    value: str
    """Its value; the default in words if it is not set."""
    origin: str
    """`environment`, `default`, or the path of the file that sets it."""


class ConfigDocument(Struct, frozen=True, kw_only=True):
    """The settings of `warmwatch config --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    settings: list[Setting]
    """Every setting of the monitor."""


# name -> (default, meaning); docs/reference/settings.md lists these and the agent's
VARIABLES: Mapping[str, tuple[str, str]] = {
    "WARMWATCH_DIR": (
        "/run/warmwatch, the user's runtime directory, and those in /dev/shm and /tmp",
        "directory of the records; the same in the training and in the monitor",
    ),
    "WARMWATCH_ADDRESS": (DEFAULT_ADDRESS, "HOST:PORT of the daemon"),
    "WARMWATCH_SERVICE_USER": (
        DEFAULT_SERVICE_USER,
        "user of the daemon: at the default address, commands believe this user, root, the caller",
    ),
    "WARMWATCH_SOCKET": (
        "/run/warmwatch-monitor/socket, or the same below the user's runtime directory",
        "UNIX socket of a daemon at the default address, which commands there use first; `off`",
    ),
    "WARMWATCH_INTERVAL": (f"{DEFAULT_INTERVAL:g}", "seconds between two polls of the records"),
    "WARMWATCH_GPU_INTERVAL": (
        f"{DEFAULT_GPU_INTERVAL:g}",
        "seconds between two polls of the GPUs, or `off` to not use NVML",
    ),
    "WARMWATCH_OBSERVE": (
        "on",
        "look for trainings without the agent among the processes; `off`: do not",
    ),
    "WARMWATCH_OTLP": (
        "off",
        "`on`: send the metrics by OTLP too, to where OpenTelemetry's own variables say",
    ),
    "WARMWATCH_WEB_CONFIG": (
        "none",
        "file with the daemon's TLS settings, users and tokens (docs/explanation/security.md)",
    ),
    "WARMWATCH_LOG_FORMAT": ("logfmt", "format of the daemon's log: logfmt, json, or `off`"),
    "WARMWATCH_INSECURE": (
        "off",
        "`on`: no authentication, also on an address that other machines can reach",
    ),
    "WARMWATCH_ALLOWED_HOSTS": (
        "this machine's names",
        "additional host names in requests that the daemon accepts, separated by commas",
    ),
    "WARMWATCH_TOKEN_FILE": ("none", "bearer-token file for commands"),
    "WARMWATCH_USER_FILE": ("none", "file with `NAME:PASSWORD` for commands"),
    "WARMWATCH_CA": ("the system's", "CA certificates that verify the daemon's certificate"),
    "WARMWATCH_CERT": ("none", "client-certificate file for commands"),
    "WARMWATCH_KEY": (
        "in the file of the certificate",
        "file with the key of the client certificate",
    ),
    "WARMWATCH_RETENTION": (
        f"{DEFAULT_RETENTION:g}",
        "seconds for which a run that ended stays visible",
    ),
    "WARMWATCH_LONG_COMPILE": (
        f"{DEFAULT_LONG_COMPILE:g}",
        "seconds after which any compilation counts as long, or `off`",
    ),
    PRICE: (
        "none",
        "price of one GPU for one hour; reports then show costs (docs/how-to/read-a-report.md)",
    ),
    "WARMWATCH_STATE": (
        "$XDG_STATE_HOME/warmwatch or ~/.local/state/warmwatch",
        "directory of the history of runs, or `off` to keep none",
    ),
    "WARMWATCH_STATE_RUNS": (str(DEFAULT_STATE_RUNS), "maximum number of runs in the history"),
    "WARMWATCH_STATE_DAYS": (
        str(DEFAULT_STATE_DAYS),
        "days after which a run is deleted from the history",
    ),
    "WARMWATCH_STATE_MB": (str(DEFAULT_STATE_MB), "maximum size of the history, in megabytes"),
}
AGENT_VARIABLES = (
    "WARMWATCH_RUN",
    "WARMWATCH_WARM_STEPS",
    "WARMWATCH_DISABLE",
    "WARMWATCH_EXPECTED_RANKS",
    "WARMWATCH_AFTER_WARM",
    "WARMWATCH_FULL_REASONS",
    "WARMWATCH_QUIET",
    "WARMWATCH_READERS",
    "WARMWATCH_SAY",
    "WARMWATCH_STACKS",
    "WARMWATCH_LOSSES",
    "WARMWATCH_MODE",
    "WARMWATCH_STARTED_BY",
)


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each unknown ``WARMWATCH_*`` variable, with the nearest known one."""
    known = (*VARIABLES, *AGENT_VARIABLES)
    complaints = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        import difflib  # needed for typing errors only

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        complaints.append(f"{name} is not a setting of warmwatch; {hint}")
    return tuple(complaints)


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raises UsageError if the environment sets an unknown ``WARMWATCH_*`` variable."""
    if complaints := unknown_variables(environ):
        raise UsageError("; ".join(complaints))
