"""The files for the public forge: schemas, a linter, and facts that several files repeat."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from support.trainings import ROOT
from warmwatch import __version__

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ISSUE_FORMS = [ROOT / f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "pytorch")]
BIN = Path(sys.executable).parent


def schema_check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.github-{schema}", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("schema", "paths"), [("workflows", WORKFLOWS), ("issue-forms", ISSUE_FORMS)]
)
def test_the_forge_accepts_each_file(schema: str, paths: list[Path], tmp_path: Path) -> None:
    assert paths
    done = schema_check(schema, *paths)
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(paths[0].read_text().replace("runs-on:", "run-on:").replace("body:", "text:"))
    assert schema_check(schema, broken).returncode == 1


def test_zizmor_reports_no_finding() -> None:
    command = [
        BIN / "zizmor",
        "--offline",
        "--no-progress",
        "--strict-collection",
        ROOT / ".github",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARN" not in done.stderr, done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_action_is_pinned_by_digest_with_its_version(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_ci_runs_the_commands_of_the_repository() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert {"run": ".ci/run"} in jobs["test"]["steps"]


def test_the_conda_recipe_requires_what_the_package_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "packaging/conda-forge/recipe.yaml").read_text()
    required = {
        re.sub(r"\s*;.*", "", line).replace("prometheus-client", "prometheus_client")
        for line in project["optional-dependencies"]["monitor"]
    }
    listed = {f"{name}>={bound}" for name, bound in re.findall(r"- ([\w-]+) >=([\d.]+)", recipe)}
    assert required <= listed
    parsed = yaml.safe_load(recipe)
    agent, monitor = parsed["outputs"]
    assert "build" not in parsed  # each output would inherit its script, with or without a Python
    assert "pip install" in agent["build"]["script"]
    assert "script" not in monitor["build"]
    (command,) = project["scripts"].items()
    assert agent["build"]["python"]["entry_points"] == [" = ".join(command)]
    assert "uplot" not in recipe  # the sdist contains it
    assert f'version: "{__version__}"' in recipe


def test_the_chart_installs_the_image_of_its_release() -> None:
    chart = yaml.safe_load((ROOT / "docker/helm/warmwatch/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (push,) = [step for step in jobs["image"]["steps"] if step.get("id") == "push"]
    version = "${{ needs.build.outputs.version }}"
    assert f":{version}\n" in push["with"]["tags"]
    (publish,) = [step for step in jobs["chart"]["steps"] if "run" in step]
    assert publish["env"]["VERSION"] == version


def test_only_wheel_and_sdist_are_signed_and_sent_to_the_package_index(tmp_path: Path) -> None:
    """`pypi-attestations` refuses any other file before it signs the first."""
    packages = {"dist/warmwatch-7.1.0-py3-none-any.whl", "dist/warmwatch-7.1.0.tar.gz"}
    (tmp_path / "dist").mkdir()
    for name in (*packages, "dist/man-pages.tar.gz", "dist/pylock.toml"):
        (tmp_path / name).touch()
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    for program in ("pypi-attestations sign", "uv publish"):
        (line,) = re.findall(rf"^{program} .*", jobs["publish"]["steps"][-1]["run"], re.MULTILINE)
        shown = subprocess.check_output(["bash", "-c", f"echo {line}"], cwd=tmp_path, text=True)
        assert {word for word in shown.split() if word.startswith("dist/")} == packages


def test_the_sbom_of_the_wheel_names_the_library_that_the_build_puts_into_it() -> None:
    (part,) = json.loads((ROOT / "monitor/warmwatch.cdx.json").read_text())["components"]
    assert part["hashes"][0]["content"] in (ROOT / "monitor/hatch_build.py").read_text()
    library = ROOT / "monitor/warmwatch_monitor/page/library/uPlot.js"
    assert f"(v{part['version']})" in library.read_text()


def test_the_release_page_has_the_changes_of_its_version_only(tmp_path: Path) -> None:
    title, start, below = (
        (ROOT / "CHANGELOG.md").read_text().partition("<!-- towncrier release notes start -->\n")
    )
    assert start  # without it towncrier writes above the title
    assert not re.search("^## ", title, re.MULTILINE)
    newest, older = "\n## 7.1.0 (2027-01-02)\n\n- new\n", "\n## 7.0.0 (2027-01-01)\n\n- old\n"
    (tmp_path / "CHANGELOG.md").write_text(title + start + newest + older + below)
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    script = jobs["page"]["steps"][-1]["run"].partition("\ngh ")[0]
    env = {**os.environ, "GITHUB_REF_NAME": "v7.1.0"}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "notes.md").read_text().split() == ["-", "new"]
