"""The serving example of the docs: a real server, its probes, and a monitor's verdict on it."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.documents import status
from support.sources import poller
from support.trainings import training

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "serve.py"
SERVE = """
import socket, threading
import uvicorn
import serve

listener = socket.create_server(("127.0.0.1", 0))
requests = serve.warm_up_requests

def held_back():
    gate("serving")
    yield from requests()
    gate("warmed up")

serve.warm_up_requests = held_back
server = uvicorn.Server(uvicorn.Config(serve.app, log_level="error"))
result(listener.getsockname()[1])
server.run(sockets=[listener])
"""


def ask(port: int, path: str, rows: int = 0) -> tuple[int, Any]:
    """The status code and the answer; ``rows``: how many to predict for."""
    data = json.dumps([[0.5] * 8] * rows).encode() if rows else None
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.long
def test_a_server_is_ready_once_it_is_warm_and_one_recompile_does_not_change_that(
    records: Path,
) -> None:
    shutil.copy(EXAMPLE, records.parent / "serve.py")
    look = poller(directories=(str(records),))
    with training(records, SERVE, attach=False, fresh=True) as one:
        port = one.result()
        one.reach("serving")
        assert ask(port, "/ready") == (503, {"ready": False, "compiling": False})
        one.go()
        one.reach("warmed up")
        assert ask(port, "/ready")[0] == 503, "all sizes are compiled, and no call has reported so"
        assert ask(port, "/live") == (200, {"state": "warming"})
        one.go()
        while ask(port, "/ready")[0] != 200:
            pass
        before = look.poll_once()
        assert len(ask(port, "/predict", rows=4)[1]) == 4
        assert ask(port, "/live")[1] == {"state": "warm"}
        assert len(ask(port, "/predict", rows=3)[1]) == 3
        assert ask(port, "/ready")[0] == 200
        assert ask(port, "/live")[1] == {"state": "recompiling"}
        after = look.poll_once()
        one.process.terminate()
        one.wait()
    (rank,) = before.runs[0].ranks
    assert (rank.judgement.state.value, rank.judgement.warm_by) == ("warm", "ready")
    (reported,) = status(after)["runs"][0]["ranks"]
    assert reported["compile"]["recompiles_after_warm"] == 1
    (late,) = [one for one in reported["compile"]["last"] if "3" in str(one.get("reason"))]
    assert late["category"] == "shape"
