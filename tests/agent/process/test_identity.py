"""Identity of a process, from the environment variables of launchers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from support import slots
from support.trainings import environment
from warmwatch.process.identity import identify
from warmwatch.shared.run_name import launcher_run, program_name

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "pretrain",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NAME": "gpt2",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "16",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "4",
}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
RAY = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "RAY_JOB_ID": "02000000"}
PLAIN = {"RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environ", "launcher", "run", "rank", "local_rank", "world_size"),
    [
        (TORCHRUN, "torchelastic", "pretrain", 5, 1, 8),
        (SLURM, "slurm", "gpt2-4242", 3, 3, 16),
        (OPEN_MPI, "mpi", "train", 2, 0, 4),
        (PMI, "mpi", "train", 1, 1, 2),
        (RAY, "ray", "ray-02000000", 1, 1, 2),
        (PLAIN, "env", "train", 1, None, 2),
        ({**SLURM, **TORCHRUN}, "torchelastic", "pretrain", 5, 1, 8),
        ({}, "", "train", 0, None, None),
    ],
    ids=["torchrun", "slurm", "open mpi", "pmi", "ray", "plain", "torchrun in slurm", "none"],
)
def test_the_launcher_s_variables_identify_a_process(
    environ: dict[str, str],
    launcher: str,
    run: str,
    rank: int,
    local_rank: int | None,
    world_size: int | None,
) -> None:
    known = identify(environ, run="train")
    assert (known.launcher, launcher_run(environ) or "train") == (launcher, run)
    assert (known.rank, known.local_rank, known.world_size) == (rank, local_rank, world_size)


def test_two_tasks_of_skypilot_with_one_script_are_two_runs() -> None:
    """On two clusters, whose Ray numbers both jobs alike."""
    tasks = [{**RAY, "SKYPILOT_TASK_ID": f"sky-2026-10-0{day}_train_{day}-0"} for day in (1, 2)]
    assert [launcher_run(one) for one in tasks] == [one["SKYPILOT_TASK_ID"] for one in tasks]


@pytest.mark.parametrize(
    ("argv", "environ", "vscode", "name"),
    [
        (["train.py"], {}, None, "train"),
        (["/x/my train.v2.py"], {}, None, "my_train.v2"),
        (["/x/package/__main__.py"], {}, None, "package"),
        (["-c"], {}, None, "gpt"),
        ([""], {}, None, "gpt"),
        (["-"], {}, None, "gpt"),
        (["ipykernel_launcher.py"], {}, None, "notebook"),
        (["ipykernel_launcher.py"], {"JPY_SESSION_NAME": "/n/Try 3.ipynb"}, None, "Try_3"),
        (["ipykernel_launcher.py"], {"JPY_SESSION_NAME": "/n/console-1-a4d"}, None, "notebook"),
        (["ipykernel_launcher.py"], {"JPY_SESSION_NAME": "/a.ipynb"}, "/w/b.ipynb", "b"),
        (["colab_kernel_launcher.py"], {}, None, "notebook"),
        (["train.py"], {"JPY_SESSION_NAME": "/n/a.ipynb"}, "/w/b.ipynb", "train"),
    ],
)
def test_a_run_is_named_after_its_script_notebook_or_folder(
    argv: list[str], environ: dict[str, str], vscode: str | None, name: str
) -> None:
    assert program_name(argv, environ, directory="/home/me/gpt", notebook=vscode) == name


def test_without_script_and_folder_a_run_is_named_after_the_language() -> None:
    for directory in ("/", ""):
        assert program_name(["-c"], {}, directory=directory, notebook=None) == "python"


LAUNCHED = """
import os
from warmwatch.process import identity as _identity
from warmwatch.process.identity import identify
print(identify(os.environ, run="w").launch)
"""


def launched(**env: str) -> str:
    """The launch of a process that this one starts."""
    command = [sys.executable, "-c", LAUNCHED]
    return subprocess.check_output(command, env={**os.environ, **env}, text=True).strip()


def test_all_ranks_of_one_launcher_are_one_launch_even_if_one_restarts() -> None:
    first = launched(RANK="0", WORLD_SIZE="2")
    assert first.startswith(f"parent:{os.getpid()}:")
    assert launched(RANK="1", WORLD_SIZE="2") == first
    assert launched(RANK="1", WORLD_SIZE="2", TORCHELASTIC_RESTART_COUNT="1") == first


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "WORLD_SIZE": "2", "MASTER_PORT": "23456"}
MASTER, LOCAL = "gpt2-master-0", "localhost"


def test_the_pods_of_an_operators_job_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has another parent; the first may have ``localhost`` as its rendezvous address."""
    monkeypatch.setattr("socket.gethostname", lambda: MASTER)
    for rank, address in (("1", MASTER), ("1", f"{MASTER}.ns.svc"), ("0", MASTER), ("0", LOCAL)):
        known = identify({**POD, "RANK": rank, "MASTER_ADDR": address}, run="w")
        assert (known.launch, known.rank) == (f"pods:{MASTER}:23456", int(rank))


