"""Processes whose cgroup is frozen, by the files of version 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmwatch_monitor.sources import cgroups, proc
from warmwatch_monitor.sources.cgroups import thaw

V2 = ("cgroup.events", "populated 1\nfrozen {}\n", "cgroup.freeze")
V1 = ("freezer.state", "{}\n", "freezer.self_freezing")


@pytest.mark.parametrize(
    ("mount", "line", "files", "words", "thawing"),
    [
        ("", "0::", V2, ("0", "1"), "0 > {}/cgroup.freeze"),
        ("/unified", "0::", V2, ("0", "1"), "0 > {}/cgroup.freeze"),
        ("/freezer", "6:freezer:", V1, ("THAWED", "FROZEN"), "THAWED > {}/freezer.state"),
    ],
    ids=["v2", "both", "v1"],
)
def test_the_group_that_is_frozen_is_named_not_one_below_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mount: str,
    line: str,
    files: tuple[str, str, str],
    words: tuple[str, str],
    thawing: str,
) -> None:
    shown, text, own = files
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    monkeypatch.setattr(cgroups, "MOUNT", f"{tmp_path}/cgroup")
    pod = Path(f"{tmp_path}/cgroup{mount}/pod")
    (pod / "container").mkdir(parents=True)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"9:cpu:/other\n{line}/pod/container\n")

    def freezes(container: int, around: int) -> str | None:
        for group, frozen, itself in (
            (pod / "container", container or around, container),
            (pod, around, around),
        ):
            (group / shown).write_text(text.format(words[frozen]))
            (group / own).write_text(f"{itself}\n")
        return thaw(7)

    assert freezes(0, 0) is None
    assert freezes(0, 1) == thawing.format(pod)
    assert freezes(1, 0) == thawing.format(pod / "container")
    assert thaw(8) is None
