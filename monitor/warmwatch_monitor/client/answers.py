"""Where a command gets the ``/status`` document: from a daemon, or else from the records.

The libraries that read records and hosts are loaded where that is needed: an answer from a daemon
pays for none of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from warmwatch.shared.states import ENDED_STATES, State
from warmwatch_monitor.base.access import Access
from warmwatch_monitor.base.errors import (
    NoCredentialsError,
    NoDaemonError,
    SilentDaemonError,
    UnreadRunError,
    UsageError,
)
from warmwatch_monitor.base.settings import Settings, load, load_access
from warmwatch_monitor.base.timeouts import DISK_SECONDS, within
from warmwatch_monitor.client.choice import Answer as Answer
from warmwatch_monitor.client.choice import choose, is_pattern
from warmwatch_monitor.output.console import note

if TYPE_CHECKING:
    from warmwatch_monitor.client.daemon import Daemon
    from warmwatch_monitor.client.records import RecordsReader
    from warmwatch_monitor.model.snapshot import Snapshot

STARTED = "a process of this script has started and has no record yet"

_LEAST_SECONDS = 0.5
HUNG_SECONDS = 1.0  # without an answer of the default daemon, the records are read
_TRIES, _PAUSE_SECONDS = 4, 0.5  # at most, until a daemon has read the requested run


def settings_from(**options: str | None) -> Settings:
    """This command's settings. Raises UsageError."""
    return load(os.environ, os.getuid(), options)


class AnswerSource:
    """Returns the present answer, each time a command calls it.

    Args:
        fetch: returns the answer, and the daemon that sent it, if one did. Its argument is the
        timeout in seconds; ``None``: the default. choose: selects the requested runs.
        until: when the command ends, on the monotonic clock. Only the first call may take longer.
        run: the requested run, whose records a daemon reads first.

    Attributes:
        daemon: the source of the last answer; ``None`` if the records were read.
    """

    def __init__(
        self,
        fetch: Callable[[float | None], tuple[Answer, Daemon | None]],
        choose: Callable[[Answer], Answer],
        until: float | None = None,
        run: str | None = None,
    ) -> None:
        self._fetch, self._choose, self._until, self._run = fetch, choose, until, run
        self._is_first = True
        self.daemon: Daemon | None = None

    def __call__(self) -> Answer:
        daemon, first, self._is_first = None, self._is_first, False
        within = None
        if self._until is not None and not first:
            within = max(_LEAST_SECONDS, self._until - time.monotonic())
        try:
            answer, daemon = self._fetch(within)
        finally:
            self.daemon = daemon
        try:
            return self._choose(answer)
        except UnreadRunError:
            if daemon is None or self._run is None or is_pattern(self._run):
                raise
            daemon.request_run(self._run)
            if self._until is not None:  # a wait calls again by itself
                raise
        for _ in range(_TRIES):
            time.sleep(_PAUSE_SECONDS)
            answer, self.daemon = self._fetch(within)
            with suppress(UnreadRunError):
                return self._choose(answer)
        return self._choose(answer)


def answer_source(
    run: str | None,
    *,
    address: str | None = None,
    dir: str | None = None,
    prometheus: str | None = None,
    access: Mapping[str, str | None] = MappingProxyType({}),
    own: bool = False,
    on_read: Callable[[Snapshot], None] | None = None,
    on_query: Callable[[Snapshot], None] | None = None,
    until: float | None = None,
) -> AnswerSource:
    """Selects the source of the answers; ``until`` as in :class:`AnswerSource`.

    ``access``: credentials for the daemon or Prometheus. ``own``: a name without an owner selects
    this user's runs only. ``on_read`` receives each Snapshot that is read from the records,
    ``on_query`` each that is made of a Prometheus server's samples.

    With ``dir`` the records are read here. With ``address`` that daemon answers, or there is an
    error. With neither, the default daemon answers if it runs, else the records are read.

    Raises:
        UsageError: the options contradict each other or cannot be used.
    """
    if prometheus is not None:
        if address is not None or dir is not None:
            raise UsageError("--prometheus excludes --address and --dir: give one of them")
        fetch_fleet = _of_fleet(prometheus, run, load_access(os.environ, access), until, on_query)
        return AnswerSource(fetch_fleet, lambda answer: answer)
    settings = settings_from(address=address, dir=dir, **access)
    reader = cache(lambda: _records_reader(settings, on_read))

    def fetch(seconds: float | None) -> tuple[Answer, Daemon | None]:
        pair = None if dir is not None else from_daemon(settings, seconds)
        if pair is None:
            return reader().read(None if until == math.inf else until), None
        return pair

    return AnswerSource(
        fetch, lambda answer: choose(answer, run, os.geteuid(), own=own), until, run
    )


