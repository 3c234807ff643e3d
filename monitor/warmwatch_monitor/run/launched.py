"""Shared by commands that start a training: its environment, its compile caches, and its runs.

Standard library only, except ``Launched``: `warmwatch run` works without the other libraries.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from warmwatch.shared.values import TEXT_LIMIT
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import note, plain

if TYPE_CHECKING:
    from warmwatch_monitor.client.answers import Answer
    from warmwatch_monitor.clock import Clock
    from warmwatch_monitor.model import RecordReading, Snapshot
    from warmwatch_monitor.settings import Settings
    from warmwatch_monitor.sources.listed import Read, Readings, Source
    from warmwatch_monitor.sources.records.source import RecordsReading

_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
_END_SECONDS = 3.0  # to wait for the ends in the records
_RETENTION_SECONDS = "86400"  # a command's first training may end long before its last
NOTHING = (
    "no step and no compilation was seen under this command. Python with -I, -E or -S, or older "
    "than 3.10, is not attached: add `import warmwatch.auto`. A process that changed its user or "
    "emptied its environment has its record in another directory"
)


def environment(
    environ: Mapping[str, str], *, run: str | None = None, started_by: str | None = None
) -> dict[str, str]:
    """``environ`` for a command whose trainings the agent attaches to.

    ``run``: the run's name, if given. ``started_by``: the id of this launch in its records.
    """
    import warmwatch._boot

    (boot,) = warmwatch._boot.__path__  # the folder of the ``sitecustomize`` that attaches
    boot = os.path.abspath(boot)  # noqa: PTH100 - pathlib would delay the start of the command
    before = environ.get("PYTHONPATH")
    # Python ignores an empty PYTHONPATH, but an empty entry in it is the working directory
    made = {**environ, "PYTHONPATH": f"{boot}{os.pathsep}{before}" if before else boot}
    if run is not None:
        made["WARMWATCH_RUN"] = run
    if started_by is not None:
        made["WARMWATCH_STARTED_BY"] = started_by
    return made


class Caches(NamedTuple):
    """Environment variables that select the caches, and their folder, if any."""

    environ: Mapping[str, str] = MappingProxyType({})
    folder: str | None = None


@contextlib.contextmanager
def fresh_caches(*, keep: bool, used: Callable[[], bool] = lambda: False) -> Iterator[Caches]:
    """Empty compile caches, so that what is compiled does not depend on earlier runs.

    With ``keep``, the existing ones stay in use. At the end the folder is removed, unless
    ``used()`` reports that a process still uses it.
    """
    if keep:
        yield Caches()
        return
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="warmwatch-caches-")
    try:
        yield Caches({variable: f"{folder}/{name}" for variable, name in _CACHES.items()}, folder)
    finally:
        if not used():
            shutil.rmtree(folder, ignore_errors=True)


def check_name(run: str | None, *, room: int = 0) -> None:
    """Raises UsageError if ``run`` is empty, or is too long with ``room`` more characters."""
    if run is not None and not run.strip():
        raise UsageError("--run: give the run a name, or leave the option out")
    if run is not None and len(run) > TEXT_LIMIT - room:
        most = TEXT_LIMIT - room
        raise UsageError(f"the run's name has {len(run)} characters; --run takes at most {most}")


@contextlib.contextmanager
def startable(command: Sequence[str]) -> Iterator[None]:
    """Prints why a command cannot be started, and exits as a shell does."""
    from warmwatch_monitor.run.process import NOT_EXECUTABLE, NOT_FOUND

    try:
        if not command[0]:
            raise FileNotFoundError  # starting '' is reported as a lack of permission
        yield
    except FileNotFoundError:
        name = command[0] or "the command ''"
        note(f"warmwatch: {name}: not found; give what you would type without warmwatch")
        raise SystemExit(NOT_FOUND) from None
    except OSError as error:
        note(f"warmwatch: {command[0]}: cannot be run ({error.strerror})")
        raise SystemExit(NOT_EXECUTABLE) from None


def _records_of(
    launch: str, took: Callable[[tuple[RecordReading, ...]], None]
) -> Source[RecordsReading]:
    """The source of records, restricted to one launch. ``took``: called with those of each poll."""
    from msgspec.structs import replace

    from warmwatch_monitor.sources.listed import RECORDS

    def make(settings: Settings, clock: Clock) -> Read[RecordsReading]:
        read = RECORDS.make(settings, clock)

        def ours(others: Readings) -> RecordsReading:
            found = read(others)
            of_it = (one for one in found.records if one.slot.identity.started_by == launch)
            took(records := tuple(of_it))
            return replace(found, records=records)

        return ours

    return replace(RECORDS, make=make)


def living(snapshot: Snapshot) -> bool:
    """Whether a rank has not ended."""
    return any(rank.living for run in snapshot.runs for rank in run.ranks)


def _process(of: RecordReading) -> tuple[int, str, int]:
    """The process of a record; ``exec`` does not change it."""
    return of.slot.identity.pid, *of.start


class Launched:
    """The runs of one launch. ``launch``: its id in the records."""

    def __init__(self, launch: str) -> None:
        from warmwatch_monitor.client.answers import settings_from
        from warmwatch_monitor.history.writer import HistoryWriter
        from warmwatch_monitor.pipeline.poller import Poller
        from warmwatch_monitor.sources.listed import RECORDS, SOURCES

        settings = settings_from(observe="off", retention=_RETENTION_SECONDS)
        self._records: tuple[RecordReading, ...] = ()
        ours = _records_of(launch, self._take)
        sources = [ours if one is RECORDS else one for one in SOURCES]
        self._poller, self._seen = (
            Poller(settings, sources=sources),
            HistoryWriter(settings.history),
        )
        self._began = time.monotonic()

    def sentence(self) -> str:
        from warmwatch.shared.phrases import duration

        answer = self.answer(self.snapshot())
        if answer["runs"]:
            return str(plain(answer["summary"]))
        return f"no step and no compilation for {duration(time.monotonic() - self._began)}"

    def poll(self) -> None:
        """Poll them, so that journals are read from the start and not only their last part."""
        self.snapshot()

    def ended(self) -> Snapshot:
        """The Snapshot after their ends, which records may show a moment late."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            snapshot = self.snapshot()
            if not living(snapshot) or time.monotonic() > deadline:
                return snapshot
            time.sleep(0.1)

    def snapshot(self) -> Snapshot:
        seen = self._poller.poll_once()
        self._seen.take(seen)
        return seen

    def earlier(self, snapshot: Snapshot) -> list[RecordReading]:
        """Records that compiled but are not a rank, because their process has a later record.

        The process replaced itself by ``exec``, or attached a second time under the same name.
        """
        ranks = [rank.record for run in snapshot.runs for rank in run.ranks]
        shown, processes = {one.folder for one in ranks}, {_process(one) for one in ranks}
        left = (one for one in self._records if one.folder not in shown)
        return [one for one in left if _process(one) in processes and one.slot.compile.begun]

    def _take(self, records: tuple[RecordReading, ...]) -> None:
        self._records = records

    def write_history(self) -> None:
        """Write the ended runs to the history."""
        self._seen.write()

    def answer(self, snapshot: Snapshot) -> Answer:
        """Their ``/status`` document."""
        from msgspec import to_builtins

        from warmwatch_monitor.status.document import status

        answer: Answer = to_builtins(status(snapshot))
        return answer
