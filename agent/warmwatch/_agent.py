"""The agent: one for each attached process. It wires hooks, ledger, steps and writer together.

States of its own: made, armed (hooks in place), open (a record exists, or
could not be made and plain memory stands in for it). All calls from the training come through here
or through what it handed out, and none may raise.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from warmwatch import record
from warmwatch._config import Settings
from warmwatch._gpus import used
from warmwatch._guard import report, warn_once
from warmwatch._identity import distributed, identify, launcher_run
from warmwatch._ledger import Ledger
from warmwatch._phases import is_tracing
from warmwatch._rounds import Rounds
from warmwatch._steps import make_steps
from warmwatch._writer import Writer

if TYPE_CHECKING:
    from warmwatch.verdict import Judgement

_Moment = tuple[int, int]

# Journal lines at which to look for the GPUs in use: all rare. The first compilation is what costs
# most, so its beginning is one of them.
_RARE_MOMENTS = ("begin", "end", "step", "warm", "eager")


class Agent:
    """One attached process.

    Args:
        settings: from the environment. version: the agent's own.
        said: what the user said in ``attach()``: ``run``, ``tokens_per_step``...
        attached: when, on the monotonic and on the wall clock, in nanoseconds.
    """

    def __init__(
        self, settings: Settings, *, version: str, said: Mapping[str, Any], attached: _Moment
    ) -> None:
        self._settings, self._version = settings, version
        self._said = dict(said)
        self._uninstall: dict[str, Callable[[], None]] = {}
        self._missing: tuple[str, ...] = ()
        self._callbacks: list[Callable[[], object]] = []
        self.rearm: Callable[[], None] | None = None
        self.read_counters: Callable[[], Mapping[str, int]] = dict
        self.is_asynchronous: Callable[[], bool] = lambda: False
        self.take_reasons: Callable[[], str | None] = lambda: None
        self._begin(attached)
        self._rounds = Rounds(lambda optimizer: self.steps.lead(optimizer), self._count)
        self.steps = make_steps(
            self._writer.buffer,
            self.ledger,
            is_step=self._is_step,
            warm_steps=settings.warm_steps,
            settled=self._settled,
        )

    def _begin(self, attached: _Moment) -> None:
        """Begin with nothing to say: at first, and in a forked child, which is another process."""
        self._writer = Writer()
        self._open = self._explicit = False
        self._identity: record.Identity | None = None
        self._header = record.Header(
            warm_steps=self._settings.warm_steps,
            attached_ns=attached[0],
            attached_epoch_ns=attached[1],
        )
        self.ledger = Ledger(
            publish=self._publish,
            note=self._note,
            counters=lambda: self.read_counters(),
            asynchronous=lambda: self.is_asynchronous(),
            steps=self._count,
        )

    def arm(self) -> None:
        """Dynamo is there: install the hooks, and speak unless this is somebody's child."""
        from warmwatch.hooks import install_all

        self._uninstall, self._missing = install_all(self)
        if multiprocessing.parent_process() is None:
            self.open()

    # What the hooks tell.

    def begin(self, event: str) -> None:
        """A compile event began on this thread."""
        if self.rearm is not None:
            self.rearm()
        if not self._open and (is_tracing(event) or multiprocessing.parent_process() is None):
            self.open()
        self.ledger.begin(event)

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""
        self.ledger.end(event)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended."""
        self.ledger.compilation(kind, values)

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        self.ledger.fallback(values)

    def error(self, where: str, message: str) -> None:
        """Something of ours failed: the guard's sink."""
        self.ledger.error(where, message)

    # What the API asks.

    def step(self) -> None:
        """An explicit step mark; the first one ends the watching of the optimizer."""
        if not self._explicit:
            self._explicit = True
            self.open()
            if remove := self._uninstall.pop("optimizer", None):
                remove()
            self.steps.lead(id(None))
            if self._rounds.leader:
                return  # the optimizer has marked this very step already
        self.steps.on_step(None, (), {})

    def say(self, said: Mapping[str, Any]) -> None:
        """The user said more; what is new replaces what was known."""
        self._said.update(said)
        if self._identity is not None:
            self._identity = replace(self._identity, **self._said)
            self._writer.rename(self._identity)

    def judgement(self) -> Judgement:
        """This process's own state, by the same rules and from the same bytes as the monitor's."""
        from warmwatch import verdict  # here: it costs a tenth of the whole import

        slot = self._image()
        facts = verdict.Facts(
            attached_ns=slot.header.attached_ns,
            warm_steps=slot.header.warm_steps,
            steps=slot.steps,
            compile=slot.compile,
            median_step_ns=record.quantile_ns(slot.clean_bins, 0.5),
            longest_step_ns=record.longest_ns(slot.clean_bins),
        )
        return verdict.judge(facts, monotonic_ns())

    def on_warm(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once: at the first warm step, or now where it is warm already."""
        self._callbacks.append(callback)
        if self.judgement().warm:
            self._settled()

    # Life and death.

    def open(self) -> None:
        """Make the record, once; without one the agent goes on in plain memory."""
        if self._open or _is_data_worker():
            return
        self._open = True
        run = self._said.get("run") or self._settings.run
        identity = identify(
            os.environ,
            argv=sys.argv,
            agent=self._version,
            hooks=tuple(self._uninstall),
            missing=self._missing,
            **{**self._said, "run": run},
        )
        named = bool(run or launcher_run(os.environ))
        directories = record.directories(os.environ, os.geteuid())
        try:
            self._identity = self._writer.open(directories, self._header, identity, named=named)
        except OSError as error:
            self._identity = identity
            warn_once(
                f"no record can be written, so no monitor will see this run ({error}); "
                "set WARMWATCH_DIR to a directory that can be written"
            )
            return
        self.steps.bind(self._writer.buffer, self.ledger)
        header = {"epoch_ns": self._header.attached_epoch_ns, "k": self._header.warm_steps}
        who = {"run": self._identity.run, "rank": self._identity.rank}
        self._note("attach", self._header.attached_ns, {**who, **header})

    def finish(self, how: str, exception: str | None = None) -> None:
        """The process ends. Nothing is said by one that had nothing to say."""
        if self._writer.folder is not None:
            self.ledger.exit(how, exception)

    def detach(self) -> None:
        """Take every hook away and let go of the record."""
        for uninstall in self._uninstall.values():
            uninstall()
        self._uninstall = {}
        self.finish("detached")
        self._writer.close()

    def forked(self, now: _Moment) -> None:
        """In a forked child: the record is the parent's, and so is what it says."""
        self._begin(now)
        self._rounds.renew()
        self.steps.bind(self._writer.buffer, self.ledger)

    # Inside.

    def _count(self) -> int:
        """Steps marked so far."""
        return int(record.hot_words(self._writer.buffer)[record.STEPS_INDEX["steps"]])

    def _is_step(self, optimizer: Any) -> bool:
        """Asked about the first call of all, so the record is there before the first step."""
        self.open()
        return self._rounds.is_step(optimizer)

    def _settled(self) -> None:
        if not self._callbacks or not self.judgement().warm:
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it would surface inside optimizer.step()
                report("on_warm", error)
                warn_once(f"the on_warm callback {callback!r} raised {error!r}")

    def _publish(self, words: list[int]) -> None:
        words[record.COMPILE_INDEX["journal_dropped"]] = self._writer.dropped
        self._writer.publish(words)

    def _note(
        self, event: str, t: int, values: Mapping[str, Any], *, essential: bool = False
    ) -> None:
        self._writer.note(event, t, values, essential=essential)
        if event in _RARE_MOMENTS:
            self._look_again()

    def _look_again(self) -> None:
        """Say which GPUs and which rank this is, where that changed: both may come up late."""
        if self._identity is None:
            return
        try:
            known = self._identity
            found = replace(known, gpus=used() or known.gpus)
            if member := distributed():
                found = replace(found, rank=member[0], world_size=member[1])
            if found != known:
                self._writer.rename(found)
                self._identity = found
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("identity", error)

    def _image(self) -> record.Slot:
        image = bytearray(self._writer.buffer)
        packed = record.pack_header(self._header)
        if not image.startswith(packed):  # no record: plain memory without a header
            image[: len(packed)] = packed
            record.store_identity(image, record.Identity(run="none"))
        return record.unpack(bytes(image))


def _is_data_worker() -> bool:
    """Whether this is a data-loading worker, which may compile its own transforms."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
