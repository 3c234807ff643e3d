"""Hugging Face: ``Trainer(..., callbacks=[WarmwatchCallback()])``.

Under ``warmwatch run`` each ``Trainer`` gets one automatically.
"""

from __future__ import annotations

from typing import Any

from transformers import trainer_callback

from warmwatch.frameworks._reporting import Phases, guarded, is_attached, suggest
from warmwatch.lifecycle import api

# trainer state (by id) and global step that was marked last: of two callbacks only one marks it
_marked: tuple[int, int] | None = None


class WarmwatchCallback(trainer_callback.TrainerCallback):
    """Attaches, and reports the ``Trainer``'s steps, evaluations, saves and tokens."""

    def __init__(self) -> None:
        api.attach()
        self._phases = Phases()
        self._tokens = 0

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        global _marked
        _marked = None
        self._phases.end_all()  # phases of an earlier call that was interrupted
        self._tokens = state.num_input_tokens_seen
        name = getattr(args, "run_name", None)
        if name and name != args.output_dir:  # the default in some versions
            suggest(run=name)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        global _marked
        self._phases.end_all()
        step = id(state), state.global_step
        if _marked != step:
            _marked = step
            self._suggest_tokens(args, state)
            api.step()
        self._begin(control)

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._begin(control)

    @guarded
    def on_prediction_step(
        self,
        args: Any,  # noqa: ARG002 - the signature is the Trainer's, here and below
        state: Any,  # noqa: ARG002
        control: Any,  # noqa: ARG002
        **_: Any,
    ) -> None:
        self._phases.end("saving")  # another data set is evaluated before the save
        self._phases.begin("evaluating")  # the only event of ``Trainer.evaluate()`` by the user

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
        """Begin the phase that follows the step; the ``Trainer`` evaluates before it saves."""
        if control.should_evaluate:
            self._phases.begin("evaluating")
        elif control.should_save:
            self._phases.begin("saving")

    def _suggest_tokens(self, args: Any, state: Any) -> None:
        """Set the tokens of a step if the ``Trainer`` counts them, and for this rank only."""
        counts = getattr(args, "include_num_input_tokens_seen", False) not in (False, None, "no")
        if counts and args.world_size == 1:
            before, self._tokens = self._tokens, state.num_input_tokens_seen
            if self._tokens > before:
                suggest(tokens_per_step=self._tokens - before)


class _InstalledCallback(WarmwatchCallback):
    """The callback under ``warmwatch run``, which does not attach again after a detach."""

    def __init__(self) -> None:
        if is_attached():
            super().__init__()
        self._phases = Phases()
        self._tokens = 0


def install() -> None:
    """Add the callback to every ``Trainer`` from now on."""
    from transformers import trainer

    trainer.DEFAULT_CALLBACKS.append(_InstalledCallback)
