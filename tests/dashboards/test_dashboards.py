"""The dashboards' JSON matches the code and names only what exists."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from support import dashboards, golden
from support.dashboards import BOARDS
from warmwatch.shared.record import PHASES
from warmwatch.shared.states import State
from warmwatch_monitor.metrics import RANK_SERIES

pytest.importorskip("grafana_foundation_sdk", reason="needs Python 3.11")

from warmwatch_dashboards import states
from warmwatch_dashboards.__main__ import differing


def _of_the_monitor() -> set[str]:
    lines = "\n".join(path.read_text() for path in golden.FOLDER.glob("metrics_*.txt"))
    reviewed = set(re.findall(r"^(\w+)[ {]", lines, re.MULTILINE))
    return reviewed | {series.name for series in RANK_SERIES}


def _of_rules() -> set[str]:
    text = "\n".join(path.read_text() for path in dashboards.RULES)
    recorded = re.findall(r"^\s*-?\s*record:\s*['\"]?([\w:]+)", text, re.MULTILINE)
    return set(recorded)


def test_the_json_matches_the_code(tmp_path: Path) -> None:
    assert differing(dashboards.FOLDER / "json") == []
    copy = shutil.copytree(dashboards.FOLDER / "json", tmp_path / "json")
    (copy / "warmwatch-run.json").write_text("{}\n")
    (copy / "warmwatch-gpu.json").unlink()
    (copy / "old.json").write_text("{}\n")
    assert differing(copy) == ["old.json", "warmwatch-gpu.json", "warmwatch-run.json"]


def test_every_queried_metric_exists() -> None:
    known = _of_the_monitor() | _of_rules() | {"ALERTS"}
    requested = [*dashboards.queries(), *(query for query, _ in dashboards.label_queries())]
    unknown = {query.where: query.metrics - known for query in requested if query.metrics - known}
    assert unknown == {}
    assert [query.where for query in requested if not query.metrics] == []


def test_names_of_metrics_are_found_in_an_expression() -> None:
    """This shows that the test above finds names at all."""
    expr = 'sum by (rank) (rate(a_total{b="c d{"}[5m])) * on (e) group_left (f) max(g:h:i) or j > 0'
    assert dashboards.Query("here", expr).metrics == {"a_total", "g:h:i", "j"}


@pytest.mark.parametrize("name", BOARDS)
def test_each_panel_has_a_description(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == name
    assert "warmwatch" in board["tags"]
    for panel in dashboards.panels(board):
        assert panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_names_and_numbers_of_panels_are_unique() -> None:
    assert set(BOARDS) == {"warmwatch-fleet", "warmwatch-gpu", "warmwatch-run"}
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        for key in ("id", "title"):
            used = Counter(panel[key] for panel in board["panels"])
            assert used.most_common(1)[0][1] == 1, used
        for panel in dashboards.panels(board):
            letters = [target["refId"] for target in panel["targets"]]
            assert len(set(letters)) == len(letters) > 0


def test_panels_fill_the_grid_without_covering_one_another() -> None:
    for board in BOARDS.values():
        places = [panel["gridPos"] for panel in board["panels"]]
        assert all(place["x"] + place["w"] <= 24 for place in places)
        assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def test_every_panel_reads_from_the_selected_data_source() -> None:
    def sources(node: Any) -> list[Any]:
        if isinstance(node, list):
            return [one for item in node for one in sources(item)]
        if isinstance(node, dict):
            here = [node["datasource"]] if "datasource" in node else []
            return here + [one for item in node.values() for one in sources(item)]
        return []

    for board in BOARDS.values():
        assert board["templating"]["list"][0]["type"] == "datasource"
        found = sources(board)
        assert len(found) > len(board["panels"])
        assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in found)


def test_links_lead_to_dashboards_and_variables_that_exist() -> None:
    links = re.findall(r"/d/([\w-]+)/\?var-(\w+)=", json.dumps(list(BOARDS.values())))
    assert {board for board, _ in links} == {"warmwatch-run", "warmwatch-gpu"}
    for board, variable in links:
        assert variable in {one["name"] for one in BOARDS[board]["templating"]["list"]}


def test_every_state_has_a_number_and_a_colour() -> None:
    assert set(states.NUMBERS) == {state.value for state in State}
    assert len(set(states.COLOURS.values())) == len(states.COLOURS)


def test_states_and_phases_have_the_colours_of_the_page_in_the_dark() -> None:
    css = files("warmwatch_monitor").joinpath("page", "page.css").read_text()
    dark = css.split("@media (prefers-color-scheme: dark)")[1]
    known = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", dark))
    assert set(states.PHASES) == set(PHASES)
    used = states.COLOURS | states.PHASES
    assert {name: known[name] for name in used} == used


def test_the_readme_names_every_panel() -> None:
    readme = (dashboards.FOLDER / "README.md").read_text()
    for name, board in BOARDS.items():
        part = readme.split(f"`{name}`", 1)[1].split("\n## ")[0]
        wanted = [panel["title"] for panel in dashboards.panels(board)]
        assert [title for title in wanted if f"| {title} |" not in part] == []