def _of_fleet(
    url: str,
    run: str | None,
    access: Access,
    until: float | None,
    on_query: Callable[[Snapshot], None] | None,
) -> Callable[[float | None], tuple[Answer, Daemon | None]]:
    from warmwatch_monitor.client import fleet  # no daemon's answer needs its libraries

    def fetch(_: float | None) -> tuple[Answer, Daemon | None]:
        end = time.monotonic() + fleet.FLEET_SECONDS if until is None else until
        left = max(_LEAST_SECONDS, end - time.monotonic())
        seconds = min(fleet.FLEET_SECONDS, left)
        return fleet.query_fleet(url, run, access, seconds, on_query), None

    return fetch


def _records_reader(
    settings: Settings, on_read: Callable[[Snapshot], None] | None
) -> RecordsReader:
    from warmwatch_monitor.client.records import RecordsReader  # as above

    return RecordsReader(settings, on_read)


def without_record() -> list[tuple[int, str]]:
    """Pid and command of processes that have loaded PyTorch and have no record yet.

    Empty if ``WARMWATCH_OBSERVE`` is off.
    """
    if not settings_from().observe:
        return []
    from warmwatch_monitor.sources import unattached  # a daemon with a living run needs it not

    return unattached.without_record()


def is_starting(run: Answer) -> bool:
    """Whether a process of an ended run's script has started since, and has no record yet.

    It has loaded PyTorch. ``False`` if ``WARMWATCH_OBSERVE`` is off.
    """
    if run["state"] not in ENDED_STATES or not settings_from().observe:
        return False
    # the time when a loss was noticed is not the time of the end
    at = "attached_at" if run["state"] == State.LOST.value else "since"
    times = [rank[at] for rank in run["ranks"] if rank.get(at) is not None]
    from warmwatch_monitor.sources import unattached  # as above

    return bool(times) and unattached.is_starting(run.get("name") or run["run"], max(times))


def note_missing_directory(dir: str | None, what_now: str = "") -> None:
    """Warn that ``--dir`` does not exist: a typing error would look like a host without runs."""
    if dir is None:
        return
    if not within(DISK_SECONDS, lambda: os.path.exists(dir), True, path=os.path.abspath(dir)):
        note(f"warmwatch: --dir: {dir} does not exist{what_now}")


@cache
def _note_once(words: str) -> None:
    note(words)


def from_daemon(settings: Settings, within: float | None = None) -> tuple[Answer, Daemon] | None:
    """The daemon's answer; ``None`` if the daemon may be absent and cannot know these records."""
    from warmwatch_monitor.client.daemon import daemon_of, query_daemon  # --dir needs no socket

    daemon = daemon_of(settings)
    if not settings.address_set:
        within = HUNG_SECONDS if within is None else min(HUNG_SECONDS, within)
    try:
        answer = query_daemon(daemon, within)
    except SilentDaemonError as error:
        if settings.address_set:
            raise
        _note_once(f"warmwatch: {error.what}; the records are read here")
        return None
    except NoCredentialsError as error:
        if settings.address_set:
            raise
        _note_once(f"warmwatch: {error}; the records are read here")
        return None
    except NoDaemonError:
        if settings.address_set:
            raise
        return None
    watched = settings.address_set or not settings.chosen
    here = watched or answer.get("directories") == list(settings.directories)
    return (answer, daemon) if here else None
