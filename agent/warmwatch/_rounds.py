"""Which of the optimizers' calls is the step.

A step is one round of the *leader*, the optimizer that fires most often: the first one seen, until
another fires twice between two of its calls. An optimizer is told by its first parameter, so an
object that is stepped once for each of several sub-groups of parameters still makes one step. A
``step()`` that another ``step()`` of the same object called is part of that one, and so is that of
another object that begins with the same parameter (a sharding optimizer's, with a part of it all).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_KNOWN_LIMIT = 10_000
_RESUMES = "torch_dynamo_resume_in_"


class Rounds:
    """Decides about every call but the regular ones of a leader that was made known by ``lead``.

    It is made known once it was called twice in a row with one and the same first parameter and is
    not nested: each of its calls is then a step, by one comparison.
    """

    def __init__(
        self,
        lead: Callable[[int], None],
        steps: Callable[[], int],
        met: Callable[[Any], None] = lambda optimizer: None,  # noqa: ARG005 - who does not ask
    ) -> None:
        self._lead, self._steps, self._met = lead, steps, met
        self.renew()

    def renew(self) -> None:
        """Forget all: in a forked child."""
        self.leader = 0
        self._fired: dict[int, int] = {}  # of the others, how many steps there were when they did
        self._nests: dict[int, bool] = {}
        self._keys: dict[int, int] = {}  # of each optimizer, its first parameter at its last call

    def is_step(self, optimizer: Any) -> bool:
        """Whether this call of ``optimizer`` ends a step."""
        key = first_parameter(optimizer)
        nests = self._nests.get(key)
        if nests is None or nests or key == self.leader:
            inside = inside_own_step(optimizer, key)
            if nests is None or id(optimizer) not in self._keys:
                self._met(optimizer)
            self._learn(key, nests=inside or bool(nests), new=nests is None)
            if inside:
                self._keys[id(optimizer)] = key
                return False
        steady = self._keys.get(id(optimizer)) == key
        self._keys[id(optimizer)] = key
        if self.leader and key != self.leader:
            steps = self._steps()
            if self._fired.get(key) != steps:
                self._fired[key] = steps
                return False
        self.leader = key
        self._lead(id(optimizer) if steady and not self._nests[key] else 0)
        return True

    def _learn(self, key: int, *, nests: bool, new: bool) -> None:
        if len(self._nests) > _KNOWN_LIMIT:
            self._nests.clear()
            self._keys.clear()
            self._fired.clear()
        self._nests[key] = nests
        if new:  # making it may have wrapped a class whose step the leader's own step calls
            self._lead(0)


def first_parameter(optimizer: Any) -> int:
    """An id for what ``optimizer`` steps: that of its first parameter, else its own."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return id(parameter)
    return id(optimizer)


def inside_own_step(optimizer: Any, key: int) -> bool:
    """Whether the ``step`` that just ended was called by another ``step`` of the same object.

    Or of one that begins with the same parameter, ``key``.

    Of a compiled ``step`` Dynamo makes two frames, one that calls the other to resume it.
    """
    frame: FrameType | None = sys._getframe(1)
    wrappers, resumed = 0, False
    while frame is not None:
        code = frame.f_code
        wraps = "wrapper" in code.co_name and code.co_filename.endswith("optim/optimizer.py")
        if wraps and not resumed:
            outer = frame.f_locals.get("self")
            wrappers += outer is optimizer or (outer is not None and first_parameter(outer) == key)
            if wrappers == 2:
                return True
        resumed = code.co_name.startswith(_RESUMES)
        frame = frame.f_back
    return False
