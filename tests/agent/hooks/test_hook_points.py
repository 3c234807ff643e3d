"""Installing and undoing hooks: a failing hook affects no other."""

from __future__ import annotations

import functools
import inspect
import os
import re
import subprocess
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.trainings import ROOT, result_of
from warmwatch import _guard
from warmwatch.hooks.compilers import child_processes, cpp_extension
from warmwatch.hooks.dynamo import events
from warmwatch.hooks.installation import Hooks
from warmwatch.hooks.points import (
    Installed,
    Listener,
    Replaced,
    look_up,
    traced_as,
)
from warmwatch.hooks.training.optimizer import install_created


@pytest.fixture(name="reported")
def _reported() -> Iterator[list[str]]:
    """Where errors of the agent's own come to light."""
    reported: list[str] = []
    _guard.connect(lambda where, error: reported.append(f"{where}: {error!r}"))
    yield reported
    _guard.connect(None)


def _absent(listener: Listener) -> Installed:
    with look_up():
        raise AttributeError("a PyTorch without it")


def _wrong(listener: Listener) -> Installed:
    return Installed(uninstall=listener.no_such_thing)  # type: ignore[attr-defined]


def test_an_error_in_a_hook_is_counted_and_a_missing_name_is_not(reported: list[str]) -> None:
    """An ``AttributeError`` outside of the look-up is counted; the one inside it is an answer."""
    hooks = Hooks()
    hooks.install((("absent", _absent), ("wrong", _wrong)), object())  # type: ignore[arg-type]
    assert (hooks.names, hooks.missing) == ((), ("absent", "wrong"))
    assert [line.partition(": ")[0] for line in reported] == ["hooks.wrong"]


def test_two_hooks_of_one_function_are_both_removed() -> None:
    class Place:
        def called(self) -> None: ...

    def around(_: Listener) -> Installed:
        replaced, before = Replaced(), Place.called
        replaced.put(Place, "called", lambda self: before(self))
        return Installed(uninstall=replaced.undo)

    hooks, original = Hooks(), Place.called
    hooks.install((("inner", around), ("outer", around)), object())  # type: ignore[arg-type]
    assert Place.called is not original
    hooks.uninstall_all()
    assert Place.called is original


def test_a_hook_that_another_thread_uninstalls_during_a_lookup_is_not_called_later() -> None:
    hooks, called = Hooks(), list[str]()

    class Uninstalling:
        """Stands for another thread, which detaches while this one looks up ``rearm``."""

        @property
        def rearm(self) -> None:
            hooks.uninstall("other")

    other = Installed(rearm=lambda: called.append("other"))
    points = (("slow", lambda _: Uninstalling()), ("other", lambda _: other))
    hooks.install(points, object())  # type: ignore[arg-type]
    hooks.rearm()
    assert hooks.names == ("slow",)
    called.clear()
    hooks.rearm()
    assert called == []


def test_dynamo_traces_another_tool_that_wraps_a_hook() -> None:
    torch = pytest.importorskip("torch")

    def original(x: Any) -> Any:
        return x + 1

    @functools.wraps(original)
    def ours(_x: Any) -> Any:
        return None

    ours.mark = "kept"  # type: ignore[attr-defined]
    traced_as(ours, original)

    @functools.wraps(ours)
    def tool(x: Any) -> Any:
        return ours(x) * 2

    assert vars(tool) == {"mark": "kept", "__wrapped__": ours}
    both = torch.compile(lambda x: (ours(x), tool(x)), backend="eager", fullgraph=True)
    assert [one.item() for one in both(torch.ones(1))] == [2, 4]


class _Interrupted(Listener):
    """A KeyboardInterrupt follows each begin."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.begun: list[str] = []

    def begin(self, event: str, of: Any = None) -> None:  # noqa: ARG002
        self.open.append(event)
        self.begun.append(event)
        raise KeyboardInterrupt

    def outside_began(self, program: str) -> bool:
        self.begin(program)
        return True

    def end(self, event: str) -> None:  # noqa: ARG002
        self.open.pop()


def test_an_interrupted_begin_leaves_no_activity_open() -> None:
    module = pytest.importorskip("torch.utils.cpp_extension")
    logger = pytest.importorskip("torch._dynamo.utils").get_chromium_event_logger()
    listener = _Interrupted()
    hooks = child_processes, cpp_extension, events
    installed = [hook.install(listener) for hook in hooks]
    try:
        compiler = types.SimpleNamespace(args=["g++", "a.cc"], returncode=None)
        with pytest.raises(KeyboardInterrupt):
            subprocess.Popen.wait(compiler)  # type: ignore[arg-type]
        build = module._write_ninja_file_and_build_library
        needed = inspect.signature(build).parameters
        values = {"name": "ours", "sources": [], "build_directory": "absent"}
        with pytest.raises(KeyboardInterrupt):
            build(**{name: values.get(name) for name in needed})
        for event in ("dynamo", "inductor_compile"):
            with pytest.raises(KeyboardInterrupt):
                logger.log_event_start(event, 1, {})
    finally:
        for one in installed:
            one.uninstall and one.uninstall()
    assert len(listener.begun) == 4
    assert listener.open == []


def test_a_forked_child_counts_events_whatever_the_parents_threads_did() -> None:
    """A new thread of the child may have the number of one that it did not inherit."""
    inside, leave = threading.Event(), threading.Event()

    class Logger:
        def log(self, event: str) -> None:
            if event == "parent":
                inside.set()
                leave.wait()

    counted: list[str] = []
    wrap = events._Wrap(lambda _: None, Logger, "log")
    wrap.put(counted.append, {})
    parent = threading.Thread(target=Logger().log, args=("parent",))
    parent.start()
    inside.wait()
    if not (child := os.fork()):
        counted.clear()
        threads = [threading.Thread(target=Logger().log, args=("child",)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(len(counted))
    leave.set()
    parent.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 20


WRAPPED_MEANWHILE = """
import warmwatch
import torch._dynamo
from torch._dynamo import utils
from warmwatch.lifecycle import api as _current

