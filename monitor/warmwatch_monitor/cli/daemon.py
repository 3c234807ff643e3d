"""Asks a daemon for its ``/status``, and says in a sentence what is wrong where it cannot.

What listens at an address may be anything: each way in which it is no daemon, or one that hangs,
is a DaemonError. Nothing is read without an end, in bytes or in seconds. One question of HTTP/1.0
over a socket: loading the library's client would be a good part of the time that ``status`` takes,
most of it for mail headers, and for the encryption that is loaded here where TLS is spoken.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NamedTuple

from warmwatch_monitor.access import ANYBODY, Access
from warmwatch_monitor.cli.listeners import distrust, listeners
from warmwatch_monitor.cli.shape import fault
from warmwatch_monitor.config import Address, Settings
from warmwatch_monitor.errors import DaemonError, ForeignDaemonError, NoDaemonError

Answer = dict[str, Any]

SCHEMA_VERSION = 1
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
LONGEST_ANSWER = 64 << 20  # bytes; one of 512 ranks has about 1 MB
HISTORY = "/history?points=1200"
_OTHER = "give the daemon's address with --address HOST:PORT, or --dir to read the records"
_CREDENTIALS = "give --token-file or --user-file with what it knows, or --dir to read the records"
_NAME_IT = "secrets are sent only to an address that was named: give --address or WARMWATCH_ADDRESS"


class Daemon(NamedTuple):
    """Where a daemon is asked, and what is shown to it.

    ``service_user``: of an address that nobody named, who may listen there beside root and the
    caller; ``None`` of one that was named, which is believed whoever listens there.
    """

    address: Address
    access: Access = ANYBODY
    service_user: str | None = None


def daemon_of(settings: Settings) -> Daemon:
    """The daemon that these settings mean."""
    user = None if settings.asked else settings.service_user
    return Daemon(settings.address, settings.access, user)


def ask_daemon(daemon: Daemon, within: float | None = None) -> Answer:
    """The daemon's whole ``/status``; ``within``: in so many seconds, fewer than are usual.

    Raises:
        NoDaemonError: nobody answers there. ForeignDaemonError: it was not named, and belongs to
        another user. DaemonError: something else answers, or it does not take what ``access``
        shows. UsageError: ``access`` names what cannot be used.
    """
    address = daemon.address
    body = _fetch(daemon, within=within)
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
    if where := fault(answer):
        raise DaemonError(
            f"what answers at {address} is no daemon of this release ({where} is missing, or is "
            "something else); install the same release on both sides, or give --dir to read the "
            "records"
        )
    return answer


def ask_history(daemon: Daemon) -> Answer | None:
    """The daemon's last hour, of every three seconds; ``None`` where it keeps none.

    Raises as :func:`ask_daemon`.
    """
    try:
        found = json.loads(_fetch(daemon, HISTORY))
    except (ValueError, RecursionError):
        return None
    known = isinstance(found, dict) and {"at", "ranks", "gpus"} <= found.keys()
    return found if known else None


def connect(daemon: Daemon, seconds: float) -> socket.socket:
    """A connection to it, over TLS where that is spoken.

    Raises:
        NoDaemonError: nobody answers there. ForeignDaemonError: see :func:`ask_daemon`. OSError:
        TLS fails, or takes longer than ``seconds``. UsageError: ``access`` names what cannot be
        used.
    """
    address, access, service_user = daemon
    if service_user is not None and listeners(address):
        _believe(address, service_user)
    tls = access.tls() if address.tls else None
    try:
        peer = socket.create_connection((address.host, address.port), min(CONNECT_SECONDS, seconds))
    except (OSError, ValueError) as error:  # a host that is no name is a ValueError
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise NoDaemonError(
            f"no daemon answers at {address} ({reason.lower()}); start one with: warmwatch serve, "
            "or give --dir to read the records"
        ) from None
    if service_user is not None:  # again: another user may have come between
        try:
            _believe(address, service_user)
        except BaseException:
            peer.close()
            raise
    if tls is None:
        return peer
    try:
        peer.settimeout(seconds)  # a daemon that has just begun may take a while
        return tls.wrap_socket(peer, server_hostname=address.host)
    except BaseException:
        peer.close()
        raise


def _believe(address: Address, service_user: str) -> None:
    """Raises ForeignDaemonError: the listener at ``address`` may be anybody's."""
    if (problem := distrust(address, service_user)) is None:
        return
    raise ForeignDaemonError(
        f"what listens at {address} is not asked: {problem}; if it is your daemon, name it with "
        "--address or WARMWATCH_ADDRESS, or its user in WARMWATCH_SERVICE_USER"
    )


