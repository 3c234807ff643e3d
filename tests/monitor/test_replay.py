"""Replays: of generated histories, of a recording from an H100, and by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ranks import SECOND, K, Rank
from warmwatch._ending import End
from warmwatch.verdict import State
from warmwatch_monitor.cli import cli
from warmwatch_monitor.replay import replay

RECORDING = Path(__file__).resolve().parents[1] / "captures" / "h100_gpt2_124m_default.json"
ACTIONS = st.lists(st.sampled_from(("begin", "end", "step", "wait", "exit")), max_size=50)


def journal(rank: Rank) -> list[dict[str, Any]]:
    attach = {"t": rank.attached, "event": "attach", "k": K, "run": "t", "rank": 0}
    return [attach, *({"t": t, "event": e, **values} for e, t, values in rank.store.notes)]


def moment(t: int) -> dict[str, Any]:
    """A line that tells nothing but that this moment came, as one of a newer agent's may."""
    return {"t": t, "event": "of a newer agent"}


def drive(rank: Rank, action: str, open_events: list[str]) -> None:
    rank.wait(0.5)
    if action == "begin":
        open_events.append("dynamo")
        rank.ledger.begin("dynamo")
    elif action == "end" and open_events:
        rank.ledger.end(open_events.pop())
    elif action == "step" and not open_events:
        rank.step()


@settings(max_examples=200)
@given(ACTIONS, st.sampled_from((0, 0, 1, 2, 5, 9)))
def test_a_journal_replays_to_the_states_that_were(actions: list[str], eager: int) -> None:
    """At every moment of a generated history, with whatever is still open at its end.

    ``eager``: how many first steps are to run so on purpose.
    """
    rank, open_events = Rank(), list[str]()
    rank.run_eagerly(eager)
    states = [rank.judge().state]
    for action in actions:
        if action == "exit":
            rank.ledger.exit(End(how="finished"))
            break
        drive(rank, action, open_events)
        now = rank.judge()
        assert replay([*journal(rank), moment(rank.now)])[-1].state is now.state
        states.append(now.state)
    changes = [s for n, s in enumerate(states) if n == 0 or states[n - 1] is not s]
    replayed = [change.state for change in replay(journal(rank))]
    assert [s for s in replayed if s is not State.FINISHED] == changes


def recorded() -> tuple[Rank, list[tuple[float, str]]]:
    """The H100 recording, driven through the agent's own ledger and step marks."""
    rank, states, begun = Rank(), list[tuple[float, str]](), Rank().now
    for event in json.loads(RECORDING.read_text())["events"]:
        rank.now = begun + int(event["t"] * SECOND)
        if event["kind"] == "ph_start":
            rank.ledger.begin(event["name"])
        elif event["kind"] == "ph_end":
            rank.ledger.end(event["name"])
        elif event["kind"] == "step":
            rank.step()
        state = rank.judge().state.value
        if not states or states[-1][1] != state:
            states.append((event["t"], state))
    return rank, states


def test_the_recording_of_an_h100_is_judged_as_it_was() -> None:
    """Warm at step 4; the evaluation after step 13 and the ragged batch in step 19 reopen it."""
    rank, states = recorded()
    warm = [(t, s) for t, s in states if s in ("warm",)]
    assert [round(t, 3) for t, _ in warm] == [31.838, 43.685, 82.664]
    reopened = [t for n, (t, s) in enumerate(states) if n and states[n - 1][1] == "warm"]
    assert reopened == pytest.approx([32.18, 43.73], abs=0.02)
    compiled = rank.slot().compile
    assert compiled.warmups == 3
    assert compiled.first_warmup.steps == 1
    assert sum(compiled.phase_ns) / SECOND == pytest.approx(21.63 + 6.95 + 10.46 + 38.4, rel=0.03)
    assert [change.state for change in replay(journal(rank))] == [State(s) for _, s in states]


def test_the_command_shows_the_states_and_why(tmp_path: Path) -> None:
    rank, _ = recorded()
    lines = "".join(json.dumps(event) + "\n" for event in journal(rank))
    (tmp_path / "events.jsonl").write_text('{"torn\n' + lines)
    done = CliRunner().invoke(cli, ["replay", str(tmp_path)])
    assert done.exit_code == 0
    assert "31.838 s  warm         step 4; warm-up took 1 steps" in done.stdout
    as_json = CliRunner().invoke(cli, ["replay", str(tmp_path / "events.jsonl"), "--json"])
    states = [json.loads(line)["state"] for line in as_json.stdout.splitlines()]
    assert states[0] == "starting"
    assert states[-1] == "warm"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "name a journal"),
        ("nothing of ours\n", "no line of it is a journal's"),
        ('{"t": 1, "event": "begin", "activity": 1, "steps": 0}\n', "not a whole journal"),
        ('{"t": 1, "event": "attach", "k": 3}\n{"t": 2, "event": "begin"}\n', "lacks"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_sentence(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "events.jsonl"
    if content is not None:
        path.write_text(content)
    done = CliRunner().invoke(cli, ["replay", str(path)])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
