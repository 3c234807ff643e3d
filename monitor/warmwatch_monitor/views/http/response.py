"""A body as a response."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request, Response

from warmwatch_monitor.views.kept import Body, json_body


def sent(body: Body, request: Request) -> Response:
    """Compressed, where that is worth it and the request takes it."""
    content, headers = body.encoded(request.headers.get("accept-encoding", ""))
    return Response(content, headers=headers)


def json_response(
    body: object, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``body`` as JSON."""
    made = json_body(body)
    return Response(
        made.plain, status_code=status_code, media_type=made.kind, headers=dict(headers or {})
    )
