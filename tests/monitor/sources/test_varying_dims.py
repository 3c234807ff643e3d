"""Varying dimensions, collected from a journal and reported with their values."""

from __future__ import annotations

import json
from pathlib import Path

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.requested import last_remedy
from warmwatch_monitor.status.words.sentence import answer

SIZES = (48, 50, 64, 52, 54, 56, 58, 60, 62)
PAD = "pad to your largest size"
STATIC = "leave dynamic=False (or automatic_dynamic_shapes = False) out"
MS = b.SECOND // 1000


def reason(sizes: tuple[int, ...], tensor: str = "tokens") -> str:
    """Dynamo's words for the last of ``sizes``: one line for each entry compiled before it."""
    *compiled, new = enumerate(sizes)
    return "\n".join(
        f"0/{n}: tensor '{tensor}' size mismatch at index 1. expected {old}, actual {new[1]}"
        for n, old in reversed(compiled)
    )


def forward(n: int, why: str, t: int = 5) -> dict[str, object]:
    reported = {"seconds": 8.0, "name": "forward", "reason": why, "category": "shape"}
    reported["dynamic"] = False
    return {"t": t, "event": "compilation", "kind": "forward", "id": f"0/{n}", **reported}


def backward(n: int) -> dict[str, object]:
    return {"t": 5, "event": "compilation", "kind": "backward", "id": f"0/{n}", "seconds": 3.0}


def ragged(sizes: tuple[int, ...], tensor: str = "tokens") -> list[dict[str, object]]:
    lines = []
    for n in range(1, len(sizes)):
        lines += [forward(n, reason(sizes[: n + 1], tensor)), backward(n)]
    return lines


def followed(path: Path, *entries: dict[str, object]) -> Journal:
    """A journal that a monitor polls after each of its lines."""
    journal = Journal()
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file, Folder(str(path.parent)) as folder:
        for entry in entries:
            file.write(f"{json.dumps(entry)}\n")
            file.flush()
            journal.follow(folder)
    return journal


def rank(journal: Journal, base: b.Slot = b.WARM) -> RankView:
    known = {"varying": journal.sums.varying.dims, "warm_since": journal.sums.varying.warm_since}
    return b.view(base, compilations=journal.sums.compilations, journal=known)


def test_all_recompiles_count_and_not_only_the_stored_ones(tmp_path: Path) -> None:
    sizes = tuple(range(48, 90))
    (one,) = followed(tmp_path / "events.jsonl", *ragged(sizes)).sums.varying.dims
    assert (one.tensor, one.dim, one.values) == ("tokens", 1, sizes)
    assert (one.count, one.seconds) == (41, 41 * 11.0)


def test_sizes_of_evaluations_are_apart(tmp_path: Path) -> None:
    evaluated = [{**forward(n, reason((8, 9, 10)[: n + 1])), "evaluating": True} for n in (1, 2)]
    dims = followed(tmp_path / "events.jsonl", *ragged((48, 50)), *evaluated).sums.varying.dims
    assert [one.values for one in dims] == [(48, 50), (8, 9, 10)]


def test_the_remedy_has_the_numbers(tmp_path: Path) -> None:
    words = evidence(rank(followed(tmp_path / "events.jsonl", *ragged(SIZES))))
    made = "dim 1 of `tokens` was compiled for 9 sizes, from 48 to 64"
    assert f"{made}; each cost 11 s: {STATIC}, or {PAD}" in words


def test_a_size_that_automatic_dynamic_shapes_did_not_keep_dynamic_is_not_to_be_marked(
    tmp_path: Path,
) -> None:
    lines = [{**line, "dynamic": None} for line in ragged(SIZES)]
    words = evidence(rank(followed(tmp_path / "events.jsonl", *lines)))
    assert any(one.endswith(f": {PAD}; marking it dynamic does not help") for one in words)


def test_a_size_that_pytorch_specializes_needs_more_than_mark_dynamic(
    tmp_path: Path,
) -> None:
    lines = [{**line, "dynamic": None} for line in ragged((48, 64, 1, 50))]
    words = evidence(rank(followed(tmp_path / "events.jsonl", *lines)))
    assert any(one.endswith(f": {PAD}; marked dynamic, 0 and 1 stay apart") for one in words)


def test_the_length_of_clean_steps_before_and_since_is_reported(tmp_path: Path) -> None:
    journal = followed(
        tmp_path / "events.jsonl",
        {"t": 1000 * MS, "event": "warm", "at": 4},
        {"t": 4600 * MS, "event": "begin", "what": "dynamo", "steps": 104},
        *(first := ragged(SIZES)[:-2]),
        {"t": 4600 * MS, "event": "begin", "what": "dynamo", "steps": 105},
        *ragged(SIZES)[len(first) :],
        {"t": b.ago(41.0), "event": "warm", "at": 2602},
    )
    slot = replace(b.WARM, steps=replace(b.WARM.steps, last_step_ns=b.NOW))
    found = evidence(rank(journal, slot))
    expected = "pad to your largest size (a clean step took 36 ms before it changed, 41 ms since)"
    assert any(words.endswith(expected) for words in found), found


