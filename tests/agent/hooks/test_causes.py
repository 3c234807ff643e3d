"""The cause of a recompile among the reasons of all compiled entries, with a real PyTorch.

The truth is what the script changed before the call.
"""

from __future__ import annotations

import copy
import functools
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from support.torch_versions import TORCH
from warmwatch.hooks.dynamo import events, recompile_reasons
from warmwatch.hooks.dynamo.targets import Instances
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import recompile as redacted
from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain

torch = pytest.importorskip("torch")


class Recorded(Listener):
    """The category and the plain words of each recompile; ``remedy`` of the last one."""

    remedy: str | None = None

    def __init__(self) -> None:
        self.causes: list[tuple[str, str | None]] = []
        self._class = ""
        self.compiled: list[str] = []
        self.again: list[str] = []

    def begin(self, event: str, of: Any = None) -> None:
        if event == events.EVENT and of:
            self._class = of.get("class", "")
            self.compiled.append(of.get("name", ""))
            self.again += [of["name"]] * ("again" in of)

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "recompile":
            reason, category = redacted(values["reason"]), values["category"]
            words = plain(reason, category, self._class, values.get("parameter"))
            self.causes.append((category, words))
            self.remedy = advice(category, "forward", reason)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    torch._dynamo.reset()
    listener = Recorded()
    installed = [events.install(listener), recompile_reasons.install(listener)]
    yield listener
    for one in installed:
        one.uninstall()
    torch._dynamo.reset()


class Enc(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, width: int = 8, kind: str = "a") -> None:
        super().__init__()
        self.l, self.kind = torch.nn.Linear(width, width), kind

    def forward(self, x: Any) -> Any:
        y = torch.tanh(self.l(x))
        return y if self.kind == "a" else -y


class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.l(x)


def compiled(*models: Any) -> tuple[Any, ...]:
    for one in models:
        one.compile(backend="eager")
    return models


def x(rows: int = 8, width: int = 8) -> Any:
    return torch.randn(rows, width)


ANOTHER = "first compilation of another `Enc`"
BATCH = "batch size (dim 0 of `x`) went from 8 to 5"


def test_a_frozen_twin_explains_nothing_once_the_batch_changed(recorded: Recorded) -> None:
    student, teacher = compiled(Enc(), Enc().requires_grad_(False))
    for rows in (8, 8, 5):
        batch = x(rows)
        (student(batch) - teacher(batch)).sum().backward()
    (category, first), *later = recorded.causes
    assert category == "new_instance"
    assert str(first).startswith(f"{ANOTHER}: requires_grad of `self.l.")
    assert later == [("shape", BATCH)] * 2


def test_each_block_of_a_class_compiles_once_and_then_for_the_batch(recorded: Recorded) -> None:
    blocks = compiled(*(Enc(kind=kind) for kind in "abcd"))
    with torch.no_grad():
        for rows in (8, 8, 5):
            batch = x(rows)
            for block in blocks:
                block(batch)
    assert recorded.causes[:3] == [("new_instance", f"{ANOTHER}: `self.kind` differs")] * 3
    assert {words for _, words in recorded.causes[3:]} == {BATCH}


def test_an_entry_of_a_twin_that_served_the_module_can_be_the_cause(recorded: Recorded) -> None:
    first, second = compiled(Plain(), Plain())
    first(x())
    second(x())
    second(x(5))
    assert recorded.causes == [("shape", BATCH)]


def test_a_copy_for_evaluation_is_a_new_instance(recorded: Recorded) -> None:
    (model,) = compiled(Enc())
    model(x()).sum().backward()
    average = copy.deepcopy(model).requires_grad_(False)
    average.compile(backend="eager")
    with torch.no_grad():
        average(x())
    assert [category for category, _ in recorded.causes] == ["new_instance"]
    assert str(recorded.causes[0][1]).startswith(ANOTHER)


def _own(model: Any) -> Callable[[Any], Any]:
    (made,) = compiled(model)
    return made


