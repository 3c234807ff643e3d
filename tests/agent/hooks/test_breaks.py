"""Graph breaks, also those that PyTorch does not count, and their remedies, applied."""

from __future__ import annotations

import contextlib
import copy
import datetime
import itertools
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.torch_versions import TORCH, VERSION
from warmwatch import _guard
from warmwatch.hooks import registry
from warmwatch.hooks.dynamo.breaks import MOST_BREAKS, STEPPED, Breaks, hint_of
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import graph_break
from warmwatch.shared.breaks import IGNORED, break_remedy, plain_break

torch = pytest.importorskip("torch")
POINTS = [one for one in registry.POINTS if one[0] in ("events", "compilations")]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of this process: another test may have left some
    found = Hooks()
    found.install(POINTS, Listener())
    yield found
    found.uninstall_all()
    torch._dynamo.reset()


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


def x() -> Any:
    return torch.ones(3, 3)


def number_in_a_loop(*, cured: bool) -> None:
    def total(x: Any) -> Any:
        of = 0.0
        for row in range(3):
            of += x[row].sum().item()
        return x * of

    setting = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with setting if cured else contextlib.nullcontext():
        compiled(total)(x())


def branch_in_a_loop(*, cured: bool) -> None:
    def scaled(x: Any) -> Any:
        for _ in range(3):
            if cured:
                x = torch.where(x.sum() > 1, x * 0.5, x)
            elif x.sum() > 1:
                x = x * 0.5
        return x

    compiled(scaled)(x())


def branch(*, cured: bool) -> None:
    def clipped(x: Any) -> Any:
        if cured:
            return torch.where(x.sum() > 1, x, x + 1)
        if x.sum() > 1:
            return x
        return x + 1

    compiled(clipped)(x())


def print_in_a_try(*, cured: bool) -> None:
    def logged(x: Any) -> Any:
        try:
            x = x + 1
            print("value")
            return x * 2
        except ValueError:
            return x

    ignored = torch._dynamo.config.patch(reorderable_logging_functions={print})
    with ignored if cured else contextlib.nullcontext():
        compiled(logged)(x())


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.up(x))
        x, _ = self.lstm(x)
        return torch.relu(self.down(x))


def recurrent(*, cured: bool) -> None:
    with torch._dynamo.config.patch(allow_rnn=cured):
        compiled(Tagger())(x())


def check_that_raises(*, cured: bool) -> None:
    def divided(x: Any) -> Any:
        if cured:
            torch._assert_async((x != 0).all(), "zero")
        elif (x == 0).any():
            raise ValueError("zero")
        return 1 / x

    compiled(divided)(x())


def outputs_of_a_generator(*, cured: bool) -> None:
    def features() -> Iterator[Any]:
        for scale in (1, 2):
            yield x() * scale

    def total(outputs: Any) -> Any:
        return sum(one.sum() for one in outputs)

    compiled(total)(list(features()) if cured else features())


CASES: list[tuple[Callable[..., None], str, str, str | None]] = [
    (number_in_a_loop, "total", "torch._dynamo.config.capture_scalar_outputs", "all"),
    (branch_in_a_loop, "scaled", "torch.where", "all"),
    (branch, "clipped", "torch.where", None),
    (check_that_raises, "divided", "torch._assert_async", None),
    (print_in_a_try, "logged", "torch._dynamo.config.reorderable_logging_functions", "all"),
    (recurrent, "forward", "torch._dynamo.config.allow_rnn", "rest"),
    (outputs_of_a_generator, "total", "such as list(...)", "all"),
]


@pytest.mark.parametrize(
    ("program", "name", "remedy", "eager"), CASES, ids=[one[0].__name__ for one in CASES]
)
def test_a_break_that_pytorch_does_not_count_is_named_and_its_remedy_cures(
    hooks: Hooks, program: Callable[..., None], name: str, remedy: str, eager: str | None
) -> None:
    if program is branch_in_a_loop and not TORCH.reason:
        pytest.skip("torch 2.6 records nothing of it")
    if program is outputs_of_a_generator and not TORCH.names_objects:
        pytest.skip("this PyTorch has other words")
    program(cured=True)
    assert hooks.graph_breaks() == {}
    torch._dynamo.reset()
    program(cured=False)
    assert not torch._dynamo.utils.counters["graph_break"]
    ((text, count),) = hooks.graph_breaks().items()
    assert hooks.counters()["graph_breaks"] == count == 1
    where = hooks.break_place(text)
    assert (where["name"], where["file"]) == (name, "test_breaks.py")
    assert where.get("eager") == eager
    known = break_remedy(graph_break(text), where.get("hint"), library=False)
    assert remedy in (known or "")