def test_the_sentence_names_the_varying_dimension_of_a_recompile(tmp_path: Path) -> None:
    lines = [{**line, "t": b.ago(1.0)} for line in ragged(SIZES)]
    journal = followed(tmp_path / "events.jsonl", *lines)
    counts = replace(
        b.RECOMPILING.compile, active_since_ns=0, active_phase=0, ended=3, last_end_ns=b.ago(0.5)
    )
    view = rank(journal, replace(b.RECOMPILING, compile=counts))
    took = "dim 1 of `tokens` was compiled for 9 sizes, from 48 to 64"
    assert b.parts(answer(b.snapshot(view))) == (
        f"gpt2: {b.head(view)}: {took}",
        (f"reason: {took}; each cost 11 s: {STATIC}, or {PAD}",),
    )


def test_torch_2_6_gives_the_same_name_and_a_symbolic_guard_finds_its_value(
    tmp_path: Path,
) -> None:
    old = "L['batch']['ids']"
    symbol = f"0/2: 2 <= {old}.size()[1]  # ids.sum()  # train.py:3 in f\n"
    lines = ragged((8, 9, 10), old)
    lines.append(forward(3, symbol + f"0/0: {reason((8, 1), old)[5:]}"))
    (one,) = followed(tmp_path / "events.jsonl", *lines).sums.varying.dims
    assert (one.tensor, one.values, one.count) == ("batch['ids']", (1, 8, 9, 10), 3)


def test_a_recompile_for_another_cause_is_not_attributed_to_older_entries(
    tmp_path: Path,
) -> None:
    lines = ragged((8, 9))
    lines.append(forward(2, f"0/1: n == 3\n{reason((8, 9))}"))
    (one,) = followed(tmp_path / "events.jsonl", *lines).sums.varying.dims
    assert one.count == 1


def numbered(values: tuple[int, ...], seconds: float | None = 0.1) -> list[dict[str, object]]:
    """Recompiles for an attribute of a module, as Dynamo writes them: without the new value."""
    lines = []
    for new in range(1, len(values)):
        why = "\n".join(
            f"0/{n}: self.step == {values[n]:<50}# return x * self.step  # train.py:9 in forward\n"
            "User stack trace:"
            for n in reversed(range(new))
        )
        reported = {**forward(new, why), "category": "python_value", "seconds": seconds}
        lines.append(reported)
    return lines


def test_a_number_that_keeps_recompiling_a_function_is_reported(tmp_path: Path) -> None:
    lines = [{**line, "dynamic": None} for line in numbered((5, -6, 7, 8, 9))]
    view = rank(followed(tmp_path / "events.jsonl", *lines[:-1]))
    each = "each cost 100 ms: the code makes a constant of this integer"
    reported = "`self.step` was compiled for 4 values, from -6 to 7 and one more"
    assert f"{reported}; {each}" in "; ".join(evidence(view))
    told = [{**line, "actual": value} for line, value in zip(lines, ("-6", "7", "8"), strict=False)]
    read = rank(followed(tmp_path / "told" / "events.jsonl", *told))
    assert "`self.step` was compiled for 4 values, from -6 to 8; each" in "; ".join(evidence(read))
    log = view.figures.log
    assert last_remedy(log)
    assert not last_remedy(log, [dim.helps for dim in log.varying])  # a condition shows it
    lines[-1].update(at_limit=True)  # its reason names the last one that was compiled
    full = rank(followed(tmp_path / "events.jsonl", lines[-1]))
    assert f"`self.step` was compiled for 4 values, from -6 to 8; {each}" in "; ".join(
        evidence(full)
    )
    (shown,) = status(b.snapshot(view))["runs"][0]["ranks"][0]["compile"]["varying"]
    assert (shown["tensor"], shown["dim"], shown["values"]) == ("self.step", None, [-6, 5, 7])


def test_a_call_that_was_refused_at_the_limit_is_not_counted_as_compiled(tmp_path: Path) -> None:
    """Its value is: the call had it."""
    lines = numbered((5, 6, 7, 8, 9))
    lines[-1].update(at_limit=True, seconds=0.001)
    (one,) = followed(tmp_path / "events.jsonl", *lines).sums.varying.dims
    assert (one.count, one.timed) == (3, 3)
    assert "each cost 100 ms" in " ".join(evidence(b.view(b.WARM, journal={"varying": (one,)})))
