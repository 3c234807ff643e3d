"""``python -m warmwatch.testing.hook_check``: compares the hooks' figures with PyTorch's records.

``warmwatch doctor --hooks`` runs it in a separate process. It compiles a few tiny functions under
the agent and writes one JSON object per line: ``hook``, ``result`` (one of ``RESULTS``) and
``words``. The expected figures are PyTorch's own records, or known from the functions here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from warmwatch.lifecycle import api
from warmwatch.shared import record

RESULTS = "ok", "in place", "absent", "skipped", "wrong", "not checked"
FINE, IN_PLACE, ABSENT, SKIPPED, WRONG, NOT_CHECKED = RESULTS
# Hook points of later PyTorch versions: in older ones their absence is expected.
_CAME_WITH = {"runtime_compilations": (2, 8), "choices": (2, 8), "cache_verdicts": (2, 11)}
# Hooks whose figures the record lacks without the hook "compilations".
_NEED_COMPILATIONS = {
    *("compilation_kinds", "compilation_ids", "compilation_failures", "recompile_reasons"),
    *("graph_counter", "graph_break_counter", "cache_counters"),
}
_LIMIT = 3


class _Check:
    """The counts of the agent and of PyTorch for one function."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.utils = torch, torch._dynamo.utils
        self.convert_frame = torch._dynamo.convert_frame
        self._agent = api.attached.agent  # type: ignore[union-attr]
        self._before = self._image()
        self.metrics: list[Any] = []

    def _image(self) -> record.Slot:
        return self._agent.record.image()

    @property
    def missing(self) -> tuple[str, ...]:
        return self._image().identity.missing

    @property
    def hooks(self) -> tuple[str, ...]:
        return self._image().identity.hooks

    @property
    def errors(self) -> int:
        return self._image().compile.agent_errors

    def risen(self, name: str, index: int | None = None) -> int:
        """The rise of a counter of the record since :meth:`begin`."""

        def of(slot: record.Slot) -> int:
            value = getattr(slot.compile, name)
            return int(value if index is None else value[index])

        return of(self._image()) - of(self._before)

    def steps(self) -> int:
        return self._image().steps.steps - self._before.steps.steps

    def phases(self) -> set[str]:
        rose = (self.risen("phase_ns", index) for index in range(len(record.PHASES)))
        return {name for name, ns in zip(record.PHASES, rose, strict=True) if ns > 0}

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Compare what the block compiles; ``metrics`` has PyTorch's records of it."""
        self.torch._dynamo.reset()
        self.utils.counters.clear()
        self.utils.clear_compilation_metrics()
        self._before = self._image()
        yield
        self.metrics = list(self.utils.get_compilation_metrics())

    def compiled(self, *, forward: bool) -> int:
        return sum((metric.is_forward is not False) is forward for metric in self.metrics)


_Found = Iterator[tuple[str, Any, Any]]  # hook, what the agent has, what PyTorch has


def _graphs(check: _Check) -> _Found:
    torch, kinds = check.torch, record.KINDS
    with check.begin():
        function = torch.compile(lambda x: (x.sin() * 2).sum(), backend="aot_eager", dynamic=False)
        for size in (2, 3):
            function(torch.ones(size, requires_grad=True)).backward()
    forward, backward = kinds.index("forward"), kinds.index("backward")
    made = (check.risen("compilations", forward), check.risen("compilations", backward))
    truth = (check.compiled(forward=True), check.compiled(forward=False))
    yield "compilations", made, truth
    yield "compilation_kinds", made[1], 2
    yield "graph_counter", check.risen("graphs"), check.utils.counters["stats"]["unique_graphs"]
    again = sum(
        str(metric.compile_id).endswith("/1") and metric.is_forward for metric in check.metrics
    )
    recompiles = [check.risen("recompiles_by_category", at) for at in range(len(record.CATEGORIES))]
    yield "compilation_ids", sum(recompiles), again
    yield "recompile_reasons", recompiles[record.CATEGORIES.index("shape")], again
    yield "events", {"dynamo", "aot_autograd"} <= check.phases(), True
    yield "event_names", "event_names" in check.missing, False
    yield "callbacks", check.risen("begun") == check.risen("ended") > 0, True


