"""``warmwatch serve``: the daemon. Wires poller and API together and waits for the end."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from warmwatch import __version__
from warmwatch.shared.variables import unknown_variables
from warmwatch_monitor.base.errors import OutputError, SourceError, UsageError
from warmwatch_monitor.base.settings import (
    NO_SQLITE,
    Address,
    HistorySettings,
    Settings,
    load,
    load_history_settings,
)
from warmwatch_monitor.history.earlier_runs_source import earlier_runs_source
from warmwatch_monitor.history.keeper import Keeper
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.last_hour.ring import LastHour
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, say
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.server.api.changes import Recent
from warmwatch_monitor.server.http_server import HttpServer
from warmwatch_monitor.server.listening import ServiceManager, listen, local_listener, resolved
from warmwatch_monitor.server.logs import DaemonLog
from warmwatch_monitor.server.sender import Sender, make_sender
from warmwatch_monitor.sources.listed import SOURCES

if TYPE_CHECKING:
    from warmwatch_monitor.server.guard import Audit


_VALUES_OF_A_POLL = 20_000  # at a few hundred ranks


class ServeDocument(Struct, frozen=True, kw_only=True):
    """The daemon of `warmwatch serve --json`, in one line, once it listens."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    version: str
    """Version of Warmwatch."""
    pid: int | None
    """Process id of the daemon; null with `--check-config`, which starts none."""
    url: str
    """Where it serves; the live page is at `/`."""
    directories: list[str]
    """Directories of the records that it reads."""
    history: str | None
    """Directory of the history; null if there is none."""


@click.command()
@options.address
@options.directory
@click.option("--check-config", is_flag=True, help="Check the settings and exit.")
@click.option("--json", "is_json", is_flag=True, help="Print address and directories as JSON.")
@click.option(
    "--log-format", metavar="FORMAT", help="Format of the log on stderr: logfmt, json or off."
)
@click.option("--interval", metavar="S", help="Seconds between two polls of the records.  [0.2]")
@click.option(
    "--gpu-interval", metavar="S", help="Seconds between two polls of the GPUs, or off.  [1]"
)
@click.option("--retention", metavar="S", help="Seconds an ended run stays visible.  [900]")
@click.option(
    "--long-compile",
    metavar="S",
    help="Seconds after which any compilation counts as long, or off.  [3600]",
)
@click.option(
    "--otlp",
    is_flag=True,
    help="Also send the metrics by OTLP; configured by OpenTelemetry's variables.",
)
@click.option(
    "--token-file", type=options.FILE, help="Require the bearer token in this file of clients."
)
@click.option("--tls-cert", type=options.FILE, help="Serve over TLS with this certificate (PEM).")
@click.option("--tls-key", type=options.FILE, help="Key of the certificate, if in its own file.")
@click.option(
    "--insecure", is_flag=True, help="Allow requests without authentication on any address."
)
@click.option("--awaits", hidden=True, help="Id of the launch that it is started with.")
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="End with the command.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Accept requests for this host name too; repeatable.",
)
def serve(
    otlp: bool,
    insecure: bool,
    check_config: bool,
    is_json: bool,
    awaits: str | None,
    until_stdin_ends: bool,
    allowed_hosts: tuple[str, ...],
    **options: str | None,
) -> None:
    """Watch the records, publish the live page, /status, /metrics and /events, and store the runs.

    On an address that other machines can reach, the daemon requires --token-file or
    --insecure. The files with token, certificate and key are read again when they
    change, and at SIGHUP; other settings need a restart.

    \b
    Exit code: 0 SIGTERM or SIGINT; 2 a setting or file is invalid; 6 the address is in use
    """
    if complaints := unknown_variables(os.environ):
        raise UsageError("; ".join(complaints))
    if until_stdin_ends and sys.stdin is None:
        raise UsageError("--until-stdin-ends: stdin is closed; give it a pipe, or drop the option")
    options |= {
        "otlp": "on" if otlp else None,
        "insecure": "on" if insecure else None,
        "allowed_hosts": ",".join(allowed_hosts) or None,
    }
    settings = load(os.environ, os.getuid(), options)
    history_settings = load_history_settings(os.environ, daemon=True)
    settings = replace(settings, awaits=awaits, history=history_settings)
    if check_config:
        _check(settings, is_json=is_json)
        return
    log = None if settings.log_format is None else DaemonLog(settings.log_format)
    server = HttpServer(settings, None if log is None else _audit(log))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _leave)
    if until_stdin_ends:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    with listen(settings.address) as listener, local_listener(settings) as local:
        bound = server.checked(listener.getsockname())
        history = LastHour()
        keeper = make_keeper(settings.history, history)
        recalled = earlier_runs_source(settings.history, late=True)
        kept = () if keeper is None else (keeper.source,)
        poller = Poller(settings, sources=(*SOURCES, *server.sources, *kept, *recalled))
        sender = make_sender(poller, bound) if settings.otlp else None
        _announce(settings, bound, log, is_json=is_json)
        listeners = [listener] if local is None else [listener, local]
        began = time.monotonic()
        try:
            _serve(poller, sender, server, listeners, history, keeper, log)
        finally:
            if log is not None:
                log.note("stop", pid=os.getpid(), seconds=time.monotonic() - began)
                log.stop()


