"""Wires the OTLP export to a poller, where the libraries that it needs are installed."""

from __future__ import annotations

import os
import socket

from warmwatch import __version__
from warmwatch_monitor.config import Address
from warmwatch_monitor.errors import MissingExtraError
from warmwatch_monitor.poller import Poller
from warmwatch_monitor.push.sender import Sender


def make_sender(poller: Poller, bound: Address) -> Sender:
    """A sender of the poller's Snapshots, from the daemon that listens on ``bound``.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
        UsageError: a variable of OpenTelemetry's cannot be used.
    """
    try:
        from warmwatch_monitor.push.otlp import OtlpExporter
    except ImportError as error:
        raise MissingExtraError(
            f"what OTLP needs is not installed ({error}); get it with: "
            "pip install 'warmwatch[monitor,otlp]'"
        ) from None
    instance = f"{socket.gethostname()}:{bound.port}"  # as Prometheus would call it
    return Sender(OtlpExporter(os.environ, __version__, instance), poller.latest)
