"""Workers of a DataLoader that compile: what is reported of them, without records of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import slots
from support.daemon import completed, daemon, status_of
from support.records import wait_until
from support.trainings import training
from warmwatch.shared import record
from warmwatch.shared.record import workers_file

BODY = """
import os, time
from torch.utils.data import DataLoader, Dataset

def waits(graph, inputs):
    while not os.path.exists("go"): time.sleep(0.01)
    return graph.forward

def augment(x): return x * 2

class Noise(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.compile(augment, backend=waits)(torch.ones(8))

def main():
    model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
    loader = DataLoader(
        Noise(), 2, num_workers=2, multiprocessing_context=CONTEXT, persistent_workers=KEPT
    )
    for epoch in range(2):
        for batch in loader:
            model(batch).sum().backward(); o.step(); o.zero_grad()
        gate("trained")

if __name__ == "__main__": main()
"""


def rank(url: str) -> Any:
    (one,) = status_of(url)["runs"][0]["ranks"]
    return one


def held_by(one: Any) -> dict[str, str]:
    return {held["condition"]: held["words"] for held in one["conditions"]}


def compiling(one: Any) -> int:
    workers = one["compiling_workers"]
    return workers["compiling"] if workers else 0


@pytest.mark.parametrize(
    ("context", "kept"),
    [("fork", False), ("fork", True), pytest.param("spawn", False, marks=pytest.mark.long)],
)
def test_workers_that_compile_are_reported_with_the_remedy(
    records: Path, context: str, *, kept: bool
) -> None:
    body = BODY.replace("CONTEXT", repr(context)).replace("KEPT", str(kept))
    with training(records, body) as started, daemon(records) as url:
        wait_until(lambda: bool(status_of(url)["runs"]) and compiling(rank(url)) == 2)
        wait_until(lambda: rank(url)["state"] == "compiling")
        answer = status_of(url)
        words = r"2 DataLoader workers compile `augment`"
        assert re.fullmatch(
            rf"train: compiling for [\d.]+ (s|ms|min): {words}; each worker compiles for itself",
            answer["summary"],
        )
        (one,) = answer["runs"][0]["ranks"]
        assert "persistent_workers=True" in held_by(one)["workers_compile"]
        alone = completed("status", "--dir", str(records))
        assert alone.returncode == 3
        assert re.search(words, alone.stdout)
        (records.parent / "go").touch()
        started.reach("trained")
        wait_until(lambda: compiling(rank(url)) == 0)
        first = rank(url)["compiling_workers"]
        assert (first["processes"], first["at_once"], first["since"]) == (2, 2, None)
        assert first["seconds"] > 0
        started.go()
        started.reach("trained")
        wait_until(lambda: rank(url)["steps"] == 8)
        wait_until(lambda: rank(url)["compiling_workers"]["processes"] == (2 if kept else 4))
        held = held_by(rank(url))
        assert ("workers_compile" in held) is not kept
        if not kept:
            assert (
                "4 DataLoader workers have compiled `augment`, each separately"
                in (held["workers_compile"])
            )
        assert len(slots.folders(records)) == 1
        # what workers compile is not recorded as the training's own
        assert slots.read(slots.only(records)).compile.begun == 0


def test_a_worker_that_was_killed_while_it_compiled_compiles_no_longer(records: Path) -> None:
    body = BODY.replace("CONTEXT", "'fork'").replace("KEPT", "False")
    body = body.replace("if __name__", "import multiprocessing, threading\nif __name__").replace(
        "main()\n",
        """
    def killed():
        while not os.path.exists("kill"): time.sleep(0.01)
        for worker in multiprocessing.active_children(): worker.kill()
    threading.Thread(target=killed).start()
    try: main()
    except RuntimeError: pass
    gate("killed")
""",
    )
    with training(records, body) as started, daemon(records) as url:
        wait_until(lambda: bool(status_of(url)["runs"]) and compiling(rank(url)) == 2)
        (records.parent / "kill").touch()
        started.reach("killed")
        wait_until(lambda: compiling(rank(url)) == 0)
        entries = workers_file.unpack((slots.only(records) / record.WORKERS).read_bytes())
        assert any(one.since_ns for one in entries), "nobody has ended it"


def test_entries_survive_damage_and_have_a_bound() -> None:
    entry = workers_file.Entry(1, 2, 3, 4, 5, "é" * 80)
    packed = workers_file.pack(entry)
    (read,) = workers_file.unpack(packed)
    assert read == entry._replace(name="é" * 40)
    assert workers_file.unpack(packed[:-1]) == ()
    damaged = b"\0" * workers_file.SIZE + packed + b"rest"
    assert workers_file.unpack(damaged) == (workers_file.Entry(), read)
    assert len(workers_file.unpack(packed * 100)) == workers_file.MOST
    (escaped,) = workers_file.unpack(workers_file.pack(entry._replace(name="a\x1b[31m\n")))
    assert escaped.name == "a[31m"
