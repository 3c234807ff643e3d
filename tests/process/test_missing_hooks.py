"""PyTorch without some hook points: the other hooks still work, and what is missing is absent."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import slots
from support.torch_versions import TORCH, VERSION
from support.trainings import environment, result_of
from warmwatch.hooks import registry
from warmwatch.shared.record import CATEGORIES, KINDS, PHASES, Slot
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.pipeline import slot_figures

# The installers of GONE raise as if PyTorch lacked their hook points.
BODY = """
import warmwatch, warmwatch.hooks.registry as hooks
from warmwatch.hooks.points import look_up
def gone(listener):
    with look_up(): hooks.a_thing_that_a_pytorch_to_come_has_not
hooks.POINTS = tuple((name, gone if name in GONE else install) for name, install in hooks.POINTS)
warmwatch.attach()
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="aot_eager")
states = []
for batch in (4, 4, 4, 4, 6):
    train(c, o, 1, batch=batch)
    if "optimizer" in GONE: warmwatch.step()
    states.append(warmwatch.state())
result(states)
"""
STATES = ["warming", "warming", "warming", "warm", "recompiling"]
POINTS = (
    "optimizer",
    "new_optimizers",
    "compiled_steps",
    "events",
    "callbacks",
    "compilations",
    "runtime_compilations",
    "cache_verdicts",
    "compilation_kinds",
    "compilation_ids",
    "compilation_failures",
    "compilation_details",
    "compiled_code",
    "recompile_reasons",
    "recompile_limit",
    "flex_attention",
    "async_modes",
    "saving",
    "wrappers",
    "disabled",
    "kernels",
    "choices",
    "memory",
    "cache_events",
    "cudagraph_skips",
    "flops",
    "spills",
)


# The verdict does not need the rest, so one test removes all of them.
_CARRYING = ("optimizer", "events", "callbacks", "compilations", "recompile_reasons")
GONE = {
    **{hook_point: {hook_point} for hook_point in _CARRYING},
    "the rest": set(POINTS) - set(_CARRYING),
}


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(which, marks=[pytest.mark.long] * (which not in ("events", "the rest")))
        for which in GONE
    ],
)
def test_without_a_hook_point_the_states_are_the_same(tmp_path: Path, which: str) -> None:
    """Missing hooks are named, no error is counted, and what only they report is absent."""
    records, gone = tmp_path / "records", GONE[which]
    records.mkdir()
    states = result_of(records, f"GONE = {gone!r}\n{BODY}", attach=False)
    slot = slots.read(slots.only(records))
    assert states == STATES
    assert slot.identity.missing == tuple(s for s in POINTS if s in gone or s in TORCH.missing)
    assert (slot.compile.agent_errors, slot.steps.steps) == (0, 5)
    assert slot.compile.begun == slot.compile.ended > 0
    assert sum(slot.compile.phase_ns) > 0
    _only_what_is_recorded(slot, which)


def _only_what_is_recorded(slot: Slot, hook_point: str) -> None:
    counts = slot.compile
    whole = {name for name, ns in zip(PHASES, counts.phase_ns, strict=True) if ns} == {"other"}
    assert whole is (hook_point == "events")  # without events the phases are unknown
    counted = (counts.graphs, sum(counts.compilations), sum(counts.recompiles_by_category))
    assert (counted == (0, 0, 0)) is (hook_point == "compilations")
    named = {c for c, n in zip(CATEGORIES, counts.recompiles_by_category, strict=True) if n}
    untold = hook_point == "recompile_reasons" and not TORCH.reason
    assert named == ({"other"} if untold else set() if hook_point == "compilations" else {"shape"})


# One process renames, in turn, each name of PyTorch that a figure needs. If PyTorch itself could
# not run without it, the hook's own constant is changed instead.
RENAMED = """
import contextlib, sys
from unittest.mock import patch
import torch._dynamo, torch._inductor.compile_fx as compile_fx
from torch._dynamo import convert_frame, utils
import warmwatch, warmwatch.hooks.registry as hooks
from warmwatch.lifecycle import api as _current, listener as _listening
from warmwatch.hooks import phases as _phases
from warmwatch.hooks.dynamo import compilations, events, fallbacks
from warmwatch.hooks.inductor import flops
from warmwatch.hooks.points import first_of

LOGS_RECORD = first_of(utils, compilations.NAMES)

