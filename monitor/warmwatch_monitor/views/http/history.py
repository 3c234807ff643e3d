"""``/history``: the last hour in columns."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from warmwatch_monitor.views.event_schema import HISTORY_DESCRIPTION, HISTORY_EXAMPLE
from warmwatch_monitor.views.history import SECONDS, History, columns
from warmwatch_monitor.views.http.refusals import INVALID
from warmwatch_monitor.views.kept import json_body_of_many


def add_history(app: FastAPI, history: History) -> None:
    one_at_a_time = asyncio.Lock()

    @app.get(
        "/history",
        description=HISTORY_DESCRIPTION,
        response_description="The columns.",
        responses={
            200: {"content": {"application/json": {"example": HISTORY_EXAMPLE}}},
            422: INVALID,
        },
    )
    async def get_history(
        request: Request,
        seconds: Annotated[
            int, Query(ge=1, le=SECONDS, description="How far back it goes.")
        ] = SECONDS,
        run: Annotated[
            str | None, Query(description="Ranks of this run alone, by the name that is shown.")
        ] = None,
        points: Annotated[
            int, Query(ge=1, le=SECONDS, description="At most so many values in a column.")
        ] = SECONDS,
    ) -> Response:
        accept = request.headers.get("accept-encoding", "")

        def make() -> tuple[bytes, dict[str, str]]:
            told = columns(history, seconds=seconds, run=run, points=points)
            return json_body_of_many(told).encoded(accept)

        # in a thread: an hour of many ranks takes its time, and others ask meanwhile
        async with one_at_a_time:
            content, headers = await asyncio.to_thread(make)
        return Response(content, headers=headers)