def _breaks(check: _Check) -> _Found:
    torch = check.torch

    def broken(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    with check.begin():
        torch.compile(broken, backend="eager")(torch.ones(2))
    breaks = sum(check.utils.counters["graph_break"].values())
    yield "graph_break_counter", check.risen("graph_breaks"), breaks
    yield "graph_break_counter", breaks > 0, True


def _limit(check: _Check) -> _Found:
    torch, config = check.torch, check.torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    with check.begin(), config.patch({name: _LIMIT}):
        function = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        for size in range(1, _LIMIT + 4):
            function(torch.ones(size))
    failed = {
        str(metric.compile_id).partition("/")[0] for metric in check.metrics if metric.fail_type
    }
    yield "recompile_limit", check.risen("fallbacks"), len(failed)
    yield "recompile_limit", check.risen("fallbacks"), 1


def _failure(check: _Check) -> _Found:
    torch = check.torch

    def refuses(_graph: Any, _inputs: Any) -> Any:
        raise RuntimeError("a backend that always fails")

    with check.begin(), contextlib.suppress(RuntimeError):
        torch.compile(lambda x: x - 1, backend=refuses)(torch.ones(2))
    failed = sum(bool(metric.fail_type) for metric in check.metrics)
    yield "compilation_failures", check.risen("failures"), failed
    yield "compilation_failures", failed, 1


def _steps(check: _Check) -> _Found:
    torch = check.torch

    class Nested(torch.optim.SGD):  # type: ignore[misc, name-defined]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    def train(kind: Any, steps: int) -> None:
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = kind([parameter], lr=0.1)
        for _ in range(steps):
            parameter.square().sum().backward()
            optimizer.step()

    with check.begin():
        train(Nested, 5)
    yield "optimizer", check.steps(), 5
    with check.begin():
        for _ in range(4):
            train(torch.optim.SGD, 1)
    yield "new_optimizers", check.steps(), 4
    with check.begin():
        _train_compiled(torch)
    yield "compiled_steps", check.steps(), 5


def _train_compiled(torch: Any) -> None:
    """Five steps of an optimizer whose ``step`` is one graph."""

    class Sign(torch.optim.Optimizer):  # type: ignore[misc]
        @torch.no_grad()  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> None:  # noqa: ARG002 - torch's signature
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=0.1)

    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    step = torch.compile(Sign([parameter], {}).step, backend="eager", fullgraph=True)
    for _ in range(5):
        step()


def _caches(check: _Check) -> _Found:
    torch, counters = check.torch, check.utils.counters

    def cached(x: Any) -> Any:
        return x @ x  # needs no C++ compiler, which takes most of the time

    with check.begin():
        torch.compile(cached)(torch.ones(8, 8))
        torch._dynamo.reset()
        torch.compile(cached)(torch.ones(8, 8))
    at = record.CACHES.index("inductor_fx")
    made = (check.risen("cache_hits", at), check.risen("cache_misses", at))
    inductor = counters["inductor"]
    truth = (inductor["fxgraph_cache_hit"], inductor["fxgraph_cache_miss"])
    yield "cache_counters", made, truth
    yield "cache_counters", sum(made) > 0, True
    yield "events", "inductor" in check.phases(), True
    yield "async_modes", "async_modes" in check.missing, False


def _triton(check: _Check) -> _Found:
    if not check.torch.cuda.is_available():
        raise _SkippedError("no GPU")
    with check.begin():
        check.torch.compile(lambda x: x.sin() * 3)(check.torch.ones(8, device="cuda"))
    yield "triton", "kernel_compile" in check.phases(), True


class _SkippedError(Exception):
    """A part that cannot run here."""