class Without:
    def __init__(self, metrics, field): self._metrics, self._field = metrics, field
    def __getattr__(self, name):
        if name == self._field: raise AttributeError(name)
        return getattr(self._metrics, name)

@contextlib.contextmanager
def field(name):
    fields = {n: f for n, f in utils.CompilationMetrics.__dataclass_fields__.items() if n != name}
    original = getattr(utils, LOGS_RECORD)
    def without(metrics, *args, **kwargs): return before(Without(metrics, name), *args, **kwargs)
    before = original
    with patch.object(utils.CompilationMetrics, "__dataclass_fields__", fields):
        def attached():
            nonlocal before
            before = getattr(utils, LOGS_RECORD)
            setattr(utils, LOGS_RECORD, without)
        yield attached
    setattr(utils, LOGS_RECORD, original)

@contextlib.contextmanager
def unknown_events():
    _phases.phase_of.cache_clear()
    with patch.multiple(_phases, _EXACT={}, _BY_SUBSTRING=()): yield
    _phases.phase_of.cache_clear()

class Renamed(dict):
    def __init__(self, group, name): self.at = group, name
    def __contains__(self, group): return group in counters and group != self.at[0] or (
        bool(self.at[1]) and group in counters)
    def get(self, group, default=None): return self[group] if group in self else default
    def __getitem__(self, group):
        return {k: v for k, v in counters[group].items() if (group, k) != self.at}
counters = utils.counters

class Owner:
    "What a hook looks into, without some names."
    def __init__(self, owner, *names): self._owner, self._names = owner, names
    def __getattr__(self, name):
        if name in self._names: raise AttributeError(name)
        return getattr(self._owner, name)

def replaced(owner, name, other):
    owner = Owner(owner)
    vars(owner)[name] = other
    return owner

CASES = {
    "nothing": lambda: contextlib.nullcontext(),
    "is_forward": lambda: field("is_forward"),
    "compile_id": lambda: field("compile_id"),
    "fail_type": lambda: field("fail_type"),
    "co_name": lambda: field("co_name"),
    "unique_graphs": lambda: patch.object(utils, "counters", Renamed("stats", "unique_graphs")),
    "_compile": lambda: patch.object(events, "_FUNCTION", "_compile_frame"),
    "locals of _compile": lambda: patch.object(events, "_LOCALS", ("code_object", "compile_id")),
    "events": unknown_events,
    "limit": lambda: patch.object(
        torch._dynamo, "convert_frame", Owner(convert_frame, *fallbacks.NAMES)),
    "CatchErrorsWrapper.__call__": lambda: patch.object(
        torch._dynamo, "convert_frame", replaced(convert_frame, "CatchErrorsWrapper", Without)),
    "_compile_fx_inner": lambda: patch.object(flops, "_COMPILE", "_compile_graph"),
    "fx_compile_async": lambda: patch.object(compile_fx, "fx_compile_async", create=True),
}
found = {}
for name, renamed in CASES.items():
    torch._dynamo.reset(); counters.clear()
    with renamed() as attached:
        if name == "fx_compile_async": del compile_fx.fx_compile_async
        warmwatch.attach()
        if callable(attached): attached()
        step = torch.compile(lambda x: x.sin() * 2, backend="aot_eager", dynamic=False)
        for size in (2, 3): step(torch.ones(size, requires_grad=True)).sum().backward()
        image = _current.attached.agent.record.image()
        counts = image.compile
        recompiles = counts.recompiles_by_category
        found[name] = image.identity.missing, counts.compilations, recompiles
        if name == "fx_compile_async": compile_fx.fx_compile_async = False
    warmwatch.detach()
result(found)
"""
NAMED = {
    "nothing": None,
    "is_forward": "compilation_kinds",
    "compile_id": "compilation_ids",
    "fail_type": "compilation_failures",
    "co_name": "compilation_details",
    "unique_graphs": "graph_counter",
    "_compile": "compiled_code",
    "locals of _compile": "compiled_code",
    "events": "event_names",
    "limit": "recompile_limit",
    "CatchErrorsWrapper.__call__": "disabled",
    "_compile_fx_inner": "flops",
    "fx_compile_async": None if "2.6" in VERSION else "async_modes",
}


def test_each_renamed_private_name_is_reported_as_missing(tmp_path: Path) -> None:
    place = tmp_path / "renamed"
    place.mkdir()
    found = result_of(place, RENAMED, attach=False)
    missing = {name: set(reported) - set(TORCH.missing) for name, (reported, _, _) in found.items()}
    assert missing == {name: {hook_point} - {None} for name, hook_point in NAMED.items()}
    whole = found["nothing"]
    forward, backward = KINDS.index("forward"), KINDS.index("backward")
    assert (whole[1][forward], whole[1][backward], sum(whole[2])) == (2, 2, 1)
    unknown = found["is_forward"]
    assert (unknown[1][forward], unknown[1][backward], sum(unknown[2])) == (0, 0, 0)


INSTALLED_WITHOUT = """
import importlib, sys
from unittest.mock import Mock
import torch._dynamo
import warmwatch.hooks.registry as registry
from torch._dynamo.utils import CompilationMetrics
from warmwatch.hooks.points import HookPointAbsentError

