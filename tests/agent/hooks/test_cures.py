"""Each remedy, applied to the program that produced it: the recompile is gone.

A pair of programs: the second one differs from the first only by what the remedy says.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.recompiles import Recorded, recording
from support.torch_versions import TORCH, VERSION

torch = pytest.importorskip("torch")


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as listener:
        yield listener


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


def x(*size: int) -> Any:
    return torch.randn(*(size or (4, 4)))


def mask(*, cured: bool) -> None:
    @compiled
    def loss(x: Any, mask: Any = None) -> Any:
        return x.sum() if mask is None else (x * mask).sum()

    for ragged in (False, True, False):
        loss(x(), x() if ragged else torch.ones(4, 4) if cured else None)


def attribute(*, cured: bool) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * self.lora_A if hasattr(self, "lora_A") else x + 1

    layer = Layer()
    if cured:
        layer.lora_A = 2.0
    step = compiled(layer)
    step(x())
    layer.lora_A = 2.0
    step(x())


def attribute_none(*, cured: bool) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.block = torch.nn.Module()
            self.block.memory = torch.zeros(4, 4) if cured else None

        def forward(self, x: Any) -> Any:
            return x * 2 if self.block.memory is None else x + self.block.memory

    layer = Layer()
    step = compiled(layer)
    for _ in range(3):
        layer.block.memory = step(x())


def gradient(*, cured: bool) -> None:
    weights = [torch.nn.Parameter(x()) for _ in range(2)]
    if cured:
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD(weights)
    step = compiled(optimizer.step)
    for weight in weights * 2:
        (x() @ weight).sum().backward()
        step()
        optimizer.zero_grad(set_to_none=not cured)


def freed(*, cured: bool) -> None:
    import gc

    @compiled
    def scale(x: Any, of: Any) -> Any:
        return x * of.k

    made = type("Config", (), {"k": 3})
    for _ in range(2):
        if not cured:
            made = type("Config", (), {"k": 3})
            gc.collect()
        scale(x(), made())


def aliased(*, cured: bool) -> None:
    @compiled
    def add(x: Any, y: Any) -> Any:
        return x + y

    one = x()
    add(one, one.clone() if cured else one)
    add(one, one.clone())


def keys(*, cured: bool) -> None:
    @compiled
    def total(x: Any, of: dict[str, Any]) -> Any:
        return x * of["mask"] if "mask" in of else x + 1

    total(x(), {"ids": 1, "mask": x()} if cured else {"ids": 1})
    total(x(), {"ids": 1, "mask": x()})


def names(*, cured: bool) -> None:
    @compiled
    def chosen(x: Any, of: set[str]) -> Any:
        return x + 1 if "frozen" in of else x

    chosen(x(), {"frozen"})
    chosen(x(), {"frozen"} if cured else {"other"})


def device(*, cured: bool) -> None:
    @compiled
    def make(x: Any) -> Any:
        return x + torch.ones(4, 4)

    with torch.device("cpu") if cured else contextlib.nullcontext():
        make(x())
    with torch.device("cpu"):
        make(x())


def transform(*, cured: bool) -> None:
    def sine(x: Any) -> Any:
        return x.sin()

    if cured:
        compiled(sine)(x())
        torch._dynamo.reset()
        compiled(torch.func.vmap(sine))(x())
    else:
        step = compiled(sine)
        step(x())
        torch.func.vmap(step)(x())


def backend(*, cured: bool) -> None:
    def made() -> Any:
        return lambda graph, _: graph.forward

    def add(x: Any) -> Any:
        return x + 1

    one = made()
    for _ in range(2):
        torch.compile(add, backend=one if cured else made())(x())


def adapter(*, cured: bool) -> None:
    class Adapted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.added = base, torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.added(x)

    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    step = compiled(model)
    if not cured:
        step(x())
    model[0] = Adapted(model[0])
    step(x())


class Counter(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, calls: Any = 3) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def counter(*, cured: bool) -> None:
    _count(torch.nn.Sequential(Counter()), cured=cured)


def _count(model: Any, *, cured: bool) -> None:
    config = torch._dynamo.config
    with config.patch(allow_unspec_int_on_nn_module=True) if cured else contextlib.nullcontext():
        step = compiled(model)
        for _ in range(5):
            step(x())


GLOBALS = {False: Counter(), True: Counter(torch.tensor(3))}


def global_counter(*, cured: bool) -> None:
    @compiled
    def step(x: Any) -> Any:
        return GLOBALS[True](x) if cured else GLOBALS[False](x)

    for _ in range(5):
        step(x())


def relation(*, cured: bool) -> None:
    @compiled
    def step(g: Any) -> Any:
        return g * 2 if g.size(0) <= g.size(1) else g * 3

    def outside(g: Any) -> Any:
        return step(g if not cured or g.size(0) <= g.size(1) else g.t().contiguous())

    for size in ((4, 8), (5, 9), (6, 10), (10, 6)):
        outside(x(*size))


def grown_layer(*, cured: bool) -> None:
    settings = ("force_parameter_static_shapes", "force_nn_module_property_static_shapes")
    with torch._dynamo.config.patch(dict.fromkeys(settings, not cured)):
        layer = torch.nn.Linear(4, 4, bias=False)
        step = compiled(layer)
        for width in range(4, 9):
            layer.weight = torch.nn.Parameter(x(width, 4))
            step(x())


def learning_rate(*, cured: bool) -> None:
    weight = torch.nn.Parameter(x())
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1) if cured else 0.1)
    step = compiled(optimizer.step)
    for rate in (0.1, 0.05, 0.02, 0.01):
        (group,) = optimizer.param_groups
        if cured:
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        weight.grad = torch.ones_like(weight)
        step()


def schedule(*, cured: bool) -> None:
    weight = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(weight.parameters(), lr=torch.tensor(1e-3))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, total_steps=20, cycle_momentum=not cured
    )
    step = compiled(optimizer.step)
    for _ in range(4):
        weight(x()).sum().backward()
        step()
        schedule.step()


def dropout_that_rises(*, cured: bool) -> None:
    dropout = torch.nn.Dropout(0.0)

    def masked(x: Any, p: Any) -> Any:
        return x * (torch.rand_like(x) > p) / (1 - p)

    step = compiled(masked if cured else dropout)
    for p in (0.1, 0.2, 0.3, 0.4):
        dropout.p = p
        step(x(), *([torch.tensor(p)] if cured else []))


def exponent(*, cured: bool) -> None:
    step = compiled(lambda x, rate: x * (torch.exp(rate) if cured else math.exp(rate)))
    for rate in (0.1, 0.2, 0.3, 0.4):
        step(x(), torch.tensor(rate) if cured else rate)


def timestep(*, cured: bool) -> None:
    step = compiled(lambda x, t: x[t[None] if cured else t])
    for t in (3, 2, 1):
        step(x(4, 4), torch.tensor(t))


def made_class(width: int = 4) -> type:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = width) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, width)

        def forward(self, x: Any) -> Any:
            return self.linear(x)

    return Net


def clipped(*, cured: bool) -> None:
    step = torch.compile(lambda x, clip: x.clamp(1 - clip, 1 + clip), backend="aot_eager")
    for clip in (0.1, 0.2, 0.3, 0.4):
        step(x().requires_grad_(), torch.tensor(clip) if cured else clip)


def new_class(*, cured: bool) -> None:
    once = made_class()
    for _ in range(3):
        compiled(once() if cured else made_class()())(x())


def new_model(*, cured: bool) -> None:
    of = made_class()
    for trial in range(3):
        if cured:
            torch._dynamo.reset()
        compiled(of(4 + trial))(x())


def text(*, cured: bool) -> None:
    @compiled
    def loss(of: dict[str, Any], sign: int = 1) -> Any:
        if of.get("path", "").endswith(".flip"):
            return -of["x"]
        return of["x"] * sign

    for number in range(4):
        path = f"{number}.png"
        if cured:
            loss({"x": x()}, -1 if path.endswith(".flip") else 1)
        else:
            loss({"x": x(), "path": path})


def crop(*, cured: bool) -> None:
    table = torch.arange(256).view(16, 16)

    @compiled
    def positions(x: Any) -> Any:
        height, width = x.size(2) // 2, x.size(3) // 2
        top, left = 8 - height // 2, 8 - width // 2
        return x.sum() + table[top : top + height, left : left + width].flatten().sum()

    for height, width in ((24, 24), (20, 20), (16, 28), (16, 30 if cured else 32)):
        positions(x(1, 1, height, width))


def grown_list(*, cured: bool) -> None:
    class Sum(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.of = torch.nn.ParameterList([torch.ones(4)] * (3 if cured else 1))

        def forward(self, x: Any) -> Any:
            return sum(x * one for one in self.of)

    model = Sum()
    step = compiled(model)
    for _ in range(3):
        step(x())
        if not cured:
            model.of.append(torch.ones(4))


def empty_state(*, cured: bool) -> None:
    class Momentum(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})
            if cured:
                for p in self.param_groups[0]["params"]:
                    self.state[p]["mean"] = torch.zeros_like(p)

        @torch.no_grad()
        def step(self) -> None:
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                p.sub_(state["mean"].lerp_(p.grad, 0.1))

    parameter = torch.nn.Parameter(x())
    parameter.grad = x()
    step = compiled(Momentum([parameter]).step)
    for _ in range(3):
        step()


def loop(*, cured: bool) -> None:
    @compiled
    def total(x: Any, end: int) -> Any:
        result = x[0]
        for i in range(1, end):
            result = result + x[i]
        return result

    @compiled
    def masked(x: Any, weight: Any) -> Any:
        return (x * weight[:, None]).sum(0)

    for end in (6, 3, 5, 4):
        if cured:
            masked(x(8, 4), (torch.arange(8) < end).float())
        else:
            total(x(8, 4), end)


def number_as_a_size(*, cured: bool) -> None:
    @compiled
    def repeated(x: Any, count: int) -> Any:
        return x.expand(count, 4, 4).sum()

    for count in (3, 2 if cured else 1, 4):
        repeated(x(), count)


def branch_on_a_number(*, cured: bool) -> None:
    @compiled
    def warmed_up(x: Any, step: int, of: float) -> Any:
        return x * of if step < 6 else x * 3

    for step in (2, 4, 6):
        if cured:
            warmed_up(x(), 2, min(step, 6) / 2)
        else:
            warmed_up(x(), step, 1.0)


def cached_weights(*, cured: bool) -> None:
    from torch.nn.utils import parametrizations, parametrize

    step = compiled(parametrizations.weight_norm(torch.nn.Linear(4, 4)))
    for number in range(5):
        with parametrize.cached() if cured or number == 3 else contextlib.nullcontext():
            step(x())


def end_of_a_cache(*, cured: bool) -> None:
    @compiled
    def step(new: Any, cache: Any, filled: int) -> Any:
        cache, count = cache.clone(), new.shape[0]
        start = torch.sym_min(filled, cache.shape[0] - count) if cured else filled
        rest = cache[start : start + count]
        return rest.sum() + new.sum()

    for filled in (4, 8, 12, 16, 20):
        step(x(4, 4), x(20, 4), filled)


def masks_by_length(*, cured: bool) -> None:
    masks: dict[int, Any] = {}

    @compiled
    def attend(x: Any) -> Any:
        length = x.shape[0]
        if cured:
            return x * torch.ones(length, 1)
        if length not in masks:
            masks[length] = torch.ones(length, 1)
        return x * masks[length]

    for length in (8, 12, 16, 8, 12, 16):
        attend(x(length, 4))


def pruned(*, cured: bool) -> None:
    from torch.nn.utils import prune

    layer = torch.nn.Linear(4, 4)
    net = torch.nn.Sequential(layer, torch.nn.ReLU())
    for _ in range(2 if cured else 0):
        prune.identity(layer, "weight")
    step = compiled(net)
    for _ in range(3):
        step(x())
        prune.l1_unstructured(layer, "weight", 0.2)


def filled_in_the_first_call(*, cured: bool) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.of: dict[str, Any] = {"a": x()} if cured else {}

        def forward(self, x: Any) -> Any:
            if "a" not in self.of:
                self.of["a"] = torch.ones(4)
            return x * self.of["a"]

    step = compiled(Layer())
    for _ in range(3):
        step(x())


Program = Callable[..., None]
# the program, words about the cause, words of the remedy, recompiles that stay
CURES: list[tuple[Program, str, str, int]] = [
    (mask, "None", "mask of ones", 0),
    (attribute, "`lora_A`", "before the first compiled call", 0),
    (
        attribute_none,
        "`self.block.memory` was None",
        "its tensor, or a neutral one, such as a mask of ones, instead",
        0,
    ),
    (gradient, ".grad` ", "torch.zeros_like(p)", 0),
    (freed, "freed", "Define the class once", 0),
    (aliased, "are no longer the same object", ".clone()", 0),
    (keys, "`of`", "Keep the number of items", 0),
    (names, "the items of the set `of` changed", "Keep the number of items", 0),
    (device, "a torch function mode", "around every call", 0),
    (transform, "torch.func", "torch.compile(torch.func.vmap(f))", 0),
    (backend, "another backend function", "same backend function", 0),
    (adapter, "is of another type than", "Add and replace submodules", 0),
    (counter, ".0.calls` went from 3 to", "allow_unspec_int_on_nn_module", 1),
    (global_counter, ".calls` is no longer 3", "in a tensor", 0),
    (relation, "`g.size(0) <= g.size(1)` no longer holds", "outside of it", 1),
    (text, "of['...']` changed (test_cures.py:", "branch on it before the call", 0),
    (crop, "16 != (x.size(3) // 2)` no longer holds (test_cures.py:", "pad or bucket the size", 1),
    (loop, "`end` went from 3 to", "select with a mask", 0),
    (grown_list, "the number of parameters of `self.of` went from 1 to 2", "Add and replace", 0),
    (empty_state, ".state` was empty", "in its __init__", 0),
    (number_as_a_size, "`count` went from 1 to", "keep it above 1", 1),
    (branch_on_a_number, "`step <= 5` no longer holds (test_", "outside of the compiled", 1),
    (dropout_that_rises, ".p` went from 0.3 to", "(torch.rand_like(x) > p) / (1 - p)", 0),
    (exponent, "`rate` went from 0.3 to", "torch.exp instead of math.exp", 0),
    (clipped, "`1.0 + clip` is no longer 1.3", "pass it as a tensor", 0),
    (timestep, "`t`, a tensor as an index, is no longer 2", "x[t[None]]", 0),
    (new_class, "`self` is of another type than `Net`", "Define the class once", 0),
    (new_model, "first compilation of another `Net`", "torch._dynamo.reset() between trials", 0),
    (grown_layer, "weight`: dim 0 went from 4 to 5", "force_nn_module_property_static_shapes", 1),
    (schedule, "['betas']", "cycle_momentum=False", 0),
    (learning_rate, "['lr']` went from 0.1 to 0.05", "lr=torch.tensor(0.01)", 0),
    (cached_weights, "parametrize.cached() was entered", "around every call", 1),
    (end_of_a_cache, "`0 <= filled <= 16` no longer holds (test_", "torch.sym_min(", 1),
    (masks_by_length, "the keys of `masks` changed: a number", "without the dict", 1),
    (pruned, ".0.weight` was removed or replaced", "prune.identity() twice", 0),
    (pruned, "the hooks of `Sequential.0` changed", "prune.identity() twice", 0),
    (filled_in_the_first_call, "the keys of `self.of` changed", "fill it before the first", 0),
]


# Words of the cause and of the remedy from a PyTorch whose guard says less; `None`: it cannot be
# told, or the remedy is of a later version.
LESS: dict[str, dict[Program, tuple[str, str] | None]] = {
    "2.6": {
        keys: ("the length of `of`", "number of items"),
        names: ("`of` changed", "Pass the same value"),
        grown_list: ("the length of `self.of` is no longer 1", "number of items"),
        filled_in_the_first_call: ("`self.of` was empty", "fill it before the first"),
        dropout_that_rises: (".p` went from", "if the code only computes with it"),
        exponent: ("`rate` went from", "if the code only computes with it"),
        clipped: ("`clip` went from", "if the code only computes with it"),
        end_of_a_cache: None,
        masks_by_length: None,
        counter: None,
        global_counter: None,
        new_class: ("first compilation of another `Net`", "create it once"),
        text: ("`of['...']` changed", "branch on it before the call"),
        crop: (
            "(x.size(3) // 4))) != 0` no longer holds (test_cures.py:",
            "pad or bucket the size",
        ),
    },
    "2.11": {
        freed: ("`of` is of another type than `Config`", "Pass values of one type"),
        # until 2.12 the guard has no place
        exponent: ("`rate` is no longer 0.2", "if the code only computes with it"),
        dropout_that_rises: (".p` ", "if the code only computes with it"),
    },
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "cause", "remedy", "stay"), CURES, ids=[one[0].__name__ for one in CURES]
)
def test_the_remedy_cures(
    recorded: Recorded, program: Program, cause: str, remedy: str, stay: int
) -> None:
    words = LESS.get(VERSION, {}).get(program, (cause, remedy))
    if words is None:
        pytest.skip("this PyTorch does not say it, or has no such setting")
    cause, remedy = words
    program(cured=True)
    left = list(recorded.said)
    torch._dynamo.reset()
    recorded.said.clear()
    program(cured=False)
    said = recorded.said
    assert any(cause in str(why) and remedy in str(text) for _, why, text in said), said
    assert len(left) <= stay, left
    assert len(said) > len(left)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_copy_compiles_in_the_warm_up_if_it_is_called_as_later(
    recorded: Recorded, mode: Callable[[], Any]
) -> None:
    def late(warm_up: Callable[[Any], Any]) -> list[tuple[str, str | None, str | None]]:
        """What recompiles when the copy is evaluated, after this call of it in the warm-up."""
        torch._dynamo.reset()
        of = made_class()
        model, copy = (torch.nn.Sequential(of(), torch.nn.Dropout(0.1)) for _ in range(2))
        step, of_copy = compiled(model), compiled(copy)
        step(x())
        warm_up(of_copy)
        recorded.said.clear()
        copy.eval()
        with mode():
            of_copy(x())
        return list(recorded.said)

    def evaluated(of_copy: Any) -> None:
        with mode():
            of_copy.eval()(x())

    ((category, words, remedy),) = late(lambda _: None)
    assert category == "new_instance"
    if TORCH.reason:
        assert words == "first compilation of another `Sequential`: the grad mode differs"
    assert "as it is called later (in eval(), under no_grad)" in str(remedy)
    assert "sweep" not in str(remedy)
    assert len(late(lambda of_copy: of_copy(x()))) == 1  # in train(), with gradients
    assert late(evaluated) == []
