"""The application: every route, over the latest Snapshot."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.views.answers import Answers
from warmwatch_monitor.views.events import Events
from warmwatch_monitor.views.history import History, sample
from warmwatch_monitor.views.http.events import add_events
from warmwatch_monitor.views.http.history import add_history
from warmwatch_monitor.views.http.metrics import add_metrics
from warmwatch_monitor.views.http.page import add_page, add_reference
from warmwatch_monitor.views.http.probes import add_probes
from warmwatch_monitor.views.http.refusals import add_refusals
from warmwatch_monitor.views.http.status import add_status
from warmwatch_monitor.views.lane import Lane
from warmwatch_monitor.views.recent import Recent


def create_app(
    latest: Callable[[], Snapshot],
    version: str,
    recent: Recent | None = None,
    history: History | None = None,
) -> Lane:
    """The application over ``latest``, which returns the newest Snapshot at once.

    ``recent`` has what changed, ``history`` what was so, of the same Snapshots.
    """
    app = FastAPI(
        title="Warmwatch",
        version=version,
        summary="Is torch.compile still at work, or is this the real speed?",
        docs_url=None,
        redoc_url=None,
    )
    add_refusals(app)
    answers = Answers(latest, version)
    events = Events(latest, recent or Recent(), sample)
    add_status(app, answers)
    add_events(app, events)
    add_history(app, history or History())
    add_metrics(app, answers)
    add_probes(app, latest)
    add_page(app)
    add_reference(app)
    return Lane(app, answers, events)
