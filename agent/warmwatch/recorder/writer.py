"""Writes the record of this process. The other files of this room are parts of the writer.

If the record's directory is on tmpfs, the slot is mapped and journal lines are appended directly:
neither blocks. Otherwise ``buffer`` is plain memory, and a thread copies it to the file
(``disk_flusher``). ``buffer`` is also plain memory before :meth:`Writer.open` and after it failed,
so that ``warmwatch.state()`` works without a record.

Invariants: the folder gets its final name only when it is complete. The descriptor that holds the
lock stays open while the process runs. Closing any descriptor of the slot would free the lock, so
the agent never opens the slot a second time. The training's code may do that, so every rare write
takes the lock again.

Memory order: a store into a sealed block is visible before every hot counter that is stored after
it. x86 guarantees that order; on other processors, releasing and acquiring a lock does.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, report, warn_once
from warmwatch.process import provenance
from warmwatch.process.identity import identify, own_rank
from warmwatch.process.process_tree import child_name, is_daemon, start_directory
from warmwatch.process.settings import CHANGED, Settings, plain_name
from warmwatch.process.threads import SerialQueue
from warmwatch.process.torch_state import (
    distributed,
    gpus_in_use,
    own_group,
    shortest_timeout,
    versions,
)
from warmwatch.recorder import exit_status
from warmwatch.recorder.descriptors import Journal, leads_to, line_of
from warmwatch.recorder.disk_flusher import DiskFlusher
from warmwatch.recorder.files import Files, RecordCreation, close_slot, opened_beside
from warmwatch.recorder.mapping import in_memory, mapped
from warmwatch.recorder.other_records import prune
from warmwatch.shared import places, record
from warmwatch.shared.record import COMPILE_BLOCK, COMPILE_INDEX, STEPS_INDEX, Header, Identity
from warmwatch.shared.record.sealed_blocks import store
from warmwatch.shared.run_name import launcher_run, program_name

_OPEN_TIMEOUT = 2.0  # seconds that a training waits for a disk, once, when its record is created
_CLOSE_TIMEOUT = 1.0  # seconds that a detach waits for a disk that responded to the last flush
_SINCE, _DROPPED = COMPILE_INDEX["active_since_ns"], COMPILE_INDEX["journal_dropped"]
_WORD = struct.Struct("Q")
_STEPS, _BATCHES, _WAITED = (
    record.STEPS_OFFSET + 8 * STEPS_INDEX[name] for name in ("steps", "batches", "batch_wait_ns")
)


def _warn_of(passed_over: Sequence[tuple[str, OSError]], used: str) -> None:
    """Warn that a better directory exists and could not be used: its readers miss this run."""
    for directory, error in passed_over:
        if os.path.isdir(directory):  # noqa: PTH112 - pathlib's raises where it may not ask
            why = str(error).removeprefix(f"{directory}: ")
            why = error.strerror.lower() if error.strerror else why
            warn_once(
                f"the record is in {used}, because {directory} cannot be used ({why}); a monitor "
                f"that reads {directory} alone does not see this run"
            )


class Writer:
    """One record: opened once, written to until :meth:`close`.

    Args:
        readers: ``owner``, ``group`` or ``all``; ``None``: those of the directory.
        made: called with the record's files once they exist.
    """

    def __init__(
        self, *, readers: str | None = None, made: Callable[[Files], None] | None = None
    ) -> None:
        self.buffer: bytearray | mmap.mmap = record.blank()
        self.identity: Identity | None = None
        self._readers, self._on_made = readers, made
        self._files: Files | None = None
        self._journal: Journal | None = None
        self._flusher: DiskFlusher | None = None
        self._dropped = 0
        self._updated = self._active = self._closed = False
        self._responds = True
        self._identities: deque[tuple[Identity, bool]] = deque()  # and whether it is the first
        self._identity_queue = SerialQueue()
        self._warnings: deque[str] = deque()
        self._fence = threading.Lock()
        self._fence.acquire()

    @property
    def folder(self) -> Path | None:
        """The record's folder; ``None`` if there is none."""
        files = self._open_files
        return files.folder if files else None

    @property
    def _open_files(self) -> Files | None:
        return self._flusher.files if self._flusher else self._files

    def opened(self, name: str, flags: int) -> int | None:
        """A descriptor of another file of the record; ``None`` if there is no record.

        Raises:
            OSError: it cannot be opened.
        """
        files = self._open_files
        return opened_beside(files, name, flags) if files else None

    @property
    def dropped(self) -> int:
        """Number of journal lines that could not be written."""
        return self._dropped + (self._flusher.dropped if self._flusher else 0)

    def open(
        self,
        directories: Sequence[str],
        header: Header,
        identity: Identity,
        *,
        named: bool,
        child: str = "",
    ) -> Identity:
        """Create the record in the first directory that can be written.

        Returns the identity of the record. Its run has a number if the name was not set explicitly
        (``named``) and another launch of the same script runs in that directory. ``child`` is the
        suffix of the name in a child of the run's process.

        Raises:
            OSError: no directory can be written; the error of the last one.
        """
        packed = record.pack_header(header)
        self.buffer[: len(packed)] = packed
        problem: OSError = OSError("no record directory is configured")
        passed_over: list[tuple[str, OSError]] = []
        for directory in directories:
            chosen = len(directories) == 1
            task = RecordCreation(directory, identity, named=named, child=child, chosen=chosen)
            try:
                (self._open_in_memory if in_memory(directory) else self._open_on_disk)(task)
            except OSError as error:
                pass_on(error)
                problem = error
                passed_over.append((directory, error))
            else:
                _warn_of(passed_over, directory)
                return task.identity
        raise problem

    def _open_in_memory(self, task: RecordCreation) -> None:
        files = task.run(self._image, self._readers)
        self.identity = task.identity
        try:
            buffer = mapped(files.slot, record.SIZE)
        except (OSError, ImportError, AttributeError) as error:
            pass_on(error)
            self._flusher = self._new_flusher(lambda: files)
            self._flusher.flush(_OPEN_TIMEOUT)
            return
        self.buffer = buffer
        self._journal = Journal(files.journal, files.journal_file, files.room)
        self._files = files
        self._made(files)

    def _open_on_disk(self, task: RecordCreation) -> None:
        """Create the record on the flusher's thread, and wait for it with a timeout.

        If a signal handler raises meanwhile, the thread continues to create and copy the record.
        """
        self._image(task.plain)
        flusher = self._flusher = self._new_flusher(lambda: self._create(task))
        task.awaited = True
        try:
            if not flusher.start():
                raise OSError(errno.EAGAIN, "the thread that writes it cannot be started")
            responded = flusher.flush(_OPEN_TIMEOUT)
            if problem := flusher.problem:
                raise problem if isinstance(problem, OSError) else OSError(repr(problem))
        except OSError as error:
            pass_on(error)
            self._flusher = None
            flusher.close(0)
            raise
        finally:
            task.awaited = False
            task.decide(task.plain)
            self.identity = task.identity
        if not responded:
            warn_once(
                f"{task.directory} does not answer, so no monitor sees this run until it does; "
                "set WARMWATCH_DIR to a directory in memory, such as one in /dev/shm"
            )

    def _create(self, task: RecordCreation) -> Files:
        """Create the files, on the flusher's thread; warn about the first error after the wait."""
        try:
            return task.run(self._image, self._readers)
        except Exception as error:
            if not task.awaited and (self._flusher is None or self._flusher.problem is None):
                self._warnings.append(f"the record cannot be written now ({error}); will retry")
            raise

    def _made(self, files: Files) -> None:
        """Report the new files to ``made``, and remove old records."""
        try:
            if self._on_made and not self._closed:
                self._on_made(files)
            prune(files.folder.parent, own=files.slot_file)
        except OSError as error:  # another process may prune at the same time
            pass_on(error)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("record", error)

    def _image(self, identity: Identity) -> bytes:
        """The slot with this identity, or a later one if it has been set meanwhile.

        Raises:
            OSError: the identity is too long.
        """
        try:
            self._identities.append((identity, True))
            self._identity_queue.post(self._store_identities)
        except record.RecordError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        return bytes(self.buffer)

    def _new_flusher(self, make: Callable[[], Files]) -> DiskFlusher:
        assert isinstance(self.buffer, bytearray)
        return DiskFlusher(self.buffer, make, made=self._made, failed=self._failed)

    def _failed(self, error: Exception) -> None:
        report("record", error)
        self._warnings.append(
            f"the record of this run cannot be written now ({error}), so monitors see an old "
            "state; the training continues, and the write is retried"
        )

    def _warn(self) -> None:
        """Issue the flusher's warnings on a thread of the training, so that they show its line."""
        if self._flusher and not self._flusher.is_own_thread():
            while self._warnings:
                warn_once(self._warnings.popleft())

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal; one that cannot be written is counted in ``dropped``."""
        if self._flusher:
            self._flusher.add(line_of(event, t, values), essential=essential)
        elif self._journal:
            self._renew_lock()
            line = line_of(event, t, values)
            self._dropped += not self._journal.append(line, essential=essential)

    def publish(self, counters: array[int], *, renew_lock: bool = True) -> None:
        """Seal the compile block into the slot. One caller at a time.

        ``renew_lock``: a line of the journal does that too.
        """
        flusher = self._flusher
        counters[_DROPPED] = self._dropped + (flusher.dropped if flusher else 0)
        store(self.buffer, COMPILE_BLOCK, counters.tobytes())  # directly: at every change of phase
        self._fence.acquire(blocking=False)  # already held, unless a signal handler raised here
        self._fence.release()
        self._fence.acquire(blocking=False)
        if self._identities:  # a signal handler raised while they were stored
            self._identity_queue.post(self._store_identities)
        active = counters[_SINCE] != 0
        begins, self._active = active and not self._active, active
        if renew_lock or flusher:
            self._renew_lock(urgent=begins)

    def steps(self) -> int:
        """Steps marked so far."""
        return int(_WORD.unpack_from(self.buffer, _STEPS)[0])

    def batches(self) -> int:
        """Batches that DataLoaders returned so far."""
        return int(_WORD.unpack_from(self.buffer, _BATCHES)[0])

    def waited_ns(self) -> int:
        """Time spent waiting for them so far."""
        return int(_WORD.unpack_from(self.buffer, _WAITED)[0])

    def set_identity(self, identity: Identity) -> None:
        """Replace the identity in the slot.

        Safe on any thread: if another thread is storing one, it stores this one too.
        """
        self._updated = True
        self._identities.append((identity, False))
        self._identity_queue.post(self._store_identities)
        self._renew_lock()

    def _store_identities(self) -> None:
        while self._identities:  # each stays queued until stored: a signal handler may raise
            identity, first = self._identities[0]
            try:
                if not (first and self._updated):
                    record.store_identity(self.buffer, identity)
            except record.RecordError:
                self._identities.popleft()  # it never fits
                raise
            self._identities.popleft()

    def _renew_lock(self, *, urgent: bool = False) -> None:
        """Take the lock again, in case the process has closed a descriptor of the slot.

        Cheap, and never waits. A descriptor that now belongs to another file is left alone. With
        a disk flusher, its thread does this and copies the slot: soon, or immediately if
        ``urgent``.
        """
        if self._flusher:
            self._flusher.wake(urgent=urgent)
            self._warn()
        elif self._files and leads_to(self._files.slot, self._files.slot_file):
            try:
                fcntl.lockf(self._files.slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pass_on(error)

    def flush(self, seconds: float) -> bool:
        """Write everything to the disk; whether that took less than ``seconds``."""
        self._responds = self._flusher.flush(seconds) if self._flusher else True
        self._warn()
        return self._responds

    def close(self) -> None:
        """Close the files, which releases the lock."""
        self._closed = True
        self.buffer = bytearray(self.buffer)
        if self._flusher:
            self._flusher.close(_CLOSE_TIMEOUT if self._responds else 0)
            return
        if self._journal:
            self._journal.close()
        if self._files:
            close_slot(self._files, self._files.slot)
        self._files = self._journal = None


_TIMEOUT = 1.0  # seconds to wait for a disk at the end, and for the provenance at the start
# Journal lines that refresh the identity, such as the GPUs in use. All are rare. The first
# compilation takes longest, so its beginning is one of them.
_REFRESHING = ("attach", "begin", "end", "step", "warm", "eager")


class OwnRecord:
    """The record of one process. In plain memory until opened, or if it cannot be opened.

    Args:
        settings: from the environment.
        version: version of the agent.
        options: arguments of ``attach()``: ``run``, ``tokens_per_step``...
        attached: attach time on the monotonic and on the wall clock, in nanoseconds.

    Attributes:
        opened: whether ``open`` was called.
        publish, steps, batches, waited_ns: methods of the writer.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        version: str,
        options: Mapping[str, Any],
        attached: tuple[int, int],
    ) -> None:
        self._settings, self._version, self._options = settings, version, dict(options)
        self.opened = False
        self._baseline: dict[str, Any] = {}  # identity fields of the eager baseline
        self._changes = SerialQueue()  # of the identity: each adds to the one before
        self._child = ""  # suffix of the run's name in a child process that is not a rank
        self._identity: record.Identity | None = None
        self.writer = Writer(readers=settings.readers, made=self._arm_exit_status)
        # The ledger calls these at each event, so no function of ours stands in between.
        writer = self.writer
        self.publish, self.steps = writer.publish, writer.steps
        self.batches, self.waited_ns = writer.batches, writer.waited_ns
        self.header = record.Header(
            warm_steps=settings.warm_steps, attached_ns=attached[0], attached_epoch_ns=attached[1]
        )

    @property
    def visible(self) -> bool:
        """Whether the record's folder exists, so that a monitor can read it."""
        return self.writer.folder is not None

    @property
    def rank(self) -> int | None:
        """The rank of this process; ``None`` in a child that is not a rank, and before ``open``."""
        return None if self._identity is None or self._child else self._identity.rank

    @property
    def work_per_step(self) -> dict[str, int]:
        """The work of a step by unit, as passed to ``attach()``."""
        units = ("tokens", "samples")
        return {u: n for u in units if (n := self._options.get(f"{u}_per_step"))}

    def renewed(self, attached: tuple[int, int]) -> OwnRecord:
        """A new record for a forked child, with the same settings and options."""
        return OwnRecord(
            self._settings, version=self._version, options=self._options, attached=attached
        )

    def open(
        self, hooks: tuple[str, ...], missing: tuple[str, ...], *, graphs_before: int = 0
    ) -> None:
        """Create the record. If that fails, the agent continues in plain memory."""
        self.opened = True
        chosen = self._options.get("run") or self._settings.run or launcher_run(os.environ)
        name = plain_name(default := chosen or _program())
        if name != default:  # the launcher's id or the script's name: others were checked before
            warn_once(f"the run's default name has {CHANGED}; the run is named {name!r}")
        child = child_name()
        self._child = f".{child}" if child and not own_rank(os.environ) else ""
        identity = identify(
            os.environ,
            helper=bool(self._child),
            child="daemon" if self._child and is_daemon() else "",
            agent=self._version,
            hooks=hooks,
            missing=missing,
            expected_ranks=self._settings.expected_ranks,
            **_provenance(),
            **self._baseline,
            **{**self._options, "run": name},
        )
        directories = places.directories(os.environ, os.geteuid(), start_directory())
        try:
            self.writer.open(
                directories, self.header, identity, named=bool(chosen), child=self._child
            )
        except OSError as error:
            pass_on(error)
            warn_once(
                f"the record cannot be written, so no monitor will see this run ({error}); "
                "set WARMWATCH_DIR to a writable directory"
            )
        finally:
            self._identity = self.writer.identity or identity
            self._note_attach(self._identity, graphs_before)

    def _note_attach(self, identity: record.Identity, graphs_before: int) -> None:
        header = {"epoch_ns": self.header.attached_epoch_ns, "k": self.header.warm_steps}
        who = {"run": identity.run, "rank": identity.rank}
        before = {"graphs_before": graphs_before or None}
        self.note("attach", self.header.attached_ns, {**who, **header, **before})

    def close(self) -> None:
        """Close the record's files."""
        exit_status.disarm()
        self.writer.close()

    def update(self, options: Mapping[str, Any]) -> None:
        """Apply more options; a new value replaces the old one."""
        self._options.update(options)
        run = options.get("run")
        named = {"run": f"{run}{self._child}", "unnumbered": ""}
        self._change({**options, **named} if run else options)

    def set_hooks(self, hooks: tuple[str, ...], missing: tuple[str, ...]) -> None:
        """Record which hooks are installed, and which hook points this PyTorch does not have."""
        self._change({"hooks": hooks, "missing": missing})

    def set_parameters(self, seen: int | None) -> None:
        """Record the number of parameters in optimizers; ``None`` if it is not the model's."""
        self._change({"parameters_seen": seen})

    def set_flops(
        self, flops: int | None, excluded: tuple[str, ...], dtypes: Mapping[str, int]
    ) -> None:
        """Record the operations of a step, as counted in its graphs; ``None`` if unknown."""
        counted = float(flops) if flops else None
        by_dtype = {name: float(count) for name, count in dtypes.items() if count and counted}
        self._change(
            {"flops_counted": counted, "flops_excluded": excluded, "flops_by_dtype": by_dtype}
        )

    def set_baseline(self, steps: int, median_ns: int | None = None) -> None:
        """Record the eager baseline: its number of steps, and their median if measured."""
        seconds = median_ns / 1e9 if median_ns else None
        self._baseline = {"baseline_steps": steps, "baseline_seconds": seconds}
        self._change(self._baseline)

    def flush(self, *, leaving: bool) -> None:
        """Flush the record at the end of the process, with a timeout for a slow or frozen disk.

        If the disk hangs, the exit status is not written either, since the exit would wait for it.
        ``leaving``: Python exits, so only the exit status can follow.
        """
        if not self.writer.flush(_TIMEOUT):
            exit_status.disarm()
        elif leaving:
            exit_status.promise(record.EXIT_PROMISED)

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal."""
        self.writer.note(event, t, values, essential=essential)
        if event in _REFRESHING:
            self.refresh()

    def image(self) -> record.Slot:
        """The current content of the slot."""
        image = bytearray(self.writer.buffer)
        packed = record.pack_header(self.header)
        image[: len(packed)] = packed  # plain memory has no header
        try:
            return record.unpack(bytes(image))
        except record.TornError:  # no identity: there is no record, or it is being created
            record.store_identity(image, record.Identity(run="none"))
            return record.unpack(bytes(image))

    def _arm_exit_status(self, files: Files) -> None:
        try:
            exit_status.arm(opened_beside(files, record.EXIT, exit_status.FLAGS))
        except (OSError, AttributeError, ImportError) as error:
            pass_on(error)  # not supported by this C library or system: the status is unknown

    def refresh(self) -> None:
        """Update what may be determined late: GPUs, rank, versions, timeout of collectives."""
        if self._identity is None:
            return
        try:
            grouped = own_group()
            timeout, backend = (shortest_timeout() if grouped else None) or (None, "")
            values: dict[str, Any] = {
                **versions(),
                "gpus": gpus_in_use() or self._identity.gpus,
                "collective_timeout": timeout,
                "collective_backend": backend,
            }
            if grouped and (member := distributed()):
                names = self._identity.run, self._identity.unnumbered
                run, unnumbered = (name.removesuffix(self._child) for name in names)
                self._child = ""  # the child is a rank
                values.update(run=run, unnumbered=unnumbered, child="")
                values.update(rank=member[0], world_size=member[1])
            self._change(values)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("identity", error)

    def _change(self, fields: Mapping[str, Any]) -> None:
        """Change fields of the identity; those that another thread changes meanwhile stay."""
        if self._identity is not None:
            self._changes.post(self._store, fields)

    def _store(self, fields: Mapping[str, Any]) -> None:
        identity = self._identity
        # comparing only these fields: most calls change none
        if identity is not None and any(getattr(identity, name) != fields[name] for name in fields):
            self._identity = identity._replace(**fields)
            self.writer.set_identity(self._identity)


def _provenance() -> dict[str, Any]:
    try:
        return {**provenance.at_start(os.environ, _TIMEOUT), **versions()}
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        report("provenance", error)
        return {}


def _program() -> str:
    """The run's default name."""
    # VS Code stores a notebook's path as a global of the notebook
    notebook = getattr(sys.modules.get("__main__"), "__vsc_ipynb_file__", None)
    notebook = notebook if isinstance(notebook, str) else None
    try:
        directory = str(Path.cwd())
    except OSError:  # it was removed
        directory = ""
    return program_name(sys.argv, os.environ, directory=directory, notebook=notebook)
