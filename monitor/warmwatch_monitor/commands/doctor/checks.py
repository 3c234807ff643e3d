"""The checks of ``doctor``. Each returns findings; none changes anything."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from warmwatch import __version__
from warmwatch.shared import places, record, verdict
from warmwatch.shared.phrases import counted, duration
from warmwatch.shared.variables import DEFAULTS, unknown_variables
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import DaemonError, NoDaemonError
from warmwatch_monitor.base.settings import EVER_SECONDS, Settings
from warmwatch_monitor.base.timeouts import DISK_SECONDS, hangs, within
from warmwatch_monitor.client.daemon import Answer, daemon_of, query_daemon
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import RecordRoom
from warmwatch_monitor.output.amounts import few, size
from warmwatch_monitor.output.summary import WHEN_SEEN
from warmwatch_monitor.sources.host import pci_gpus
from warmwatch_monitor.sources.listed import NOT_YET, RECORDS, Feed
from warmwatch_monitor.sources.nvml.source import NvmlSource
from warmwatch_monitor.sources.processes import daemons
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal
from warmwatch_monitor.sources.records.liveness import login
from warmwatch_monitor.sources.records.source import RecordsSource
from warmwatch_monitor.sources.script import attaches_nothing
from warmwatch_monitor.sources.unattached import without_record


def is_leftover(folder: str) -> bool:
    """Whether it is a record, of any release, that no process holds any more."""
    try:
        with Folder(folder) as opened:
            descriptor, _ = opened.open(record.SLOT)
            try:
                answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
                ours = os.pread(descriptor, len(record.MAGIC), 0) == record.MAGIC
                return ours and record.lock_holder(answer) is None
            finally:
                os.close(descriptor)
    except (OSError, record.RecordError):
        return False


OLDEST_TORCH = (2, 6)
_PATIENCE_SECONDS = 10.0
_MOST_UNRECORDED, _MOST_DAEMONS = 20, 5
_LONG_WITHOUT_A_STEP_NS = 30 * 10**9
_LEAST_BYTES, _LEAST_INODES = 16 << 20, 200  # as in the alert WarmwatchRecordDirectoryFull
_LEAVES = (
    "a user's 200 newest records are kept, those in memory until a reboot; to free their space "
    "now, delete their folders"
)


class Mark(Enum):
    """The severity of a finding; only TROUBLE requires action."""

    FINE = "fine"
    NOTE = "note"
    TROUBLE = "trouble"


class Finding(Struct, frozen=True):
    """One line of the checklist, and the action to take."""

    mark: Mark
    what: str
    advice: str = ""
    # within `what`, by the user, directories too: a report for an issue hides them
    names: tuple[str, ...] = ()


fine, noted, trouble = (partial(Finding, mark) for mark in Mark)

_READ_SECONDS = 10.0


def installation() -> Iterator[Finding]:
    """Python, this release with its extra, and torch if it is installed here."""
    yield fine(
        f"warmwatch {__version__} with the monitor's libraries, Python {platform.python_version()}"
    )
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        yield noted(
            "torch is not installed in this environment",
            advice="fine for a monitor; the training's environment needs torch and warmwatch",
        )
        return
    yield from _torch(version, f"torch {version} is installed here")


def _torch(version: str, what: str, *names: str) -> Iterator[Finding]:
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        yield trouble(
            f"{what}, which is too old",
            advice=f"compile activity is seen from torch {oldest} on: pip install -U torch",
            names=names,
        )
    else:
        yield fine(what, names=names)


def variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    for complaint in unknown_variables(environ):
        yield trouble(complaint, advice="rename or unset it")
    values = {name: environ[name] for name in DEFAULTS if environ.get(name)}
    if values:
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        yield fine(f"set: {shown}", names=tuple(values.values()))


def surroundings(settings: Settings) -> Iterator[Finding]:
    """Record directories, the daemon, and the records in them."""
    obstacles = _obstacles(settings)
    writable = next((path for path, why in obstacles.items() if why is None), None)
    yield from _directories(obstacles, writable)
    yield from _daemon(settings, writable)
    yield from _shared_file_systems(settings.directories)
    source = RecordsSource(settings.directories, retention=EVER_SECONDS)
    hanging = [path for path in settings.directories if hangs(path)]
    records_reading = None if hanging else within(_READ_SECONDS, source.read, None)
    if records_reading is None:
        seconds = DISK_SECONDS if hanging else _READ_SECONDS
        yield trouble(
            f"the records could not be read within {seconds:.0f} s",
            advice=f"check the file system of {' and '.join(hanging or settings.directories)}",
        )
        return
    yield from map(_refused, records_reading.refusals)
    yield from map(_room, records_reading.rooms)
    yield from _daemons()
    living = [reading for reading in records_reading.records if reading.alive]
    records = counted(len(records_reading.records), "record")
    yield fine(f"{records} can be read, {len(living)} of living processes")
    yield from _ended(len(records_reading.records) - len(living), settings.retention)
    if not living:
        yield noted(
            "no living training has a record here",
            advice="an attached one makes its record when it calls init_process_group() or "
            "torch.compile, or builds its optimizer, else at its first warmwatch.step(): until "
            'then nothing can show it. If it steps already, is "import warmwatch.auto" in it, '
            "without WARMWATCH_DISABLE, with the same WARMWATCH_DIR and, in a container, with that "
            "directory mounted?",
        )
    if settings.observe:
        yield from _unrecorded(without_record())
    now_ns = Clock().monotonic_ns()
    for reading in living:
        yield from _agent(reading)
        yield from _steps(reading, now_ns)


def _unrecorded(processes: Sequence[tuple[int, str]]) -> Iterator[Finding]:
    """Processes with PyTorch and without a record, which may be trainings."""
    unknown = list[str]()
    for pid, command in processes:
        name = f"{command or 'a process'} (pid {pid})"
        if not _attaches_nothing(pid):
            unknown.append(name)
            continue
        yield trouble(
            f"{name} has loaded PyTorch and has no record: its script has "
            '"import warmwatch", which attaches nothing',
            advice='add "import warmwatch.auto" to the script, or run it below "warmwatch run"',
            names=(command,),
        )
    if unknown:
        yield noted(
            f"PyTorch is loaded, without a record so far, in {few(unknown, _MOST_UNRECORDED)}",
            advice='one that trains needs "import warmwatch.auto" in its script, or to run below '
            f'"warmwatch run"; with either, {WHEN_SEEN}',
            names=tuple(command for _, command in processes),
        )


def _attaches_nothing(pid: int) -> bool:
    try:
        return attaches_nothing(pid)
    except OSError:  # it is gone
        return False


def _room(room: RecordRoom) -> Finding:
    """What is free in a record directory."""
    sizes = ((room.free_bytes, size), (room.free_inodes, lambda many: f"{many:,} inodes"))
    free = " and ".join(text(number) for number, text in sizes if number is not None)
    what = f"{free or 'no limit of space'} free in {room.directory}"
    lacks = any(
        number is not None and number < least
        for number, least in ((room.free_bytes, _LEAST_BYTES), (room.free_inodes, _LEAST_INODES))
    )
    if not lacks:
        return fine(what, names=(room.directory,))
    return trouble(
        f"{what}, too little for new records",
        advice=f"delete other files there, or set WARMWATCH_DIR to a larger one; {_LEAVES}",
        names=(room.directory,),
    )


def _daemons() -> Iterator[Finding]:
    """More than one daemon, which Prometheus may both scrape."""
    names = [f"pid {pid} (user {login(uid) or uid})" for pid, uid in daemons()]
    if len(names) > 1:
        yield noted(
            f"{len(names)} daemons run on this host: {few(names, _MOST_DAEMONS)}",
            advice="let Prometheus scrape one of those that read the same record directory: "
            "otherwise each run is there twice",
        )


def _refused(refusal: Refusal) -> Finding:
    """A record that cannot be read; no trouble if it is a dead run's."""
    what = f"{refusal.path}: {refusal.reason}"
    if not is_leftover(refusal.path):
        return trouble(what, names=(refusal.path,))
    return noted(
        f"left by a process that is gone: {what}",
        advice=f"nothing to do: {_LEAVES}",
        names=(refusal.path,),
    )