@pytest.mark.parametrize(
    "environ",
    [
        {**POD, "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": LOCAL},  # torchrun in one pod
        {**POD, "RANK": "1", "MASTER_ADDR": LOCAL},
        {**POD, "RANK": "1"},
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": MASTER, "MASTER_PORT": "1"},  # no pod
    ],
)
def test_ranks_that_one_process_started_are_its_launch(environ: dict[str, str]) -> None:
    assert identify(environ, run="w").launch.startswith("parent:")


def test_a_task_of_an_array_has_its_name_in_squeue() -> None:
    array = {**SLURM, "SLURM_ARRAY_JOB_ID": "801", "SLURM_ARRAY_TASK_ID": "1"}
    assert launcher_run(array) == "gpt2-801_1"


TASK = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_STEP_ID": "1"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}


def test_tasks_of_a_slurm_step_are_one_launch_and_a_single_task_is_its_own() -> None:
    """A batch script, or a step of one task (``srun --pty bash``), may start several trainings."""
    assert launched(**TASK, SLURM_STEP_NUM_TASKS="2") == "slurm:7.1"
    for environ in (BATCH, {**TASK, "SLURM_STEP_NUM_TASKS": "1"}):
        first, second = launched(**environ), launched(**environ)
        assert first.startswith("process:")
        assert first != second


CHILDREN = """
import os
from multiprocessing import get_context
from warmwatch.process import identity as _identity
from warmwatch.process.identity import identify
def tell(): print(identify(os.environ, run="w").launch, flush=True)
if __name__ == "__main__":
    tell()
    for method in ("fork", "spawn"):
        child = get_context(method).Process(target=tell)
        child.start(); child.join()
"""


@pytest.mark.parametrize("environ", [BATCH, {**TASK, "SLURM_STEP_NUM_TASKS": "2"}])
def test_a_child_belongs_to_its_trainings_launch_under_slurm_too(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHILDREN)
    command = [sys.executable, str(script)]
    output = subprocess.check_output(command, env={**os.environ, **environ}, text=True).split()
    assert len(output) == 3
    assert len(set(output)) == 1


CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def can_contain() -> bool:
    try:
        subprocess.run([*CONTAINER, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.mark.skipif(not can_contain(), reason="no pid namespaces may be made here")
def test_two_containers_that_share_a_record_directory_are_two_runs(records: Path) -> None:
    script = records.parent / "train.py"
    script.write_text("import warmwatch\nwarmwatch.attach(); warmwatch.step()\nprint(); input()")
    command = [*CONTAINER, sys.executable, "-u", str(script)]
    living = []
    for _ in range(2):
        one = subprocess.Popen(
            command, env=environment(records), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert one.stdout
        one.stdout.readline()  # its record is there
        living.append(one)
    found = [slots.read(folder).identity for folder in slots.folders(records)]
    for one in living:
        one.communicate(b"\n")
    assert [(one.run, one.pid) for one in found] == [("train", 1), ("train-2", 1)]
    assert len({one.launch for one in found}) == 2


@pytest.mark.parametrize(
    ("environ", "rank", "world_size"),
    [
        ({"RANK": "1" * 5000, "WORLD_SIZE": "2"}, 0, None),
        ({"RANK": "1", "WORLD_SIZE": "30000000"}, 1, None),
        ({"RANK": "0001", "WORLD_SIZE": "2"}, 1, 2),
    ],
)
def test_an_invalid_number_of_a_launcher_is_unknown(
    environ: dict[str, str], rank: int, world_size: int | None
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = identify(environ, run="train")
    assert (known.rank, known.world_size) == (rank, world_size)


def test_a_helper_of_a_rank_is_its_own_world() -> None:
    known = identify(TORCHRUN, run="pretrain.Process-1", helper=True)
    assert (known.run, known.rank, known.world_size) == ("pretrain.Process-1", 5, None)