def experts(*, cured: bool) -> None:
    parts = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    def routed(x: Any, chosen: Any) -> Any:
        if cured:
            return sum(of(x) * (chosen == n)[:, None] for n, of in enumerate(parts))
        sizes = torch.bincount(chosen, minlength=2).tolist()
        split = x[chosen.argsort()].split(sizes)
        return torch.cat([of(part) for of, part in zip(parts, split, strict=True)])

    compiled(routed)(x(), torch.tensor([1, 0, 1]))


def clock(*, cured: bool) -> None:
    def timed(x: Any) -> Any:
        if not cured:
            datetime.datetime.now()  # noqa: DTZ005
        return x * 2

    compiled(timed)(x())


def chance(*, cured: bool) -> None:
    def scaled(x: Any, by: float | None) -> Any:
        return x * (random.random() if by is None else by)

    compiled(scaled)(x(), random.random() if cured else None)


def noise(*, cured: bool) -> None:
    source = torch.Generator()

    def noisy(x: Any, noise: Any) -> Any:
        return x + (torch.rand(3, generator=source) if noise is None else noise)

    compiled(noisy)(x(), torch.rand(3, generator=source) if cured else None)


def next_in_turn(*, cured: bool) -> None:
    scales = itertools.cycle((1.0, 2.0))

    def scaled(x: Any, by: Any) -> Any:
        return x * (by if cured else next(by))

    compiled(scaled)(x(), next(scales) if cured else scales)


def list_of_floats(*, cured: bool) -> None:
    def total(x: Any) -> Any:
        return x * (x.sum() if cured else sum(x[0].tolist()))

    with torch._dynamo.config.patch(capture_scalar_outputs=not cured):  # which does not help
        compiled(total)(x())


@pytest.mark.parametrize(
    ("program", "named", "remedy"),
    [
        (experts, "aten.bincount", "multiply by a mask"),
        (experts, "aten._local_scalar_dense", "use a mask"),
        (clock, "`datetime.now`", "outside of the compiled function"),
        (chance, "`Random.random`", "outside of the compiled function"),
        (noise, "`Generator`", "draw the random numbers outside of the compiled function"),
        (next_in_turn, "`cycle`", "Call next() outside of the compiled function"),
        (list_of_floats, "tolist() with non-integer", "Keep the numbers in a tensor, or call"),
    ],
)
def test_the_remedy_of_a_break_that_pytorch_counts_cures(
    hooks: Hooks, program: Callable[..., None], named: str, remedy: str
) -> None:
    if not TORCH.reason:
        pytest.skip("torch 2.6 has other words, and cannot compile the clock")
    if program is clock and VERSION == "2.11":
        pytest.skip("torch 2.11 refuses its own guard on a clock in Python 3.12")
    if program in (noise, next_in_turn) and not TORCH.names_objects:
        pytest.skip("this PyTorch has other words")
    program(cured=True)
    assert hooks.graph_breaks() == {}
    torch._dynamo.reset()
    program(cured=False)
    (text,) = (one for one in hooks.graph_breaks() if named in graph_break(one))
    torch._dynamo.utils.counters.clear()
    found = break_remedy(graph_break(text), hint_of(text), library=False)
    assert remedy in str(found)


def test_a_break_that_pytorch_counts_before_it_leaves_the_function_counts_once(
    hooks: Hooks,
) -> None:
    lstm = torch.nn.LSTM(3, 3)

    @compiled
    def tagged(x: Any) -> Any:
        return lstm(x.sin())[0].cos()

    tagged(x())
    ((text, count),) = hooks.graph_breaks().items()
    assert hooks.counters()["graph_breaks"] == count == 1
    assert hooks.break_place(text)["eager"] == "all"


@pytest.mark.parametrize("program", [branch, recurrent])
def test_a_break_counts_again_after_a_reset(hooks: Hooks, program: Callable[..., None]) -> None:
    for _ in range(2):
        torch._dynamo.reset()  # which clears PyTorch's list of breaks
        torch._dynamo.utils.counters.clear()
        program(cured=False)
    assert list(hooks.graph_breaks().values()) == [2]


