"""Attaching and detaching: what is imported, patched and put back. In fresh processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import slots
from support.trainings import environment, result_of, run, training


def python(records: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(records, **env),
        cwd=records.parent,
        text=True,
        capture_output=True,
        check=True,
    )


STEP = """
o = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
for _ in range(4): o.step()
"""
FIRST = f"""
import os, sys
import warmwatch.auto
print("torch" in sys.modules)
import torch
print("torch._dynamo" in sys.modules)
warmwatch.attach(run="x", dtype="bfloat16")
print(os.listdir(os.environ["WARMWATCH_DIR"]))
print(*(name for name in sys.modules if name.startswith("warmwatch")))
{STEP}
"""


@pytest.mark.first
def test_an_agent_that_attaches_first_imports_nothing_and_has_a_record_from_the_first_step(
    records: Path,
) -> None:
    """Neither PyTorch, nor its own modules before a step or compilation.

    Most of an import's time is theirs, and a helper process of a training needs neither.
    """
    torch, dynamo, written, names = python(records, FIRST).stdout.splitlines()
    assert (torch, dynamo, written) == ("False", "False", "[]")
    slot = slots.read(slots.only(records))
    assert (slot.identity.run, slot.steps.steps) == ("x", 4)
    loaded = set(names.split())
    assert "warmwatch.lifecycle.attaching" in loaded
    assert not loaded & {
        "warmwatch.lifecycle.agent",
        "warmwatch.shared.record",
        "warmwatch.hooks.registry",
    }


def test_importing_the_package_attaches_no_hook(records: Path) -> None:
    body = "import warmwatch\ntorch.optim.SGD([torch.zeros(1)])"
    run(records, body, attach=False, plain=True)
    assert list(records.iterdir()) == []


@pytest.mark.parametrize("first", ["", "import torch._dynamo", "torch.optim.SGD([torch.zeros(1)])"])
def test_the_agent_attaches_after_torch_was_imported(records: Path, first: str) -> None:
    run(records, f"{first}\nimport warmwatch.auto\n{STEP}", attach=False, plain=True)
    assert slots.read(slots.only(records)).steps.steps == 4


API = [
    *("activity", "allow_compilation", "attach", "detach", "evaluating", "is_compiling"),
    *("is_warm", "on_recompile", "on_warm", "ready", "saving", "state", "step"),
]


def test_the_api_matches_the_contract() -> None:
    import warmwatch

    assert warmwatch.__all__ == API


def test_the_package_shows_only_its_api(records: Path) -> None:
    """Other names are its modules: no name that was only needed to build the package."""
    done = python(
        records,
        "import warmwatch, types\n"
        "shown = {n for n in dir(warmwatch) if not n.startswith('__')}\n"
        "modules = {n for n in shown if isinstance(getattr(warmwatch, n), types.ModuleType)}\n"
        "print(sorted(shown - modules), bool(warmwatch.__version__))",
    )
    extension = ["load_ipython_extension", "unload_ipython_extension"]  # what %load_ext calls
    assert done.stdout.strip() == f"{sorted([*API, *extension])} True"


def test_repeated_attach_and_detach_leaves_no_hook_behind(records: Path) -> None:
    body = """
import io, logging, os, sys, time, warmwatch
import torch._dynamo, torch._inductor.select_algorithm, torch._inductor.async_compile
import torch.utils.cpp_extension
from torch._dynamo import callback, convert_frame, decorators, utils
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch.optim import optimizer
from torch.utils.data import dataloader
owners = [
    torch._dynamo, convert_frame, decorators, utils, utils.ChromiumEventLogger, torch.serialization,
    torch.serialization._open_zipfile_writer_file, torch.serialization._open_zipfile_writer_buffer,
    dataloader._BaseDataLoaderIter, torch._inductor.async_compile, torch.utils.cpp_extension,
    torch._inductor.select_algorithm.AlgorithmSelectorCache,
    optimizer.Optimizer, OptimizerVariable,
]
def functions(of):
    kinds = classmethod, staticmethod
    return sorted((n, id(v)) for n, v in vars(of).items() if callable(v) or isinstance(v, kinds))
handler = callback.callback_handler
def left():
    counts = [
        len(handler.start_callbacks), len(handler.end_callbacks),
        len(sys.meta_path), id(sys.excepthook), len(optimizer._global_optimizer_post_hooks),
        len(logging.getLogger("torch._dynamo.convert_frame").filters),
    ]
    return counts, list(map(functions, owners))
def threads():
    return len(os.listdir("/proc/self/task"))
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(model, o, 1)  # PyTorch's CUDA builds start threads for the first backward
alone = threads()
def open_ones():  # a thread that has let everything go is there for a moment still
    until = time.monotonic() + 60
    while threads() > alone and time.monotonic() < until: time.sleep(.01)
    return threads(), len(os.listdir("/proc/self/fd"))
def turn():
    warmwatch.attach()
    hooked.append(left() != before)
    train(torch.compile(model, backend="eager"), o, 2)
    torch.save(model.state_dict(), io.BytesIO())
    torch._dynamo.reset()
    warmwatch.detach()
