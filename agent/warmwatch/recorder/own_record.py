"""The record of this process: when it is created, its identity, and its current content."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
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
from warmwatch.recorder.files import Files, opened_beside
from warmwatch.recorder.writer import Writer
from warmwatch.shared import places, record
from warmwatch.shared.run_name import launcher_run, program_name

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
            self._refresh()

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

    def _refresh(self) -> None:
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
