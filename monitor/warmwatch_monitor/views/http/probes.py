"""``/-/healthy`` and ``/-/ready``, for who starts the daemon anew or sends others to it."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse

from warmwatch_monitor.model import Snapshot


def add_probes(app: FastAPI, latest: Callable[[], Snapshot]) -> None:
    @app.get(
        "/-/healthy",
        response_class=PlainTextResponse,
        response_description="It is.",
        responses={503: {"description": "It answers, and has nothing new to say: restart it."}},
    )
    async def healthy() -> Response:
        """The daemon answers, and what it says is not old."""
        late = latest().late_seconds
        return PlainTextResponse("healthy\n") if late is None else _late(late)

    @app.get(
        "/-/ready",
        response_class=PlainTextResponse,
        response_description="They have, and it is.",
        responses={503: {"description": "Not read yet, not readable now, or not published."}},
    )
    async def ready() -> Response:
        """The records have been read, can be read now, and all that is read is published."""
        snapshot = latest()
        sources = {health.source: health for health in snapshot.sources}
        records, publisher = sources.get("records"), sources.get("publisher")
        if records is None or not records.last_success:
            return PlainTextResponse("the records have not been read yet\n", status_code=503)
        if snapshot.late_seconds is not None:
            return _late(snapshot.late_seconds)
        if not records.up:
            words = "the records cannot be read now; /status says why\n"
            return PlainTextResponse(words, status_code=503)
        if publisher is not None and not publisher.up:  # of what, is for those who may ask
            words = "not all that is read is published; /status says why\n"
            return PlainTextResponse(words, status_code=503)
        return PlainTextResponse("ready\n")


def _late(seconds: float) -> Response:
    return PlainTextResponse(f"nothing has been published for {seconds:.0f} s\n", status_code=503)
