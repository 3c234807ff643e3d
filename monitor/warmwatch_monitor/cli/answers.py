"""Where a command gets the contract's ``/status`` from: a daemon that answers, else the records."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.config import Address, Settings, load
from warmwatch_monitor.errors import DaemonError, UnknownRunError, UsageError
from warmwatch_monitor.export.answer import status
from warmwatch_monitor.fleet import assemble
from warmwatch_monitor.poller import Poller
from warmwatch_monitor.sources.prometheus import PrometheusSource

Answer = dict[str, Any]

_TIMEOUT_SECONDS = 2.0
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def settings_from(**options: str | None) -> Settings:
    """This command's settings. Raises UsageError."""
    return load(os.environ, os.getuid(), options)


def make_poller(settings: Settings) -> Poller:
    """The poller over every source that is listed."""
    return Poller(settings)


def ask_daemon(address: Address, run: str | None = None) -> Answer | None:
    """The daemon's ``/status``; ``None`` where none answers at ``address``.

    Raises:
        UnknownRunError: it knows no such run. DaemonError: something else answers there.
    """
    query = f"?{urllib.parse.urlencode({'run': run})}" if run else ""
    try:
        with _NO_PROXY.open(f"{address.url}/status{query}", timeout=_TIMEOUT_SECONDS) as reply:
            answer = json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 404 and run and (known := ask_daemon(address)) is not None:
            raise UnknownRunError(run, tuple(r["run"] for r in known["runs"])) from None
        raise DaemonError(f"{address.url} answers with HTTP {error.code}; {_OTHER}") from None
    except ValueError:
        raise DaemonError(f"{address.url} does not answer as warmwatch does; {_OTHER}") from None
    except OSError:
        return None
    if not isinstance(answer, dict) or "schema_version" not in answer:
        raise DaemonError(f"{address.url} does not answer as warmwatch does; {_OTHER}")
    return answer


_OTHER = "give the daemon's address with --address HOST:PORT, or --dir to read the records"


def asker(settings: Settings, run: str | None, *, direct: bool) -> Callable[[], Answer]:
    """A function that gives the answer as it is now, for as long as a command needs it.

    ``direct`` never asks the daemon. Nor is one asked that does not watch just the directory that
    was chosen in the environment.
    """
    poller = make_poller(settings)

    def answer() -> Answer:
        if not direct and _may_know(settings):
            found = ask_daemon(settings.address, run)
            if found is not None:
                return found
        return status(poller.poll_once(), run)

    return answer


def ask_fleet(url: str, run: str | None = None) -> Answer:
    """The answer for every run, or for ``run``, over all hosts that a Prometheus scrapes.

    Raises:
        UsageError: ``url`` is none of HTTP. FleetError: it cannot be asked.
        UnknownRunError: it knows no such run.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"--prometheus takes a URL such as http://prometheus:9090, not {url!r}")
    source = PrometheusSource(url)
    snapshot = assemble(source.read(run), Clock().epoch())
    if run is not None and not snapshot.runs:  # say which there are
        snapshot = assemble(source.read(), Clock().epoch())
    return status(snapshot, run)


def _may_know(settings: Settings) -> bool:
    """Whether a daemon, if there is one, watches just the directory that was chosen here."""
    if not settings.chosen:
        return True
    answer = ask_daemon(settings.address)
    return answer is not None and answer["directories"] == list(settings.directories)
