"""What each function cost to compile, in the ``/status`` answer."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch_monitor.views.schema.units import Seconds


class Kernel(BaseModel):
    """One that took long to compile."""

    name: str = Field(description="As Inductor called it.")
    seconds: Seconds = Field(description="How long.")


class Function(BaseModel):
    """What all compilations of one function took, its backwards among them."""

    called: str | None = Field(
        description="It as sentences call it, `forward (model.py:31)` or `the model`."
    )
    name: str | None = Field(description="Null for what belongs to no function that is known.")
    file: str | None = Field(description="The base name of the file that it is in.")
    line: int | None = Field(description="The line on which it begins.")
    others: int = Field(description="Of a sum over the cheapest: of how many; 0 of a function.")
    compilations: int = Field(description="How often it was compiled, forward and backward.")
    failures: int = Field(description="How many of them failed.")
    seconds: Seconds = Field(description="How long they took together.")
    phase_seconds: dict[str, float] = Field(description="The same by phase. Exclusive.")
    ops: int | None = Field(description="Operators in its graph, the last time.")
    cache_hits: int = Field(description="Compilations that found themselves in a cache.")
    cache_misses: int = Field(description="Compilations that did not.")
    guards: int | None = Field(description="Guards of the last one.")
    guard_seconds: Seconds | None = Field(description="How long one look at them takes.")
    kernels: int | None = Field(description="Kernels that were compiled; null where none is told.")
    slowest_kernels: list[Kernel] = Field(description="Those that took longest.")
    allocated_bytes: int | None = Field(
        description="Of CUDA's allocator, when the last one had ended; null without CUDA."
    )
    reserved_bytes: int | None = Field(description="Likewise.")
