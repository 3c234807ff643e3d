"""``/status``: the answer, at once or when what is waited for has come."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from warmwatch_monitor.views.answers import Answers
from warmwatch_monitor.views.http.refusals import INVALID
from warmwatch_monitor.views.http.response import sent
from warmwatch_monitor.views.lane import gone
from warmwatch_monitor.views.schema import STATUS_DESCRIPTION, Problem, Status
from warmwatch_monitor.views.waiters import GoneError
from warmwatch_monitor.views.waiting import GOALS, LONGEST_WAIT_SECONDS, USUAL_WAIT_SECONDS

_WAIT_DESCRIPTION = (
    "Answer when this state is reached, or at once when nothing can change any more (the runs that "
    "are asked about have ended), or at the timeout. The answer is then a 200 in every case and "
    "has the key `reached`: whether the state was reached. `warm`: every living rank is, or the "
    "runs finished after they had been. `ended`: no rank lives. A run that had ended before the "
    "request came says nothing of one that is being launched: it counts only where an end is "
    "waited for (`ended`, `finished`, `failed`, `lost`), or where it began within the 10 s before; "
    "else a run is waited for that begins."
)

_RUN_DESCRIPTION = (
    "One run alone, by its name. `NAME@USER` is that user's; a name without a user is the run that "
    "is shown so, else every user's of that name."
)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer. With `wait` also where the wait was in vain: see `reached`.",
        "model": Status,
    },
    404: {
        "description": "No run of that name; said at once, with `wait` too, where the records can "
        "be read. A run that is not seen for a while in the course of a wait may come back: of "
        "that the timeout tells.",
        "model": Problem,
    },
    422: INVALID,
    503: {
        "description": "No run of that name so far, and not all records have been read yet.",
        "model": Problem,
    },
}


def add_status(app: FastAPI, answers: Answers) -> None:
    # the model is for /docs: what is answered is a Response, which FastAPI leaves as it is
    @app.get("/status", description=STATUS_DESCRIPTION, response_model=Status, responses=_RESPONSES)
    async def get_status(
        request: Request,
        run: Annotated[str | None, Query(description=_RUN_DESCRIPTION)] = None,
        wait: Annotated[
            str | None,
            Query(
                description=_WAIT_DESCRIPTION,
                pattern=f"^({'|'.join(GOALS)})$",
                json_schema_extra={"enum": list(GOALS)},
            ),
        ] = None,
        timeout: Annotated[
            float,
            Query(
                gt=0,
                le=LONGEST_WAIT_SECONDS,
                description="With `wait`: answer after this many seconds at the latest.",
            ),
        ] = USUAL_WAIT_SECONDS,
    ) -> Response:
        if wait is None:
            return sent(answers.status(run), request)
        try:
            body = await answers.wait(wait, run, timeout, partial(gone, request.receive))
        except GoneError:
            return Response()  # to nobody
        return sent(body, request)