def found(path):
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(found(module), name)

def without(hook):
    try:
        installed = dict((*registry.POINTS, *registry.AHEAD))[hook](Mock())
        if installed.uninstall: installed.uninstall()
        return bool(installed.lacks and installed.lacks())
    except HookPointAbsentError:
        return True
    return False

def absent(path, name, hook):
    owner = found(path)
    if name not in dir(owner) or f"{path}.{name}" in sys.modules:
        return None  # a name of other versions, or a module, which an import finds anyway
    original, own = getattr(owner, name), vars(owner).get(name)
    if own is None: return None  # inherited, or of C
    try:
        delattr(owner, name)
    except (TypeError, AttributeError):
        return None
    try:
        return None if hasattr(owner, name) else without(hook)  # else it has a default
    finally:
        setattr(owner, name, own)

results = {f"{hook} {path}.{name}": absent(path, name, hook) for path, name, hook in NAMES}
known = CompilationMetrics.__dataclass_fields__
for hook, field in FIELDS:
    if field in known:
        CompilationMetrics.__dataclass_fields__ = {n: f for n, f in known.items() if n != field}
        results[f"{hook} {field}"] = without(hook)
CompilationMetrics.__dataclass_fields__ = known
result(results)
"""


def _assigned(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from zip(map(ast.unparse, names), map(ast.unparse, values), strict=True)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, ast.unparse(value)


def _looked_up(hook: str, install: Callable[..., object]) -> Iterator[tuple[str, str, str]]:
    """Owner and name of everything in the ``look_up`` block of ``install``, from its source."""
    functions = getattr(inspect.getmodule(install), "NAMES", ())
    tree = ast.parse(textwrap.dedent(inspect.getsource(install)))
    nodes = [
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and ast.unparse(block.items[0]) == "look_up()"
        for node in ast.walk(block)
    ]
    bound: dict[str, str] = {}  # path by local name
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module)):
                for one in node.names:
                    bound[one.asname or one.name] = f"{module}.{one.name}"
            case ast.Import():
                bound.update({one.asname or one.name: one.name for one in node.names})
    for node in nodes:
        for name, value in _assigned(node):
            owner, _, attributes = value.partition(".")
            if owner in bound and attributes.replace(".", "").isidentifier():
                bound[name] = f"{bound[owner]}.{attributes}"
    paths = {path for path in bound.values() if path.startswith("torch.")}
    for node in nodes:
        match node:
            case ast.Attribute():
                head, _, rest = ast.unparse(node).partition(".")
                paths |= {f"{bound[head]}.{rest}"} if head in bound else set()
            case ast.Call(args=arguments):  # _Wrap(..., Logger, "method"), getattr(owner, name)
                for owner, name in itertools.pairwise(map(ast.unparse, arguments)):
                    names = [name.strip("'")] if name.startswith("'") else functions
                    paths |= {f"{bound[owner]}.{one}" for one in names if owner in bound}
    for path in paths:
        owner, _, name = path.rpartition(".")
        yield owner, name, hook


# Looked up by a helper, or where the block has no name for the owner.
BY_HELPERS = [
    ("torch._dynamo.convert_frame", "_compile", "compiled_code"),
    ("torch._dynamo.eval_frame", "_callback_from_stance", "disabled"),
    ("torch._dynamo.convert_frame.CatchErrorsWrapper", "__call__", "disabled"),
    ("torch.serialization", "_legacy_save", "saving"),
    ("torch.hub", "tqdm", "kernels"),
]
# ``cells`` looks into IPython, see test_notebook_cells.py; ``child_processes`` into ``subprocess``.
# The others look into modules that are imported later.
WITHOUT_NAMES = {
    *("async_modes", "cells", "child_processes", "choices", "flex_attention", "flops", "spills"),
}


def test_a_hook_without_a_name_that_it_patches_is_missing(tmp_path: Path) -> None:
    """Every name of every hook in turn. The list comes from the hooks' sources."""
    records = tmp_path / "records"
    records.mkdir()
    installs = (*registry.POINTS, *registry.AHEAD)
    fields = {name: one.args[0] for name, one in installs if isinstance(one, functools.partial)}
    functions = {name: one for name, one in installs if name not in fields}
    names = [*BY_HELPERS, *(one for pair in functions.items() for one in _looked_up(*pair))]
    assert functions.keys() - {hook for *_, hook in names} == WITHOUT_NAMES
    body = f"""
NAMES = {sorted(set(names))!r}
FIELDS = {[(hook, field) for hook, of in fields.items() for field in of]!r}
{INSTALLED_WITHOUT}"""
    results = result_of(records, body, attach=False)
    assert [name for name, absent in results.items() if absent is False] == []
    checked = {name.partition(" ")[0] for name, absent in results.items() if absent}
    assert functions.keys() - checked == WITHOUT_NAMES
    assert len([absent for absent in results.values() if absent]) > 60


