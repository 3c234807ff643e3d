"""Every ``WARMWATCH_*`` variable: its default, as a value or in words, and its meaning below.

``docs/reference/settings.md`` is made from this file. Python drops the meanings. A default that
Warmwatch uses as a value stands in backticks. Pages named in a text become links. Pure.
"""

from collections.abc import Iterable, Mapping

PREFIX = "WARMWATCH_"


class Training:
    """Read by the agent, from the environment only."""

    WARMWATCH_RUN = "the launcher's id, else the script's name"
    """name of the run, at most 200 characters"""
    WARMWATCH_DIR = "`/run/warmwatch`, the user's runtime directory, or one in `/dev/shm` or `/tmp`"
    """directory of the records, the same in the training and in the monitor; use a tmpfs
    (docs/explanation/reliability.md). It separates living runs only: ended ones of all directories
    are in one history, unless WARMWATCH_STATE names another"""
    WARMWATCH_READERS = "the owner, or the group that the directory names"
    """who may read the record: `owner`, `group` or `all`"""
    WARMWATCH_WARM_STEPS = "`3`"
    """clean steps in a row that make a rank warm"""
    WARMWATCH_FULL_REASONS = "unset"
    """`1`: record PyTorch's reasons unredacted, with values and source lines of the program
    (docs/explanation/security.md)"""
    WARMWATCH_EXPECTED_RANKS = "all"
    """number of ranks with the agent, if not all have it; the others are then not reported as
    missing (docs/how-to/many-hosts.md)"""
    WARMWATCH_AFTER_WARM = "unset"
    """`warn` about a compilation after the warm-up, or `raise` an error instead of compiling
    (docs/how-to/server-readiness.md)"""
    WARMWATCH_QUIET = "`30`"
    """seconds without compilation after which a process that marks no steps is warm, or `off`
    (docs/how-to/server-readiness.md)"""
    WARMWATCH_STACKS = "`60`"
    """seconds of one compilation after which its Python stacks are recorded, or `off`
    (docs/how-to/debug-a-hang.md)"""
    WARMWATCH_SAY = "unset"
    """`1`: print a line in the training's terminal when it compiles for long, becomes warm,
    recompiles or ends; `0`: not even the one that names the run, which only a terminal gets"""
    WARMWATCH_DISABLE = "unset"
    """`1`: the agent does nothing"""


class Monitor:
    """Read by the daemon and the commands, which also read ``WARMWATCH_DIR``."""

    WARMWATCH_ADDRESS = "`127.0.0.1:10464`"
    """the daemon's address; if it is set, commands require that daemon"""
    WARMWATCH_SERVICE_USER = "`warmwatch`"
    """user of the daemon; without an address, commands trust only a daemon of this user, root
    or the caller (docs/explanation/security.md)"""
    WARMWATCH_SOCKET = (
        "`/run/warmwatch-monitor/socket`, or the same below the user's runtime directory"
    )
    """UNIX socket of a daemon at the default address, which commands without an address use; a
    path makes any daemon listen there, `off` none
    (docs/explanation/security.md#the-unix-socket)"""
    WARMWATCH_INTERVAL = "`0.2`"
    """seconds between two polls of the records"""
    WARMWATCH_OBSERVE = "`on`"
    """`on`: look for trainings without the agent among the processes
    (docs/how-to/unattached-trainings.md)"""
    WARMWATCH_GPU_INTERVAL = "`1`"
    """seconds between two polls of the GPUs, from 0.1 to 60, or `off` to not use NVML"""
    WARMWATCH_OTLP = "`off`"
    """`on`: also send the metrics by OTLP (docs/how-to/other-tools.md)"""
    WARMWATCH_RETENTION = "`900`"
    """seconds an ended run stays visible"""
    WARMWATCH_LONG_COMPILE = "`3600`"
    """seconds after which any compilation counts as long, or `off` (docs/how-to/debug-a-hang.md)"""
    WARMWATCH_STATE = "`$XDG_STATE_HOME/warmwatch` or `~/.local/state/warmwatch`"
    """directory of the history of runs, or `off` to keep none (docs/reference/history.md)"""
    WARMWATCH_STATE_DAYS = "`365`"
    """days after which a run is deleted from the history"""
    WARMWATCH_STATE_MB = "`512`"
    """maximum size of the history, in megabytes"""
    WARMWATCH_LOG_FORMAT = "`logfmt`"
    """format of the daemon's log: `logfmt`, `json`, or `off` (docs/how-to/deployment.md)"""
    WARMWATCH_TLS_CERT = "none"
    """certificate file with which the daemon serves over TLS (docs/explanation/security.md)"""
    WARMWATCH_TLS_KEY = "in the certificate's file"
    """file with the key of that certificate"""
    WARMWATCH_INSECURE = "`off`"
    """`on`: no authentication, also on an address that other machines can reach"""
    WARMWATCH_ALLOWED_HOSTS = "this machine's names"
    """additional host names in requests that the daemon accepts, separated by commas"""
    WARMWATCH_TOKEN_FILE = "none"  # noqa: S105 - a default in words
    """bearer-token file: the daemon requires this token, commands send it"""
    WARMWATCH_USER_FILE = "none"
    """file with `NAME:PASSWORD` for commands"""
    WARMWATCH_CA = "the system's"
    """CA certificates for commands to verify the daemon's certificate"""
    WARMWATCH_CERT = "none"
    """client-certificate file for commands"""
    WARMWATCH_KEY = "in the certificate's file"
    """file with the key of the client certificate"""


class Internal:
    """Set by commands for the trainings that they start. In no public table, and no hint."""

    WARMWATCH_LOSSES = "unset"
    """set by `warmwatch modes` and `doctor -- CMD`: the folder in which the losses of their runs
    are compared, removed afterwards (docs/how-to/choose-a-mode.md#are-the-results-the-same)"""
    WARMWATCH_MODE = "unset"
    """set by `warmwatch modes`: replaces the mode of every `torch.compile` call
    (docs/how-to/choose-a-mode.md)"""
    WARMWATCH_STARTED_BY = "unset"
    """set by `warmwatch run` to identify the runs that it started"""


def defaults(*tables: type) -> dict[str, str]:
    """Name and default of each variable of these tables."""
    return {
        name: text.replace("`", "")
        for table in tables
        for name, text in vars(table).items()
        if name.startswith(PREFIX)
    }


DEFAULTS: Mapping[str, str] = defaults(Training, Monitor, Internal)


def unknown_variables(environ: Iterable[str]) -> tuple[str, ...]:
    """One sentence for each unknown ``WARMWATCH_*`` variable, with the nearest known one."""
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in DEFAULTS)
    return tuple(map(_complaint, unknown))


def _complaint(name: str) -> str:
    import difflib  # here: every training loads what this module imports

    parts = [
        default.removeprefix(PREFIX) for default in defaults(Training, Monitor)
    ]  # the prefix alone would be near
    guess = name.removeprefix(PREFIX)
    near = ["RUN"] if guess == "NAME" else difflib.get_close_matches(guess, parts, n=1)
    hint = (
        f"did you mean {PREFIX}{near[0]}?"
        if near
        else f"after {PREFIX}, known are {', '.join(parts)}"
    )
    return f"{name} is not a setting of warmwatch; {hint}"