def test_a_break_in_pythons_own_code_is_at_the_line_that_calls_it(hooks: Hooks) -> None:
    def copied(x: Any, state: dict[str, Any], *, cured: bool) -> Any:
        past = {"keys": state["keys"].clone()} if cured else copy.deepcopy(state)
        return x + past["keys"]

    compiled(copied)(x(), {"keys": x()}, cured=True)
    assert hooks.graph_breaks() == {}
    torch._dynamo.reset()
    compiled(copied)(x(), {"keys": x()}, cured=False)
    ((reason, _),) = hooks.graph_breaks().items()
    where = hooks.break_place(reason)
    torch._dynamo.utils.counters.clear()
    assert (where["name"], where["file"]) == ("copied", "test_breaks.py")
    assert "library" not in where
    if "deepcopy" in reason and TORCH.reason:  # 2.6 has no hint, and some name something else
        remedy = break_remedy(graph_break(reason), where.get("hint"), library=False)
        assert "with clone()" in str(remedy)


def test_a_setting_does_not_help_in_the_backward_of_an_autograd_function(hooks: Hooks) -> None:
    norms, last = list[float](), torch.zeros(())

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:  # noqa: ARG004
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # noqa: ARG004
            if cured:
                last.copy_(gradient.norm())
            else:
                norms.append(gradient.norm().item())
            return gradient * 2

    def remedy() -> str | None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.compile(lambda x: Watched.apply(x).sum(), backend="eager")(x().requires_grad_())
        for text in hooks.graph_breaks():
            where = hooks.break_place(text)
            return break_remedy(graph_break(text), where.get("hint"), where["name"], library=False)
        return None

    cured = False
    first = str(remedy())
    assert "copy_()" in first
    assert "capture_scalar_outputs" not in first
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert not TORCH.reason or "copy_()" in str(remedy())  # for the list that changes
    cured = True
    assert remedy() is None


def test_a_break_in_a_library_has_the_users_line_that_called_it(hooks: Hooks) -> None:
    library: dict[str, Any] = {}
    code = "def normed(x): return inner(x) + 1\ndef inner(x): return x / (2 if x.norm() > 1 else 3)"
    exec(compile(code, "/lib/site-packages/library.py", "exec"), library)

    def loss(x: Any) -> Any:
        return library["normed"](x * 2)

    compiled(loss)(x())
    ((reason, _), *_) = hooks.graph_breaks().items()
    where = hooks.break_place(reason)
    assert (where["name"], where["file"], where["library"]) == ("inner", "library.py", True)
    assert where["caller"] == f"test_breaks.py:{loss.__code__.co_firstlineno + 1}"
    kept = break_remedy(graph_break(reason), None, library=True, caller=where["caller"])
    assert "outside of the compiled function" in str(kept)
    assert break_remedy(graph_break(reason), None, library=True) is None


def test_a_break_in_code_of_python_or_pytorch_is_at_the_line_that_calls_it(hooks: Hooks) -> None:
    layer = torch.nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda *_: None)

    def sets(x: Any) -> Any:
        os.environ["OF_A_BREAK"] = "1"
        return x + 1

    def calls(x: Any) -> Any:
        return layer(x)

    for function, library in ((sets, False), (calls, True)):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled(function)(x())
        for reason in hooks.graph_breaks():
            where = hooks.break_place(reason)
            line = function.__code__.co_firstlineno + 1
            assert (where["file"], where["line"]) == ("test_breaks.py", line)
            assert where.get("library", False) is library
            remedy = break_remedy(graph_break(reason), where.get("hint"), library=library)
            assert ("on a parameter" in str(remedy)) is library


