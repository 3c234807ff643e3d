"""Errors that a user can correct: one sentence with the remedy, and an exit code."""

from __future__ import annotations

from collections.abc import Iterable


class WarmwatchError(Exception):
    """Shown as one line; ``exit_code`` is the command's."""

    exit_code = 1


class OutputError(WarmwatchError):
    """The output of a command cannot be written."""


class UsageError(WarmwatchError):
    """A wrong or contradictory setting."""

    exit_code = 2


NO_RECENT_RUN = "no recent run here"


class UnknownRunError(WarmwatchError):
    """No such run. The message lists known runs, and ``others``: other users' of that name.

    ``near``: whether a known name or another user's looks like it.
    """

    exit_code = 5

    def __init__(self, run: str, known: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
        near = _near(run, known)
        self.run, self.known, self.near = run, known, bool(near or others)
        if others:
            super().__init__(
                f"no run of yours is named {run!r}; name another user's with its owner: "
                f"{', '.join(others)}"
            )
            return
        have = f"runs here: {', '.join(known)}" if known else NO_RECENT_RUN
        super().__init__(f"no run named {run!r}{near}; {have}")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of ``names`` that ``name`` may be a typing error of."""
    import difflib  # needed for typing errors only

    return next(iter(difflib.get_close_matches(name, names, n=1)), None)


def _near(run: str, names: tuple[str, ...]) -> str:
    near = nearest(run, names)
    return f" (did you mean {near}?)" if near else ""


class UnreadRunError(UnknownRunError):
    """No such run, but not all records were read or shown."""

    exit_code = 6

    def __init__(self, run: str, known: tuple[str, ...], why: str) -> None:
        super().__init__(run, known)
        have = f"runs so far: {', '.join(known)}" if known else "no run is known so far"
        self.args = (f"{why}; no run named {run!r} was found yet; {have}",)


class NoRunError(WarmwatchError):
    """There are no runs."""

    exit_code = 5


class DaemonError(WarmwatchError):
    """The daemon cannot start or does not answer."""

    exit_code = 6


class NoCredentialsError(DaemonError):
    """The daemon requires credentials, and none were given."""


class SilentDaemonError(DaemonError):
    """A daemon accepts the connection and does not answer in time: it hangs, or is stopped."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what


class NoDaemonError(DaemonError):
    """No daemon listens at the address."""


class FleetError(WarmwatchError):
    """A Prometheus server does not answer."""

    exit_code = 6


class StoreError(WarmwatchError):
    """The history of runs cannot be read or written."""


class RefusedRunsError(StoreError):
    """Some runs (``ids``) cannot be stored; all others were written."""

    def __init__(self, message: str, ids: frozenset[str]) -> None:
        super().__init__(message)
        self.ids = ids


class NotInHistoryError(WarmwatchError):
    """No such run is in the history."""

    exit_code = 5


class NotOneRunError(NotInHistoryError):
    """The history has the name or the beginning of the id, but not this run, or several."""


class MissingExtraError(WarmwatchError):
    """The command needs libraries of another extra."""

    exit_code = 2


_LONGEST = 300


def described(error: Exception) -> str:
    """An unexpected error as text of bounded length."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class SourceError(Exception):
    """A source cannot be read now; the message is one sentence for users."""


class ExportError(Exception):
    """The receiver did not accept an export; the message is one sentence for users."""