@pytest.mark.first
def test_doctor_compares_each_hook_with_what_pytorch_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment(tmp_path / "records").items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(cli, ["doctor", "--hooks"])
    lines = done.output.splitlines()
    assert done.exit_code == 0, done.output
    assert "ok    hook compilations: ok: (2, 2), as PyTorch recorded" in lines
    compared = [line for line in lines if ": ok: " in line]
    assert len(compared) >= 14, done.output


@pytest.mark.long
def test_doctor_reports_wrong_counts_a_late_name_that_is_gone_and_what_it_could_not_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment(tmp_path / "records").items():
        monkeypatch.setenv(name, value)
    wrong = tmp_path / "wrong" / "sitecustomize.py"
    wrong.parent.mkdir()
    wrong.write_text(
        "from warmwatch.hooks.dynamo import compilations\n"
        "compilations.kind_of = lambda metrics: 'forward'\n"
        "from importlib.machinery import SourceFileLoader as Loader\n"
        "execute = Loader.exec_module\n"
        "def exec_module(loader, module):\n"
        "    execute(loader, module)\n"
        "    if module.__name__ == 'torch._inductor.async_compile': del module.AsyncCompile.wait\n"
        "Loader.exec_module = exec_module\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(wrong.parent), prepend=os.pathsep)
    done = CliRunner().invoke(cli, ["doctor", "--hooks", "--json"])
    assert done.exit_code == 1, done.output
    answer = json.loads(done.output)
    (found,) = [one for one in answer["findings"] if one["what"].startswith("hook compilations:")]
    others = [one["what"] for one in answer["findings"] if one["mark"] == "trouble"]
    assert "hook spills: absent: not found" in others  # known once Inductor is imported
    assert any(one.startswith("hook cache_counters: not checked: ") for one in others), others
    assert found["what"] == "hook compilations: wrong: the agent has (2, 0), PyTorch (2, 2)"
    assert (found["mark"], bool(found["advice"])) == ("trouble", True)
    marks = [one["mark"] for one in answer["findings"]]
    assert answer["to_do"] == marks.count("trouble") > 0


RECORDS_OFF = """
import torch._dynamo, torch._inductor
import warmwatch
from warmwatch.lifecycle import api
warmwatch.attach()
torch._dynamo.config.log_compilation_metrics = False
step = torch.compile(lambda x: x.sin() * 2, backend="eager", dynamic=False)
for size in (2, 3): step(torch.ones(size))
before = set(api.attached.agent.record.image().identity.missing)
torch._dynamo.config.log_compilation_metrics = True
step(torch.ones(4))
result([sorted(before), sorted(api.attached.agent.record.image().identity.missing)])
"""


def test_without_pytorchs_records_the_counts_are_unknown(tmp_path: Path) -> None:
    """``log_compilation_metrics=False``: not 0, and still unknown when it is on again."""
    records = tmp_path / "records"
    records.mkdir()
    found = result_of(records, RECORDS_OFF, attach=False)
    unknown = {"compilations", "log_compilation_metrics"}
    assert [set(one) - set(TORCH.missing) for one in found] == [unknown, unknown]
    figures = slot_figures.compile_of(slots.read(slots.only(records)))
    assert (figures.compilations, figures.recompiles, figures.failures) == (None, None, None)
    assert figures.begun
