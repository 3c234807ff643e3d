"""What cluster software calls a process: labels from environment variables. Pure.

``docs/reference/metrics.md`` has this table. Kubernetes sets no variable by itself: a manifest
does, by the downward API, as in ``docker/kubernetes/``.
"""

from collections.abc import Mapping

_LONGEST = 100  # characters of a value; names of Kubernetes' labels have 63

LABELS: Mapping[str, str] = {  # by variable; of two with one label the first counts
    "POD_NAMESPACE": "namespace",
    "POD_NAME": "pod",
    "CONTAINER_NAME": "container",
    "NODE_NAME": "node",
    "SLURMD_NODENAME": "node",
    "JOBSET_NAME": "jobset",
    "TRAINJOB_NAME": "trainjob",
    "KUEUE_QUEUE_NAME": "kueue_queue",
    "LWS_NAME": "leaderworkerset",
    "VOLCANO_JOB_NAME": "volcano_job",
    "SLURM_JOB_ID": "slurm_job",
    "SLURM_ARRAY_JOB_ID": "slurm_array_job",
    "SLURM_ARRAY_TASK_ID": "slurm_array_task",
    "SLURM_JOB_PARTITION": "slurm_partition",
    "SLURM_JOB_ACCOUNT": "slurm_account",
    "RAY_JOB_ID": "ray_job",
    "SKYPILOT_TASK_ID": "skypilot_task",
}


def labels_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The labels that the environment has a value for."""
    values: dict[str, str] = {}
    for variable, label in LABELS.items():
        value = environ.get(variable, "")
        if is_value(value):
            values.setdefault(label, value)
    return values


def is_value(text: object) -> bool:
    """Whether it can be the value of a label: a bounded name in ASCII."""
    return isinstance(text, str) and 0 < len(text) <= _LONGEST and _is_plain(text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
