"""The ``force_eager`` stance for the baseline steps, set and restored.

Uses only ``torch.compiler.set_stance`` (torch 2.6 to 2.15), and only if the user requested a
baseline. The user's own stances win: if one was set meanwhile, ours is not restored over it. A
user's stance that was set over ours restores ours when it ends, even after a detach. So the object
that it restores is changed to the stance before ours.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from warmwatch.hooks.points import look_up


def present() -> str:
    """The stance in force.

    Raises:
        HookPointAbsentError: this PyTorch has none.
    """
    with look_up():
        from torch._dynamo import eval_frame

        return str(eval_frame._stance.stance)


class EagerStance:
    """The stance ``force_eager``, or another one, in force from now on.

    Raises:
        HookPointAbsentError: this PyTorch has none.
    """

    def __init__(self, stance: str = "force_eager") -> None:
        with look_up():
            from torch._dynamo import eval_frame
            from torch.compiler import set_stance

            _ = eval_frame._stance
        self._module: Any = eval_frame
        self._over = False
        self._set: Any = set_stance(stance)

    def holds(self) -> bool:
        """Whether it is in force, and no stance of the user is."""
        return not self._over and self._module._stance is self._set.stance

    def give_back(self) -> None:
        """Restore the earlier stance, unless the user has set another one since."""
        before = self._set.prev
        if self.holds():
            self._set.__exit__(None, None, None)
        self._over = True
        for field in fields(before):  # a stance over ours may restore it after a detach
            setattr(self._set.stance, field.name, getattr(before, field.name))
