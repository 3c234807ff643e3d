"""The identity of this process: rank and launcher, from the environment and
``torch.distributed``.

Nothing is asked that starts something: torch modules are looked at only where they are already
imported, and no CUDA context is made.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from warmwatch._guard import warn_once
from warmwatch.process.process_tree import inherited, launch_pid, own_group, parent_of, which
from warmwatch.process.settings import bounded
from warmwatch.shared.clock_origin import boot_id, clock_offset_ns
from warmwatch.shared.record import Identity
from warmwatch.shared.values import MOST_RANKS, TEXT_LIMIT

# launcher -> the variables in which it says rank, local rank and world size; first match wins
_LAUNCHERS: tuple[tuple[str, tuple[str, str, str]], ...] = (
    ("env", ("RANK", "LOCAL_RANK", "WORLD_SIZE")),
    ("mpi", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")),
    ("mpi", ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE")),
    # not SLURM_NTASKS: a batch script has it too, and starts one process
    ("slurm", ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")),
)
_RANKS = tuple(names[0] for _, names in _LAUNCHERS)
# who set ``RANK`` and its like, by a variable that only it sets; first match wins
_SETTERS = (("TORCHELASTIC_RUN_ID", "torchelastic"), ("RAY_JOB_ID", "ray"))
# where an operator of Kubernetes tells its pods to meet: each pod is another parent, and often
# another pid namespace, so no process tells that they are one launch
_MEETING = ("KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "MASTER_PORT")
_OF_LAUNCH = (*(name for _, names in _LAUNCHERS for name in names), *_MEETING)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# how often something started the run anew: the launcher in its job, the scheduler the whole job
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def identify(
    environ: Mapping[str, str], *, run: str, helper: bool = False, **known: Any
) -> Identity:
    """This process's identity as far as it is known now; ``known`` is passed through.

    ``helper``: it is no rank but a rank's child, whose run is a world of its own.
    """
    launcher, rank, local_rank, world_size = _launcher(environ)
    member = distributed()
    if helper:
        world_size = None
    return Identity(
        run=run,
        launch=_launch(environ, launcher),
        rank=member[0] if member else (rank or 0),
        local_rank=local_rank,
        world_size=member[1] if member else world_size,
        attempt=min(sum(_number(environ, name) or 0 for name in _RESTARTS), MOST_RANKS),
        launcher=launcher,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        clock_offset_ns=clock_offset_ns(),
        python=".".join(map(str, sys.version_info[:3])),
        started_by=environ.get("WARMWATCH_STARTED_BY", ""),
        torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
        **known,
    )


def _launcher(
    environ: Mapping[str, str],
) -> tuple[str, int | None, int | None, int | None]:
    for launcher, names in _LAUNCHERS:
        rank, local_rank, world_size = (_number(environ, name) for name in names)
        if rank is not None:
            setters = (name for variable, name in _SETTERS if variable in environ)
            known = next(setters, launcher) if launcher == "env" else launcher
            return known, rank, local_rank, world_size
    return "", None, None, None


def own_rank(environ: Mapping[str, str]) -> bool:
    """Whether a child of another process was itself made a rank, by itself or by a launcher."""
    if distributed():
        return True
    return any(name in environ and environ[name] != inherited(name) for name in _RANKS)


def distributed() -> tuple[int, int] | None:
    """Rank and world size of a process group that this process initialized; it knows best.

    ``None`` for sizes that no reader accepts, as of a simulated process group.
    """
    if not own_group():
        return None
    module = sys.modules["torch.distributed"]
    rank, world_size = module.get_rank(), module.get_world_size()
    return (rank, world_size) if 0 <= rank <= world_size <= MOST_RANKS else None


def _launch(environ: Mapping[str, str], launcher: str) -> str:
    """An id that the ranks of one launch on this host share, and no other launch does."""
    if launcher == "slurm" and _of_several(environ):
        step = environ.get("SLURM_STEP_ID", "")
        return f"slurm:{environ.get('SLURM_JOB_ID', '')}.{step}"
    if launcher == "ray":
        return f"ray:{environ['RAY_JOB_ID']}"
    pid = launch_pid()
    if pid != os.getpid():  # a child belongs to its training's launch, whatever it is itself
        environ = {name: inherited(name) or "" for name in _OF_LAUNCH}
    # torchrun and mpirun start all ranks of a host
    several = _of_several(environ)
    if several and (job := _job_of_pods(environ)):
        return job
    return f"parent:{which(parent_of(pid))}" if several else f"process:{which(pid)}"


def _job_of_pods(environ: Mapping[str, str]) -> str | None:
    """The launch of a job whose ranks an operator (PyTorchJob, ...) started in pods of their own.

    Its first pod may be told to meet at ``localhost``: the others meet at that pod's name.
    """
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not environ.get("KUBERNETES_SERVICE_HOST") or not address:
        return None
    if address in _LOCAL:
        if environ.get("LOCAL_RANK") or _number(environ, "RANK") != 0:
            return None  # all of its ranks are in this pod
        address = socket.gethostname()
    return f"pods:{address.partition('.')[0]}:{port}"[:TEXT_LIMIT]


def _of_several(environ: Mapping[str, str]) -> bool:
    """Whether a launcher has made this process one of its ranks.

    Slurm calls all that a batch script starts rank 0, and all in a step of one task: of those each
    training is a launch of its own, and several may run at once.
    """
    launcher, _, _, world_size = _launcher(environ)
    return bool(launcher) and (launcher != "slurm" or (world_size or 1) > 1)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """The number in a variable; what no launcher means is not known, and said once."""
    text = environ.get(name, "")
    number = bounded(text, MOST_RANKS)
    if number is None and text:
        asked = f"is no whole number from 0 to {MOST_RANKS:,}"
        warn_once(f"{name}={text[:40]!r} {asked}; it is taken as not known")
    return number
