"""Hugging Face: ``Trainer(..., callbacks=[WarmwatchCallback()])``.

Under ``warmwatch run`` each ``Trainer`` has one by itself.
"""

from __future__ import annotations

from typing import Any

from transformers import trainer_callback

import warmwatch
from warmwatch.frameworks._reporting import Phases, guarded, is_attached, suggest, trains

# the trainer's state and the global step that was marked last: of two callbacks one marks it
_marked: tuple[int, int] | None = None


class WarmwatchCallback(trainer_callback.TrainerCallback):
    """Attaches, and tells of the ``Trainer``'s own steps, evaluations, saves and tokens."""

    def __init__(self) -> None:
        trains()
        self._phases = Phases()
        self._tokens = 0

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        global _marked
        _marked = None
        self._phases.end_all()  # of what was broken off before
        self._tokens = state.num_input_tokens_seen
        name = getattr(args, "run_name", None)
        if name and name != args.output_dir:  # which some versions make it
            suggest(run=name)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        global _marked
        self._phases.end_all()
        step = id(state), state.global_step
        if _marked != step:
            _marked = step
            self._tell_tokens(args, state)
            warmwatch.step()
        self._begin(control)

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._begin(control)

    @guarded
    def on_prediction_step(
        self,
        args: Any,  # noqa: ARG002 - as the Trainer calls it, here and below
        state: Any,  # noqa: ARG002
        control: Any,  # noqa: ARG002
        **_: Any,
    ) -> None:
        self._phases.end("saving")  # there is a data set more to evaluate before that
        self._phases.begin("evaluating")  # one that the user asked for has no other begin

    @guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._phases.end("evaluating")
        if control.should_save:
            self._phases.begin("saving")

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self._phases.end("evaluating")

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._phases.end("saving")

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._phases.end_all()

    def _begin(self, control: Any) -> None:
        """What the ``Trainer`` will do next: it evaluates before it saves."""
        if control.should_evaluate:
            self._phases.begin("evaluating")
        elif control.should_save:
            self._phases.begin("saving")

    def _tell_tokens(self, args: Any, state: Any) -> None:
        """The tokens of this step, where the ``Trainer`` counts them, and this rank's alone."""
        counts = getattr(args, "include_num_input_tokens_seen", False) not in (False, None, "no")
        if counts and args.world_size == 1:
            before, self._tokens = self._tokens, state.num_input_tokens_seen
            if self._tokens > before:
                suggest(tokens_per_step=self._tokens - before)


class _Joined(WarmwatchCallback):
    """That of ``warmwatch run``: in a process that was detached it says nothing."""

    def __init__(self) -> None:
        if is_attached():
            super().__init__()
        self._phases = Phases()
        self._tokens = 0


def join() -> None:
    """Have each ``Trainer`` from here on have one."""
    from transformers import trainer

    trainer.DEFAULT_CALLBACKS.append(_Joined)
