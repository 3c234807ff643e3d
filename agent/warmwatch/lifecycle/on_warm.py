"""Whether this process is warm, and the callbacks of ``on_warm``."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from warmwatch._guard import report, warn_once
from warmwatch.shared import record, verdict

_BEGUN = record.COMPILE_INDEX["begun"]

if TYPE_CHECKING:
    from warmwatch.lifecycle.after_warm import AfterWarm
    from warmwatch.lifecycle.process_state import ProcessState


class WarmCallbacks:
    """Judges this process, and calls the callbacks of ``on_warm``.

    ``open_record``: creates the record if there is none.
    """

    def __init__(
        self, process: ProcessState, open_record: Callable[[], None], after_warm: AfterWarm
    ) -> None:
        self._process, self._open, self._after_warm = process, open_record, after_warm
        self._callbacks: list[Callable[[], object]] = []

    def judgement(self) -> verdict.Judgement:
        """The state of this process, from the same function and bytes as the monitor's."""
        slot = self._process.record.image()
        facts = verdict.Facts(
            attached_ns=slot.header.attached_ns,
            warm_steps=slot.header.warm_steps,
            steps=slot.steps,
            compile=slot.compile,
            median_step_ns=record.quantile_ns(slot.clean_bins, 0.5),
            longest_step_ns=record.longest_ns(slot.clean_bins),
            last_batch_ns=slot.steps.last_batch_ns,
            baseline_steps=slot.identity.baseline_steps or 0,
        )
        return verdict.judge(facts, monotonic_ns())

    def on_warm(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once: at the first warm step, or immediately if already warm.

        In a process without steps, the thread of the quiet watch calls it.
        """
        self._callbacks.append(callback)
        if self.judgement().warm:
            self._call_back()

    def ready(self) -> None:
        """End the warm-up: the program called ``warmwatch.ready()``."""
        self._open()
        self._process.ledger.post("settled", {"by": "ready"})
        self.check()

    def quiet_elapsed(self) -> None:
        """End the warm-up of a process without steps if it has been quiet for long enough."""
        judged = self.judgement()
        if judged.warm_by == "quiet":
            begun = self._process.ledger.block[_BEGUN]
            values = {"by": "quiet", "at": judged.since_ns, "activities": begun}
            self._process.ledger.post("settled", values)
            self.check()

    def check(self) -> None:
        """Act if the process is warm. K clean steps do not suffice: another thread may compile."""
        needed = self._callbacks or self._process.announces or self._after_warm.mode == "raise"
        if needed and self.judgement().warm:
            self._after_warm.refuse()
            self._process.announcer.warm()
            self._call_back()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it would surface inside optimizer.step()
                report("on_warm", error)
                warn_once(f"the on_warm callback {callback!r} raised {error!r}")
