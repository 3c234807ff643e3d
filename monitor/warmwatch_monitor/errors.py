"""Errors that a user can cause, each one sentence that says what to do, with its exit code."""

from __future__ import annotations


class WarmwatchError(Exception):
    """Shown as one line; ``exit_code`` is the command's."""

    exit_code = 1


class OutputError(WarmwatchError):
    """What a command has to say cannot be written where it was sent."""


class UsageError(WarmwatchError):
    """A wrong or contradictory setting."""

    exit_code = 2


class UnknownRunError(WarmwatchError):
    """No such run; says which there are, and which ``others`` have under that name."""

    exit_code = 5

    def __init__(self, run: str, known: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
        self.run, self.known = run, known
        if others:
            super().__init__(
                f"no run of yours is named {run!r}; another user's are to be named with the owner: "
                f"{', '.join(others)}"
            )
            return
        have = f"runs here: {', '.join(known)}" if known else "no run is known here"
        super().__init__(f"no run named {run!r}; {have}")


class UnreadRunError(UnknownRunError):
    """No such run so far, and not all records were read, or shown."""

    exit_code = 6

    def __init__(self, run: str, known: tuple[str, ...], why: str) -> None:
        super().__init__(run, known)
        have = f"runs so far: {', '.join(known)}" if known else "no run is known so far"
        self.args = (f"{why}; no run named {run!r} was found yet; {have}",)


class NoRunError(WarmwatchError):
    """No run at all is known."""

    exit_code = 5


class DaemonError(WarmwatchError):
    """The daemon cannot start or cannot be asked."""

    exit_code = 6


class NoCredentialsError(DaemonError):
    """The daemon requires credentials, and none were given."""


class NoDaemonError(DaemonError):
    """Nobody answers at the daemon's address."""


class ForeignDaemonError(NoDaemonError):
    """Nobody named the address, and who listens there is another user."""


class FleetError(WarmwatchError):
    """A Prometheus server cannot be asked."""

    exit_code = 6


class StoreError(WarmwatchError):
    """The history of runs cannot be read or written; says what to do."""


class RefusedRunsError(StoreError):
    """Runs that no row can hold, by their ``ids``; all others were written."""

    def __init__(self, words: str, ids: frozenset[str]) -> None:
        super().__init__(words)
        self.ids = ids


class NotInHistoryError(WarmwatchError):
    """No such run is in the history."""

    exit_code = 5


class MissingExtraError(WarmwatchError):
    """What was asked for needs libraries that another extra brings."""

    exit_code = 2


_LONGEST = 300


def described(error: Exception) -> str:
    """An error of a kind that nobody expected, as text of bounded length."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class SourceError(Exception):
    """A source cannot be read now; the message is one sentence, fit to be shown as it is."""


class ExportError(Exception):
    """What was sent was not taken; the message is fit to be shown as it is."""
