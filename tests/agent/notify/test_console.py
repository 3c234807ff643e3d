"""Console messages: which ranks print them, and their text; no other text is printed."""

from __future__ import annotations

import io
import logging
import sys
from bisect import bisect_left

import pytest
from tqdm import tqdm

from support import builders as b
from support.values import replace
from warmwatch import _guard
from warmwatch.frameworks.ipython import answer
from warmwatch.notify.console import Announcer
from warmwatch.process.ending import End
from warmwatch.shared import record
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import Slot

RECOMPILE = {
    "kind": "forward",
    "category": "shape",
    "reason": "0/0: tensor 'x' size mismatch at index 0. expected 16, actual 7",
    "seconds": 2.1,
    "name": "forward",
    "file": "model.py",
    "line": 31,
}


def announcer(slot: Slot = b.WARM, rank: int | None = 0, *, shown: bool = True) -> Announcer:
    return Announcer(shown=shown, slot=lambda: slot, rank=lambda: rank)


def of_equal_steps(seconds: float) -> Slot:
    """Warm, of three clean steps of this length."""
    length = round(seconds * 1e9)
    steps = replace(b.WARM.steps, steps=4)
    began = steps.last_step_ns - 3 * length
    counts = replace(b.WARM.compile, clean_after=1, irregular_step_ns=began, clean_sum_ns=0)
    bins = [0] * record.BINS
    bins[bisect_left(record.BOUNDS_NS, length)] = 3
    return replace(
        b.WARM, steps=steps, compile=counts, clean_bins=tuple(bins), recent=b.ring(*[length] * 3)
    )


