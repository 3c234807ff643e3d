"""What commands take for granted in a daemon's answer: its keys, and what lies under each.

Within one schema version keys are added, so the daemon of an earlier release lacks some, and what
answers in its place may say anything. That is found here, once, and not by whichever line of a
command happens to read it first. It is plain Python: to load a library for it would take longer
than all else that ``status`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from warmwatch.states import State

# A type; some kinds, of which it is one; a set of texts; [what all in a list are], with ... where
# it is never empty; keys and what lies under them: one with ? may be missing, and * is any.
_Kind = Any

_LARGEST = 2.0**64  # more counts nothing, and cannot be written as a duration either
_NOTHING = type(None)
_TEXT, _COUNT, _NUMBER, _FLAG = ((kind, _NOTHING) for kind in (str, int, float, bool))
_STATES = frozenset(state.value for state in State)
_PLACE = {"name": _TEXT, "file": _TEXT, "line": _COUNT}
_FUNCTION = {
    **_PLACE,
    **dict.fromkeys(("others", "compilations", "cache_hits", "cache_misses"), int),
    "seconds": float,
    "phase_seconds": {"*": float},
    "ops": _COUNT,
    "kernels": _COUNT,
}
_COMPILATION = {
    "name": _TEXT,
    "?file": _TEXT,
    "?line": _COUNT,
    "seconds": _NUMBER,
    "?total_seconds": _NUMBER,
    "category": _TEXT,
    "reason": _TEXT,
    "?plain": _TEXT,
    "advice": _TEXT,
}
_COMPILE = {
    "phase": _TEXT,
    "seconds": float,
    "recompiles": _COUNT,
    "graph_breaks": _COUNT,
    "?last": ([_COMPILATION], _NOTHING),
    "?breaks": ([{"count": int, "reason": str, "?advice": _TEXT}], _NOTHING),
    "?functions": ([_FUNCTION], _NOTHING),
    "?underway": (_PLACE, _NOTHING),
    "?progress": ({"of": str, "done": int, "total": int}, _NOTHING),
    "?varying": ([{"words": _TEXT}], _NOTHING),
}
_WORTH = {
    **dict.fromkeys(("tokens_per_second", "samples_per_second", "mfu_ratio"), _NUMBER),
    "estimated": bool,
}
_END = {
    "how": str,
    "?exit_code": _COUNT,
    "?exception": _TEXT,
    "?signal": _TEXT,
    "?out_of_memory": _FLAG,
}
_RANK = {
    "rank": int,
    "state": _STATES,
    "since": _NUMBER,
    "?attached_at": _NUMBER,
    "steps": int,
    "clean_steps": int,
    "?last_step_age_seconds": _NUMBER,
    "step_seconds": {"median": _NUMBER, "last": _NUMBER, "?typical": _NUMBER, "?recent": _NUMBER},
    "compile": _COMPILE,
    "warmup": {"ended": bool, "count": _COUNT},
    "pid": _COUNT,
    "host": _TEXT,
    "gpus": [str],
    "evidence": [str],
    "conditions": [{"condition": str, "words": str}],
    "?worth": (_WORTH, _NOTHING),
    "?end": (_END, _NOTHING),
}
_RUN = {
    "run": str,
    "?name": _TEXT,
    "?owner": _TEXT,
    "?owner_uid": _COUNT,
    "state": _STATES,
    "compiling": _FLAG,
    "warm": _FLAG,
    "summary": str,
    "?details": [str],
    "ranks": [_RANK, ...],
}
_GPU = {
    "uuid": str,
    "index": int,
    "name": _TEXT,
    "profile": _TEXT,
    "trouble": _TEXT,
    **dict.fromkeys(("utilization_ratio", "sm_active_ratio", "temperature_celsius"), _NUMBER),
    "power_watts": _NUMBER,
    "power_limit_watts": _NUMBER,
    "throttled": ([str], _NOTHING),
    "memory_used_bytes": _COUNT,
    "memory_total_bytes": _COUNT,
}
_OBSERVED = {
    "pid": int,
    "command": str,
    "gpus": [str],
    "cpu_ratio": _NUMBER,
    "likely_compiling": _FLAG,
    "evidence": [str],
}
_SOURCE = {"source": str, "up": bool, "last_success": _NUMBER, "error": _TEXT}
_ANSWER = {
    "summary": str,
    "?details": [str],
    "compiling": _FLAG,
    "warm": _FLAG,
    "?at": _NUMBER,
    "runs": [_RUN],
    "gpus": [_GPU],
    "?observed": [_OBSERVED],
    "sources": [_SOURCE],
    "?exports": [{"export": str, "up": _FLAG, "error": _TEXT}],
    "?directories": [str],
    "?incomplete": _TEXT,
}


def fault(answer: Mapping[str, Any]) -> str | None:
    """Where ``answer`` is not what commands read, as ``runs.ranks.state``; ``None``: nowhere."""
    return next(_faults(answer, _ANSWER, ""), None)


def _faults(value: Any, kind: _Kind, where: str) -> Iterator[str]:
    """The places below ``where`` that are something else; first of all ``where`` itself."""
    if isinstance(kind, tuple):
        if all(any(_faults(value, one, where or "it")) for one in kind):
            yield from _faults(value, kind[0], where)
    elif isinstance(kind, dict):
        yield from _of_object(value, kind, where)
    elif isinstance(kind, list):
        if not isinstance(value, list) or (not value and len(kind) > 1):
            yield where
        else:
            for one in value:
                yield from _faults(one, kind[0], where)
    elif not _is(value, kind):
        yield where


def _of_object(value: Any, kinds: Mapping[str, _Kind], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield where
        return
    for key, kind in kinds.items():
        name = key.removeprefix("?")
        place = f"{where}.{name}" if where else name
        if name == "*":
            for one in value.values():
                yield from _faults(one, kind, place)
        elif name in value:
            yield from _faults(value[name], kind, place)
        elif name == key:
            yield place


def _is(value: Any, kind: _Kind) -> bool:
    if isinstance(kind, frozenset):
        return isinstance(value, str) and value in kind
    if kind in (int, float):
        number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        return number and abs(value) < _LARGEST  # which what is no number (NaN) is not
    return isinstance(value, kind)