def _ended(records: int, retention: float) -> Iterator[Finding]:
    """Records of ended runs stay for a while, which is no trouble."""
    if records:
        yield fine(
            f"{counted(records, 'record')} of ended processes: `status` shows a run for "
            f"{duration(retention)} after its end, `warmwatch report` as long as its records exist",
            advice=f"nothing to do: {_LEAVES}",
        )


def _directories(obstacles: Mapping[str, str | None], writable: str | None) -> Iterator[Finding]:
    if writable is not None:
        exists = within(DISK_SECONDS, Path(writable).exists, True, path=writable)
        there = "" if exists else ", which the first one creates"
        yield fine(
            f"trainings of this user write their records to {writable}{there}", names=(writable,)
        )
        return
    for path, why in obstacles.items():
        yield noted(f"no records in {path}: {why}", names=(path,))
    yield trouble(
        "trainings of this user cannot write records anywhere",
        advice="set WARMWATCH_DIR to a directory of your own, for the training and the monitor",
    )


def _shared_file_systems(directories: Sequence[str]) -> Iterator[Finding]:
    """Directories open to all that have no file system of their own."""
    for path in directories:
        if within(DISK_SECONDS, partial(_can_be_filled, path), False, path=path):
            yield noted(
                f"any user can fill the file system of {path}, which others need too",
                advice="mount a tmpfs there with size= and nr_inodes= (docs/how-to/deployment.md)",
                names=(path,),
            )


