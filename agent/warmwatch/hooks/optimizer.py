"""Steps, from the public post hook of every ``torch.optim`` optimizer.

A step is one round of the *leader*, the optimizer that fires most often: the first one seen, until
another fires twice between two of its calls. An optimizer is told by its first parameter, so an
object that is stepped once for each of several sub-groups of parameters still makes one step.

The hook runs disabled for Dynamo: in a compiled optimizer it makes the frame around ``step`` run
eagerly, which has nothing to compile anyway; graphs, graph breaks and recompiles stay the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from warmwatch._guard import report

if TYPE_CHECKING:
    from warmwatch._agent import Agent

_KNOWN_LIMIT = 10_000


def _nothing() -> None: ...


class Rounds:
    """Decides which of the optimizers' calls is the step. ``begin`` gives the marking function.

    The leader is ``fast`` once it was called twice in a row with one and the same first parameter
    and is not nested: each of its calls is then a step, by one comparison.
    """

    __slots__ = ("_begin", "_keys", "_nests", "fast", "fired", "leader", "mark")

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        self._begin = begin
        self.renew()

    def renew(self) -> None:
        """Forget all: in a forked child."""
        self._nests: dict[int, bool] = {}
        self._keys: dict[int, int] = {}  # of each optimizer, its first parameter at its last call
        self.mark: Callable[[], None] = _nothing
        self.leader = 0
        self.fast = 0
        self.fired: set[int] = set()  # others that fired since the leader did

    def step(self, optimizer: Any) -> None:
        """Any call but a regular one of the leader."""
        key = first_parameter(optimizer)
        nests = self._nests.get(key)
        if nests is None or nests or key == self.leader:
            inside = _inside_own_step(optimizer)
            self._learn(key, nests=inside or bool(nests), new=nests is None)
            if inside:
                return
        steady = self._keys.get(id(optimizer)) == key
        self._keys[id(optimizer)] = key
        if self.leader and key != self.leader and key not in self.fired:
            self.fired.add(key)
            return
        if not self.leader:
            self.mark = self._begin()
        self.leader = key
        self.fired.clear()
        self.fast = id(optimizer) if steady and not self._nests[key] else 0
        self.mark()

    def _learn(self, key: int, *, nests: bool, new: bool) -> None:
        if len(self._nests) > _KNOWN_LIMIT:
            self._nests.clear()
            self._keys.clear()
        self._nests[key] = nests
        if new:  # making it may have wrapped a class whose step the leader's own step calls
            self.fast = 0


def first_parameter(optimizer: Any) -> int:
    """An id for what ``optimizer`` steps: that of its first parameter, else its own."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return id(parameter)
    return id(optimizer)


def _inside_own_step(optimizer: Any) -> bool:
    """Whether the ``step`` that just ended was called by another ``step`` of the same object."""
    frame: FrameType | None = sys._getframe(1)
    wrappers = 0
    while frame is not None:
        code = frame.f_code
        if "wrapper" in code.co_name and code.co_filename.endswith("optim/optimizer.py"):
            wrappers += frame.f_locals.get("self") is optimizer
            if wrappers == 2:
                return True
        frame = frame.f_back
    return False


def install(agent: Agent) -> Callable[[], None]:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rounds = agent.rounds

    def on_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's signature
        try:
            if id(optimizer) == rounds.fast:
                if rounds.fired:
                    rounds.fired.clear()
                rounds.mark()
            else:
                rounds.step(optimizer)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.optimizer", error)

    handle = register_optimizer_step_post_hook(torch.compiler.disable(on_step))
    return handle.remove  # type: ignore[no-any-return]