def request(daemon: Daemon, path: str, accept: str = "application/json") -> bytes:
    """The question. Secrets go only to an address that was named, or over TLS.

    Raises UsageError: ``access`` names what cannot be used.
    """
    named = daemon.service_user is None
    who = daemon.access.authorization() if named or daemon.address.tls else None
    shown = f"Authorization: {who}\r\n" if who else ""
    return (
        f"GET {path} HTTP/1.0\r\nHost: {daemon.address}\r\nAccept: {accept}\r\n"
        f"{shown}Connection: close\r\n\r\n".encode()
    )


def _fetch(daemon: Daemon, path: str = "/status", within: float | None = None) -> bytes:
    """The body of the reply. Raises as :func:`ask_daemon`."""
    address, access, service_user = daemon
    seconds = ANSWER_SECONDS if within is None else min(ANSWER_SECONDS, within)
    asked = request(daemon, path)
    try:
        with connect(daemon, seconds) as peer:
            reply = _exchange(peer, asked, seconds)
    except TimeoutError:
        raise DaemonError(
            f"what listens at {address} has not answered within {seconds:.2g} s; {_OTHER}"
        ) from None
    except OSError as error:
        raise _cut_off(address, access, error) from None
    if not reply:
        raise _cut_off(address, access)
    head, _, body = reply.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)
    if len(reply) > LONGEST_ANSWER or not head.startswith(b"HTTP/1.") or len(status) < 2:
        raise _stranger(address)
    if status[1] == b"401":
        if service_user is not None and access.authorization() is not None and not address.tls:
            raise DaemonError(f"{address.url} asks who is there (HTTP 401); {_NAME_IT}")
        raise DaemonError(f"{address.url} asks who is there (HTTP 401); {_CREDENTIALS}")
    if status[1] == b"421":
        raise DaemonError(f"{address.url}: {body.decode('ascii', 'replace').strip()}")
    if status[1] != b"200":
        code = status[1][:3].decode("ascii", "replace")
        raise DaemonError(f"{address.url} answers with HTTP {code}; {_OTHER}")
    return body


def _exchange(peer: socket.socket, asked: bytes, seconds: float) -> bytes:
    """The whole reply, up to a little more than the longest.

    Raises:
        TimeoutError: it did not end in time, however steadily it came. OSError: it was cut off.
    """
    deadline = time.monotonic() + seconds
    peer.settimeout(seconds)
    peer.sendall(asked)
    reply = bytearray()
    while len(reply) <= LONGEST_ANSWER:
        peer.settimeout(max(0.001, deadline - time.monotonic()))
        part = peer.recv(1 << 20)
        if not part:
            break
        reply += part
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(reply)


def _stranger(address: Address) -> DaemonError:
    return DaemonError(f"{address.url} does not answer as warmwatch does; {_OTHER}")


def _cut_off(address: Address, access: Access, error: OSError | None = None) -> DaemonError:
    """It ended the connection, or TLS did."""
    why = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if why and "alert" not in str(why).lower():  # an alert is the other side's refusal
        return DaemonError(
            f"{address.url}: TLS fails ({str(why).lower().replace('_', ' ')}); give --ca with the "
            "file of who signs its certificate, or the address without https://"
        )
    if address.tls and access.cert is None:
        return DaemonError(
            f"{address.url} ends the connection; it may ask for a certificate: give --cert"
        )
    return _stranger(address)
