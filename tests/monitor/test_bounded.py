"""Files that a command reads whole: special ones, and those that are larger than any real one."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from warmwatch_monitor.base.access import Access
from warmwatch_monitor.base.errors import FleetError, UsageError, WarmwatchError
from warmwatch_monitor.base.timeouts import read_text
from warmwatch_monitor.commands.check.baseline import parsed
from warmwatch_monitor.commands.report.command import traced
from warmwatch_monitor.sources.fleet import samples

URL = "http://prometheus:9090"
MEMORY = 64 << 20  # bytes


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_text_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("texté")
    assert read_text(tmp_path / "text", 6) == "texté"
    with pytest.raises(OSError, match="it is larger than 0 KiB"):
        read_text(tmp_path / "text", 5)
    for endless in ("/dev/zero", sparse(tmp_path / "long", 300 << 20)):
        with pytest.raises(OSError, match="it is larger than 1 MiB"):
            read_text(endless, 1 << 20, pipes=True)


def test_a_special_file_is_refused_unless_pipes_are_allowed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "special file"), ("/dev/zero", "special file")):
        with pytest.raises(OSError, match=f"it is a {what}"):
            read_text(path, 1 << 20)
    with pytest.raises(OSError, match="it is a directory"):
        read_text(tmp_path, 1 << 20)
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("piped",))
    writer.start()
    assert read_text(tmp_path / "pipe", 1 << 20, pipes=True) == "piped"
    writer.join()


def test_a_file_with_a_token_is_short() -> None:
    with pytest.raises(UsageError, match="cannot read /dev/zero: it is larger than 64 kib"):
        Access(token_file="/dev/zero").authorization()


@pytest.mark.parametrize("what", ["pipe", "directory", "endless", "cut off", "list", "nested"])
def test_damaged_output_of_tlparse_is_one_sentence(tmp_path: Path, what: str) -> None:
    index = tmp_path / "compile_directory.json"
    if what == "pipe":
        os.mkfifo(index)
    elif what == "directory":
        index.mkdir()
    elif what == "endless":
        index.symlink_to("/dev/zero")
    else:
        text = {"cut off": '{"[0/0]": {', "list": "[1, 2]", "nested": '{"a": ' * 100_000}
        index.write_text(text[what])
    with pytest.raises(
        WarmwatchError, match=r"cannot be read \(it is .*\); write it with: tlparse"
    ):
        traced(str(tmp_path), "report.html")


@pytest.mark.parametrize(
    "keys",
    [
        [",".join(["0-99999"] * 400)],
        [f"{first}-{first + 99_998}" for first in range(0, 9 * 100_000, 100_000)],
    ],
)
def test_a_baseline_of_huge_ranges_is_refused_before_it_takes_memory(keys: list[str]) -> None:
    ranks = {key: {"graphs": 1} for key in keys}
    text = json.dumps({"schema": 1, "runs": {"gpt2": {"ranks": ranks}}})
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="it has more than 100,000 ranks"):
            parsed(text)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b"[]", b'{"metric":{}}', b'"x"'])
def test_another_answer_than_prometheus_takes_no_memory(part: bytes) -> None:
    body = b'{"status":"success","data":{"result":[' + b",".join([part] * (4 << 20)) + b"]}}"
    for answer in (body, b"[" + b"[]," * (4 << 20) + b"[]]", b"[" * (4 << 20)):
        tracemalloc.start()
        try:
            with pytest.raises(FleetError, match=r"does not answer as Prom|more than 2,000"):
                list(samples.samples(answer, URL))
            assert tracemalloc.get_traced_memory()[1] < MEMORY
        finally:
            tracemalloc.stop()


def test_more_series_than_any_fleet_has_are_refused() -> None:
    one = b'{"metric":{"__name__":"warmwatch_up"},"value":[1,"1"]}'
    body = b'{"status":"success","data":{"result":[' + b",".join([one] * 2_000_001) + b"]}}"
    with pytest.raises(FleetError, match="answers with more than 2,000,000 series; name one run"):
        list(samples.samples(body, URL))
