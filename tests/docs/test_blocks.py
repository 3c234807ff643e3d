"""Every block of code that is no session is read or run by the program that it is for."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from support.records import environment
from support.sessions import NOT_RUN, PAGES, Block, blocks
from support.trainings import ROOT, run
from warmwatch_monitor.commands.check import baseline
from warmwatch_monitor.commands.cli import cli

# What a page's Python takes for granted, and what its program has before.
GIVEN = {
    "attach": "model = None\ndef evaluate(model): pass\nsave = evaluate",
    "compilers": "import types, warmwatch\n"
    "a = b = c = gemm = None\ncute = types.SimpleNamespace(compile=lambda *given: given)",
    "debug-a-hang": """
import os, warmwatch, multiprocessing
import torch.distributed as dist
from datetime import timedelta
from torch.distributed.elastic import timer
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
timer.configure(timer.LocalTimerClient(multiprocessing.Queue()))
batch = None
def train_step(batch): pass
""",
    "eager-baseline": "import warmwatch",
    "python-api": "callback = print",
    "server-readiness": """
import logging, threading, torch, warmwatch
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fastapi import FastAPI, Response
log, app, WIDTH = logging.getLogger(), FastAPI(), 8
def predict(batch): pass
def warm_up_requests(): return [None]
""",
}
SHAPES = {"scrape_configs", "remote_write"}  # of a Prometheus' configuration


def found(*languages: str) -> Iterator[Any]:
    """The blocks in these languages, which no comment leaves out, with their pages."""
    for page in PAGES:
        every = [one for one in blocks(page.read_text()) if one.language in languages]
        for number, block in enumerate(every):
            if block.not_run is None and page.parent.name != "tutorials":
                yield pytest.param(page, block, id=f"{page.stem}-{number}")


@pytest.mark.parametrize(("page", "block"), [*found("yaml")])
def test_yaml_blocks_are_accepted_by_their_program(
    page: Path, block: Block, tmp_path: Path
) -> None:
    file = tmp_path / "file.yml"
    file.write_text(block.text)
    keys = yaml.safe_load(block.text).keys()
    if keys & SHAPES:
        for name in ("ca.pem", "token"):
            (tmp_path / name).touch()
        check("promtool", "check", "config", file)
    elif keys & {"startupProbe", "env"}:
        container = {"name": "training", "image": "training", **yaml.safe_load(block.text)}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training"}}
        pod["spec"] = {"containers": [container]}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        for probe in (one for name, one in container.items() if name.endswith("Probe")):
            check_options(" ".join(probe["exec"]["command"]))
    elif keys & {"jobs", True}:  # YAML 1.1 takes the key "on" for true
        schema = ("--builtin-schema", "vendor.github-workflows")
        check(sys.executable, "-m", "check_jsonschema", *schema, file)
        for line in re.findall(r"warmwatch check[^\n]*\n[^\n]*", block.text):
            check_options(" ".join(line.split()))
    else:
        (repository,) = yaml.safe_load(block.text)["repos"]
        (hook,) = repository["hooks"]
        assert hook.keys() >= {"id", "name", "entry", "language"}
        check_options(hook["entry"])


def check(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check_options(line: str) -> None:
    """The options of a call of ``warmwatch``, up to a sign of the shell."""
    words = shlex.split(line.partition("warmwatch ")[2].partition(";")[0])
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize(("page", "block"), [*found("promql")])
def test_promql_blocks_are_valid_rules_of_prometheus(
    page: Path, block: Block, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yml"
    rule = {"record": "page:example:ratio", "expr": block.text}
    file.write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": [rule]}]}))
    check("promtool", "check", "rules", file)


def test_the_baseline_of_a_page_is_accepted() -> None:
    page = ROOT / "docs" / "reference" / "compile-checks.md"
    (block,) = (one for one in blocks(page.read_text()) if one.language == "json")
    assert baseline.parsed(block.text).runs


@pytest.mark.training
@pytest.mark.parametrize(
    ("page", "block"),
    [
        one
        for one in found("python")
        if not one.values[0].is_relative_to(ROOT / "docs" / "how-to" / "remedies")
        and one.values[0].stem not in {"functions", "compile-checks", "other-tools"}
    ],
)
def test_python_blocks_run(page: Path, block: Block, records: Path) -> None:
    """With gloo in place of NCCL: no GPU."""
    code = block.text.replace('"nccl"', '"gloo"')
    run(records, f"{GIVEN.get(page.stem, '')}\n{code}", attach=False)


@pytest.mark.training
def test_the_examples_of_the_pytest_plugin_pass(records: Path) -> None:
    page = ROOT / "docs" / "reference" / "compile-checks.md"
    examples = "\n".join(one.text for one in blocks(page.read_text()) if one.language == "python")
    given = """
