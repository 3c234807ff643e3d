"""All series of one rank, in the order in which /metrics lists them.

Names, types and labels are public. Counters of a rank that has ended keep their last value until it
leaves; ``warmwatch_warm`` and ``warmwatch_compiling`` are then 0 and ``warmwatch_state`` says how
it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch_monitor.export.series.compile import COMPILE_SERIES
from warmwatch_monitor.export.series.family import Distribution, Family
from warmwatch_monitor.export.series.labels import Labels
from warmwatch_monitor.export.series.pauses import PAUSE_SERIES
from warmwatch_monitor.export.series.process import PROCESS_SERIES
from warmwatch_monitor.export.series.state import STATE_SERIES
from warmwatch_monitor.export.series.table import Series
from warmwatch_monitor.export.series.training import TRAINING_SERIES
from warmwatch_monitor.model import BUCKET_SECONDS, Lengths, RankView, Snapshot

Ranks = Sequence[tuple[Labels, RankView]]

RANK_SERIES: tuple[Series[RankView], ...] = (
    *STATE_SERIES,
    *COMPILE_SERIES,
    *TRAINING_SERIES,
    *PROCESS_SERIES,
    *PAUSE_SERIES,
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    """Every family of the ranks of ``snapshot``."""
    ranks = [
        (Labels({"run": run.run, "rank": str(view.rank)}), view)
        for run in snapshot.runs
        for view in run.ranks
    ]
    for series in RANK_SERIES:
        yield series.family(ranks)
    yield _step_seconds(ranks)
    yield _run_info(ranks)
    yield _gpu_info(ranks)


def _step_seconds(ranks: Ranks) -> Family:
    family = Family(
        name="warmwatch_step_seconds",
        help="Length of steps: clean ones, and those with compile activity.",
        type="histogram",
        label="kind",
        columns=("clean", "compile"),
        bounds=BUCKET_SECONDS,
    )
    for labels, view in ranks:
        steps = view.figures.steps
        family.rows.append((labels, (_distribution(steps.clean), _distribution(steps.touched))))
    return family


def _distribution(lengths: Lengths) -> Distribution | None:
    if lengths.upto is None or lengths.count is None or lengths.sum_seconds is None:
        return None
    return Distribution(upto=lengths.upto, count=lengths.count, sum=lengths.sum_seconds)


def _run_info(ranks: Ranks) -> Family:
    """A label is empty, which is to say absent, where its fact is not known."""
    family = Family(name="warmwatch_run", help="What the rank runs on.", type="info")
    for labels, view in ranks:
        figures, who = view.figures, view.figures.who
        facts = {
            "torch": who.torch,
            "python": who.python,
            "agent": figures.agent.version,
            "launcher": who.launcher,
            "host": who.host,
            "owner": who.owner,
            "launch": who.launch,
            "warm_steps": str(figures.warmups.clean_steps_needed),
            "world_size": None if who.world_size is None else str(who.world_size),
        }
        known = {name: value or "" for name, value in facts.items()}
        family.add(Labels({**labels.values, **known}), 1)
    return family


def _gpu_info(ranks: Ranks) -> Family:
    family = Family(name="warmwatch_rank_gpu", help="Which GPU is whose.", type="info")
    for labels, view in ranks:
        for gpu in view.gpus if view.living else ():  # a record can name any number of others
            family.add(Labels({**labels.values, "uuid": gpu.uuid}), 1)
    return family
