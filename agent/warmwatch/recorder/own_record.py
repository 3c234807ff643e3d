"""This process's own record: when it is created, for which rank, and its present content."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, report, warn_once
from warmwatch.process import provenance
from warmwatch.process.identity import distributed, identify, own_rank
from warmwatch.process.process_tree import child_name
from warmwatch.process.run_name import (
    launcher_run,
    notebook_of_vscode,
    program_name,
    working_directory,
)
from warmwatch.process.settings import Settings, plain_name
from warmwatch.process.torch_state import shortest_timeout, used
from warmwatch.recorder import exit_status
from warmwatch.recorder.writer import Writer
from warmwatch.shared import places, record

_PATIENCE = 1.0  # seconds that the end waits for a disk, and a look at what the run is
# Journal lines at which to look for the GPUs in use: all rare. The first compilation is what costs
# most, so its beginning is one of them.
_RARE_MOMENTS = ("begin", "end", "step", "warm", "eager")


class OwnRecord:
    """The record of one process, in plain memory until it is opened, or where it cannot be.

    Args:
        settings: from the environment. version: the agent's own.
        options: what the user gave to ``attach()``: ``run``, ``tokens_per_step``...
        attached: when, on the monotonic and on the wall clock, in nanoseconds.
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
        self._opened = False
        self._eager: dict[str, Any] = {}  # what is known of a baseline
        self._child = ""  # ends the name of the run in a child that is no rank of it
        self._identity: record.Identity | None = None
        self.writer = Writer(who=settings.readers, made=self._arm_exit_status)
        self.header = record.Header(
            warm_steps=settings.warm_steps, attached_ns=attached[0], attached_epoch_ns=attached[1]
        )

    @property
    def opened(self) -> bool:
        """Whether it was opened, or that was tried."""
        return self._opened

    @property
    def visible(self) -> bool:
        """Whether there is a folder that a monitor can read."""
        return self.writer.folder is not None

    @property
    def speaks_for(self) -> int | None:
        """The rank that it speaks for; ``None`` of a child that is none, and before it is open."""
        return None if self._identity is None or self._child else self._identity.rank

    @property
    def worth(self) -> dict[str, int]:
        """What the user said that a step is worth, by unit."""
        units = ("tokens", "samples")
        return {u: n for u in units if (n := self._options.get(f"{u}_per_step"))}

    def renewed(self, attached: tuple[int, int]) -> OwnRecord:
        """That of a forked child, which is another process and has said nothing yet."""
        return OwnRecord(
            self._settings, version=self._version, options=self._options, attached=attached
        )

    def open(
        self, hooks: tuple[str, ...], missing: tuple[str, ...], *, graphs_before: int = 0
    ) -> None:
        """Make the record, once; without one the agent goes on in plain memory."""
        self._opened = True
        chosen = self._options.get("run") or self._settings.run or launcher_run(os.environ)
        child = child_name()
        self._child = f".{child}" if child and not own_rank(os.environ) else ""
        identity = identify(
            os.environ,
            helper=bool(self._child),
            agent=self._version,
            hooks=hooks,
            missing=missing,
            expected_ranks=self._settings.expected_ranks,
            **_known_at_first(),
            **self._eager,
            **{**self._options, "run": plain_name(chosen or _program())},
        )
        directories = places.directories(os.environ, os.geteuid())
        try:
            self.writer.open(
                directories, self.header, identity, named=bool(chosen), child=self._child
            )
        except OSError as error:
            pass_on(error)
            warn_once(
                f"no record can be written, so no monitor will see this run ({error}); "
                "set WARMWATCH_DIR to a directory that can be written"
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
        """Let go of the record's files."""
        exit_status.disarm()
        self.writer.close()

    def update(self, options: Mapping[str, Any]) -> None:
        """The user gave more options; a new value replaces the old one."""
        self._options.update(options)
        if self._identity is not None:
            run = options.get("run")
            changed = {**options, "run": run + self._child} if run else options
            self._rename(replace(self._identity, **changed))

    def hooked(self, hooks: tuple[str, ...], missing: tuple[str, ...]) -> None:
        """These seams are in use by now, and those are not there."""
        known = self._identity
        if known is not None and (known.hooks, known.missing) != (hooks, missing):
            self._rename(replace(known, hooks=hooks, missing=missing))

    def has_parameters(self, seen: int | None) -> None:
        """The optimizers hold so many parameters; ``None`` where that tells no model's size."""
        known = self._identity
        if known is not None and known.parameters_seen != seen:
            self._rename(replace(known, parameters_seen=seen))

    def baseline(self, steps: int, median_ns: int | None = None) -> None:
        """The first so many steps run, or ran, eagerly on purpose, each as long as said."""
        seconds = median_ns / 1e9 if median_ns else None
        self._eager = {"baseline_steps": steps, "baseline_seconds": seconds}
        if self._identity is not None:
            self._rename(replace(self._identity, **self._eager))

    def flush(self, *, leaving: bool) -> None:
        """All is said: have it where a monitor finds it, also if its disk is slow, or frozen.

        Where the disk does not answer, nothing of the process's end may wait for it either. Where
        Python is ``leaving``, all that is to come is the exit status.
        """
        if not self.writer.flush(_PATIENCE):
            exit_status.disarm()
        elif leaving:
            exit_status.promise(record.EXIT_PROMISED)

    # What the ledger needs of it.

    def publish(self, words: list[int]) -> None:
        """Store the words of the rare block."""
        self.writer.publish(words)

    def note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        """Append a line to the journal."""
        self.writer.note(event, t, values, essential=essential)
        if event in _RARE_MOMENTS:
            self._look_again()

    def steps(self) -> int:
        """Steps marked so far."""
        return self.writer.steps()

    def image(self) -> record.Slot:
        """The slot as it is now."""
        image = bytearray(self.writer.buffer)
        packed = record.pack_header(self.header)
        image[: len(packed)] = packed  # plain memory has none
        try:
            return record.unpack(bytes(image))
        except record.TornError:  # no record, or another thread is at making it: it has no name
            record.store_identity(image, record.Identity(run="none"))
            return record.unpack(bytes(image))

    def _arm_exit_status(self, folder: Path, mode: int) -> None:
        try:
            exit_status.arm(folder / record.EXIT, mode)
        except (OSError, AttributeError, ImportError) as error:
            pass_on(error)  # else another C library, another system: the status is not known

    def _look_again(self) -> None:
        """Say what may have changed: GPUs, rank, versions, when its collectives give up.

        All of it may come up late.
        """
        if self._identity is None:
            return
        try:
            timeout, backend = shortest_timeout() or (None, "")
            found = replace(
                self._identity,
                gpus=used() or self._identity.gpus,
                collective_timeout=timeout,
                collective_backend=backend,
                **provenance.by_now(),
            )
            if member := distributed():
                run = found.run.removesuffix(self._child)  # a rank after all
                self._child = ""
                found = replace(found, run=run, rank=member[0], world_size=member[1])
            if found != self._identity:
                self._rename(found)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("identity", error)

    def _rename(self, identity: record.Identity) -> None:
        self._identity = identity  # before: from here on another change adds to it
        self.writer.rename(identity)


def _known_at_first() -> dict[str, Any]:
    """What the run is, as far as that can be looked at."""
    try:
        return {**provenance.at_first(os.environ, _PATIENCE), **provenance.by_now()}
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        report("provenance", error)
        return {}


def _program() -> str:
    return program_name(
        sys.argv, os.environ, directory=working_directory(), notebook=notebook_of_vscode()
    )