def _global(model: Any) -> Callable[[Any], Any]:
    names = {"model": model, "torch": torch}
    exec("def step(x): return model(x).sum()", names)
    return torch.compile(names["step"], backend="eager")


@pytest.mark.parametrize("call_of", [_own, _global])
def test_the_entry_that_rejects_least_is_the_cause(
    recorded: Recorded, call_of: Callable[[Any], Callable[[Any], Any]]
) -> None:
    """Its attribute alternates, and the batch changes in between."""
    model = Enc()
    step = call_of(model)
    step(x())
    model.kind = "b"
    step(x())
    model.kind = "a"
    step(x(5))
    assert [category for category, _ in recorded.causes][1:] == ["shape"]
    assert "kind" in str(recorded.causes[0][1])
    assert str(recorded.causes[1][1]).replace("args[0]", "x") == BATCH


def test_models_of_before_a_reset_of_dynamo_count_no_more() -> None:
    """Each trial of a sweep makes two modules; with a reset between trials it is right already."""
    instances, code = Instances(), torch.nn.Linear.forward.__code__

    def trial(*ids: str) -> list[bool]:
        models = [torch.nn.Linear(2, 2) for _ in ids]
        found = [
            instances.begun(code, one, {"self": model})
            for one, model in zip(ids, models, strict=True)
        ]
        return [anew for _, _, anew in found]

    assert trial("0/0", "0/1") == [False, False]
    assert trial("0/2", "0/3") == [True, True]
    assert trial("0/0", "0/1") == [False, False]
    assert trial("0/0_1", "0/1") == [False, False]


