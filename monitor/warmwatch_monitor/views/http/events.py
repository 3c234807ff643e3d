"""``/events``: what changes, for as long as somebody listens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Header, Query, Request, Response

from warmwatch_monitor.views.event_schema import (
    EVENTS_DESCRIPTION,
    EVENTS_EXAMPLE,
    EVENTS_RUN_DESCRIPTION,
    KINDS_DESCRIPTION,
    KINDS_PATTERN,
    LAST_ID_DESCRIPTION,
    SAMPLES_DESCRIPTION,
)
from warmwatch_monitor.views.events import CrowdedError, Events
from warmwatch_monitor.views.http.refusals import INVALID
from warmwatch_monitor.views.http.response import json_response
from warmwatch_monitor.views.recent import Wanted
from warmwatch_monitor.views.schema import Problem
from warmwatch_monitor.views.stream import EventStream


def _peer(request: Request) -> str:
    """Who listens, as the door says; everybody is one where there is none."""
    return str(getattr(request.state, "peer", ""))


def add_events(app: FastAPI, events: Events) -> None:
    @app.get(
        "/events",
        description=EVENTS_DESCRIPTION,
        response_class=EventStream,
        response_description="Events, for as long as they are taken.",
        responses={
            200: {"content": {"text/event-stream": {"example": EVENTS_EXAMPLE}}},
            422: INVALID,
            503: {"description": "As many listen as may.", "model": Problem},
        },
    )
    async def get_events(
        run: Annotated[str | None, Query(description=EVENTS_RUN_DESCRIPTION)] = None,
        kinds: Annotated[str, Query(description=KINDS_DESCRIPTION, pattern=KINDS_PATTERN)] = "",
        samples: Annotated[bool, Query(description=SAMPLES_DESCRIPTION)] = False,
        peer: Annotated[str, Depends(_peer)] = "",
        last_event_id: Annotated[str | None, Header(description=LAST_ID_DESCRIPTION)] = None,
    ) -> Response:
        try:
            events.refuse_crowd(peer)
        except CrowdedError as error:
            return json_response({"detail": str(error)}, status_code=503)
        wanted = Wanted(run, frozenset(filter(None, kinds.split(","))))
        return EventStream(events.listen(wanted, last_event_id, samples=samples, peer=peer))
