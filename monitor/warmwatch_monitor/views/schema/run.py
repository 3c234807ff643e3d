"""One run of the ``/status`` answer."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch.verdict import State
from warmwatch_monitor.views.schema.rank import Rank
from warmwatch_monitor.views.schema.units import Joules, Seconds


class Spread(BaseModel):
    """How far apart the ranks are in one figure."""

    min: float = Field(description="The least value.")
    min_rank: int = Field(description="The rank that has it.")
    max: float = Field(description="The greatest value.")
    max_rank: int = Field(description="The rank that has it.")


class Deadline(BaseModel):
    """How long ranks can go on waiting for one that compiles."""

    backend: str | None = Field(description="Of the process group, such as `nccl`.")
    timeout_seconds: Seconds = Field(description="Its timeout, of the rank that has least left.")
    left_seconds: Seconds = Field(description="The least that may be left of it.")
    advice: str = Field(description="What raises it.")


class Skew(BaseModel):
    """How far apart the ranks of a run are; a figure is null where fewer than two know it."""

    compile_seconds: Spread | None = Field(description="Compile time, in seconds.")
    compilations: Spread | None = Field(description="Graphs compiled.")
    graphs: Spread | None = Field(description="Graphs captured.")
    recompiles: Spread | None = Field(description="Recompiles.")
    first_step_at: Spread | None = Field(description="End of step 1, seconds since the epoch.")
    differences: list[str] = Field(description="What they did otherwise, once all are warm.")


class Run(BaseModel):
    """One training job, with those of its ranks that are seen here."""

    run: str = Field(
        description="Its name here: a run of another user than the monitor's has its owner behind "
        "it, `gpt2@alice`."
    )
    name: str | None = Field(description="Its name as its user gave it.")
    owner: str | None = Field(
        description="The user whose it is, a number where he has no name; null where nobody knows."
    )
    owner_uid: int | None = Field(description="His number, of the monitor's user namespace.")
    state: State = Field(description="That of its least advanced living rank.")
    compiling: bool | None = Field(description="Any living rank compiles; null where none lives.")
    warm: bool | None = Field(description="All living ranks are warm; null where none lives.")
    summary: str = Field(
        description="The answer for this run, in one sentence of at most 120 characters; a long "
        "name is shortened in it."
    )
    details: list[str] = Field(
        description="What else is true of it, one clause each, the most important first. None of "
        "them is in `summary`."
    )
    compile_gpu_seconds: Seconds | None = Field(
        description="Compile time times GPUs, of all ranks; null where none told of a GPU."
    )
    compile_joules: Joules | None = Field(
        description="Energy of their GPUs while they compiled; null where none was measured."
    )
    world_size: int | None = Field(description="Ranks of the whole run, as its launcher says.")
    missing_ranks: list[int] = Field(
        description="Those of them that are not seen here, the first 100; all are in "
        "`missing_ranges`."
    )
    missing_ranges: list[tuple[int, int]] = Field(
        description="The same as ranges, each with its first and last rank; the first 100 ranges."
    )
    missing_count: int = Field(description="How many ranks are not seen here, all counted.")
    skew: Skew | None = Field(description="How far apart the ranks are; null of one alone.")
    deadline: Deadline | None = Field(
        description="When the collective gives up in which ranks wait for one that compiles; null "
        "where none waits, or no timeout is known."
    )
    ranks: list[Rank] = Field(description="Its ranks, in order.")
