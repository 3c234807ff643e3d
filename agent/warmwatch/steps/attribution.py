"""Which optimizer calls are steps, and which steps are far longer than usual.

A step is one round of the *leader*, the optimizer that fires most often: the first one seen, until
another fires twice between two of its calls.

One object may be stepped several times in an iteration, once for each of several sub-groups of its
parameters (DeepSpeed ZeRO-3). That makes one step. Such a call has another first parameter than the
one before, and no forward pass ran in between: this thread has created no autograd node. Where a
forward pass ran, the object trains one block of parameters after the other (BAdam, LISA), and each
call is a step. Forward passes on other threads are not seen.

Optimizers may take turns: five steps of one, then five of another. The first call of a turn looks
like a GAN's generator after five steps of its critic, so it is not a step. Once an optimizer has
led a turn, its later turns are expected, and their first call is a step. If the old leader's call
follows immediately, that was no turn: the old leader's call is no step, and leads again.

An optimizer created after the last step leads from its first call on. So a training that creates
optimizers as it goes (test-time training, MAML, k-fold, a sweep) loses no step. The first call of
an optimizer that existed at the last step is not a step: it may belong to the same iteration (a
GAN's generator, AdamW next to Muon).

A ``step()`` inside another ``step()`` is part of the outer one.

Nothing here refers to a tensor: ``torch.utils.swap_tensors``, and with it ``Module.to()`` under
FSDP2, refuses a tensor that has a weak reference.

A regular step costs one comparison with a bound (``steps.py``); everything here is rare.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from threading import get_ident
from typing import Any

from warmwatch.shared import record
from warmwatch.shared.user_code import inside_step

_KNOWN_LIMIT = 10_000
_TURN = 2  # rounds


class _Known:
    """What is known of one optimizer.

    Attributes:
        ref: a weak reference to it: its id may be reused. created: the number of steps when it was
        created; -1: unknown. first: the id of the first parameter at its last call; 0: not called
        yet. forwards: what ``forwards()`` returned then. nests: whether its ``step`` was called by
        another one. fired: the rounds when it fired last without leading; -1: never. led: whether
        it has led a turn.
    """

    __slots__ = ("created", "fired", "first", "forwards", "led", "nests", "ref")

    def __init__(self, optimizer: Any, created: int) -> None:
        self.ref = weakref.ref(optimizer)
        self.created, self.first, self.fired = created, 0, -1
        self.nests = self.led = False
        self.forwards: Hashable = None


class StepAttribution:
    """Decides about every optimizer call, except for the regular ones of a known leader.

    A leader becomes known (``lead``) after two unnested calls in a row with the same first
    parameter. Each of its calls is then a step, by one comparison.

    Args:
        lead: receives the ``id`` of a known leader, or 0.
        steps: returns the number of steps so far.
        met: called with each optimizer at its first call, when it has other parameters and when
            it replaces the others, and whether it does.
        forwards: returns what changes when the calling thread has run a forward pass.
    """

    def __init__(
        self,
        lead: Callable[[int], None],
        steps: Callable[[], int],
        met: Callable[[Any, bool], None] = lambda optimizer, replaces: None,  # noqa: ARG005
        forwards: Callable[[], Hashable] | None = None,
    ) -> None:
        self._lead, self._steps, self._met = lead, steps, met
        self._forwards = forwards or _forwards
        self.renew()

    def renew(self) -> None:
        """Clear all state, in a forked child."""
        self._leader: _Known | None = None
        self._skipped = 0  # rounds that are no steps
        self._began = 0  # the rounds when the leader took over
        self._before: _Known | None = None  # the previous leader, if an expected turn follows it
        self._known: dict[int, _Known] = {}  # by the id of the optimizer

    @property
    def leads(self) -> bool:
        """Whether an optimizer has made a step."""
        return self._leader is not None

    def created(self, optimizer: Any) -> None:
        """``optimizer`` is under construction, or an existing one is initialized again."""
        item = self._known.get(id(optimizer))
        if item is None or item.ref() is not optimizer:
            self._know(optimizer, self._steps())
            self._lead(0)  # the known leader may be freed

    def is_step(self, optimizer: Any) -> bool:
        """Whether this call of ``optimizer`` ends a step."""
        item = self._known.get(id(optimizer))
        if item is None or item.ref() is not optimizer:
            item = self._know(optimizer, -1)
        before, forwards = item.first, item.forwards
        item.first, item.forwards = id(_first(optimizer)), self._forwards()
        new, other = not before, item.first != before
        inside = (new or item.nests or item is self._leader) and inside_step()
        replaces = item.created == self._steps() and not inside
        if other or replaces:
            self._met(optimizer, replaces)
        if new:  # its constructor may have wrapped a class that the leader's step calls
            self._lead(0)
        item.nests = item.nests or inside
        if inside or (other and not new and item.forwards == forwards):
            return False
        if item is not self._leader and not self._takes_over(item, replaces=replaces):
            return False
        self._lead(0 if other or item.nests else id(optimizer))
        return True

    def _takes_over(self, item: _Known, *, replaces: bool) -> bool:
        """Whether ``item`` becomes the leader and this call of it is a step."""
        rounds, old = self._steps() + self._skipped, self._leader
        led, expected = rounds - self._began, False
        if old is not None and not replaces:
            if item is self._before and led == 1:  # ``old`` took no turn, but made a step
                old.led = False
                self._skipped += 1
                self._leader, self._began, self._before = item, rounds, None
                self._lead(0)
                return False
            expected = led >= _TURN and item.led and rounds - item.fired >= _TURN
            if item.fired != rounds and not expected:
                item.fired = rounds
                return False
        if old is not None:
            old.led, old.fired = led >= _TURN, rounds
        self._leader, self._began, self._before = item, rounds, old if expected else None
        return True

    def _know(self, optimizer: Any, created: int) -> _Known:
        if len(self._known) > _KNOWN_LIMIT:
            kept = {key: value for key, value in self._known.items() if value is self._leader}
            self._known = kept
        item = self._known[id(optimizer)] = _Known(optimizer, created)
        return item


def _first(optimizer: Any) -> Any:
    """The first parameter of ``optimizer``; the optimizer itself if it has none."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter
    return optimizer