import pytest, torch
compile_ = torch.compile
torch.compile = lambda *given, **options: compile_(*given, **{**options, "backend": "eager"})
def make(): return torch.nn.Linear(8, 1)
x, inner = torch.randn(4, 8), make()
model = torch.compile(lambda x: inner(x))  # its code is no other test's
"""
    (records.parent / "test_examples.py").write_text(given + examples)
    options = '["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_examples.py"]'
    run(records, f"import pytest\nassert pytest.main({options}) == 0", attach=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_is_a_script(shell: str) -> None:
    (block,) = (one for one in blocks(COMMANDS.read_text()) if one.language == "bash")
    assert f"_WARMWATCH_COMPLETE={shell}_source warmwatch" in block.text
    # click reads the program's name from the first argument of Python
    call = (
        "import sys; sys.argv = ['warmwatch']; from warmwatch_monitor.__main__ import main; main()"
    )
    env = environment(_WARMWATCH_COMPLETE=f"{shell}_source")
    done = subprocess.run([sys.executable, "-c", call], env=env, capture_output=True, text=True)
    assert "_warmwatch_completion" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


COMMANDS = ROOT / "docs" / "reference" / "commands.md"


# What is left out.


def left_out() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(blocks(page.read_text())):
            if block.not_run is not None:
                yield pytest.param(block, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("block", [*left_out()])
def test_a_block_that_is_not_run_has_a_reason_and_names_files_that_exist(block: Block) -> None:
    assert block.not_run is not None
    assert re.search(NOT_RUN[block.not_run], block.text, re.MULTILINE)
    if block.language == "console":
        commands = re.sub(r"^[$#] ", "", block.text, flags=re.MULTILINE)
        subprocess.run(["bash", "-n"], input=commands, text=True, check=True)
        folder = re.search(r"^cd (\S+)$", commands, re.MULTILINE)
        place = ROOT / folder[1] if folder else ROOT
        named = re.findall(r"(?<![\w/.-])((?:docker|dashboards|tests)/[\w./-]+)", commands)
        named += re.findall(r"install -Dm 644 (\S+)", commands) if folder else []
        for name in named:
            assert (ROOT / name).exists() or (place / name).exists(), name
        for target in re.findall(r"^make ([\w-]+)(.*)", commands, re.MULTILINE):
            words = shlex.split(" ".join(target), comments=True)
            assert re.search(rf"^{words[0]}:", MAKEFILE, re.MULTILINE), target


MAKEFILE = (ROOT / "Makefile").read_text()


def test_every_reason_is_used() -> None:
    used = {block.not_run for page in PAGES for block in blocks(page.read_text())}
    assert used - {None} == set(NOT_RUN)


def test_every_language_has_a_reader() -> None:
    """Text and blocks without a language are output; JSON is made from the code."""
    read = {"console", "bash", "diff", "python", "yaml", "promql", "text", "json", ""}
    assert {block.language for page in PAGES for block in blocks(page.read_text())} <= read


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_in_blocks_with_a_language(page: Path) -> None:
    """A block that is indented would not be run."""
    assert re.findall(r"^ +```.*$|^ {4,}[$#] .*$", page.read_text(), re.MULTILINE) == []
