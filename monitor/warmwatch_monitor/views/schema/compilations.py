"""Single compilations in the ``/status`` answer: those that ended, and the one under way."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch_monitor.views.schema.units import Seconds


class PastCompilation(BaseModel):
    """One compilation that the rank's journal tells of."""

    id: str | None = Field(
        description="PyTorch's compile id, such as `0/1`: null where it gave none."
    )
    kind: str = Field(
        description="`forward`, `backward`, `autotune`, `cudagraph` or `other`, of PyTorch; "
        "`triton`, `cpp_extension` or `custom`, of a compiler beside it."
    )
    seconds: Seconds | None = Field(description="How long it took; null where PyTorch is silent.")
    total_seconds: Seconds | None = Field(
        description="With its backward and what was tuned or recorded at its first run: what a "
        "recompile cost so far. Null for what another brought, and in an event."
    )
    reason: str | None = Field(
        description="Why it was compiled again, in PyTorch's words; null for a first compilation."
    )
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(
        description="What that reason is about, of a closed list; null for a first compilation."
    )
    advice: str | None = Field(
        description="What to do about it; null where nothing is known, and in the first warm-up, "
        "which it is a part of."
    )
    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="The function that was compiled.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    cache: str | None = Field(description="`hit` or `miss`; null where no cache was asked.")
    failure: str | None = Field(description="The exception's type; null where it did not fail.")
    failure_reason: str | None = Field(
        description="Why it failed, in PyTorch's words; null where they may be the program's."
    )
    instance: int | None = Field(
        description="Which module of its class this is, where another was compiled with the same "
        "code before: a first compilation and no recompile. Null elsewhere."
    )
    cudagraph_skip: str | None = Field(
        description="Why CUDA graphs were left out of it, in PyTorch's words; null where they were "
        "not, or this torch does not say."
    )


class Underway(BaseModel):
    """What the activity in progress compiles."""

    kind: str | None = Field(description="See `last`; null where it is not known yet.")
    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="The function, as far as it is known.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    backward: bool = Field(description="It is that function's backward.")
    reason: str | None = Field(description="Why it is compiled again, in PyTorch's words.")
    plain: str | None = Field(description="The same in plain words; null where nobody knows them.")
    category: str | None = Field(description="What that reason is about, of a closed list.")
    advice: str | None = Field(
        description="What to do about it; null where nothing is known, and in the first warm-up, "
        "which it is a part of."
    )
