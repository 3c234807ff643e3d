"""What is refused, in words: a run that is not known, a parameter that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from warmwatch_monitor.errors import UnknownRunError, UnreadRunError
from warmwatch_monitor.views.http.response import json_response
from warmwatch_monitor.views.schema import Problem
from warmwatch_monitor.views.waiting import GOALS, LONGEST_WAIT_SECONDS

_STATES = ", ".join(GOALS)

# as routes document it
INVALID: dict[str, Any] = {"description": "A parameter that makes no sense.", "model": Problem}


# what is sent with each status
RETRY: Mapping[int, Mapping[str, str]] = {404: {}, 503: {"Retry-After": "1"}}


def status_of(error: UnknownRunError) -> int:
    """404 only where all records were read."""
    return 503 if isinstance(error, UnreadRunError) else 404


def add_refusals(app: FastAPI) -> None:
    @app.exception_handler(UnknownRunError)
    async def unknown_run(_request: Request, error: UnknownRunError) -> Response:
        return json_response({"detail": str(error)}, status_of(error), RETRY[status_of(error)])

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        sentences = [_sentence(one["loc"][-1], one.get("input")) for one in error.errors()]
        return json_response({"detail": "; ".join(sentences)}, status_code=422)


def _sentence(parameter: object, given: object) -> str:
    if parameter == "wait":
        return f"wait={given!s} is no state; the states are {_STATES}"
    if parameter == "timeout":
        longest = f"{LONGEST_WAIT_SECONDS:.0f}"
        return f"timeout={given!s} is not a number of seconds above 0 and up to {longest}"
    return f"{parameter!s}={given!s} cannot be used"
