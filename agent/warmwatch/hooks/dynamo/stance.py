"""The ``force_eager`` stance for the baseline steps, set and restored.

By ``torch.compiler.set_stance`` alone (torch 2.6 to 2.15), and only where the user asked for a
baseline. The user's own stances win: where one is set meanwhile, ours is not put back over it; and
where one that was set over ours ends after us, what it restores is what was before ours, even after
a detach: the object that it kept is made to say the same.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from warmwatch.hooks.points import look_up


def present() -> str:
    """The stance in force.

    Raises:
        SeamAbsentError: this PyTorch has none.
    """
    with look_up():
        from torch._dynamo import eval_frame

        return str(eval_frame._stance.stance)


class EagerStance:
    """The stance ``force_eager``, or another one, in force from now on.

    Raises:
        SeamAbsentError: this PyTorch has none.
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
        """Whether it is in force, and no stance of the user's own."""
        return not self._over and self._module._stance is self._set.stance

    def give_back(self) -> None:
        """Put back what was there before, unless the user has put something else there."""
        before = self._set.prev
        if self.holds():
            self._set.__exit__(None, None, None)
        self._over = True
        for field in fields(before):  # a stance over ours may put it back when nobody listens more
            setattr(self._set.stance, field.name, getattr(before, field.name))
