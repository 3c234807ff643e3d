"""The parameters of requests, each declared once: for the check of a request, and for ``/docs``."""

from __future__ import annotations

from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from warmwatch_monitor.last_hour.ring import SECONDS
from warmwatch_monitor.model.budgets import LONGEST_RUN
from warmwatch_monitor.status.goals import GOALS, LONGEST_WAIT_SECONDS, USUAL_WAIT_SECONDS
from warmwatch_monitor.status.schema.events import KINDS

_MOST = 16  # of one request: parsing thousands would block the event loop
_ANY_KIND = f"({'|'.join(KINDS)})"

Run = Annotated[str, Meta(max_length=LONGEST_RUN)]
_END = r"$(?!\n)"  # in Python `$` also matches before a line feed at the end
Goal = Annotated[str, Meta(pattern=f"^({'|'.join(GOALS)}){_END}")]


class NoParameters(Struct):
    """For a path without parameters."""


class StatusParameters(Struct):
    run: Annotated[
        Run | None,
        Meta(
            description="Only the run of this name. `NAME@USER` is that user's run. A name without "
            "a user is the run that is shown under it, or else the runs of all users with that "
            "name."
        ),
    ] = None
    wait: Annotated[
        Goal | None,
        Meta(
            description="Answer when this state is reached, when the requested runs have ended, or "
            "at the timeout. The status code is then always 200, and the key `reached` is true if "
            "the state was reached. `warm`: every living rank is warm, or the runs finished after "
            "they had been warm. `settled`: warm, and no living rank's speed still changes. "
            "`ended`: no rank lives. A run that had ended before the request counts for the ends: "
            "`ended`, `finished`, `failed` and `lost`. For other states it counts if it began "
            "within the last 10 s before the request; else the daemon waits for a new run.",
            extra_json_schema={"enum": list(GOALS)},
        ),
    ] = None
    timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_WAIT_SECONDS,
            description="With `wait`: answer after this many seconds at the latest.",
        ),
    ] = USUAL_WAIT_SECONDS


class EventsParameters(Struct):
    run: Annotated[
        Run | None,
        Meta(
            description="Only events of this run, and of data sources. The run may begin later. "
            "Names as in `/status`."
        ),
    ] = None
    kinds: Annotated[
        str,
        Meta(
            pattern=f"^({_ANY_KIND}(,{_ANY_KIND})*)?{_END}",
            description="Only events of these kinds, separated by commas. The first event, `reset` "
            "and `stopping` always come.",
        ),
    ] = ""
    samples: Annotated[
        bool,
        Meta(
            description="With `true`, also an event `sample` each second, without an id: the "
            "current figures."
        ),
    ] = False


class HistoryParameters(Struct, frozen=True):
    seconds: Annotated[
        int, Meta(ge=1, le=SECONDS, description="The number of seconds before now.")
    ] = SECONDS
    run: Annotated[
        Run | None,
        Meta(description="Only the ranks of this run, by its name in `/status`."),
    ] = None
    points: Annotated[int, Meta(ge=1, le=SECONDS, description="The most values in a column.")] = (
        SECONDS
    )


class InvalidError(Exception):
    """A parameter is invalid; the message names it."""


P = TypeVar("P", bound=Struct)


def parsed(query: bytes, type: type[P]) -> P:
    """The parameters of a query string; of one that is repeated, the last. Raises InvalidError."""
    try:
        given = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST)
        return msgspec.convert(dict(given), type, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidError(f"invalid parameter: {error}") from None