@pytest.mark.parametrize("are_kept", [True, False])
def test_a_class_that_is_made_at_each_call_is_no_new_instance(
    recorded: Recorded, *, are_kept: bool
) -> None:
    kept = []
    for _ in range(3):

        class Local(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.l = torch.nn.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                return self.l(x)

        (model,) = compiled(Local())
        model(x())
        kept += [model] * are_kept
        del model, Local
        gc.collect()
    if are_kept and not TORCH.names_types:
        assert recorded.causes == [("new_instance", "first compilation of another `Local`")] * 2
        return
    words = (
        "`self` is of another type than `Local`, a class that a function defines"
        if are_kept or not TORCH.names_freed
        else "the class of `self` was freed, and this is another one"
    )
    assert recorded.causes == [("object_identity", words)] * 2
    assert str(recorded.remedy).startswith("Define the class once, outside of functions and loops")


class Critic(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.l, self.noise = torch.nn.Linear(8, 1), 0.5

    def forward(self, x: Any) -> Any:
        return self.l(x) * self.noise


@pytest.mark.parametrize(
    ("rows", "noise", "cause"),
    [
        (8, 0.25, ("python_value", "`self.noise` is no longer 0.5")),
        (5, 0.5, ("shape", BATCH)),
    ],
)
def test_a_way_that_comes_back_is_no_cause_where_something_else_changed(
    recorded: Recorded, rows: int, noise: float, cause: tuple[str, str]
) -> None:
    """A discriminator is called with its generator's output, detached and not."""
    (critic,) = compiled(Critic())
    for size, critic.noise in ((8, 0.5), (rows, noise)):
        for generated in (x(size), x(size).requires_grad_()):
            critic(generated).sum().backward()
    (first, _), *changed = recorded.causes
    assert first == "requires_grad"
    assert changed == [cause] * 2


def scaled(x: Any, by: float = 2.0) -> Any:
    return x * by


WRAPPED = {
    "partial": functools.partial(scaled, by=3.0),
    "no_grad": torch.no_grad()(scaled),
    "vmap": torch.func.vmap(scaled),
}


@pytest.mark.parametrize("by", WRAPPED)
def test_what_a_wrapper_of_pytorchs_calls_is_named(recorded: Recorded, by: str) -> None:
    torch.compile(WRAPPED[by], backend="eager")(torch.ones(2))
    assert recorded.compiled[0] == "scaled"


def typed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def halved(x: Any) -> Any:
    return x / 2


@pytest.mark.parametrize("wrap", [functools.partial, torch.no_grad(), torch.func.vmap, typed])
def test_a_function_that_the_same_wrapper_calls_is_a_new_instance(
    recorded: Recorded, wrap: Callable[[Any], Any]
) -> None:
    steps = [torch.compile(wrap(function), backend="eager") for function in (scaled, halved)]
    for rows in (8, 8, 5):
        for step in steps:
            step(x(rows))
    (category, words), *changed = recorded.causes
    assert category == "new_instance"
    assert words == "first compilation of another function, which the same wrapper calls"
    assert [category for category, _ in changed] == ["shape"] * 2


@pytest.mark.parametrize(
    ("values", "last"),
    [
        ("[x(), [x()], [x(), x()]]", "the length of `of` "),
        ("[x(), 2, 3, 4]", "`of` is no longer 3"),
        ("[x(), 'a', 'b']", "`of` changed"),
    ],
)
def test_what_differs_beyond_that_it_is_not_none_is_the_cause(
    recorded: Recorded, values: str, last: str
) -> None:
    """It is None at every other call, whose entry rejects the same argument."""

    def scaled(x: Any, of: Any = None) -> Any:
        if of is None or isinstance(of, str):
            return x + 1 if of is None else x * len(of)
        return x * sum(of) if isinstance(of, list) else x * of

    step = torch.compile(scaled, backend="eager", dynamic=False)
    for value in eval(values, {"x": x}):
        step(x())
        step(x(), value)
    first, *_, (_, words) = recorded.causes
    assert first == ("python_value", "`of` was None and is not None now")
    assert last in str(words), recorded.causes


def test_a_long_text_delays_no_recompile(recorded: Recorded) -> None:
    step = torch.compile(lambda x, text: x + (text == "b"), backend="eager")
    spent = []
    for text in ("first", "second", "a" * 20_000, "third"):
        begun = time.process_time()
        step(x(), text)
        spent.append(time.process_time() - begun)
    assert len(recorded.causes) == 3
    assert max(spent[2:]) < 1.0 + spent[1], spent


def test_a_stride_is_the_cause_where_the_size_is_compiled(recorded: Recorded) -> None:
    step = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    for width, size in ((12, 8), (14, 5), (16, 8)):
        step(torch.ones(10, width)[:, :size])
    assert recorded.causes[-1] == ("shape", "`x`: stride of dim 0 went from 12 to 16")


def timed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def wrapper(*args: Any) -> Any:
        torch._dynamo.graph_break()
        return function(*args)

    return wrapper


def test_a_decorator_of_methods_calls_another_function_and_not_another_module(
    recorded: Recorded,
) -> None:
    """What follows the break in it is another code object after a reset, and comes again too."""

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        encode, decode = timed(lambda _self, x: x + 1), timed(lambda _self, x: x * 2)

        def forward(self, x: Any) -> Any:
            return self.decode(self.encode(x))

    step = torch.compile(Net(), backend="eager")
    for _ in range(2):
        step(x())
        torch._dynamo.reset()
    words = "first compilation of another function, which the same wrapper calls"
    if TORCH.reason:
        assert ("new_instance", words) in recorded.causes
        assert not [words for _, words in recorded.causes if "`Net`" in str(words)]
    half = len(recorded.compiled) // 2
    assert recorded.compiled[:half] == recorded.compiled[half:]
    assert sum("resume_in_wrapper" in name for name in recorded.again) >= 1


def test_another_function_in_a_variable_of_the_closure_is_a_change(recorded: Recorded) -> None:
    function = scaled
    step = torch.compile(lambda x: function(x), backend="eager")
    step(x())
    function = halved
    step(x())
    assert recorded.causes == [("object_identity", "`function` is another function")]


def test_a_submodule_of_a_wrapped_module_is_named_after_its_class(recorded: Recorded) -> None:
    net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.5))
    step = torch.compile(net, backend="eager")
    step(torch.ones(2))
    net[1].p = 0.25
    step(torch.ones(2))
    ((_, words),) = recorded.causes
    assert str(words).startswith("`Sequential.1.p`")
