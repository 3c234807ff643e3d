"""The Dockerfile, and that its health check tells a living daemon from a dead one.

``docker/try-image.sh`` carries the whole of it out; that takes minutes and root.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.daemon import daemon
from support.deployment import DOCKER, ROOT, dockerfile, instructions
from warmwatch_monitor.base.settings import DEFAULT_ADDRESS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PORT = DEFAULT_ADDRESS.rpartition(":")[2]


def call(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hadolint_accepts_the_dockerfile() -> None:
    found = call(Path(sys.executable).with_name("hadolint"), DOCKER / "Dockerfile")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_build_context_holds_only_the_copied_files() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *rules = [line for line in lines if line and not line.startswith("#")]
    copied = {
        source
        for _, verb, rest in dockerfile()
        if verb == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert first == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_the_base_image_is_named_by_its_digest_which_a_label_repeats() -> None:
    (base,) = [rest for _, verb, rest in dockerfile() if verb == "ARG" and rest.startswith("BASE=")]
    digest = re.fullmatch(r"BASE=python:3\.13\.\d+-slim-bookworm@(sha256:[0-9a-f]{64})", base)
    assert digest
    (labels,) = instructions("monitor", "LABEL")
    assert f'org.opencontainers.image.base.digest="{digest[1]}"' in labels
    for name in ("title", "description", "licenses", "version", "revision", "created"):
        assert f"org.opencontainers.image.{name}=" in labels


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_every_dependency_of_the_image_is_locked_by_its_hashes(name: str) -> None:
    """Each as the wheel requires it, so that ``pip install --no-deps`` leaves nothing out."""
    text = (DOCKER / name).read_text()
    entries = [one for one in re.split(r"\n(?=\S)", text) if not one.startswith("#")]
    locked = {}
    for entry in entries:
        assert "--hash=sha256:" in entry, entry
        requirement = Requirement(entry.split("\\")[0].strip())
        locked[requirement.name] = str(requirement.specifier).removeprefix("==")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = {
        "requirements.txt": [*extras["monitor"], *extras["otlp"]],
        "build-requirements.txt": project["build-system"]["requires"],
    }[name]
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.13"}):
            assert requirement.specifier.contains(locked[requirement.name]), requirement


@pytest.mark.parametrize("stage", ["monitor", "demo"])
def test_the_image_runs_as_a_numeric_user_other_than_root(stage: str) -> None:
    (user,) = instructions(stage, "USER")
    assert all(part.isdecimal() and int(part) > 0 for part in user.split(":"))


def test_the_monitor_is_the_last_stage_which_is_built_by_default() -> None:
    assert [stage for stage, verb, _ in dockerfile() if verb == "FROM"][-1] == "monitor"


def test_the_image_serves_the_default_port_on_loopback_unless_configured() -> None:
    (command,) = instructions("monitor", "CMD")
    assert instructions("monitor", "ENTRYPOINT") == ['["warmwatch"]']
    assert json.loads(command) == ["serve"]
    assert instructions("monitor", "EXPOSE") == [PORT]


def test_the_health_check_passes_while_the_daemon_answers_and_fails_when_it_does_not(
    tmp_path: Path,
) -> None:
    (check,) = instructions("monitor", "HEALTHCHECK")
    words = json.loads(check.partition(" CMD ")[2])
    assert words[:2] == ["python", "-c"]
    with daemon(tmp_path) as url:
        here = words[2].replace(PORT, url.rpartition(":")[2])
        assert call(sys.executable, "-c", here).returncode == 0
    assert call(sys.executable, "-c", here).returncode == 1


def test_bash_and_shellcheck_accept_the_script_that_tests_the_image() -> None:
    script = DOCKER / "try-image.sh"
    assert call("bash", "-n", script).returncode == 0
    if shutil.which("shellcheck"):
        found = call("shellcheck", "--severity=warning", script)
        assert found.returncode == 0, found.stdout
