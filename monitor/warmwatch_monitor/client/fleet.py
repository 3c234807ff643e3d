"""The answer for the runs of a Prometheus server, as ``--prometheus`` selects it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import to_builtins

from warmwatch_monitor.base.access import ANYBODY, Access
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import FleetError, UsageError
from warmwatch_monitor.base.timeouts import within
from warmwatch_monitor.client.choice import Answer, choose, is_pattern
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.sources.fleet import assemble
from warmwatch_monitor.sources.fleet.samples import PrometheusSource
from warmwatch_monitor.status.document import status

FLEET_SECONDS = 30.0


def query_fleet(
    url: str,
    run: str | None = None,
    access: Access = ANYBODY,
    seconds: float = FLEET_SECONDS,
    on_query: Callable[[Snapshot], None] | None = None,
) -> Answer:
    """The answer for every run in a Prometheus server, or for those that ``run`` selects.

    ``seconds``: for all queries together, however slowly the server sends. ``on_query`` receives
    the Snapshot.

    Raises:
        UsageError: ``url`` is not HTTP, or ``access`` cannot be used. FleetError: the server does
        not answer. UnknownRunError: it has no such run.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--prometheus takes a URL such as http://prometheus:9090, not {url!r}")
    source = PrometheusSource(url, access)
    name = None if run is None or is_pattern(run) else run

    def read() -> Snapshot:
        snapshot = assemble(source.read(name), Clock().epoch())
        if name is not None and not snapshot.runs:  # the error lists all runs
            snapshot = assemble(source.read(), Clock().epoch())
        return snapshot

    snapshot = within(seconds, read, None)
    if snapshot is None:
        raise FleetError(
            f"{url} has not answered within {seconds:.2g} s; check that the Prometheus server works"
        )
    if on_query is not None:
        on_query(snapshot)
    return choose(to_builtins(status(snapshot)), run)
