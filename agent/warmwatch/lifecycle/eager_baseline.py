"""The eager baseline: the first steps of a run, against which compiling is measured.

Only if the user requested it with ``attach(baseline_steps=20)``, because it changes the run: these
steps run eagerly, and all compilation comes after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmwatch._guard import quietly, report, warn_once
from warmwatch.hooks.dynamo.disabled import EagerStance
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import HookPointAbsentError
from warmwatch.process.process_tree import is_data_worker, is_preparing
from warmwatch.shared import record

if TYPE_CHECKING:
    from warmwatch.lifecycle.process_state import ProcessState
    from warmwatch.steps.steps import Steps

_BEGUN = record.COMPILE_INDEX["begun"]


class Baseline:
    """The first ``steps`` steps, while ``stance`` holds. Another stance of the user ends them."""

    def __init__(self, steps: int, stance: EagerStance) -> None:
        self.steps, self.stance = steps, stance
        self._lengths: list[int] = []
        self.over = False

    def step(self, count: int, length: int) -> bool:
        """Step number ``count`` was marked, of ``length`` ns; 0 if the length is unknown.

        Returns whether it was the last baseline step.
        """
        held = self.stance.holds()
        if held and length:
            self._lengths.append(length)
        if held and count < self.steps:
            return False
        self.end()
        self.steps = count
        return True

    def end(self) -> None:
        """Compile from now on."""
        self.stance.restore()
        self.over = True

    def renewed(self) -> Baseline | None:
        """The baseline of a forked child, which inherits the stance and has marked no step yet."""
        return Baseline(self.steps, self.stance) if not self.over else None

    @property
    def median_ns(self) -> int | None:
        """The median of the known lengths; ``None`` if there is none."""
        lengths = sorted(self._lengths)
        middle = len(lengths) // 2
        if not lengths:
            return None
        return lengths[middle] if len(lengths) % 2 else sum(lengths[middle - 1 : middle + 1]) // 2


class EagerBaseline:
    """The baseline of this process, if it has one.

    Attributes:
        requested: number of steps to run eagerly; 0: none.
        steps: the step functions, set after construction because they call :meth:`step`.
    """

    steps: Steps

    def __init__(self, process: ProcessState, hooks: Hooks, requested: int) -> None:
        self._process, self._hooks, self.requested = process, hooks, requested
        self._baseline: Baseline | None = None

    def begin(self) -> None:
        """Start the eager steps, if requested and possible."""
        steps = self.requested
        if not steps or self._baseline or is_preparing() or is_data_worker():
            return
        ignored = f"attach(baseline_steps={steps}) is ignored: "
        if self._process.steps() or self._process.ledger.block[_BEGUN]:
            warn_once(ignored + "the training has begun; call attach() before the first step")
            return
        try:
            if "disabled" not in self._hooks.names:  # the hook that reports stances
                raise HookPointAbsentError("torch._dynamo.decorators._set_stance")
            self._start(Baseline(steps, EagerStance()))
        except HookPointAbsentError as error:
            warn_once(f"{ignored}this PyTorch has no torch.compiler.set_stance ({error})")
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("baseline", error)
            warn_once(f"{ignored}the stance cannot be set ({error})")

    def _start(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._process.ledger.on_purpose(baseline.stance.holds)
        self._process.ledger.post("disabled", {})
        self.steps.baseline(baseline.steps)
        self._process.record.set_baseline(baseline.steps)

    def step(self, count: int, length: int) -> None:
        """Handle the end of one eager step; the last one enables compilation."""
        baseline = self._baseline
        if baseline is None or baseline.over:
            return
        over = False
        try:
            over = baseline.step(count, length)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("baseline", error)
        finally:  # if ending it failed or was interrupted, the next step tries again
            if not over:
                self.steps.baseline(max(count + 1, baseline.steps))
        if not over:
            return
        if baseline.median_ns is None:
            why = "a stance was set, or each of the steps compiled"
            warn_once(f"attach(baseline_steps=...) measured nothing: {why}")
        self.steps.baseline(count)
        self._process.record.set_baseline(count, baseline.median_ns)
        values = {"steps": count, "median_ns": baseline.median_ns}
        self._process.ledger.post("baseline", values)

    def end(self) -> None:
        """Enable compilation."""
        if self._baseline is not None and not self._baseline.over:
            quietly("baseline", self._baseline.end)

    def renew(self) -> None:
        """Continue in a forked child, which inherits the stance."""
        if self._baseline is not None and (renewed := self._baseline.renewed()):
            self._start(renewed)
