"""What a browser shows: the page at ``/``, and ``/docs``."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from warmwatch_monitor.views import page_files, reference


def add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def landing(request: Request) -> Response:
        return _page("index.html", request)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str, request: Request) -> Response:
        return _page(name, request)


def _page(name: str, request: Request) -> Response:
    body = page_files.file(name)
    if body is None:
        return PlainTextResponse("there is no such file of the page\n", status_code=404)
    content, headers = body.encoded(request.headers.get("accept-encoding", ""))
    return Response(content, headers={**headers, **page_files.HEADERS})


def add_reference(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(reference.page(app.openapi()))