before, hooked = left(), []
turn(); first = open_ones()
for _ in range(4): turn()
state = warmwatch.state()
result([left() == before, open_ones() == first, threads() == alone, all(hooked), state])
"""
    assert result_of(records, body, attach=False) == [True, True, True, True, None]
    ends = [slots.events(folder)[-1]["how"] for folder in slots.folders(records)]
    assert ends == ["detached"] * 5


def test_a_wrapper_around_ours_survives_detaching(records: Path) -> None:
    """A user's own profiler at the same hook point keeps working; ours under it goes silent."""
    body = """
import warmwatch
from torch._dynamo import utils
warmwatch.attach()
torch.optim.SGD([torch.zeros(1)])
log = utils.ChromiumEventLogger
theirs, inner = [], log.log_event_start
def start(self, name, *args, **kwargs):
    theirs.append(name)
    return inner(self, name, *args, **kwargs)
log.log_event_start = start
warmwatch.detach()
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
result([log.log_event_start is start, "dynamo" in theirs])
"""
    assert result_of(records, body, attach=False) == [True, True]
    assert slots.read(slots.only(records)).compile.begun == 0


def test_a_disabled_agent_writes_no_record(records: Path) -> None:
    run(records, STEP, env={"WARMWATCH_DISABLE": "1"})
    assert list(records.iterdir()) == []


def test_a_later_setting_of_the_user_is_recorded(records: Path) -> None:
    body = "import warmwatch\no = torch.optim.SGD(make().parameters())\n"
    body += "warmwatch.attach(run='gpt2', tokens_per_step=491_520)\n"
    run(records, body)
    identity = slots.read(slots.only(records)).identity
    assert (identity.run, identity.tokens_per_step) == ("gpt2", 491_520)


def test_an_invalid_setting_is_reported_once_and_does_not_stop_the_training(records: Path) -> None:
    env = {"WARMWATCH_WARM_STEPS": "many", "WARMWATCH_RUM": "gpt2"}
    with training(records, STEP, env=env) as started:
        assert started.wait() == 0
    here = f"{records.parent}/train.py:1: UserWarning: warmwatch: "
    first, line, second, again = started.stderr.splitlines()
    assert (
        first == f"{here}WARMWATCH_RUM is not a setting of warmwatch; did you mean WARMWATCH_RUN?"
    )
    assert second == (
        f"{here}WARMWATCH_WARM_STEPS='many' is not a number of steps from 1 to 1,000,000; using 3"
    )
    assert line == again == "  import warmwatch.auto"


def test_each_invalid_variable_is_reported_and_the_training_has_its_record(
    records: Path,
) -> None:
    number, switch = "is not an integer from 0 to 1,000,000; ignored", "is neither 1 nor 0; using 0"
    invalid = {
        "WARMWATCH_SAY": ("perhaps", switch),
        "WARMWATCH_FULL_REASONS": ("2", switch),
        "RANK": ("-1", number),
        "WORLD_SIZE": ("nan", number),
    }
    env = {name: value for name, (value, _) in invalid.items()}
    with training(records, STEP, env=env) as started:
        assert started.wait() == 0
    for name, (value, words) in invalid.items():
        assert started.stderr.count(f"UserWarning: warmwatch: {name}={value!r} {words}") == 1
    assert slots.read(slots.only(records)).steps.steps == 4


def test_an_unwritable_directory_gives_one_warning(records: Path) -> None:
    """The training continues, and the agent still has its state."""
    blocked = records.parent / "file"
    blocked.write_text("")
    body = STEP + "import warmwatch; result([warmwatch.state(), warmwatch.is_warm()])\n"
    with training(records, body, env={"WARMWATCH_DIR": str(blocked)}) as started:
        assert started.result() == ["eager", True]
        assert started.wait() == 0
    (line,) = [line for line in started.stderr.splitlines() if "warmwatch: " in line]
    assert "the record cannot be written" in line
    assert "set WARMWATCH_DIR to a writable directory" in line


def test_a_full_disk_loses_only_journal_lines(records: Path) -> None:
    """RLIMIT_FSIZE stands for the full disk: the slot's blocks are there, the journal's are not."""
    body = """
import resource, signal
o = torch.optim.SGD(make().parameters())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_FSIZE, (150, limit))
f = torch.compile(make(), backend="eager")
for n in range(4):
    f(torch.randn(4, 8)); o.step()
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for n in range(2): o.step()
"""
    run(records, body)
    folder = slots.only(records)
    slot = slots.read(folder)
    assert slot.steps.steps == 6
    assert slot.compile.journal_dropped >= 2
    lines = (folder / "events.jsonl").read_text().splitlines()
    assert '"event":"exit"' in lines[-1]


def test_code_compiled_before_attaching_is_not_called_eager(records: Path) -> None:
    """Reattached to a compiled model, it gets no compile event and has only the count."""
    body = """
import warmwatch
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
warmwatch.attach()
train(torch.compile(model, backend="eager"), o, 4)
warmwatch.detach()
warmwatch.attach()
train(torch.compile(model, backend="eager"), o, 4)
result([warmwatch.state(), warmwatch.is_warm()])
"""
    assert result_of(records, body, attach=False) == ["warm", True]
    again = max(records.iterdir(), key=lambda folder: slots.read(folder).header.attached_ns)
    slot = slots.read(again)
    assert (slot.compile.begun, slot.compile.graphs_before) == (0, 1)
    assert slots.events(again)[0]["graphs_before"] == 1