# Each part, and the hooks that it reports.
_PARTS: tuple[tuple[Callable[[_Check], _Found], tuple[str, ...]], ...] = (
    (_steps, ("optimizer", "new_optimizers", "compiled_steps")),
    (_breaks, ("graph_break_counter",)),
    (_limit, ("recompile_limit",)),
    (_failure, ("compilation_failures",)),
    (
        _graphs,
        (
            *("compilations", "compilation_kinds", "graph_counter", "compilation_ids"),
            *("recompile_reasons", "events", "event_names", "callbacks"),
        ),
    ),
    (_caches, ("cache_counters", "events", "async_modes")),
    (_triton, ("triton",)),
)


class _Report:
    """Writes each hook's line once, when no later part reports it."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._found: dict[str, tuple[str, str]] = {}
        self._written: set[str] = set()
        self.fine = True

    def add(self, hook: str, result: str, words: str) -> None:
        """The first result stands, unless a later one is wrong."""
        if hook in self._found and result != WRONG:
            return
        missing = self._check.missing
        if result == WRONG and hook in _NEED_COMPILATIONS and "compilations" in missing:
            result, words = SKIPPED, "cannot be compared without the hook compilations"
        self._found[hook] = (result, words)

    def add_all(self, hooks: Iterable[str], result: str, words: str) -> None:
        """One result of all hooks of a part."""
        for hook in hooks:
            self.add(hook, result, words)

    def write(self, *, later: Iterable[str] = ()) -> None:
        """Write the result of every hook except ``later``; with none left, also what is in place.

        A module that a part imports may lack a name: until the end no hook is in place.
        """
        pending = self._written | set(later)
        for hook in self._check.missing:
            if hook not in pending:
                self._found[hook] = self._absent(hook)
        for hook in self._check.hooks if not later else ():
            if hook not in pending:
                self._found.setdefault(hook, (IN_PLACE, "none of its figures was compared"))
        for hook in [hook for hook in self._found if hook not in pending]:
            result, text = self._found[hook]
            self._written.add(hook)
            self.fine &= result not in (WRONG, ABSENT, NOT_CHECKED)
            _write(hook, result, text)

    def _absent(self, hook: str) -> tuple[str, str]:
        since = _CAME_WITH.get(hook)
        if since is not None and self._check.torch.__version__ < since:
            return SKIPPED, f"introduced in torch {'.'.join(map(str, since))}"
        return ABSENT, "not found"


def main() -> int:
    """Run all parts. Exit code 0 if all figures agree and no expected hook point is absent."""
    api.attach(run="hook-check", say=False)
    try:
        import torch._dynamo  # as a training does: after the agent was attached
    except ImportError as error:
        result = SKIPPED if error.name == "torch" else NOT_CHECKED
        _write("torch", result, f"PyTorch cannot be imported: {error}")
        return 1
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # the limit is hit on purpose
    check = _Check(torch)
    report = _Report(check)
    for at, (part, hooks) in enumerate(_PARTS):
        # before the first part: absent hooks that no part reports
        report.write(later={hook for _, reported in _PARTS[at:] for hook in reported})
        try:
            for hook, made, truth in part(check):
                report.add(hook, *_compared(made, truth))
        except _SkippedError as why:
            report.add_all(hooks, SKIPPED, str(why))
        except Exception as error:  # noqa: BLE001 - a failure is a result; the rest still runs
            head = str(error).strip().partition("\n")[0][:200]
            report.add_all(hooks, NOT_CHECKED, f"{type(error).__name__}: {head}")
    if check.errors:
        text = f"{check.errors} exceptions inside the agent, caught by it"
        report.add("agent", WRONG, text)
    report.write()
    return int(not report.fine)


def _compared(made: Any, truth: Any) -> tuple[str, str]:
    if made == truth:
        same = "as expected" if isinstance(truth, bool) else f"{made}, as PyTorch recorded"
        return FINE, same
    return WRONG, f"the agent has {made}, PyTorch {truth}"


def _write(hook: str, result: str, words: str) -> None:
    sys.stdout.write(json.dumps({"hook": hook, "result": result, "words": words}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
