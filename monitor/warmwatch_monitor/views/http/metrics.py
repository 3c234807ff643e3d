"""``/metrics``: all that is known, as series."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import PlainTextResponse

from warmwatch_monitor.views.answers import Answers
from warmwatch_monitor.views.http.refusals import INVALID
from warmwatch_monitor.views.http.response import sent


def add_metrics(app: FastAPI, answers: Answers) -> None:
    @app.get(
        "/metrics",
        description="All that is known, as series; the formats are Prometheus' own.",
        response_class=PlainTextResponse,
        response_description="Prometheus text, or OpenMetrics where the Accept header asks for it.",
        responses={422: INVALID},
    )
    async def get_metrics(
        request: Request,
        accept: Annotated[
            str | None,
            Header(
                description="`application/openmetrics-text` for OpenMetrics; without it, or with "
                "anything else, Prometheus text."
            ),
        ] = None,
    ) -> Response:
        return sent(answers.metrics(accept), request)
