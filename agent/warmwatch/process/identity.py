"""Rank and launcher of this process, from the environment and ``torch.distributed``.

Reading them has no side effects: only imported torch modules are used, and no CUDA context is
created.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from warmwatch._guard import warn_once
from warmwatch.process.process_tree import (
    inherited,
    launch_pid,
    parent_of,
    process_key,
)
from warmwatch.process.settings import bounded
from warmwatch.process.torch_state import distributed
from warmwatch.shared.clock_origin import boot_id, clock_offset_ns
from warmwatch.shared.deployment import labels_of
from warmwatch.shared.loaded import loaded
from warmwatch.shared.record import Identity
from warmwatch.shared.values import MOST_RANKS, TEXT_LIMIT

# launcher -> its variables for rank, local rank and world size; first match wins
_LAUNCHERS: tuple[tuple[str, tuple[str, str, str]], ...] = (
    ("env", ("RANK", "LOCAL_RANK", "WORLD_SIZE")),
    ("mpi", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")),
    ("mpi", ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE")),
    # not SLURM_NTASKS, which is also set in a batch script, a single process
    ("slurm", ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")),
)
_RANKS = tuple(names[0] for _, names in _LAUNCHERS)
# variables that only one launcher sets -> that launcher, which set ``RANK``; first match wins
_SETTERS = (("TORCHELASTIC_RUN_ID", "torchelastic"), ("RAY_JOB_ID", "ray"))
# The rendezvous of pods that a Kubernetes operator started. Pods have different parent processes,
# and often pid namespaces, so only these variables identify the launch.
_RENDEZVOUS = ("KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "MASTER_PORT")
_OF_LAUNCH = (*(name for _, names in _LAUNCHERS for name in names), *_RENDEZVOUS)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# number of restarts: by the launcher within its job, and by the scheduler of the whole job
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def identify(
    environ: Mapping[str, str], *, run: str, helper: bool = False, **values: Any
) -> Identity:
    """The identity of this process. ``values`` has further fields of it.

    ``helper``: this is not a rank but a child of one; its run has a world size of its own.
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
        torch=str(getattr(loaded("torch"), "__version__", "")),
        labels=labels_of(environ),
        **values,
    )


def _launcher(
    environ: Mapping[str, str],
) -> tuple[str, int | None, int | None, int | None]:
    for launcher, names in _LAUNCHERS:
        rank, local_rank, world_size = (_number(environ, name) for name in names)
        if rank is not None:
            setters = (name for variable, name in _SETTERS if variable in environ)
            text = next(setters, launcher) if launcher == "env" else launcher
            return text, rank, local_rank, world_size
    return "", None, None, None


def launched_with_peers(environ: Mapping[str, str]) -> bool:
    """Whether a launcher made this process one of at least two ranks."""
    return (_launcher(environ)[3] or 1) > 1


def own_rank(environ: Mapping[str, str]) -> bool:
    """Whether this child process is a rank itself, initialized by itself or by a launcher."""
    if distributed():
        return True
    return any(name in environ and environ[name] != inherited(name) for name in _RANKS)


def _launch(environ: Mapping[str, str], launcher: str) -> str:
    """An id that is common to the ranks of one launch on this host, and unique to it."""
    if launcher == "slurm" and _of_several(environ):
        step = environ.get("SLURM_STEP_ID", "")
        return f"slurm:{environ.get('SLURM_JOB_ID', '')}.{step}"
    if launcher == "ray":
        return f"ray:{environ['RAY_JOB_ID']}"
    pid = launch_pid()
    if pid != os.getpid():  # a child belongs to the launch of its training
        environ = {name: inherited(name) or "" for name in _OF_LAUNCH}
    # torchrun and mpirun start all ranks of a host
    several = _of_several(environ)
    if several and (job := _job_of_pods(environ)):
        return job
    return f"parent:{process_key(parent_of(pid))}" if several else f"process:{process_key(pid)}"


def _job_of_pods(environ: Mapping[str, str]) -> str | None:
    """The launch of a job that an operator (PyTorchJob, ...) started in one pod per rank.

    In its first pod ``MASTER_ADDR`` may be ``localhost``; in the others it is that pod's name.
    """
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not environ.get("KUBERNETES_SERVICE_HOST") or not address:
        return None
    if address in _LOCAL:
        if environ.get("LOCAL_RANK") or _number(environ, "RANK") != 0:
            return None  # all ranks are in this pod
        address = socket.gethostname()
    return f"pods:{address.partition('.')[0]}:{port}"[:TEXT_LIMIT]


def _of_several(environ: Mapping[str, str]) -> bool:
    """Whether a launcher made this process one of several ranks.

    Slurm sets rank 0 for everything that a batch script or a step of one task starts. There each
    training is a launch of its own, and several may run simultaneously.
    """
    launcher, _, _, world_size = _launcher(environ)
    return bool(launcher) and (launcher != "slurm" or (world_size or 1) > 1)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """The number in a variable; ``None`` with a warning if it is invalid."""
    text = environ.get(name, "")
    number = bounded(text, MOST_RANKS)
    if number is None and text:
        warn_once(f"{name}={text[:40]!r} is not an integer from 0 to {MOST_RANKS:,}; ignored")
    return number