def _check(settings: Settings, *, is_json: bool) -> None:
    """Raises UsageError if the daemon would not start with these settings."""
    address = settings.address
    where = resolved(address)[-1]
    bound = HttpServer(settings).checked(where)
    if is_json:
        say(as_json(_described(settings, bound, pid=None), indent=None))
        return
    where_from = ", ".join(settings.directories)
    say(f"the settings are valid: would serve {bound.url} and read {where_from}")


_AGAIN_SECONDS, _MOST_NOTED = 60.0, 1000


def _audit(log: DaemonLog) -> Audit:
    """Logs each refusal, and a client's requests for a path once a minute: a page has one a second.

    Otherwise an open page would exhaust the limit of the log, and hide refusals.
    """
    until: dict[tuple[str, str], float] = {}

    def note_access(client: str, path: str, refused: int | None) -> None:
        now = time.monotonic()
        if refused is None:
            if now < until.get((client, path), 0.0):
                return
            if len(until) >= _MOST_NOTED:
                until.clear()
            until[client, path] = now + _AGAIN_SECONDS
        level = logging.INFO if refused is None else logging.WARNING
        log.note("access", level, client=client, path=path, refused=refused)

    return note_access


_leaving = threading.Event()  # set by a signal whose SystemExit an import or a finalizer swallowed


def _leave(_signum: int, _frame: FrameType | None) -> None:
    """Exit on a signal before uvicorn handles signals, and after it has restored the handlers."""
    _leaving.set()
    sys.exit(0)


def _end_with_stdin() -> None:
    """The kernel closes the other end of this pipe however the command that holds it dies."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _described(settings: Settings, bound: Address, *, pid: int | None) -> ServeDocument:
    history = settings.history.directory if settings.history.able else None
    return ServeDocument(
        version=__version__,
        pid=pid,
        url=bound.url,
        directories=list(settings.directories),
        history=None if history is None else str(history),
    )


def _announce(settings: Settings, bound: Address, log: DaemonLog | None, *, is_json: bool) -> None:
    """Print where it serves; as a line of the log unless a person or a program reads it."""
    described = _described(settings, bound, pid=os.getpid())
    absent = [name for name in settings.directories if settings.chosen and not Path(name).exists()]
    if is_json:
        text = as_json(described, indent=None)
    elif log is None or sys.stdout.isatty():
        text = f"warmwatch {__version__} serves {bound.url}/ (live page), /status and /metrics"
    else:
        text = log.line(
            "start",
            version=__version__,
            pid=described.pid,
            url=bound.url,
            directories=",".join(described.directories),
            history=described.history,
        )
    if log is None:
        for directory in absent:
            note(f"warmwatch: {directory} does not exist yet; it is watched from when it does")
        if not settings.history.able:
            note(f"warmwatch: there is no history: {NO_SQLITE}")
    else:
        for directory in absent:
            log.note("no_directory", logging.WARNING, path=directory)
        if not settings.history.able:
            log.note("no_history", logging.WARNING, reason=NO_SQLITE)
    with contextlib.suppress(OutputError):  # serve even if the log's disk is full
        say(text)


def _serve(
    poller: Poller,
    sender: Sender | None,
    server: HttpServer,
    listeners: Sequence[socket.socket],
    history: LastHour,
    keeper: Keeper | None,
    log: DaemonLog | None,
) -> None:
    # here: a signal while it loads, for some tenths of a second, already ends the daemon in order
    from warmwatch_monitor.server.api.app import Api

    gc.freeze()  # imported objects; a poll makes thousands of values, and none is in a cycle
    gc.set_threshold(_VALUES_OF_A_POLL)
    recent = Recent()
    poller.follow(recent.take)
    poller.follow(history.take)
    manager = ServiceManager(os.environ)
    poller.follow(manager.take)
    if log is not None:
        poller.follow(lambda snapshot: log.take(snapshot, recent.changes))
    signal.signal(signal.SIGHUP, lambda *_: _reload(server, manager, log))
    if keeper is not None:
        poller.follow(keeper.take)
    poller.start()
    if sender is not None:
        sender.start()
    try:
        latest = sender.latest if sender else poller.latest
        app = Api(latest, __version__, recent, history, poller.request)

        def leave() -> None:
            manager.stopping()
            app.leave()

        server.serve(app, listeners, leave, _leaving.is_set)
    finally:
        manager.stopping()
        if sender is not None:
            sender.stop()
        poller.stop()
        if keeper is not None:
            keeper.finish()


def _reload(server: HttpServer, manager: ServiceManager, log: DaemonLog | None) -> None:
    manager.reloading()
    problem = None
    try:
        server.reload()
    except SourceError as error:
        problem = str(error)
    if log is not None:
        level = logging.INFO if problem is None else logging.ERROR
        log.note("reload", level, error=problem)
    manager.reloaded()


_PATIENCE_SECONDS = 2.0


def make_keeper(settings: HistorySettings, history: LastHour) -> Keeper | None:
    """The keeper of the daemon's history; ``None`` if the history is off."""
    if settings.directory is None:
        return None

    return Keeper(Store(settings, patience=_PATIENCE_SECONDS), history)
