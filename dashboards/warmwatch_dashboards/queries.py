"""Pieces of PromQL that several panels share."""

from __future__ import annotations

import re

# Series of the clusters, and of their nodes, that are chosen at the top of the dashboard. Without
# clusters no series has that label, and all match.
CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER},instance=~"$node"'
# Series of the chosen run, as the recording rules have it, and of its ranks, as the daemons do.
RUN = f'{CLUSTER},run="$run"'
CHOSEN = f'{NODE},run="$run",rank=~"$rank"'


def highest(series: str, by: str) -> str:
    """Of ``series`` only those of as many ``by`` as the variable ``$lines`` allows: the highest.

    They are ranked once, by their last value within the time shown, rates by that of the whole
    time: ``topk`` at each point of a graph would draw all that are among the highest at any point.
    """
    return f"{series} and on ({by}) topk($lines, {_once(series)})"


def lowest(series: str, by: str) -> str:
    """The same for the lowest."""
    return f"{series} and on ({by}) bottomk($lines, {_once(series)})"


def least_advanced(series: str) -> str:
    """``series`` of ranks, of those that are least advanced now: as many as ``$lines`` allows."""
    ranks = _once(f'rank:warmwatch_advancement:latest{{{RUN},rank=~"$rank"}}')
    return f"({series}) and on (rank) bottomk($lines, {ranks})"


_SELECTOR = re.compile(r"([a-z_:]+\{[^{}]*\})(\[[^\]]*\])?")


def _once(series: str) -> str:
    """``series`` as one value for the time shown."""

    def whole(selector: re.Match[str]) -> str:
        ranged = f"{selector[1]}[$__range] @ end()"
        return ranged if selector[2] else f"last_over_time({ranged})"

    return _SELECTOR.sub(whole, series)


def seen(series: str) -> str:
    """The highest value of a gauge of 0 and 1 since the last point of the graph.

    So what lasts for less than a step of a zoomed-out graph is not missed. Where a step is shorter
    than the scrape interval, its range may be empty, and the present value is the answer.
    """
    return f"(max_over_time({series}[$__interval]) or {series})"


def of_gpus_of_ranks(metric: str) -> str:
    """A GPU's gauge for each chosen rank that holds a context on it, with the labels run and rank.

    The ranks are the many side of the join: so several ranks may share a GPU.
    """
    ranks = f"warmwatch_rank_gpu_info{{{CHOSEN}}}"
    gpus = f"max by (cluster, uuid, gpu) ({metric}{{{CLUSTER}}})"
    return least_advanced(f"{ranks} * on (cluster, uuid) group_left (gpu) {gpus}")


def per_second(counter: str) -> str:
    """The growth of a counter a second, over a range that always holds enough scrapes."""
    return f"rate({counter}[$__rate_interval])"


def step_quantile(quantile: float) -> str:
    """A quantile of the length of clean steps, over all chosen ranks."""
    buckets = f'warmwatch_step_seconds_bucket{{{CHOSEN},kind="clean"}}'
    return f"histogram_quantile({quantile}, sum by (le) ({per_second(buckets)}))"


def step_mean(kind: str) -> str:
    """The mean length of the steps of a kind; nothing where there were none."""
    chosen = f'{CHOSEN},kind="{kind}"'
    seconds = per_second(f"warmwatch_step_seconds_sum{{{chosen}}}")
    steps = per_second(f"warmwatch_step_seconds_count{{{chosen}}}")
    return f"sum({seconds}) / (sum({steps}) > 0)"
