"""That nothing compiles is said only where the hooks and the process tree show it."""

from __future__ import annotations

import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor.figures.machine import Compiler
from warmwatch_monitor.model.machine import ProcessReading

UNREAD = ProcessReading(pid=7, cpu_seconds=9.0, resident_bytes=1, cpu_ratio=0.0)
READ = replace(UNREAD, tree_read=True)
SLOT = b.in_every_state()["stalled"].record.slot


def below(name: str, *, busy: bool | None) -> ProcessReading:
    compiler = Compiler(pid=8, name=name, cpu_seconds=1.0, busy=busy)
    return replace(READ, compilers=(compiler,))


@pytest.mark.parametrize(
    ("process", "missing", "said"),
    [
        (READ, (), "nothing compiles"),
        (READ, ("cache_misses",), "nothing compiles"),
        (READ, ("events",), "nothing compiles"),  # callbacks show it too
        (UNREAD, (), "PyTorch compiles nothing"),
        (READ, ("triton",), "PyTorch compiles nothing"),
        (READ, ("child_processes",), "PyTorch compiles nothing"),
        (READ, ("events", "callbacks"), "whether it compiles is not known"),
        (READ, ("event_names",), "whether it compiles is not known"),
        (below("cc1plus", busy=True), (), "`cc1plus` runs below it"),
        (below("cc1plus", busy=None), (), "`cc1plus` runs below it"),
        (below("cc1plus", busy=False), (), "nothing compiles"),
        (replace(READ, workers_busy=2, workers_idle=1), (), "2 compile workers busy"),
    ],
)
def test_that_nothing_compiles_is_said_only_where_it_is_known(
    process: ProcessReading, missing: tuple[str, ...], said: str
) -> None:
    slot = replace(SLOT, identity=replace(SLOT.identity, missing=missing))
    assert b.in_words(b.view(slot, process=process)).endswith(f" and {said}")
