"""Every ``WARMWATCH_*`` variable, its meaning, and the message for an unknown one.

What comes of their values is :mod:`config`, which nearly every command loads; this only those do
that speak of the variables themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

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

# name -> (default in words, meaning); docs/settings.md lists these and the agent's
VARIABLES: Mapping[str, tuple[str, str]] = {
    "WARMWATCH_DIR": (
        "/run/warmwatch, the user's runtime directory, and those in /dev/shm and /tmp",
        "directory of the records; the same in the training and in the monitor",
    ),
    "WARMWATCH_ADDRESS": (DEFAULT_ADDRESS, "HOST:PORT where the daemon listens and is asked"),
    "WARMWATCH_SERVICE_USER": (
        DEFAULT_SERVICE_USER,
        "user of the daemon: at the default address, commands believe this user, root, the caller",
    ),
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
    "WARMWATCH_WEB_CONFIG": (
        "none",
        "file with TLS and who may ask, for the daemon (docs/security.md)",
    ),
    "WARMWATCH_LOG_FORMAT": ("logfmt", "format of the daemon's log: logfmt, json, or `off`"),
    "WARMWATCH_INSECURE": ("off", "`on`: let anybody ask who reaches the daemon's address"),
    "WARMWATCH_ALLOWED_HOSTS": (
        "this machine's names",
        "further names by which the daemon may be asked, with commas between",
    ),
    "WARMWATCH_TOKEN_FILE": ("none", "file with the bearer token that a command shows"),
    "WARMWATCH_USER_FILE": ("none", "file with `NAME:PASSWORD` that a command shows"),
    "WARMWATCH_CA": ("the system's", "file with who signs the daemon's certificate, for a command"),
    "WARMWATCH_CERT": ("none", "file with the certificate that a command shows"),
    "WARMWATCH_KEY": ("in the file of the certificate", "file with that certificate's key"),
    "WARMWATCH_RETENTION": (
        f"{DEFAULT_RETENTION:g}",
        "seconds for which a run that ended stays visible",
    ),
    "WARMWATCH_LONG_COMPILE": (
        f"{DEFAULT_LONG_COMPILE:g}",
        "seconds after which one compilation counts as long whatever came before, or `off`",
    ),
    PRICE: (
        "none",
        "what an hour of one GPU costs, so that reports say what compiling cost (docs/reports.md)",
    ),
    "WARMWATCH_STATE": (
        "$XDG_STATE_HOME/warmwatch or ~/.local/state/warmwatch",
        "directory of the history of runs, or `off` to keep none",
    ),
    "WARMWATCH_STATE_RUNS": (str(DEFAULT_STATE_RUNS), "runs that the history holds at most"),
    "WARMWATCH_STATE_DAYS": (str(DEFAULT_STATE_DAYS), "days for which it holds them"),
    "WARMWATCH_STATE_MB": (str(DEFAULT_STATE_MB), "megabytes that it takes at most"),
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
    "WARMWATCH_MODE",
    "WARMWATCH_STARTED_BY",
)


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each ``WARMWATCH_*`` variable that nobody knows, with the nearest one."""
    known = (*VARIABLES, *AGENT_VARIABLES)
    complaints = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        import difflib  # a slip of the pen alone has the time

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        complaints.append(f"{name} is not a setting of warmwatch; {hint}")
    return tuple(complaints)


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raises UsageError where the environment sets a ``WARMWATCH_*`` that nobody knows."""
    if complaints := unknown_variables(environ):
        raise UsageError("; ".join(complaints))
