"""Runs the first steps eagerly, if the user asked for a baseline, and ends that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmwatch._guard import quietly, report, warn_once
from warmwatch.hooks.points import HookPointAbsentError, Hooks
from warmwatch.process.process_tree import is_data_worker, is_preparing
from warmwatch.shared import record
from warmwatch.steps.baseline import Baseline

if TYPE_CHECKING:
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.steps.steps import Steps

_BEGUN = record.COMPILE_INDEX["begun"]


class EagerBaseline:
    """The baseline of this process, if it has one.

    Attributes:
        wanted: how many steps the user asked for; 0: none.
        steps: the step functions, which tell of each: so they are made later.
    """

    steps: Steps

    def __init__(self, own: ProcessState, hooks: Hooks, wanted: int) -> None:
        self._own, self._hooks, self.wanted = own, hooks, wanted
        self._baseline: Baseline | None = None

    def begin(self) -> None:
        """Run the first steps so, where the user asked for that and it can be done."""
        steps = self.wanted
        if not steps or self._baseline or is_preparing() or is_data_worker():
            return
        asked = f"attach(baseline_steps={steps}) is left out: "
        if self._own.steps() or self._own.ledger.words[_BEGUN]:
            warn_once(asked + "a step was made, or something compiled; say it before the first")
            return
        try:
            from warmwatch.hooks.dynamo.stance import EagerStance

            if "disabled" not in self._hooks.names:  # by which stances are heard
                raise HookPointAbsentError("torch._dynamo.decorators._set_stance")
            self._hold(Baseline(steps, EagerStance()))
        except HookPointAbsentError as error:
            warn_once(f"{asked}this PyTorch has no torch.compiler.set_stance ({error})")
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("baseline", error)
            warn_once(f"{asked}the stance cannot be set ({error})")

    def _hold(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._own.ledger.on_purpose(baseline.stance.holds)
        self._own.ledger.turned()
        self.steps.baseline(baseline.steps)
        self._own.record.baseline(baseline.steps)

    def step(self, count: int, length: int) -> None:
        """One of the steps that were to run eagerly was marked."""
        baseline = self._baseline
        if baseline is None or baseline.over:
            return
        over = False
        try:
            over = baseline.step(count, length)
        except Exception as error:  # noqa: BLE001 - likewise
            report("baseline", error)
        finally:  # what cannot be ended, or is interrupted in that, is ended at the next step
            if not over:
                self.steps.baseline(max(count + 1, baseline.steps))
        if not over:
            return
        if baseline.median_ns is None:
            why = "a stance was set, or each of the steps compiled"
            warn_once(f"attach(baseline_steps=...) measured nothing: {why}")
        self.steps.baseline(count)
        self._own.record.baseline(count, baseline.median_ns)
        self._own.ledger.marks.baseline(count, baseline.median_ns)

    def end(self) -> None:
        """Compile from now on."""
        if self._baseline is not None and not self._baseline.over:
            quietly("baseline", self._baseline.end)

    def renew(self) -> None:
        """In a forked child, which inherits the stance."""
        if self._baseline is not None and (renewed := self._baseline.renewed()):
            self._hold(renewed)