class Output:
    """All that was written to stderr so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._so_far = capsys, ""

    def getvalue(self) -> str:
        self._so_far += self._capsys.readouterr().err
        return self._so_far


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


def test_a_long_compilation_is_reported_with_its_phase(output: Output) -> None:
    announcer(b.COMPILING).long(1, True)
    assert output.getvalue() == "warmwatch: compiling for 10 s (inductor)\n"


@pytest.mark.parametrize(
    ("by", "words"),
    [("quiet", "no compile event for 30 s"), ("ready", "ready() was called")],
)
def test_the_warm_message_without_steps_names_the_reason(
    output: Output, by: str, words: str
) -> None:
    counts = replace(
        b.WARM.compile,
        settled=b.WARM.compile.begun + 1,
        settled_by=record.SETTLED_BY.index(by),
        settled_ns=b.WARM.compile.last_end_ns + 30 * b.SECOND,
    )
    slot = replace(b.WARM, compile=counts, steps=record.StepCounts(), recent=())
    bins = (0,) * record.BINS
    slot = replace(slot, clean_bins=bins)
    announcer(slot).warm()
    assert output.getvalue() == f"warmwatch: warm: {words}\n"
    assert answer(slot, "warm") == f"warm: {words}"


def test_a_function_disabled_by_a_setting_is_not_at_a_limit(output: Output) -> None:
    announcer().fallback({"name": "forward", "setting": "disable"})
    assert "calls of `forward` run eagerly" in output.getvalue()
    assert "limit" not in output.getvalue()


def test_similar_steps_are_reported_exactly_and_not_by_their_bin(output: Output) -> None:
    """As the monitor does: it stands in the same terminal."""
    slot = of_equal_steps(4.01)
    announcer(slot).warm()
    announcer(slot).ended(End(how="finished"))
    warm, end = output.getvalue().splitlines()
    assert warm.endswith("; 4.01 s a step")
    assert end.endswith(", 4.01 s a clean step (whole run)")
    assert answer(slot, "warm") == "warm since step 4: 4.01 s a step so far; 4 steps"


def test_a_recompile_is_reported_with_reason_and_remedy(output: Output) -> None:
    announcer().compiled(RECOMPILE)
    line = output.getvalue()
    assert "recompiled `forward` (model.py:31) in step " in line
    why = plain(f"{RECOMPILE['reason']}", "shape")
    assert f"in 2.1 s: {why}. {ADVICE['shape']}" in line
    announcer().compiled({"name": "forward", "seconds": 9.0})  # no recompile
    announcer().compiled({**RECOMPILE, "at_limit": True})  # reported as a fallback
    assert output.getvalue() == line


def test_many_recompiles_are_not_reported_one_by_one(output: Output) -> None:
    one = announcer()
    for _ in range(50):
        one.compiled(RECOMPILE)
    lines = output.getvalue().splitlines()
    assert len(lines) == 20
    assert lines[-1] == "warmwatch: 20 recompiles; further ones are not reported"


def test_the_end_is_reported_with_the_summary(output: Output) -> None:
    announcer().ended(End(how="finished"))
    announcer().ended(End(how="failed", exception="ValueError", code=1))
    ended, failed = output.getvalue().splitlines()
    assert ended.startswith("warmwatch: ended after ")
    assert "of compiling" in ended
    assert "36 ms a clean step (whole run)" in ended
    assert failed.startswith("warmwatch: failed (ValueError) after ")


def test_other_ranks_report_only_problems_and_helpers_no_message(output: Output) -> None:
    for one in (announcer(rank=3), announcer(rank=None)):
        one.warm()
        one.long(1, True)
        one.compiled(RECOMPILE)
        one.ended(End(how="finished"))
    assert output.getvalue() == ""
    announcer(rank=3).fallback({"name": "forward"})
    assert output.getvalue().startswith("warmwatch: rank 3: new inputs of `forward` run eagerly")
    announcer(rank=None).fallback({"name": "forward"})
    assert len(output.getvalue().splitlines()) == 1


def test_no_message_is_printed_unless_requested(
    output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):  # of the root: the user's own lines
        announcer(shown=False).warm()
    assert (output.getvalue(), caplog.messages) == ("", [])


def test_a_tqdm_bar_is_cleared_for_the_line(output: Output) -> None:
    with tqdm(total=5) as bar:
        bar.update(1)
        bar.refresh()
        announcer().warm()
    before, _, _ = output.getvalue().partition("warmwatch: warm")
    drawn = before.rpartition("\r")[2]
    assert drawn.strip() == ""  # the line begins where the bar was wiped away
    assert "warmwatch: warm since step 4, after 120 s; 36 ms a step\n" in output.getvalue()


def test_a_failing_handler_does_not_stop_the_stream_and_vice_versa(
    output: Output, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, _error: reported.append(where))
    words = "warm since step 4, after 120 s; 36 ms a step"
    with caplog.at_level(logging.INFO, logger="warmwatch"):
        with monkeypatch.context() as refusing:
            refusing.setattr(sys.stderr, "write", None)
            announcer().warm()
        assert (caplog.messages, reported) == ([words], ["say"])
        refused = logging.Handler()
        logging.getLogger("warmwatch").addHandler(refused)  # whose emit() raises
        try:
            announcer().warm()
        finally:
            logging.getLogger("warmwatch").removeHandler(refused)
    assert output.getvalue().count(words) == 1
    assert reported == ["say", "say"]


def test_a_stream_that_the_program_closed_is_no_error_of_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, _error: reported.append(where))
    (closed := io.StringIO()).close()
    for stdout, stderr in ((closed, io.StringIO()), (io.StringIO(), closed), (_Terminal(), None)):
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        announcer().attached()
        announcer().warm()
    assert reported == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("rank", [0, 1, None])
@pytest.mark.parametrize("out", [_Terminal(), io.StringIO(), None])
def test_a_terminal_gets_one_line_with_the_name_of_the_run(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO | None, rank: int | None
) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error := _Terminal())
    announcer(rank=rank, shown=False).attached()
    line = "warmwatch: run gpt2; in another terminal: warmwatch status gpt2\n"
    assert error.getvalue() == (line if rank == 0 and isinstance(out, _Terminal) else "")