def _can_be_filled(path: str) -> bool:
    """Whether everybody may write to a directory that is not a mount."""
    try:
        result, above = Path(path).stat(), (Path(path) / "..").stat()
    except OSError:
        return False
    return bool(result.st_mode & stat.S_IWOTH) and result.st_dev == above.st_dev


def _obstacle(path: str, *, chosen: bool) -> str | None:
    def ask() -> str | None:
        return places.obstacle(path, os, chosen=chosen)

    unanswered: str | None = "its file system does not answer"
    return within(DISK_SECONDS, ask, unanswered, path=path)


def _obstacles(settings: Settings) -> dict[str, str | None]:
    """By directory, why an agent of this user would create no record, by the agent's own rule."""
    chosen = len(settings.directories) == 1
    return {path: _obstacle(path, chosen=chosen) for path in settings.directories}


def _daemon(settings: Settings, writable: str | None) -> Iterator[Finding]:
    try:
        answer = query_daemon(daemon_of(settings))
    except NoDaemonError:
        yield noted(
            f"no daemon answers at {settings.address}", advice="start one with: warmwatch serve"
        )
        return
    except DaemonError as error:
        yield trouble(str(error))
        return
    yield from _directories_match(settings, writable, answer)
    for source in answer["sources"]:
        # no driver is no trouble, and neither is an unread one; ``gpus`` reports it
        without_gpu = source["source"] == "nvml" and source["last_success"] is None
        if not source["up"] and not without_gpu:
            mark = Mark.NOTE if source["error"] == NOT_YET else Mark.TROUBLE  # it has just started
            yield Finding(
                mark=mark,
                what=f"the daemon's source {source['source']}: {source['error']}",
                advice=_READABLE if source["source"] == RECORDS.name else "",
                names=(*answer["directories"],),
            )
    for export in answer.get("exports", ()):
        if export["up"] is False:
            yield trouble(f"the daemon's export {export['export']}: {export['error']}")


