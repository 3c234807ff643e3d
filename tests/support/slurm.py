"""A cluster of one node, this machine, with real Slurm and munge, where they are installed (root).

Nothing of it is the system's: its files are in one folder, and its daemons end with the test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.records import wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel")
_CONF = """
ClusterName=warmwatch
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
KillWait=3
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    if os.geteuid():
        return "Slurm's daemons need root"
    gone = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"{', '.join(gone)} not installed (slurmctld, slurmd, slurm-client, munge)" * bool(gone)


@contextmanager
def cluster(place: Path) -> Iterator[dict[str, str]]:
    """The environment for its clients; its node is ready."""
    for name in ("state", "spool"):
        (place / name).mkdir()
    key = place / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    conf = place / "slurm.conf"
    text = _CONF.format(host=host, place=place, ports=_ports(), cpus=os.cpu_count())
    conf.write_text(text)
    env = {"SLURM_CONF": str(conf), "PATH": _path()}
    known = {**os.environ, **env}
    files = [f"--{name}={place}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
    files[0] = f"--socket={place}/munge.sock"
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            *files,
            f"--seed-file={place}/s",
        ],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(_daemon(command, known, place))
            if command[0] == "munged":
                wait_until(lambda: (place / "munge.sock").exists())
        wait_until(lambda: _state(known) == "idle")
        yield env


@contextmanager
def _daemon(command: list[str], env: dict[str, str], place: Path) -> Iterator[None]:
    with (place / f"{command[0]}.out").open("w") as out:
        daemon = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def _state(env: dict[str, str]) -> str:
    sinfo = ["sinfo", "--noheader", "--format=%T"]
    done = subprocess.run(sinfo, env=env, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def _ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
