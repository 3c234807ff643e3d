"""The batch script with stand-ins for srun and scontrol: its targets for Prometheus and its end.

docs/how-to/slurm.md names the Slurm version on which it was run.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from socket import create_server

import pytest

from support.deployment import DOCKER, ROOT
from support.records import environment

SLURM = DOCKER / "slurm"
# a step is its command without srun's own options
SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'
SCONTROL = '#!/bin/bash\n[ "$*" = "show hostnames node[1-2]" ] && printf "node1\\nnode2\\n"\n'
WARMWATCH = f'#!/bin/bash\nexec "{sys.executable}" -m warmwatch_monitor "$@"\n'
# a training that waits until its monitor has seen the record directory, and ends with an error
TRAINING = """
import os, sys, time, urllib.request
from pathlib import Path
while True:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/-/ready", timeout=1)
        break
    except OSError:
        time.sleep(0.02)
print(Path(sys.argv[2]).read_text().strip(), os.environ["WARMWATCH_DIR"])
sys.exit(7)
"""


def free_job() -> tuple[int, int]:
    """A job's id, and the port that the script makes of it, free now."""
    while True:
        port = random.randrange(20000, 30000)
        with suppress(OSError), create_server(("0.0.0.0", port)):
            return port - 20000, port


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("warmwatch", WARMWATCH)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


def test_a_job_prints_the_addresses_of_its_monitors_and_exits_as_its_training(
    programs: Path, tmp_path: Path
) -> None:
    job, port = free_job()
    targets = tmp_path / "targets" / f"warmwatch-{job}.json"
    done = subprocess.run(
        ["bash", SLURM / "train.sbatch", sys.executable, "-c", TRAINING, str(port), targets],
        env=environment(
            PATH=f"{programs}:{os.environ['PATH']}",
            PYTHONPATH=os.pathsep.join(sys.path),
            TARGETS=str(targets.parent),
            SLURM_JOB_ID=str(job),
            SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_NODELIST="node[1-2]",
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    reported, directory = done.stdout.splitlines()[-1].rsplit(" ", 1)
    assert json.loads(reported) == [{"targets": [f"node1:{port}", f"node2:{port}"]}]
    assert directory == f"/tmp/warmwatch-{job}"
    made = Path(directory).lstat()
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (os.geteuid(), 0o700)
    shutil.rmtree(directory)
    assert list(targets.parent.iterdir()) == []
    with create_server(("0.0.0.0", port)):  # the monitor is gone
        pass


@pytest.mark.parametrize("how", ["open", "another's", "a link", "its own"])
def test_a_record_directory_that_another_user_may_have_made_is_refused(
    programs: Path, tmp_path: Path, how: str
) -> None:
    """Its name can be guessed. A job that was requeued finds its own."""
    job, _ = free_job()
    directory = Path(f"/tmp/warmwatch-{job}")
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.mkdir(mode=0o700)
    if how == "open":
        directory.chmod(0o777)
    if how == "another's":
        if os.geteuid() != 0:
            directory.rmdir()
            pytest.skip("only root can give a directory away")
        os.chown(directory, 65534, 65534)
    try:
        done = subprocess.run(
            ["bash", SLURM / "train.sbatch", "echo", "trains"],
            env=environment(
                PATH=f"{programs}:{os.environ['PATH']}",
                PYTHONPATH=os.pathsep.join(sys.path),
                TARGETS=str(tmp_path),
                SLURM_JOB_ID=str(job),
                SLURM_JOB_NUM_NODES="1",
                SLURM_JOB_NODELIST="node[1-2]",
            ),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        directory.unlink() if directory.is_symlink() else shutil.rmtree(directory)
    if how == "its own":
        assert (done.returncode, "trains" in done.stdout) == (0, True), done.stderr
    else:
        assert (done.returncode, "trains" in done.stdout) == (1, False)
        assert "is another user's, or open to others" in done.stderr


def test_promtool_accepts_the_configuration_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/slurm.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    config = tmp_path / "prometheus.yml"
    config.write_text(shown)
    subprocess.run(["promtool", "check", "config", config], check=True)


def test_the_training_continues_if_its_monitor_cannot_start(programs: Path, tmp_path: Path) -> None:
    (programs / "warmwatch").write_text("#!/bin/bash\nexit 1\n")
    done = subprocess.run(
        ["bash", SLURM / "train.sbatch", "true"],
        env=environment(
            PATH=f"{programs}:{os.environ['PATH']}",
            TARGETS=str(tmp_path),
            SLURM_JOB_ID="7",
            SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_NODELIST="node[1-2]",
        ),
        check=False,
    )
    shutil.rmtree("/tmp/warmwatch-7")
    assert done.returncode == 0


@pytest.mark.parametrize("job", ["1234567890", ""])
def test_the_epilog_removes_the_records_of_its_job_and_never_fails(job: str) -> None:
    mine, other = (Path(f"/tmp/warmwatch-{name}") for name in ("1234567890", "1234567891"))
    for place in (mine, other):
        place.mkdir()
    try:
        subprocess.run(["bash", SLURM / "epilog.sh"], env={"SLURM_JOB_ID": job}, check=True)
        assert (mine.exists(), other.exists()) == (not job, True)
    finally:
        for place in (mine, other):
            shutil.rmtree(place, ignore_errors=True)
