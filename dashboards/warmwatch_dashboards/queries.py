"""Pieces of PromQL that several panels share."""

from __future__ import annotations

# The series of the run and the ranks that are chosen at the top of the dashboard.
CHOSEN = 'run="$run",rank=~"$rank"'


def seen(series: str) -> str:
    """The highest value of a gauge of 0 and 1 since the last point of the graph.

    So what lasts for less than a step of a zoomed-out graph is not missed. Where a step is shorter
    than the scrape interval, its range may be empty, and the present value is the answer.
    """
    return f"(max_over_time({series}[$__interval]) or {series})"


def of_gpus_of_ranks(metric: str, selector: str) -> str:
    """A GPU's gauge for each rank that holds a context on it, with the labels run and rank.

    The ranks are the many side of the join: so several ranks may share a GPU.
    """
    ranks = f"warmwatch_rank_gpu_info{{{selector}}}"
    return f"{ranks} * on (uuid) group_left (gpu) max by (uuid, gpu) ({metric})"


def per_second(counter: str) -> str:
    """The growth of a counter a second, over a range that always holds enough scrapes."""
    return f"rate({counter}[$__rate_interval])"


def step_quantile(quantile: float, selector: str) -> str:
    """A quantile of the length of clean steps, over all chosen ranks."""
    buckets = f'warmwatch_step_seconds_bucket{{{selector},kind="clean"}}'
    return f"histogram_quantile({quantile}, sum by (le) ({per_second(buckets)}))"


def step_mean(kind: str, selector: str) -> str:
    """The mean length of the steps of a kind; nothing where there were none."""
    chosen = f'{selector},kind="{kind}"'
    seconds = per_second(f"warmwatch_step_seconds_sum{{{chosen}}}")
    steps = per_second(f"warmwatch_step_seconds_count{{{chosen}}}")
    return f"sum({seconds}) / (sum({steps}) > 0)"
