"""Which of the optimizers' calls is a step, with real ones, each kind in the same process."""

from __future__ import annotations

from pathlib import Path

from support import slots
from support.trainings import result_of, run

KINDS = """
import copy
import warmwatch
from warmwatch.lifecycle import api as _current

def steps():
    return _current.attached.agent.record.image().steps.steps

def parameters(count=2):
    return [torch.nn.Parameter(torch.randn(3)) for _ in range(count)]

def back(parameters):
    sum(p.square().sum() for p in parameters).backward()

def simple():
    ps = parameters(); o = torch.optim.AdamW(ps)
    for _ in range(5): back(ps); o.step()

def nested_subclass():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)
    torch.optim.SGD(parameters(), lr=.1)  # so that the parent's own step is hooked as well
    ps = parameters(); o = Mine(ps, lr=.1)
    for _ in range(5): back(ps); o.step()

def around_another_with_the_same_parameters():
    class Around(torch.optim.Optimizer):  # as a sharding optimizer around its rank's part
        def __init__(self, params):
            super().__init__(params, {})
            self.inner = torch.optim.SGD(self.param_groups[0]["params"][:1], lr=.1)
        def step(self, closure=None):
            self.inner.step()
    ps = parameters(); o = Around(ps)
    for _ in range(5): back(ps); o.step()

def matrix_and_adamw():
    a, b = parameters(), parameters()
    first, second = torch.optim.SGD(a, lr=.1), torch.optim.AdamW(b)
    for _ in range(5): back(a + b); first.step(); second.step()

def gan_with_five_critic_steps():
    a, b = parameters(), parameters()
    critic, generator = torch.optim.Adam(a), torch.optim.Adam(b)
    for _ in range(3):
        for _ in range(5): back(a); critic.step()
        back(b); generator.step()

def turns_of_five_steps():
    a, b = parameters(), parameters()
    first, second = torch.optim.Adam(a), torch.optim.Adam(b)
    for n in range(70):
        back(a + b); (second if n % 10 >= 5 else first).step()

def one_optimizer_ends_and_another_goes_on():
    a, b = parameters(), parameters()
    first, second = torch.optim.SGD(a, lr=.1), torch.optim.SGD(b, lr=.1)
    for _ in range(3): back(a + b); first.step(); second.step()
    for _ in range(3): back(b); second.step()

def optimizer_in_backward():
    ps = parameters(4)
    optimizers = {p: torch.optim.SGD([p], lr=.1) for p in ps}
    for p in ps: p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(5): back(ps)

def one_object_stepped_for_each_sub_group():
    groups = [parameters(1) for _ in range(4)]
    o = torch.optim.AdamW(groups[0])
    for _ in range(5):
        back([p for group in groups for p in group])
        for group in groups:
            o.param_groups[0]["params"] = group
            o.step()
            o.param_groups[0]["params"] = []

def one_object_over_living_blocks_in_turn():  # BAdam, LISA
    blocks = [parameters(1) for _ in range(4)]
    o = torch.optim.AdamW(blocks[0])
    for n in range(20):
        o.param_groups[0]["params"] = blocks[n % 4]; back(blocks[n % 4]); o.step()

def blocks_of_a_few_steps():
    blocks = [parameters(1) for _ in range(4)]
    o = torch.optim.AdamW(blocks[0])
    for n in range(24):
        o.param_groups[0]["params"] = blocks[n // 3 % 4]; back(blocks[n // 3 % 4]); o.step()

def accumulation():
    ps = parameters(); o = torch.optim.SGD(ps, lr=.1)
    for n in range(20):
        back(ps)
        if n % 4 == 3: o.step(); o.zero_grad()

def scaler_that_skips_on_overflow():
    ps = parameters(); o = torch.optim.SGD(ps, lr=.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for n in range(5):
        scaler.scale(sum(p.square().sum() for p in ps)).backward()
        if n == 2: ps[0].grad.fill_(float("inf"))
        scaler.step(o); scaler.update(); o.zero_grad()

def closure_called_many_times():
    ps = parameters(); o = torch.optim.LBFGS(ps)
    def closure():
        o.zero_grad(); loss = sum(p.square().sum() for p in ps); loss.backward(); return loss
    for _ in range(3): o.step(closure)

def new_optimizers_over_new_parameters():  # test-time training, a sweep
    model = torch.nn.Linear(3, 1)
    for _ in range(20):
        copied = copy.deepcopy(model)
        o = torch.optim.SGD(copied.parameters(), lr=.1)
        copied(torch.randn(3)).backward(); o.step()

def two_steps_of_each_new_optimizer():
    optimizers = []  # it does not matter whether they are freed
    for _ in range(10):
        ps = parameters(); o = torch.optim.Adam(ps); optimizers.append(o)
        for _ in range(2): back(ps); o.step()

def inner_loops_with_new_optimizers_and_an_outer_one():  # MAML
    ps = parameters(); outer = torch.optim.Adam(ps)
    for _ in range(20):
        fast = [p.detach().clone().requires_grad_() for p in ps]
        inner = torch.optim.SGD(fast, lr=.1)
        for _ in range(5): back(fast); inner.step()
        back(ps); outer.step()

def a_new_inner_optimizer_in_each_outer_step():
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            other = parameters(); inner = torch.optim.SGD(other, lr=.1)
            for _ in range(3): back(other); inner.step()
            return super().step(closure)
    ps = parameters(); o = Outer(ps, lr=.1)
    for _ in range(5): back(ps); o.step()

def around_two_with_other_parameters():  # as torchtitan's container
    class Both(torch.optim.Optimizer):
        def __init__(self, *inner):
            self.inner = inner
            super().__init__([p for o in inner for g in o.param_groups for p in g["params"]], {})
        def step(self, closure=None):
            for o in self.inner: o.step()
    a, b = parameters(), parameters()
    o = Both(torch.optim.SGD(a, lr=.1), torch.optim.AdamW(b))
    for _ in range(5): back(a + b); o.step()

def a_gan_that_starts_over_with_new_models():
    for _ in range(2):
        a, b = parameters(), parameters()
        critic, generator = torch.optim.Adam(a), torch.optim.Adam(b)
        for _ in range(5): back(a); critic.step(); back(b); generator.step()

def a_gan_whose_optimizers_are_loaded():
    a, b = parameters(), parameters()
    critic, generator = torch.optim.Adam(a), torch.optim.Adam(b)
    for _ in range(5):
        for o in (critic, generator): o.load_state_dict(o.state_dict())
        back(a); critic.step(); back(b); generator.step()

def optimizers_over_the_same_parameters_again():
    a, b = parameters(), parameters()
    for _ in range(5):
        for ps in (a, b):
            o = torch.optim.SGD(ps, lr=.1); back(ps); o.step()

def unpickled_and_trained_on():
    ps = parameters(); o = torch.optim.SGD(ps, lr=.1)
    for _ in range(3): back(ps); o.step()
    o = copy.deepcopy(o); ps = o.param_groups[0]["params"]
    for _ in range(3): back(ps); o.step()

def explicit_before_the_first_optimizer():
    warmwatch.step()
    ps = parameters(); o = torch.optim.SGD(ps, lr=.1)
    for _ in range(5): back(ps); o.step(); warmwatch.step()

def explicit():
    for _ in range(5): warmwatch.step()

def explicit_beside_an_optimizer():
    ps = parameters(); o = torch.optim.SGD(ps, lr=.1)
    for _ in range(5): back(ps); o.step(); warmwatch.step()

def nested_where_torch_names_its_function_otherwise():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)
    ps = parameters(); torch.optim.SGD(ps, lr=.1); o = Mine(ps, lr=.1)
    for each in (torch.optim.SGD, Mine):
        assert each.step.__code__.co_name == "wrapper"
        each.step.__code__ = each.step.__code__.replace(co_name="around")
    for _ in range(5): back(ps); o.step()

counts = {}
for kind in KINDS:
    warmwatch.attach()
    torch.optim.SGD(parameters(), lr=.1)
    globals()[kind]()
    counts[kind] = steps()
    warmwatch.detach()
result(counts)
"""
EXPECTED = {
    "simple": 5,
    "nested_subclass": 5,
    "around_another_with_the_same_parameters": 5,
    "matrix_and_adamw": 5,
    "gan_with_five_critic_steps": 15,
    "turns_of_five_steps": 69,
    "one_optimizer_ends_and_another_goes_on": 6,
    "optimizer_in_backward": 5,
    "one_object_stepped_for_each_sub_group": 5,
    "one_object_over_living_blocks_in_turn": 20,
    "blocks_of_a_few_steps": 24,
    "accumulation": 5,
    "scaler_that_skips_on_overflow": 4,
    "closure_called_many_times": 3,
    "new_optimizers_over_new_parameters": 20,
    "two_steps_of_each_new_optimizer": 20,
    "inner_loops_with_new_optimizers_and_an_outer_one": 100,
    "a_new_inner_optimizer_in_each_outer_step": 5,
    "around_two_with_other_parameters": 5,
    "a_gan_that_starts_over_with_new_models": 10,
    "a_gan_whose_optimizers_are_loaded": 5,
    "optimizers_over_the_same_parameters_again": 10,
    "unpickled_and_trained_on": 6,
    "explicit_before_the_first_optimizer": 6,
    "explicit": 5,
    "explicit_beside_an_optimizer": 5,
    "nested_where_torch_names_its_function_otherwise": 5,
}


