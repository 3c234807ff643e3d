"""An agent's inside, its real ledger and step marks, on a clock that the test moves."""

from __future__ import annotations

from warmwatch import record, verdict
from warmwatch._ledger import Ledger
from warmwatch._steps import make_steps
from warmwatch.verdict import Facts

SECOND = 10**9
K = 3


class Rank:
    """An agent's inside on a clock that only :meth:`wait` moves."""

    def __init__(self) -> None:
        self.now = 100 * SECOND
        self.attached = self.now
        self.buffer = record.blank()
        self.counters: dict[str, int] = {}
        self.asynchronous = False
        self.notes: list[tuple[str, int, dict[str, object]]] = []
        self.settled = 0
        self.ledger = Ledger(
            publish=lambda words: record.store_compile(self.buffer, words),
            note=lambda event, t, values, **_: self.notes.append((event, t, values)),
            counters=lambda: dict(self.counters),
            asynchronous=lambda: self.asynchronous,
            steps=lambda: self.slot().steps.steps,
            clock=lambda: self.now,
        )
        self._steps = make_steps(
            self.buffer,
            self.ledger,
            is_step=lambda _: True,
            warm_steps=K,
            settled=self._settle,
            clock=lambda: self.now,
        )

    def step(self) -> None:
        self._steps.on_step(None, (), {})

    def _settle(self) -> None:
        self.settled += 1

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def slot(self) -> record.Slot:
        header = record.Header(
            warm_steps=K, attached_ns=self.attached, attached_epoch_ns=1700 * SECOND
        )
        data = bytearray(self.buffer)
        packed = record.pack_header(header)
        data[: len(packed)] = packed
        record.store_identity(data, record.Identity(run="t"))
        return record.unpack(bytes(data))

    def judge(self, *, alive: bool = True) -> verdict.Judgement:
        slot = self.slot()
        facts = Facts(
            attached_ns=self.attached,
            warm_steps=K,
            steps=slot.steps,
            compile=slot.compile,
            median_step_ns=record.quantile_ns(slot.clean_bins, 0.5),
            longest_step_ns=record.longest_ns(slot.clean_bins),
            alive=alive,
        )
        return verdict.judge(facts, self.now)
