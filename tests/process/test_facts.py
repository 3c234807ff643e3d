"""What a training tells of itself so that it can be remembered: real ones, in real processes."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

from support import slots
from support.sources import poller
from support.trainings import result_of, training
from warmwatch._hashes import of_code
from warmwatch_monitor.export.words.sentence import summary

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
TOLD = (
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


def test_a_record_says_what_is_run_and_how_it_is_compiled(records: Path) -> None:
    git = records.parent / ".git"
    git.mkdir()
    (git / "HEAD").write_text(f"{COMMIT}\n")
    with training(records, TOLD) as started:
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
    told = slot.identity
    assert (told.script, told.commit) == ("train.py", COMMIT)
    assert told.caches == {"inductor": "cold", "triton": "cold"}
    assert told.compile_threads is not None


QUIET = """
import warmwatch._current
from warmwatch import _lifecycle
_lifecycle.attach("0.1.0", {}, quiet=True)
import torch._dynamo
result([])
torch.compile(make(), backend="eager", fullgraph=True)
gate("wrapped")
train(make(), torch.optim.SGD(make().parameters(), lr=.1), 1)
import warmwatch; warmwatch.step()
"""


def test_a_way_that_was_heard_before_there_was_a_record_is_told_with_it(records: Path) -> None:
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
import getpass, os, tempfile
from warmwatch._provenance import inductor_cache
mine = str(inductor_cache(os.environ))
import torch._dynamo
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
result([mine, default_cache_dir(), os.path.exists(mine)])
"""


def test_the_cache_that_is_looked_at_is_the_one_that_this_torch_uses(records: Path) -> None:
    env = {"TORCHINDUCTOR_CACHE_DIR": "", "TMPDIR": str(records.parent), "LOGNAME": "a:b"}
    mine, torchs, made = result_of(records, CACHE, attach=False, env=env, fresh=True)
    assert (mine, made) == (torchs, False)
