"""An agent's inside, its real ledger and step marks, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch.hooks.installation import Hooks
from warmwatch.ledger.ledger import Ledger
from warmwatch.recorder.writer import Writer
from warmwatch.shared import record, verdict
from warmwatch.shared.verdict import Facts
from warmwatch.steps.batches import Behind
from warmwatch.steps.steps import make_steps

SECOND = 10**9
K = 3


class Store(Writer):
    """The writer in plain memory, with the journal's lines in a list for tests."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, int, dict[str, object]]] = []

    def note(
        self,
        event: str,
        t: int,
        values: Mapping[str, Any],
        *,
        essential: bool = False,  # noqa: ARG002 - the signature of the method that it replaces
    ) -> None:
        self.notes.append((event, t, dict(values)))


class Pytorch(Hooks):
    """What PyTorch would answer."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.breaks: dict[str, int] = {}
        self.swaps_later = False
        self.turned_off = ""
        self.bytes: tuple[int, ...] = ()
        self.has_optimizer = False
        self.ahead: set[str] = set()
        self.calls: int | None = 0
        self.evaluating = False

    def counters(self) -> dict[str, int]:
        return dict(self.numbers)

    def graph_breaks(self) -> dict[str, int]:
        return dict(self.breaks)

    def break_place(self, reason: str) -> dict[str, Any]:  # noqa: ARG002 - as above
        return {}

    def asynchronous(self) -> bool:
        return self.swaps_later

    def disabled(self) -> str:
        return self.turned_off

    def precompiled(self) -> set[str]:
        return self.ahead

    def optimizers(self) -> bool:
        return self.has_optimizer

    def uncompiled(self) -> tuple[int, ...]:
        return 0, 0, 0

    def compiled_calls(self, evaluating: bool) -> int | None:
        self.evaluating = evaluating
        return self.calls

    def memory(self) -> tuple[int, ...]:
        return self.bytes


class Rank:
    """An agent's inside on a clock that only :meth:`wait` moves."""

    def __init__(self, *, quiet: float = 0) -> None:
        self.now = 100 * SECOND
        self.attached = self.now
        self.store, self.pytorch = Store(), Pytorch()
        self.warm_calls = 0
        self.behind: Behind | None = None
        self.baseline_steps = 0
        self.eager: list[tuple[int, int]] = []
        self.tick = lambda: self.now
        self.ledger = Ledger(
            self.store,
            self.pytorch,
            str,
            quiet_ns=int(quiet * SECOND),
            clock=lambda: self.now,
        )
        self._steps = make_steps(
            self.store.buffer,
            self.ledger,
            is_step=lambda _: True,
            warm_steps=K,
            on_warm=self._on_warm,
            on_long=lambda *measured: self.ledger.marks.long_step(*measured, self.behind),
            on_baseline=self._on_eager,
            clock=lambda: self.tick(),
        )
        self._steps.lead(id(None))  # as a step source does: regular steps take the hot path

    def step(self) -> None:
        self._steps.on_step(None)

    def run_eagerly(self, steps: int) -> None:
        """The steps up to this one are to run eagerly on purpose."""
        self.baseline_steps = steps
        self._steps.baseline(steps)

    def _on_eager(self, count: int, length: int) -> None:
        self.eager.append((count, length))
        if count == self.baseline_steps:
            self.ledger.post("baseline", {"steps": count, "median_ns": None})

    def _on_warm(self) -> None:
        self.warm_calls += 1

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def slot(self) -> record.Slot:
        header = record.Header(
            warm_steps=K, attached_ns=self.attached, attached_epoch_ns=1700 * SECOND
        )
        data = bytearray(self.store.buffer)
        packed = record.pack_header(header)
        data[: len(packed)] = packed
        record.store_identity(data, record.Identity(run="t"))
        return record.unpack(bytes(data))

    def judge(
        self, *, alive: bool = True, dismissed: bool = False, timeout: float = 0
    ) -> verdict.Judgement:
        """``timeout``: of the collectives in which it may wait for its first step, in seconds."""
        slot = self.slot()
        facts = Facts(
            attached_ns=self.attached,
            warm_steps=K,
            steps=slot.steps,
            compile=slot.compile,
            median_step_ns=record.quantile_ns(slot.clean_bins, 0.5),
            longest_step_ns=record.longest_ns(slot.clean_bins),
            alive=alive,
            dismissed=dismissed,
            baseline_steps=self.baseline_steps,
            collective_timeout_ns=round(timeout * 1e9),
        )
        return verdict.judge(facts, self.now)
