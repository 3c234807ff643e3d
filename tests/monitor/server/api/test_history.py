"""``GET /history``, and the event ``sample``."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
from msgspec import to_builtins

from support import builders as b
from support.values import replace
from warmwatch_monitor.last_hour.ring import LastHour, columns
from warmwatch_monitor.server.api import cached as bodies
from warmwatch_monitor.server.api.app import Api
from warmwatch_monitor.server.api.events import sample

STATES = b.in_every_state()


def test_a_sample_is_the_current_status_with_its_sentences() -> None:
    found = to_builtins(sample(b.snapshot(STATES["compiling"], gpus=(b.gpu(),))))
    assert found["summary"].startswith(f"gpt2: {b.head(STATES['compiling'])}")
    assert (found["ranks"][0]["phase"], found["ranks"][0]["steps"]) == ("inductor", 0)
    assert found["gpus"][0]["power_watts"] == 686.0


def test_long_answers_are_made_in_parts_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compressed there too; and encoded rank by rank, for meanwhile nothing else can run."""
    where: set[threading.Thread] = set()
    ranks_at_once: list[int] = []
    encode, compress = bodies.msgspec.json.encode, bodies.gzip.compress

    def encoding(value: Any) -> bytes:
        text = encode(value)
        ranks_at_once.append(text.count(b'"step_seconds"'))
        return text

    def compressing(*arguments: Any, **options: Any) -> bytes:
        where.add(threading.current_thread())
        return compress(*arguments, **options)

    monkeypatch.setattr(bodies.msgspec.json, "encode", encoding)
    monkeypatch.setattr(bodies.gzip, "compress", compressing)
    views = [b.in_every_state(f"run{n}")["warm"] for n in range(20)]
    history = LastHour()
    for second in range(10):
        whole = b.snapshot(*views)
        history.take(replace(whole, now_ns=b.NOW + second * b.SECOND, epoch=b.EPOCH + second))
    app = Api(b.snapshot, "0", history=history)

    async def requested() -> Any:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get("/history", headers={"accept-encoding": "gzip"})).json()

    answer = asyncio.run(requested())
    monkeypatch.undo()
    assert answer == json.loads(json.dumps(columns(history)))
    assert len(answer["ranks"]) == 20
    assert max(ranks_at_once) == 1
    assert where
    assert threading.main_thread() not in where