def test_every_kind_of_training_makes_one_step_of_an_iteration(records: Path) -> None:
    counts = result_of(records, f"KINDS = {list(EXPECTED)!r}\n" + KINDS, attach=False)
    assert counts == EXPECTED


def test_a_manual_step_before_dynamo_stops_watching_optimizers(records: Path) -> None:
    body = """
import sys, warmwatch
warmwatch.step()
assert "torch._dynamo" not in sys.modules
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
for _ in range(20): train(model, o, 1); warmwatch.step()
"""
    run(records, body, plain=True)
    assert slots.read(slots.only(records)).steps.steps == 21


def test_a_regular_step_calls_only_the_clock_and_takes_no_lock(records: Path) -> None:
    """No other agent code runs that Dynamo could trace.

    A lock would show as a call: ``acquire``, or the ``__exit__`` of a ``with``.
    """
    body = """
import sys, warmwatch
from warmwatch.lifecycle import api as _current
o = torch.optim.SGD(make().parameters(), lr=.1)
for _ in range(10): o.step()
hook = torch.optim.Optimizer._optimizer_step_code
ours, c_functions = [], []
def profile(frame, event, called):
    ours.append(frame.f_code.co_name)
    if event == "c_call" and frame.f_code.co_name == "on_step":
        c_functions.append(called.__name__)
sys.setprofile(profile)
hook(o)
sys.setprofile(None)
result([sorted(set(ours)), c_functions])
"""
    ours, c_functions = result_of(records, body)
    # the module's calls are those of C functions; the method is PyTorch's empty one and ours
    assert ours == ["<module>", "_optimizer_step_code", "on_step"]
    assert [name for name in c_functions if name != "bisect_left"] == ["id", "monotonic_ns"]