_READABLE = (
    "let the daemon's user list and enter the record directories; for the systemd service: "
    "systemctl restart run-warmwatch.mount if it is not mounted, then "
    "systemd-tmpfiles --create warmwatch.conf"
)


def gpus(settings: Settings) -> Iterator[Finding]:
    """NVML's state here, read directly, with a timeout in case it hangs."""
    if settings.gpu_interval is None:
        yield noted("NVML is left alone (WARMWATCH_GPU_INTERVAL=off)")
        return
    feed = Feed("nvml", NvmlSource().read, Clock(), settings.gpu_interval)
    answered = feed.read_within(_PATIENCE_SECONDS)
    gpus, health = feed.current(Clock().monotonic_ns())
    if not answered:
        yield trouble(
            f"NVML has not answered for {_PATIENCE_SECONDS:g} s",
            advice="see whether nvidia-smi answers; the driver may hang",
        )
    elif gpus is None and pci_gpus() == 0:
        yield noted(f"no NVIDIA GPU here; NVML: {health.error}")
    elif gpus is None:
        yield noted(
            f"NVML: {health.error}",
            advice="fine without a GPU; in a container, ask for the driver's utility capability",
        )
    for gpu in gpus or ():
        state = gpu.trouble or f"{gpu.name or 'a GPU'}, driver {gpu.driver or 'unknown'}"
        mark = Mark.TROUBLE if gpu.trouble else Mark.FINE
        yield Finding(mark=mark, what=f"GPU {gpu.index} ({gpu.uuid}): {state}")


def _directories_match(
    settings: Settings, writable: str | None, answer: Answer
) -> Iterator[Finding]:
    watched: Sequence[str] = answer["directories"]
    ours = writable or settings.directories[0]
    if ours in watched:
        what = f"the daemon at {settings.address} reads the records in {ours}"
        yield fine(what, names=(ours,))
        return
    yield trouble(
        f"the daemon at {settings.address} reads the records in {', '.join(watched)}, but "
        f"trainings of this user write theirs to {ours}",
        advice="start the daemon and the training with the same WARMWATCH_DIR",
        names=(*watched, ours),
    )


def _agent(reading: RecordReading) -> Iterator[Finding]:
    """The reports of the agent in a living process."""
    identity, errors = reading.slot.identity, reading.slot.compile.agent_errors
    who = f"run {identity.run}, rank {identity.rank}"
    if identity.torch:
        yield from _torch(identity.torch, f"{who} uses torch {identity.torch}", identity.run)
    if identity.missing:
        yield noted(
            f"{who}: its torch lacks {', '.join(identity.missing)}",
            advice="figures that need those are missing: update torch if it is old, else warmwatch",
            names=(identity.run,),
        )
    if errors:
        journal = Journal()
        with contextlib.suppress(OSError, record.RecordError), Folder(reading.folder) as folder:
            journal.follow(folder)
        yield trouble(
            f"{who}: the agent caught {counted(errors, 'error')} of its own; the last: "
            f"{journal.sums.agent_error or 'not in the journal'}",
            advice=f"report it with {reading.folder}/{record.JOURNAL}",
            names=(identity.run,),
        )


def _steps(reading: RecordReading, now_ns: int) -> Iterator[Finding]:
    """Whether a rank that has compiled marks no steps at all."""
    identity, steps, compile = reading.slot.identity, reading.slot.steps, reading.slot.compile
    quiet_ns = now_ns - compile.last_end_ns
    if steps.steps or not compile.begun or compile.active_since_ns:
        return
    if verdict.quiet_limit_ns(steps, compile) is not None:
        return  # no steps are expected without an optimizer
    if quiet_ns > _LONG_WITHOUT_A_STEP_NS:
        yield trouble(
            f"run {identity.run}, rank {identity.rank}: it compiled, and in the "
            f"{quiet_ns / 1e9:.0f} s since then it has marked no step",
            advice="steps are seen where an optimizer of torch.optim steps; where none does, call "
            "warmwatch.step() at the end of each step",
            names=(identity.run,),
        )
