"""A daemon's answer that is not of this release: refused in words, or read to its end."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import to_builtins

from support import builders as b
from support.documents import status
from warmwatch.shared.states import State
from warmwatch_monitor.client.choice import choose
from warmwatch_monitor.client.daemon import decoded
from warmwatch_monitor.commands.status import exit_code, picture
from warmwatch_monitor.commands.terminal.table import functions
from warmwatch_monitor.commands.top.chart import Window
from warmwatch_monitor.commands.top.detail import PANES, Shown, detail
from warmwatch_monitor.commands.top.history import History
from warmwatch_monitor.commands.top.listing import listing
from warmwatch_monitor.commands.wait import Wait
from warmwatch_monitor.model.journal import Cost
from warmwatch_monitor.model.records import FunctionCost

FUNCTION = FunctionCost(
    name="forward",
    file="model.py",
    line=31,
    compilations=3,
    seconds=32.0,
    cache_misses=2,
    cost=Cost(phase_seconds={"dynamo": 2.0}, ops=130, kernels=186),
)
VARYING = {"tensor": "x", "values": [8], "complete": True, "count": 1, "words": "pad it"}
WORTH = {
    "tokens_per_second": 43e3,
    "samples_per_second": None,
    "mfu_ratio": 0.41,
    "estimated": True,
    "dtype": "bfloat16",
}
OBSERVED = {
    "pid": 7,
    "command": "python train.py",
    "gpus": [],
    "cpu_ratio": 0.9,
    "likely_compiling": None,
    "evidence": ["it uses a GPU"],
}
Path = tuple[str | int, ...]


def rich() -> dict[str, Any]:
    """An answer with every key that commands read."""
    gpu = b.gpu(temperature_celsius=61.0)
    view = b.view(
        b.RECOMPILING,
        compilations=(b.RECOMPILATION,),
        journal={"recompile": b.RECOMPILE, "functions": (FUNCTION,)},
    )
    answer: dict[str, Any] = copy.deepcopy(
        {**status(b.snapshot(view, gpus=(gpu,))), "at": b.EPOCH, "observed": [OBSERVED]}
    )
    rank = answer["runs"][0]["ranks"][0]
    rank |= {"worth": WORTH, "gpus": [gpu.uuid], "attached_at": b.EPOCH}
    rank["conditions"] = [{"condition": "fallback", "words": "a function runs eagerly"}]
    rank["compile"]["breaks"] = [{"count": 2, "reason": "print", "advice": None}]
    rank["compile"]["progress"] = {"of": "kernels", "done": 31, "total": 86}
    rank["compile"]["varying"] = [VARYING]
    return answer


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Where each thing of an answer lies."""
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, one in value.items() if isinstance(value, dict) else inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def sent(answer: dict[str, Any]) -> bytes:
    """What a daemon sends of an answer."""
    return json.dumps(answer).encode()


def fault(answer: dict[str, Any]) -> str | None:
    """Why a client refuses an answer; ``None``: it does not."""
    try:
        decoded(sent(answer))
    except ValueError as error:  # a ValidationError is one
        return str(error)
    return None


def read_by_commands(answer: dict[str, Any]) -> None:
    """All that ``status``, ``wait`` and ``top`` make of an answer."""
    answer = choose(to_builtins(decoded(sent(answer))), None, 0)
    picture(answer, every_rank=True)
    exit_code(answer)
    functions(answer["runs"], 80)
    for goal in ("warm", "ended"):
        Wait(lambda: answer, "gpt2", [goal], lambda *_: None).block(0.0)
    seen = History()
    seen.add(answer, b.EPOCH)
    shown = listing(answer, b.EPOCH, 80, needle="gpt2")
    for entry in shown.entries:
        of = Shown(answer, entry, seen, Window(b.EPOCH, 60.0), 80, 20)
        for pane in PANES:
            detail(of, pane)


_ABSENT = object()


def put(answer: Any, path: Path, value: object) -> object:
    """Have ``value`` there, or nothing; what was there."""
    for key in path[:-1]:
        answer = answer[key]
    before = answer.get(path[-1], _ABSENT) if isinstance(answer, dict) else answer[path[-1]]
    if value is _ABSENT:
        del answer[path[-1]]
    else:
        answer[path[-1]] = value
    return before


def refused_or_read(value: object) -> int:
    """Put ``value`` in each place of an answer; return how many are refused. The others are read.

    All places of one depth together, which takes a hundredth of the time.
    """
    whole, refused = rich(), 0
    by_depth: dict[int, list[Path]] = {}
    for path in list(places(whole)):
        if value is _ABSENT and not isinstance(path[-1], str):
            continue
        before = put(whole, path, value)
        if fault(whole) is None:
            by_depth.setdefault(len(path), []).append(path)
        else:
            refused += 1
        put(whole, path, before)
    for paths in by_depth.values():
        changed = rich()
        for path in paths:
            put(changed, path, value)
        read_by_commands(changed)
    return refused


@pytest.mark.parametrize("state", State)
def test_an_answer_of_this_release_is_valid(state: State) -> None:
    view = b.in_every_state()[state.value]
    assert fault(status(b.snapshot(view))) is None
    assert fault(status(b.snapshot())) is None
    assert fault(rich()) is None


def test_keys_of_a_newer_daemon_are_ignored() -> None:
    answer = rich()
    answer["runs"][0]["ranks"][0]["newer"] = answer["newer"] = {"deep": [1, None]}
    assert decoded(sent(answer)) == decoded(sent(rich()))


def test_a_name_with_invalid_utf_8_is_read() -> None:
    answer = rich()
    answer["runs"][0]["run"] = "gpt\udcff"
    assert decoded(sent(answer)).runs[0].run == "gpt\udcff"


def test_an_answer_without_a_key_is_refused_or_rendered_completely() -> None:
    assert refused_or_read(_ABSENT) > 50


@pytest.mark.parametrize("odd", [None, "?", [], {}, ["?"], True, -1, 10**400, math.nan])
def test_an_answer_with_a_wrong_type_is_refused_or_rendered_completely(odd: object) -> None:
    assert refused_or_read(odd) > 20


def test_the_refusal_names_the_missing_key() -> None:
    answer = rich()
    del answer["runs"][0]["ranks"][0]["warmup"]
    missing = "Object missing required field `warmup` - at `$.runs[0].ranks[0]`"
    assert fault(answer) == missing
