"""Which optimizer calls are steps.

A step is one round of the *leader*, the optimizer that fires most often: the first one seen, until
another fires twice between two of its calls. An optimizer is identified by its first parameter, so
one object that is stepped once for each of several sub-groups of parameters makes one step.

Optimizers may take turns: five steps of one, then five of another. The first call of a turn looks
like a GAN's generator after five steps of its critic, so it is not a step. Once an optimizer has
led a turn, its later turns are expected, and their first call is a step. If the old leader's call
follows immediately, that was no turn: the old leader's call is no step, and leads again.

An optimizer created after the last step, over parameters never seen before, leads from its first
call on. So a training that creates optimizers as it goes (test-time training, MAML, k-fold, a
sweep) loses no step. The first call of an optimizer that existed at the last step is not a step: it
may belong to the same iteration (a GAN's generator, AdamW next to Muon).

A ``step()`` inside another ``step()`` is part of the outer one.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

_KNOWN_LIMIT = 10_000
_TURN = 2  # rounds
_MODULE = "torch.optim.optimizer"
_RESUMES = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+$")


class StepAttribution:
    """Decides about every optimizer call, except for the regular ones of a known leader.

    A leader becomes known (``lead``) after two unnested calls in a row with the same first
    parameter. Each of its calls is then a step, by one comparison.

    Args:
        lead: receives the ``id`` of a known leader, or 0.
        steps: returns the number of steps so far.
        met: called with each optimizer at its first call, and whether it replaces the others.
    """

    def __init__(
        self,
        lead: Callable[[int], None],
        steps: Callable[[], int],
        met: Callable[[Any, bool], None] = lambda optimizer, replaces: None,  # noqa: ARG005
    ) -> None:
        self._lead, self._steps, self._met = lead, steps, met
        self.renew()

    def renew(self) -> None:
        """Clear all state, in a forked child."""
        self.leader = 0
        self._fired: dict[int, int] = {}  # by first parameter: the rounds when it fired last
        self._turns: set[int] = set()  # first parameters that have led a turn
        self._skipped = 0  # rounds that are no steps
        self._began = 0  # the rounds when the leader took over
        self._before = 0  # the previous leader, if the present one took an expected turn
        self._nests: dict[int, bool] = {}
        self._seen: dict[int, weakref.ref[Any]] = {}  # first parameters: an id may be reused
        self._keys: dict[int, int] = {}  # by optimizer: its first parameter at its last call
        self._created: dict[int, tuple[weakref.ref[Any], int]] = {}  # by optimizer: steps by then

    def created(self, optimizer: Any) -> None:
        """``optimizer`` is under construction, or an existing one is initialized again."""
        known = self._created.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return
        if len(self._created) > _KNOWN_LIMIT:
            self._created.clear()
        self._created[id(optimizer)] = weakref.ref(optimizer), self._steps()
        self._keys.pop(id(optimizer), None)  # the id may be a freed optimizer's
        self._lead(0)  # the known leader may be freed

    def is_step(self, optimizer: Any) -> bool:
        """Whether this call of ``optimizer`` ends a step."""
        first = _first(optimizer)
        key = id(first)
        new = self._meet(first)
        nests = self._nests.get(key)
        if new or nests or key == self.leader:
            inside = inside_step()
            replaces = new and not inside and self._is_newer_than_last_step(optimizer)
            if new or id(optimizer) not in self._keys:
                self._met(optimizer, replaces)
            self._learn(key, nests=inside or bool(nests), new=new)
            if inside:
                self._keys[id(optimizer)] = key
                return False
        else:
            replaces = False
        before = self._keys.get(id(optimizer))
        # a program may give the leader new parameters and free the old ones
        replaces = replaces or (new and before == self.leader and self._seen[before]() is None)
        steady = before == key
        self._keys[id(optimizer)] = key
        if key != self.leader and not self._takes_over(key, replaces=replaces):
            return False
        self._lead(id(optimizer) if steady and not self._nests[key] else 0)
        return True

    def _takes_over(self, key: int, *, replaces: bool) -> bool:
        """Whether ``key`` becomes the leader and this call of it is a step."""
        rounds, old = self._steps() + self._skipped, self.leader
        led, expected = rounds - self._began, False
        if old and not replaces:
            if key == self._before and led == 1:  # ``old`` took no turn, but made a step
                self._turns.discard(old)
                self._skipped += 1
                self.leader, self._began, self._before = key, rounds, 0
                self._lead(0)
                return False
            expected = led >= _TURN and key in self._turns and rounds - self._fired[key] >= _TURN
            if self._fired.get(key) != rounds and not expected:
                self._fired[key] = rounds
                return False
        if old:
            (self._turns.add if led >= _TURN else self._turns.discard)(old)
            self._fired[old] = rounds
        self.leader, self._began, self._before = key, rounds, old if expected else 0
        return True

    def _meet(self, first: Any) -> bool:
        """Whether ``first`` was never seen; clear the state of an earlier object with its id."""
        key = id(first)
        known = self._seen.get(key)
        if known is not None and known() is first:
            return False
        if len(self._seen) > _KNOWN_LIMIT:
            for table in (self._seen, self._nests, self._keys, self._fired, self._turns):
                table.clear()
        self._seen[key] = weakref.ref(first)
        self._nests.pop(key, None)
        self._fired.pop(key, None)
        self._turns.discard(key)
        return True

    def _is_newer_than_last_step(self, optimizer: Any) -> bool:
        known = self._created.get(id(optimizer))
        return known is not None and known[0]() is optimizer and known[1] == self._steps()

    def _learn(self, key: int, *, nests: bool, new: bool) -> None:
        self._nests[key] = nests
        if new:  # its constructor may have wrapped a class that the leader's step calls
            self._lead(0)


def _first(optimizer: Any) -> Any:
    """The first parameter of ``optimizer``; the optimizer itself if it has none."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter
    return optimizer


def inside_step() -> bool:
    """Whether the ``step`` that just ended was called by another ``step``.

    A PyTorch function around each ``step`` calls the hook. So it is on the stack once, and twice if
    this ``step`` is nested. For a compiled ``step`` Dynamo makes two frames, one of which resumes
    the other: these count once.
    """
    frame: FrameType | None = sys._getframe(1)
    around, resumed = None, False
    while frame is not None:
        if frame.f_globals.get("__name__") == _MODULE:
            name = frame.f_code.co_name
            resumes = _RESUMES.match(name)
            function = resumes[1] if resumes else name
            if around is None:
                around = function
            elif function == around and not resumed:
                return True
            resumed = resumes is not None
        else:
            resumed = False
        frame = frame.f_back
    return False
