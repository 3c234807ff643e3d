"""Asks a daemon for its ``/status``, and says in a sentence what is wrong where it cannot.

What listens at an address may be anything: each way in which it is no daemon, or one that hangs,
is a DaemonError. Nothing is read without an end, in bytes or in seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

from warmwatch_monitor.config import Address
from warmwatch_monitor.errors import DaemonError, NoDaemonError

Answer = dict[str, Any]

SCHEMA_VERSION = 1
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
LONGEST_ANSWER = 64 << 20  # bytes; one of 512 ranks has about 1 MB
_OTHER = "give the daemon's address with --address HOST:PORT, or --dir to read the records"


def ask_daemon(address: Address) -> Answer:
    """The daemon's whole ``/status``.

    Raises:
        NoDaemonError: nobody answers at ``address``. DaemonError: something else does.
    """
    body = _fetch(address)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("runs"), list):
        raise _stranger(address)
    if answer.get("schema_version") != SCHEMA_VERSION:
        raise DaemonError(
            f"the daemon at {address} is of another release than this command "
            f"(schema version {answer.get('schema_version')}); install the same on both sides"
        )
    return answer


def _fetch(address: Address) -> bytes:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_SECONDS)
    try:
        connection.connect()
    except (OSError, ValueError) as error:  # a host that is no name is a ValueError
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise NoDaemonError(
            f"no daemon answers at {address} ({reason.lower()}); start one with: warmwatch serve, "
            "or give --dir to read the records"
        ) from None
    ended = threading.Event()
    watch = threading.Timer(ANSWER_SECONDS, _end, (connection.sock, ended))
    watch.daemon = True
    watch.start()
    body = None
    try:
        body = _exchange(connection, address)
    except (http.client.HTTPException, OSError, ValueError):
        pass  # what was cut off may also read as if it were whole: both are told apart below
    finally:
        watch.cancel()
        connection.close()
    if ended.is_set():
        raise DaemonError(
            f"what listens at {address} has not answered within {ANSWER_SECONDS:g} s; {_OTHER}"
        )
    if body is None:
        raise _stranger(address)
    return body


def _exchange(connection: http.client.HTTPConnection, address: Address) -> bytes:
    if connection.sock is not None:
        connection.sock.settimeout(None)  # the watch ends it
    connection.request("GET", "/status", headers={"Accept": "application/json"})
    reply = connection.getresponse()
    if reply.status != http.client.OK:
        raise DaemonError(f"{address.url} answers with HTTP {reply.status}; {_OTHER}")
    body = reply.read(LONGEST_ANSWER + 1)
    if len(body) > LONGEST_ANSWER:
        raise _stranger(address)
    return body


def _end(sock: socket.socket, ended: threading.Event) -> None:
    """Make every wait on ``sock`` return, however slowly the other side goes on to send."""
    ended.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _stranger(address: Address) -> DaemonError:
    return DaemonError(f"{address.url} does not answer as warmwatch does; {_OTHER}")
