"""Steps that Dynamo compiles: counted, and compiled as without the agent, for any optimizer."""

from __future__ import annotations

from pathlib import Path

from support.trainings import result_of

TRAININGS = """
import sys
import torch._dynamo.utils as utils

class Own(torch.optim.Optimizer):  # Dynamo traces its step into one graph
    def __init__(self, parameters): super().__init__(parameters, dict(lr=.01))
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]: p.add_(p.grad.sign(), alpha=-group["lr"])

class Derived(torch.optim.SGD):
    def step(self, closure=None): return super().step(closure)

class Around(Own):
    def __init__(self, parameters):
        super().__init__(parameters)
        self.inner = Own(trained(1))
    def step(self, closure=None):
        self.inner.step()
        return super().step(closure)

def trained(count):
    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(count)]
    for p in parameters: p.grad = torch.ones(4)
    return parameters

KINDS = {
    "own": Own, "derived": Derived, "around": Around, "sgd": lambda ps: torch.optim.SGD(ps, lr=.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=.1, momentum=.9), "adam": torch.optim.Adam,
}

def build(kind, how, options):
    \"\"\"A function that makes one step or more, and how many.\"\"\"
    make, parameters = KINDS[kind], trained(2)
    o = make(parameters)
    compiled = lambda f: torch.compile(f, backend="eager", **options)
    average = torch.ones(4)
    def post(*_):
        with torch.no_grad(): average.lerp_(parameters[0], .1)
    def noisy_post(*_):
        post()
        print(end="", file=sys.stderr)
    if how == "replaced":
        o.step = compiled(o.step)
        return o.step, 1
    if how == "post hook": o.register_step_post_hook(post)
    if how == "post hook that breaks the graph": o.register_step_post_hook(noisy_post)
    if how == "method" or how.startswith("post hook"): return compiled(o.step), 1
    if how == "lambda": return compiled(lambda: o.step()), 1
    if how == "with a model":
        model = torch.nn.Linear(4, 4); x = torch.ones(2, 4)
        def g():
            y = model(x).sum(); o.step(); return y + parameters[0].sum()
        return compiled(g), 1
    if how == "backward":
        def g():
            loss = sum(p.square().sum() for p in parameters)
            loss.backward(); o.step(); o.zero_grad(); return loss
        return compiled(g), 1
    if how == "loop":
        def g():
            for _ in range(3): o.step()
            return parameters[0] + 1
        return compiled(g), 3
    if how == "two":
        other = make(trained(1))
        def g(): o.step(); other.step()
        return compiled(g), 1
    if how == "argument":  # the same compiled code for both
        g, other = compiled(lambda optimizer: optimizer.step()), make(trained(2))
        return lambda: (g(o), g(other), g(o)), 2
    if how == "created inside":
        def g(x):
            inside = make(parameters); inside.step(); return x * 2
        c = compiled(g)
        return lambda: c(torch.ones(3)), 1
    if how == "inside an eager step":
        step, outer = compiled(lambda: o.step()), trained(1)
        class Eager(torch.optim.SGD):
            def step(self, closure=None):
                step()
                return super().step(closure)
        return Eager(outer, lr=.1).step, 1

def steps():
    agent = sys.modules.get("warmwatch.lifecycle.api")
    return agent.attached.agent.record.steps() if agent else 0

found = {}
for case in CASES:
    kind, how, full = case
    torch._dynamo.reset(); utils.counters.clear(); utils.clear_compilation_metrics()
    before, error = steps(), None
    run, each = build(kind, how, dict(fullgraph=True) if full else {})
    try:
        for _ in range(4): run()
    except Exception as raised:
        error = type(raised).__name__
    compiled = [
        (m.co_name.rstrip("0123456789"), m.graph_op_count, m.guard_count, m.fail_type)
        for m in utils.get_compilation_metrics()
    ]
    counted = {name: dict(utils.counters[name]) for name in ("stats", "frames", "graph_break")}
    found[str(case)] = [counted, compiled, error], steps() - before, 0 if error else 4 * each
result(found)
"""
# Every optimizer, and every place from which a step is compiled.
CASES = [
    ("own", "replaced", True),
    ("own", "with a model", True),
    ("own", "post hook that breaks the graph", False),
    ("own", "loop", True),
    ("own", "argument", True),
    ("own", "created inside", False),
    ("around", "method", True),
    ("derived", "lambda", False),
    ("sgd", "method", True),
    ("momentum", "post hook", False),
    ("own", "inside an eager step", False),
    ("own", "backward", False),
    ("own", "two", True),
]


def test_a_compiled_step_is_counted_and_compiled_as_without_the_agent(
    tmp_path: Path,
) -> None:
    body = f"CASES = {CASES!r}\n" + TRAININGS
    results = []
    for name in ("alone", "attached"):
        records = tmp_path / name / "records"
        records.mkdir(parents=True)
        results.append(result_of(records, body, attach=name == "attached"))
    alone, attached = results
    for case in map(str, CASES):
        assert attached[case][0] == alone[case][0], case  # graphs, operations, guards, breaks
        assert attached[case][1] == attached[case][2], case  # steps
