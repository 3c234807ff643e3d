"""Whether this process is warm, and the callbacks of ``on_warm``."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from warmwatch._guard import report, warn_once
from warmwatch.shared import record

_BEGUN = record.COMPILE_INDEX["begun"]

if TYPE_CHECKING:
    from warmwatch.lifecycle.after_warm import AfterWarm
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.shared.verdict import Judgement


class WarmCallbacks:
    """The judgement, and those who asked to be called.

    ``open_record``: makes the record, where there is none yet.
    """

    def __init__(
        self, own: ProcessState, open_record: Callable[[], None], after_warm: AfterWarm
    ) -> None:
        self._own, self._open, self._after_warm = own, open_record, after_warm
        self._callbacks: list[Callable[[], object]] = []

    def judgement(self) -> Judgement:
        """This process's own state, by the same rules and from the same bytes as the monitor's."""
        from warmwatch.shared import verdict  # here: it costs a tenth of the whole import

        slot = self._own.record.image()
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
        """Call ``callback`` once: at the first warm step, or now where it is warm already.

        Without steps it is called on a thread of ours, once the process is warm.
        """
        self._callbacks.append(callback)
        if self.judgement().warm:
            self._call_back()

    def ready(self) -> None:
        """The program says that its warm-up is over."""
        self._open()
        self._own.ledger.marks.settled("ready")
        self.came()

    def quiet(self) -> None:
        """Nothing has compiled for long, in a process without steps."""
        judged = self.judgement()
        if judged.warm_by == "quiet":
            activities = self._own.ledger.words[_BEGUN]
            self._own.ledger.marks.settled("quiet", judged.since_ns, activities)
            self.came()

    def came(self) -> None:
        """K clean steps are marked, which is not yet warm where something compiles aside."""
        wanted = self._callbacks or self._own.announces or self._after_warm.mode == "raise"
        if wanted and self.judgement().warm:
            self._after_warm.warm()
            self._own.announcer.warm()
            self._call_back()

    def _call_back(self) -> None:
        """It is warm: tell those who asked for it."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it would surface inside optimizer.step()
                report("on_warm", error)
                warn_once(f"the on_warm callback {callback!r} raised {error!r}")