def _forwards() -> Hashable:
    """The calling thread, and the number of autograd nodes that it has created."""
    autograd = sys.modules.get("torch._C._autograd")
    nodes = getattr(autograd, "_get_sequence_nr", None)
    return get_ident(), nodes() if nodes is not None else 0


TIMES = 4  # as long as a usual step
FLOOR_NS = 10**9  # shorter steps are never long
_SLOW_TIMES, _SLOW_FLOOR_NS = 1.5, 10**8  # bounds for looking at possible causes
_FEWEST = 10  # steps, to determine the usual length
_FREELY = 100  # lines without a limit, then one in a while
_APART_NS = 15 * 60 * 10**9


def usual_ns(clean_bins: Sequence[int], ring: Sequence[int]) -> int:
    """The median of the clean steps; 0 if there are too few.

    The median of the last steps (``ring``, see ``record.recent``) counts if it is higher: in a
    training that has become slower, the slow steps are the usual ones.
    """
    if sum(clean_bins) < _FEWEST:
        return 0
    lately = [record.length_ns(word) for word in ring if record.is_clean(word)]
    median = record.median_ns(lately) if len(lately) >= _FEWEST else None
    return max(int(record.quantile_ns(clean_bins, 0.5) or 0), int(median or 0))


def is_long(duration: int, usual: int) -> bool:
    """Whether a step of that length belongs in the journal."""
    return 0 < usual * TIMES < duration > FLOOR_NS


def slow_from_ns(usual: int) -> int:
    """The length from which a step is slow or long.

    Looking at the causes takes some 100 us, so short steps are skipped. The steps of a training
    that stays slow become the usual ones, which ends that.
    """
    return max(_SLOW_FLOOR_NS, round(_SLOW_TIMES * usual))


class LeftOut:
    """Limits the journal lines of a run with many long steps.

    After the first lines, one per quarter of an hour, with the number left out before it.
    """

    def __init__(self) -> None:
        self._lines = self._left_out = self._last_ns = 0

    def before(self, now: int) -> int | None:
        """The number left out before the step that ended now; ``None``: leave this one out too."""
        if self._lines >= _FREELY and now - self._last_ns < _APART_NS:
            self._left_out += 1
            return None
        self._lines, self._last_ns = self._lines + 1, now
        left_out, self._left_out = self._left_out, 0
        return left_out
