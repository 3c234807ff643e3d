"""The stance in which compiled objects run as they were written, taken for a while and given back.

By ``torch.compiler.set_stance`` alone (torch 2.6 to 2.15), and only where the user asked for a
baseline. The user's own stances win: where one is set meanwhile, ours is not put back over it; and
where one that was set over ours ends after us, what it restores gives way to what was before ours.
"""

from __future__ import annotations

from typing import Any

from warmwatch._seams import look_up


class EagerStance:
    """The stance ``force_eager``, in force from now on.

    Raises:
        SeamAbsentError: this PyTorch has none.
    """

    def __init__(self) -> None:
        with look_up():
            from torch._dynamo import eval_frame
            from torch.compiler import set_stance

            _ = eval_frame._stance
        self._module: Any = eval_frame
        self._over = False
        self._set: Any = set_stance("force_eager")

    def holds(self) -> bool:
        """Whether it is in force, and no stance of the user's own."""
        return self._module._stance is self._set.stance

    def give_back(self) -> None:
        """Put back what was there before, unless the user has put something else there."""
        self._over = True
        self.turned()

    def turned(self) -> None:
        """A stance was set: perhaps ours again, by the end of one that was set over it."""
        if self._over and self.holds():
            self._set.__exit__(None, None, None)