def test_a_break_of_pytorchs_scheduler_needs_no_remedy(hooks: Hooks) -> None:
    weight = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(weight.parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    weight(torch.ones(1, 2)).sum().backward()
    torch.compile(optimizer.step, backend="eager")()
    reasons = {graph_break(text): hooks.break_place(text) for text in hooks.graph_breaks()}
    torch._dynamo.utils.counters.clear()
    (reason,) = (one for one in reasons if "lr_scheduler.py" in one)
    words = "a scheduler wraps `SGD.step`, which compiles by itself: nothing to change"
    assert plain_break(reason) == words
    assert break_remedy(reason, reasons[reason].get("hint"), library=False) is None


def test_the_breaks_of_pytorchs_data_parallel_need_no_remedy(hooks: Hooks, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        compiled(model)(torch.ones(1, 2)).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    reasons = {graph_break(text): hooks.break_place(text) for text in hooks.graph_breaks()}
    torch._dynamo.utils.counters.clear()
    assert reasons
    if not TORCH.reason:
        pytest.skip("torch 2.6 names no function of it")
    for reason, where in reasons.items():
        words = plain_break(reason, where["name"], library=where["library"])
        assert str(words).startswith("DistributedDataParallel breaks the graph"), reason
        assert break_remedy(reason, where.get("hint"), library=where["library"]) is None


def step_of_an_optimizer() -> None:
    weight = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(weight.parameters())
    weight(torch.ones(1, 2)).sum().backward()
    torch.compile(optimizer.step, backend="eager")()


@pytest.mark.parametrize("has", [False, True])
def test_a_setting_that_this_pytorch_lacks_is_no_remedy(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    def warned(x: Any) -> Any:
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return x * 2

    compiled(warned)(x())
    ((text, _),) = hooks.graph_breaks().items()
    if not has:  # as before 2.11
        monkeypatch.delitem(torch._dynamo.config._config, IGNORED, raising=False)
    remedy = break_remedy(graph_break(text), hooks.break_place(text).get("hint"), library=False)
    assert remedy is not None
    assert (IGNORED in remedy) == hasattr(torch._dynamo.config, IGNORED)
    assert remedy.startswith("Take the warning out of the compiled function")


@pytest.mark.parametrize("own", [False, True])
def test_a_break_of_pytorchs_optimizers_needs_no_remedy_and_hides_none_of_the_user(
    hooks: Hooks, own: bool
) -> None:
    @compiled
    def broken(x: Any) -> Any:
        torch._dynamo.graph_break()
        return x * 2

    if own:
        broken(x())
    step_of_an_optimizer()
    ((text, _),) = hooks.graph_breaks().items()
    reason, where = graph_break(text), hooks.break_place(text)
    library = where.get("library", False)
    words = plain_break(reason, where["name"], library=library)
    remedy = break_remedy(reason, where.get("hint"), library=library)
    torch._dynamo.utils.counters.clear()
    if own:
        assert (where["name"], words) == ("broken", None)
        assert "remove torch._dynamo.graph_break()" in str(remedy)
    else:
        assert words == "PyTorch's optimizers request this break: nothing to change"
        assert remedy is None


def test_other_breaks_are_counted_as_pytorch_counts_them(hooks: Hooks) -> None:
    @compiled
    def broken(x: Any) -> Any:
        with torch.no_grad():
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2

    @compiled
    def without_operations(x: int) -> int:
        return x + 1

    @torch.compile(backend="eager", fullgraph=True)
    def whole(x: Any) -> Any:
        for _ in range(2):
            torch._dynamo.graph_break()
        return x

    @compiled
    def at_limit(x: Any, of: int) -> Any:
        return x * of if of != 3 else x

    broken(x())
    without_operations(1)
    with torch._dynamo.config.patch({TORCH.limit: 1}):
        for number in range(4):
            at_limit(x(), number)
    with pytest.raises(Exception, match="graph_break"):
        whole(x())
    assert hooks.graph_breaks() == dict(torch._dynamo.utils.counters["graph_break"])
    assert hooks.counters()["graph_breaks"] == 1


def test_the_reason_of_a_skipped_frame_is_the_only_text_that_rose() -> None:
    """As in torch 2.6, whose record has no reason."""
    raised: dict[str, int] = {"old": 1}
    breaks = Breaks({"unimplemented": raised}, ())

    def left(**rises: int) -> dict[str, int]:
        raised.update(rises)
        breaks.compiled(SimpleNamespace(co_name="f", has_guarded_code=False))
        return breaks.by_reason()

    assert left() == {}
    assert left(one=1) == {"one": 1}
    assert left(one=2, two=1) == {"one": 1}, "PyTorch raised both, and caught one of them"
    assert left(old=2) == {"one": 1, "old": 1}


COMPILED = SimpleNamespace(co_name="f", has_guarded_code=True)


def entry(line: int = 3, reason: str = "graph_break()") -> SimpleNamespace:
    """One of PyTorch's list."""
    frame = SimpleNamespace(name="f", filename="train.py", lineno=line)
    return SimpleNamespace(reason=reason, user_stack=[frame])


def test_a_compilation_takes_no_longer_after_many_breaks() -> None:
    def seconds(number: int) -> float:
        listed = [entry()] * number
        breaks = Breaks({}, listed)
        begun = time.process_time()
        listed.append(entry())
        breaks.compiled(COMPILED)
        assert breaks.place("graph_break()")["line"] == 3
        return time.process_time() - begun

    seconds(1)
    assert seconds(200_000) < 20 * seconds(2_000)


def test_the_stacks_of_earlier_breaks_are_not_read_again() -> None:
    """Each may have dozens of frames, and the training waits."""
    listed = [entry()]
    breaks = Breaks({}, listed)
    for line in (5, 4):
        listed[-1] = SimpleNamespace(reason="graph_break()")  # without a stack
        listed += [entry(5), entry(line)]
        breaks._seen, breaks._last = len(listed) - 2, listed[-3]
        breaks.compiled(COMPILED)
    assert breaks.place("graph_break()")["line"] == 4


def test_each_line_of_a_reason_is_known_up_to_a_limit() -> None:
    listed: list[SimpleNamespace] = []
    breaks = Breaks({}, listed)
    for lines in ((10,), (12, 12), (14, 14), range(20, 20_000)):
        listed += map(entry, lines)
        breaks.compiled(COMPILED)
        where = breaks.place("graph_break()")
        known = [other["line"] for other in where.get("also", ())] + [where["line"]]
        assert known == ([10, 12, 14][: len(known)] if lines[-1] < 20 else [*range(19_992, 20_000)])


def test_a_break_that_leaves_the_caller_in_its_loop_has_its_line_and_the_caller(
    hooks: Hooks,
) -> None:
    if not TORCH.reason:
        pytest.skip("torch 2.6 records no place of it")

    def number(x: Any) -> Any:
        return x * x.sum().item()

    def looped(x: Any) -> Any:
        for _ in range(2):
            x = number(x)
        return x

    compiled(looped)(x())
    wheres = [hooks.break_place(text) for text in hooks.graph_breaks()]
    torch._dynamo.utils.counters.clear()
    places = [
        (one["name"], one["line"], one.get("eager"))
        for where in wheres
        for one in (where, *where.get("also", ()))
    ]
    first, last = number.__code__.co_firstlineno, looped.__code__.co_firstlineno
    assert ("looped", last, "all") in places
    assert ("number", first + 1) in [one[:2] for one in places]


def test_a_branch_in_a_resumed_frame_is_at_its_own_line(hooks: Hooks) -> None:
    if not TORCH.reason:
        pytest.skip("torch 2.6 records nothing of it")

    def scaled(x: Any) -> Any:
        torch._dynamo.graph_break()
        for _ in range(3):
            if x.sum() > 1:
                x = x * 0.5
        return x

    compiled(scaled)(x())
    (text,) = (one for one in hooks.graph_breaks() if "branching" in one)
    where = hooks.break_place(text)
    torch._dynamo.utils.counters.clear()
    (at,) = where["also"]
    assert (at["name"], at["line"]) == ("scaled", scaled.__code__.co_firstlineno + 3)
    assert where["eager"] == "all"


def test_a_break_from_which_pytorch_cannot_resume_has_the_reason_of_the_earlier_entry() -> None:
    listed = list[SimpleNamespace]()
    breaks = Breaks({}, listed)
    listed += [entry(7, "Could not guard"), entry(9, "print"), entry(7, STEPPED)]
    breaks.compiled(COMPILED)
    listed.append(entry(8, STEPPED))
    breaks.compiled(COMPILED)
    counts = breaks.by_reason()
    assert counts.pop("Could not guard") == 1
    assert list(counts.values()) == [1]


def test_a_compilation_is_reported_if_its_breaks_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Compilations(Listener):
        def __init__(self) -> None:
            self.names: list[str] = []

        def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
            if fact == "compilation":
                self.names.append(values["name"])

    def fails(*_: Any) -> None:
        raise TypeError("an entry that this version does not know")

    errors: list[str] = []
    disconnect = _guard.also_connect(lambda where, _: errors.append(where))
    monkeypatch.setattr(Breaks, "compiled", fails)
    seen, hooks = Compilations(), Hooks()
    torch._dynamo.reset()
    hooks.install(POINTS, seen)
    branch(cured=True)
    hooks.uninstall_all()
    disconnect()
    assert (seen.names, errors) == (["clipped"], ["hooks.compilations"])


def test_what_an_activity_reads_of_graph_breaks_is_bounded() -> None:
    many = {f"reason {number}": 2 for number in range(10_000)}
    breaks = Breaks({"graph_break": many}, ())
    assert breaks.by_reason() == dict(islice(many.items(), MOST_BREAKS))
    assert breaks.counters()["graph_breaks"] == 20_000
