"""Facts that real trainings record about themselves for the history."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

from support import slots
from support.sources import poller
from support.trainings import result_of, training
from warmwatch.shared.user_code import of_code
from warmwatch_monitor.status.words.sentence import summary

COMMIT = "5c895bda44d996edfc808bed39bdad3033f13af5"
MODEL = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = make()

    def forward(self, x):
        return self.inner(x * 2).relu()

def slowly(graph, inputs, **options):
    gate("compiling")
    return graph.forward

"""
RECORDED = (
    MODEL
    + """
model = Model(); o = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend=slowly, mode="patiently", dynamic=False)
again = torch.compile(model, backend=slowly, mode="patiently", dynamic=False)
torch.compile(model, mode="max-autotune", fullgraph=True)
torch.compile(model, options={"shape_padding": True})
torch.compile(make(), backend="aot_eager")(torch.randn(4, 8)).sum().backward()
train(compiled, o, 1)
"""
)


def _code(path: Path, name: str) -> CodeType:
    def codes(code: CodeType) -> list[CodeType]:
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        return [*inner, *(one for outer in inner for one in codes(outer))]

    whole = compile(path.read_text(), "elsewhere.py", "exec")
    return next(code for code in codes(whole) if code.co_qualname == name)


def test_a_record_names_the_script_and_how_it_is_compiled(records: Path) -> None:
    git = records.parent / ".git"
    git.mkdir()
    (git / "HEAD").write_text(f"{COMMIT}\n")
    with training(records, RECORDED) as started:
        started.reach("compiling")
        folder = slots.only(records)
        script = records.parent / "train.py"
        code = _code(script, "Model.forward")
        where = ("forward", "train.py", code.co_firstlineno, of_code(code))
        *_, began = [e for e in slots.events(folder) if e["event"] == "begin"]
        assert (began["name"], began["file"], began["line"], began["code"]) == where
        snapshot = poller(directories=(str(records),)).poll_once()
        assert f"`forward` (train.py:{code.co_firstlineno})" in summary(snapshot)
        (rank,) = snapshot.runs[0].ranks
        assert rank.figures.log.underway is not None
        assert rank.figures.log.underway.name == "forward"
        started.go()
        assert started.wait() == 0
    events = slots.events(folder)
    mine = [e for e in events if e["event"] == "compilation" and e["id"] == began["id"]]
    assert [e["code"] for e in mine] == [where[3]]
    # of nn.Sequential PyTorch compiles a function of its own, which tells no model from another
    others = [e for e in events if e["event"] == "compilation" and e["id"] != began["id"]]
    assert {e["kind"] for e in others} == {"forward", "backward"}
    assert [e for e in others if "code" in e] == []
    ways = [e for e in events if e["event"] == "wrapped"]
    assert [(e["mode"], e["backend"], e.get("dynamic"), e["fullgraph"]) for e in ways] == [
        ("patiently", "slowly", False, False),
        ("max-autotune", "inductor", None, True),
        ("default", "inductor", None, False),
        ("default", "aot_eager", None, False),
    ]
    assert [option.partition("=")[0] for option in ways[2]["options"]] == ["shape_padding"]
    slot = slots.read(folder)
    assert (slot.compile.wrappers, slot.compile.agent_errors) == (5, 0)
    reported = slot.identity
    assert (reported.script, reported.commit, reported.baseline_steps) == ("train.py", COMMIT, None)
    assert reported.caches == {"inductor": "cold", "triton": "cold"}
    assert reported.compile_threads is not None


QUIET = """
from warmwatch.lifecycle import api as _api
_api.attach_launched()
import torch._dynamo
result([])
torch.compile(make(), backend="eager", fullgraph=True)
gate("wrapped")
train(make(), torch.optim.SGD(make().parameters(), lr=.1), 1)
import warmwatch; warmwatch.step()
"""


def test_a_call_before_the_record_existed_is_reported_in_it(records: Path) -> None:
    """As under ``warmwatch run``, where a record is made at the first step."""
    with training(records, QUIET, attach=False) as started:
        started.result()
        started.reach("wrapped")
        assert slots.folders(records) == []
        started.go()
        assert started.wait() == 0
    (line,) = [e for e in slots.events(slots.only(records)) if e["event"] == "wrapped"]
    assert (line["backend"], line["fullgraph"]) == ("eager", True)


CACHE = """
import os, tempfile
from warmwatch.process.provenance import inductor_cache
del os.environ["TORCHINDUCTOR_CACHE_DIR"]
os.environ.update(TMPDIR=os.getcwd(), LOGNAME="a:b")
tempfile.tempdir = None  # look it up again
mine = str(inductor_cache(os.environ))
made = os.path.exists(mine)
import torch._dynamo
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
result([mine, default_cache_dir(), made])
"""


def test_the_cache_of_this_torch_version_is_inspected(records: Path) -> None:
    mine, torchs, made = result_of(records, CACHE, attach=False)
    assert (mine, made) == (torchs, False)
    assert Path(mine).parent == records.parent


