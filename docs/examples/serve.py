"""Serve a compiled model, and report ready once its warm-up is over.

Run it with ``uvicorn serve:app``. ``/ready`` is the readiness probe: 503 while the warm-up requests
compile, 200 from then on. A request that compiles later is slow, and ``warmwatch status`` reports
why, but the probe stays at 200: one slow request is no reason to stop sending others.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, Response

import warmwatch
import warmwatch.auto  # attaches

WIDTH = 8
BATCH_SIZES = (1, 4)  # those that clients usually send

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
compiled = torch.compile(model.eval(), dynamic=False)
is_ready = threading.Event()  # set once, and never cleared


def predict(batch: torch.Tensor) -> list[float]:
    """The model's answer for each row of ``batch``."""
    with torch.inference_mode():
        answers: list[float] = compiled(batch).squeeze(-1).tolist()
    return answers


def warm_up_requests() -> Iterator[torch.Tensor]:
    """One request of each size that is expected: what compiles for it compiles now."""
    for size in BATCH_SIZES:
        yield torch.zeros(size, WIDTH)


def warm_up() -> None:
    """Compile before the first client comes, then end the warm-up."""
    for batch in warm_up_requests():
        predict(batch)
    warmwatch.ready()  # without it: warm once nothing has compiled for 30 s


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Warm up on a thread, so that the probes are answered meanwhile."""
    warmwatch.on_warm(is_ready.set)
    threading.Thread(target=warm_up, daemon=True).start()
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/live")
def live() -> dict[str, str | None]:
    """The liveness probe: the process answers, whatever it compiles."""
    return {"state": warmwatch.state()}


@app.get("/ready")
def ready(response: Response) -> dict[str, bool]:
    """The readiness probe."""
    response.status_code = 200 if is_ready.is_set() else 503
    return {"ready": is_ready.is_set(), "compiling": warmwatch.is_compiling()}


@app.post("/predict")
def predict_rows(rows: list[list[float]]) -> list[float]:
    """The model's answers."""
    return predict(torch.tensor(rows))