class Logger:
    def log_event_start(self, name): pass
    def log_event_end(self, name): pass
    def log_instant_event(self, *args): pass

utils.ChromiumEventLogger = Logger
warmwatch.attach()
ledger, heard = _current.attached.agent.ledger, []
ledger.begin = lambda event, target=None: heard.append(event)
ledger.end = lambda event: heard.append("end of " + event)
logger = Logger()
logger.log_event_end("dynamo")  # of an event that began before the agent came
for name in ("log_event_start", "log_event_end"):  # and another tool wraps ours meanwhile
    def around(self, event, below=getattr(Logger, name)):
        return below(self, event)
    setattr(Logger, name, around)
logger.log_event_end("entire_frame_compile")
logger.log_event_start("code_gen")
logger.log_event_end("code_gen")
result(heard)
"""


@pytest.mark.training
def test_an_event_is_counted_once_if_another_tool_wraps_our_hook_while_it_compiles(
    records: Path,
) -> None:
    assert result_of(records, WRAPPED_MEANWHILE, attach=False) == [
        "end of dynamo",
        "end of entire_frame_compile",
        "code_gen",
        "end of code_gen",
    ]


MOCKED_OFTEN = """
import sys, warmwatch
import torch._dynamo
from unittest import mock
from torch._dynamo import utils
from warmwatch.lifecycle import api as _current

class Logger:
    def log_event_start(self, name): self.depth = len(list(frames(sys._getframe())))
    def log_event_end(self, name): pass
    def log_instant_event(self, *args): pass

def frames(frame):
    while frame: yield frame; frame = frame.f_back
utils.ChromiumEventLogger = Logger
warmwatch.attach()
ledger, heard = _current.attached.agent.ledger, []
ledger.begin = lambda event, target=None: heard.append(event)
logger = Logger()
logger.log_event_start("first"); logger.log_event_end("first")
depth = logger.depth
for number in range(50):
    with mock.patch.object(Logger, "log_event_start", lambda self, name: None):
        logger.log_event_start("lost"); logger.log_event_end("lost")
        logger.log_event_start("with the tool"); logger.log_event_end("with the tool")
    logger.log_event_start("later"); logger.log_event_end("later")
result([heard, logger.depth - depth])
"""


@pytest.mark.training
def test_a_tool_that_replaces_the_method_for_some_time_stacks_no_wrappers(records: Path) -> None:
    heard, deeper = result_of(records, MOCKED_OFTEN, attach=False)
    assert heard == ["first", *["with the tool", "later"] * 50]
    assert deeper == 0


CLASSES = """
import builtins, collections, io, sys
import warmwatch, torch._dynamo
changed, original = collections.Counter(), builtins.setattr
def counted(owner, name, value):
    if isinstance(owner, type) and sys._getframe(1).f_globals["__name__"].startswith("warmwatch"):
        changed[f"{owner.__module__}.{owner.__qualname__}.{name}"] += 1
    original(owner, name, value)
builtins.setattr = counted
warmwatch.attach()
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(torch.compile(model, backend="aot_eager"), o, 3)
for number in range(8):
    model.eval(); model(torch.randn(4, 8)); model.train()
    train(torch.compile(make(), backend="aot_eager"), torch.optim.SGD(make().parameters()), 1)
    torch.save({}, io.BytesIO()); list(torch.utils.data.DataLoader([1]))
    with torch.compiler.set_stance("force_eager"): train(model, o, 2)
    torch._dynamo.reset()
result(changed)
"""


@pytest.mark.training
def test_a_class_is_modified_once_when_its_hook_is_installed(records: Path) -> None:
    """CPython 3.13 caches no attribute of a class that was modified a thousand times.

    A class of a module that is imported later is modified then, and also once.
    """
    changed = result_of(records, CLASSES, attach=False)
    assert set(changed.values()) == {1}, changed
    assert "torch.nn.modules.module.Module.train" in changed


def test_the_draft_for_pytorch_names_only_functions_that_the_hooks_use() -> None:
    draft = (ROOT / "docs/design/upstream-compile-events.md").read_text()
    table = draft.partition("| what is needed |")[2].partition("\n\n")[0]
    names = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", table)}
    sources = "".join(path.read_text() for path in (ROOT / "agent/warmwatch/hooks").rglob("*.py"))
    assert len(names) > 15
    assert {name for name in names if not re.search(rf"\b{name}\b", sources)} == set()


def test_a_constructor_that_another_tool_has_replaced_keeps_the_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may import Dynamo, and with it our hooks, in a frame of its own names."""
    from torch import nn
    from torch.optim import SGD, Optimizer

    original, listener = Optimizer.__init__, Listener()
    installed: list[Installed] = []
    created: list[Any] = []
    monkeypatch.setattr(listener, "created", created.append)

    def replaced(*args: Any, **kwargs: Any) -> None:
        installed.append(install_created(listener))
        original(*args, **kwargs)

    monkeypatch.setattr(Optimizer, "__init__", replaced)
    made = SGD([nn.Parameter()], lr=1)
    installed[0].uninstall()
    assert created == [made]