# Every case begins with nothing compiled, and ends with what the stance is then.
BASELINE = (
    MODEL
    + """
import json, warnings
import warmwatch, torch._dynamo
from torch._dynamo import eval_frame
from torch._dynamo.utils import counters
from warmwatch.lifecycle import api as _current

def graphs():
    return counters["stats"].get("unique_graphs", 0)

def stance():
    return eval_frame._stance.stance

def stepped(model, optimizer, count=1, batch=4):
    seen = []
    for _ in range(count):
        train(model, optimizer, 1, batch)
        seen.append((warmwatch.state(), graphs()))
    return seen

def made(**options):
    torch._dynamo.reset(); counters.clear(); torch.manual_seed(0)
    warmwatch.attach(**options)
    model = Model(); o = torch.optim.SGD(model.parameters(), lr=.1)
    return torch.compile(model, backend="aot_eager"), o

def recorded():
    identity = _current.attached.agent.record.image().identity
    return identity.baseline_steps, identity.baseline_seconds is not None

def errors():
    return _current.attached.agent.record.image().compile.agent_errors

def plain():
    model, o = made()
    seen = stepped(model, o, 8)
    return seen[-1], stance(), train(model, o, 1)

def baseline():
    model, o = made(baseline_steps=4)
    eager = [stance(), *stepped(model, o, 4)]
    after = [stance(), *stepped(model, o, 4)]
    return eager, after, recorded(), train(model, o, 1)

def another_stance_of_the_users():
    model, o = made(baseline_steps=9)
    before = stepped(model, o, 2)
    torch.compiler.set_stance("default")
    after = stepped(model, o, 4)
    original = stance()
    torch.compiler.set_stance("default")
    return before, after, recorded(), original

def one_that_ends_after_it():
    model, o = made(baseline_steps=2)
    with torch.compiler.set_stance("force_eager"):
        stepped(model, o, 1)
        inside = stance()
        stepped(model, o, 2)
    return inside, stance(), stepped(model, o, 1)[-1][1]

def one_that_was_there_before():
    torch.compiler.set_stance("eager_on_recompile")
    model, o = made(baseline_steps=2)
    first = stance()
    stepped(model, o, 2)
    now = stance()
    torch.compiler.set_stance("default")
    return first, now

def detached_in_the_middle():
    model, o = made(baseline_steps=9)
    stepped(model, o, 2)
    held = stance()
    warmwatch.detach()
    return held, stance()

def detached_under_one_that_ends_after_it():
    model, o = made(baseline_steps=9)
    with torch.compiler.set_stance("eager_on_recompile"):
        warmwatch.detach()
        inside = stance()
    return inside, stance()

def too_late():
    model, o = made()
    stepped(model, o, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warmwatch.attach(baseline_steps=5)
    return stance(), [str(one.message) for one in caught]

def no_such_stance():
    original, torch.compiler.set_stance = torch.compiler.set_stance, None
    del torch.compiler.set_stance
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, o = made(baseline_steps=7)
    torch.compiler.set_stance = original
    return stance(), stepped(model, o, 1)[0][1], [str(one.message) for one in caught]

found = {}
for case in (plain, baseline, another_stance_of_the_users, one_that_ends_after_it,
             one_that_was_there_before, detached_in_the_middle,
             detached_under_one_that_ends_after_it, too_late, no_such_stance):
    found[case.__name__] = case()
    assert _current.attached is None or errors() == 0, case
    warmwatch.detach()
result(found)
"""
)


def test_the_first_steps_run_eagerly_if_requested(records: Path) -> None:
    found = result_of(records, BASELINE, attach=False)
    (state, graphs), stance, losses = found["plain"]
    assert (state, stance) == ("warm", "default")
    eager, after, reported, same = found["baseline"]
    assert eager == ["force_eager", *[["warming", 0]] * 4]
    assert after == ["default", *[["warming", graphs]] * 3, ["warm", graphs]]
    assert (reported, same) == ([4, True], losses)
    before, after, reported, retained = found["another_stance_of_the_users"]
    assert before == [["warming", 0]] * 2
    assert after == [*[["warming", graphs]] * 3, ["warm", graphs]]
    assert (reported, retained) == ([3, True], "default")
    assert found["one_that_ends_after_it"] == ["force_eager", "default", graphs]
    assert found["one_that_was_there_before"] == ["force_eager", "eager_on_recompile"]
    assert found["detached_in_the_middle"] == ["force_eager", "default"]
    ended = found["detached_under_one_that_ends_after_it"]
    assert ended == ["eager_on_recompile", "default"]
    stance, (warning,) = found["too_late"]
    assert stance == "default"
    assert warning == (
        "warmwatch: attach(baseline_steps=5) is ignored: the training has begun; "
        "call attach() before the first step"
    )
    stance, compiled, (warning,) = found["no_such_stance"]
    assert (stance, compiled) == ("default", graphs)
    assert "this PyTorch has no torch.compiler.set_stance" in warning
