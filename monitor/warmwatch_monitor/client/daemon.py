"""Queries a daemon: ``/status`` and ``/history``."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from warmwatch_monitor.access import ANYBODY, Access
from warmwatch_monitor.client.listeners import connected_locally, distrust, listeners
from warmwatch_monitor.errors import (
    DaemonError,
    ForeignDaemonError,
    NoCredentialsError,
    NoDaemonError,
)
from warmwatch_monitor.settings import Address, Settings
from warmwatch_monitor.status.schema.status import SCHEMA_VERSION, Status

Answer = dict[str, Any]

CONNECT_SECONDS = 2.0
_TRIES = 3  # a daemon that starts meanwhile is there at the next one
ANSWER_SECONDS = 5.0
LONGEST_ANSWER = 64 << 20  # bytes; the answer for 512 ranks has about 1 MB
HISTORY = "/history?points=1200"
_OTHER = "give the daemon's address with --address HOST:PORT, or --dir to read the records"
_CREDENTIALS = "give valid ones with --token-file or --user-file, or --dir to read the records"
_NAME_IT = "secrets are sent only to an address that was named: give --address or WARMWATCH_ADDRESS"


class Daemon(Struct, frozen=True):
    """The address of a daemon, and the credentials for it.

    ``service_user``: which user, besides root and the caller, may listen at the default address.
    ``None``: the address was given explicitly, so any listener is trusted. ``sockets``: paths of
    UNIX sockets, tried before the default address.
    """

    address: Address
    access: Access = ANYBODY
    service_user: str | None = None
    sockets: tuple[str, ...] = ()


def daemon_of(settings: Settings) -> Daemon:
    """The daemon that these settings mean."""
    if settings.address_set:
        return Daemon(settings.address, settings.access)
    return Daemon(settings.address, settings.access, settings.service_user, settings.sockets)


def query_daemon(daemon: Daemon, within: float | None = None) -> Answer:
    """The daemon's whole ``/status``. ``within``: timeout in seconds, if shorter than the default.

    Raises:
        NoDaemonError: nothing answers there. ForeignDaemonError: another user listens at the
        default address. DaemonError: something else answers, or the daemon rejects ``access``.
        UsageError: ``access`` cannot be used.
    """
    address = daemon.address
    body = _fetch(daemon, within=within)
    try:
        answer = decoded(body)
    except msgspec.ValidationError as error:
        raise _unreadable(address, body, error) from None
    except (ValueError, RecursionError):
        raise _stranger(address) from None
    if answer.schema_version != SCHEMA_VERSION:
        raise _other_release(address, answer.schema_version)
    found: Answer = msgspec.to_builtins(answer)
    return found


_ANSWER = msgspec.json.Decoder(Status)
_MOST_DIGITS = 20
_HUGE = re.compile(rb"[0-9]{300}")  # no float, however it is used


def decoded(body: bytes) -> Status:
    """A ``/status`` document; keys that this release does not have are left out.

    Raises:
        ValidationError: a key is missing, or holds something else. ValueError, RecursionError: the
        body is not JSON.
    """
    if not _HUGE.search(body):
        try:
            return _ANSWER.decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # Python's JSON accepts names of bytes that are not UTF-8
            pass
    return msgspec.convert(_parsed(body), Status)


def _parsed(body: bytes) -> Any:
    """Raises ValueError, RecursionError."""
    import json

    return json.loads(body, parse_int=_bounded, parse_constant=_refused)


def _bounded(digits: str) -> int:
    """Raises ValueError: ``digits`` make a larger number than anything that is counted."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number out of range")
    return int(digits)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _unreadable(address: Address, body: bytes, error: Exception) -> DaemonError:
    """The error for a response that is not from a daemon of this release."""
    try:
        sent = _parsed(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict) or not isinstance(sent.get("runs"), list):
        return _stranger(address)
    if sent.get("schema_version") != SCHEMA_VERSION:
        return _other_release(address, sent.get("schema_version"))
    return DaemonError(
        f"what answers at {address} is not a daemon of this release ({error}); install the same "
        "release on both sides, or give --dir to read the records"
    )


def _other_release(address: Address, version: object) -> DaemonError:
    return DaemonError(
        f"the daemon at {address} is of another release than this command "
        f"(schema version {version}); install the same on both sides"
    )


def query_history(daemon: Daemon) -> Answer | None:
    """The daemon's last hour, a sample every three seconds; ``None`` if it stores none.

    Raises as :func:`query_daemon`.
    """
    try:
        found = _parsed(_fetch(daemon, HISTORY))
    except (ValueError, RecursionError):
        return None
    known = isinstance(found, dict) and {"at", "ranks", "gpus"} <= found.keys()
    return found if known else None


def request_run(daemon: Daemon, run: str) -> None:
    """Have the daemon read the records of ``run`` before others of the same owner."""
    from urllib.parse import urlencode

    with suppress(DaemonError):  # the answer may be 404
        _fetch(daemon, f"/status?{urlencode({'run': run})}")


def connect(daemon: Daemon, seconds: float) -> socket.socket:
    """A connection to the daemon, over TLS if its address has ``https://``.

    Raises:
        NoDaemonError: nothing answers there. ForeignDaemonError: see :func:`query_daemon`. OSError:
        TLS fails, or takes longer than ``seconds``. UsageError: ``access`` cannot be used.
    """
    address, access, service_user = daemon.address, daemon.access, daemon.service_user
    if service_user is not None:
        local = connected_locally(daemon.sockets, service_user, seconds)
        if local:
            return local
    if service_user is None or address.tls:
        access.authorization()  # reports a file that cannot be used before a missing daemon
    tls = access.tls() if address.tls else None
    if service_user is None:
        peer = _connected(address, seconds)
    else:
        peer = _connected_to_trusted(address, service_user, seconds)
    if tls is None:
        return peer
    try:
        peer.settimeout(seconds)  # a daemon that has just begun may take a while
        return tls.wrap_socket(peer, server_hostname=address.host)
    except BaseException:
        peer.close()
        raise


def _connected(address: Address, seconds: float) -> socket.socket:
    """Raises NoDaemonError."""
    try:
        # Bytes: for a text, Python first loads its encoder of international names.
        host: Any = address.host.encode() if address.host.isascii() else address.host
        return socket.create_connection((host, address.port), min(CONNECT_SECONDS, seconds))
    except (OSError, ValueError) as error:  # a host that is no name is a ValueError
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise NoDaemonError(
            f"no daemon answers at {address} ({reason.lower()}); start one with: warmwatch serve, "
            "or give --dir to read the records"
        ) from None


def _connected_to_trusted(address: Address, service_user: str, seconds: float) -> socket.socket:
    """A connection that a trusted user accepted, at the default address.

    The same sockets must listen before and after the connection begins: otherwise another user may
    have listened in between, accepted it and left. Raises NoDaemonError, ForeignDaemonError.
    """
    for _ in range(_TRIES):
        before = listeners(address)
        problem = distrust(before, service_user)
        if before and problem is not None:
            break
        peer = _connected(address, seconds)
        if before and listeners(address) == before:
            return peer
        peer.close()
        problem = problem or "its owner changes"
    raise ForeignDaemonError(
        f"the daemon at {address} is not trusted: {problem}; if it is yours, give its address with "
        "--address or WARMWATCH_ADDRESS, or its user in WARMWATCH_SERVICE_USER"
    )


def request(
    daemon: Daemon, path: str, accept: str = "application/json", peer: socket.socket | None = None
) -> bytes:
    """The request to send. Secrets go to explicit addresses, over TLS, or to a local ``peer``.

    Raises UsageError: ``access`` cannot be used.
    """
    local = peer is not None and peer.family == socket.AF_UNIX  # its user is trusted
    may_have_secrets = local or daemon.service_user is None or daemon.address.tls
    who = daemon.access.authorization() if may_have_secrets else None
    shown = f"Authorization: {who}\r\n" if who else ""
    return (
        f"GET {path} HTTP/1.0\r\nHost: {daemon.address}\r\nAccept: {accept}\r\n"
        f"{shown}Connection: close\r\n\r\n".encode()
    )


def _fetch(daemon: Daemon, path: str = "/status", within: float | None = None) -> bytes:
    """The body of the reply. Raises as :func:`query_daemon`."""
    address, access, service_user = daemon.address, daemon.access, daemon.service_user
    seconds = ANSWER_SECONDS if within is None else min(ANSWER_SECONDS, within)
    try:
        with connect(daemon, seconds) as peer:
            reply = _exchange(peer, request(daemon, path, peer=peer), seconds)
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
            raise DaemonError(f"{address.url} requires credentials (HTTP 401); {_NAME_IT}")
        kind = NoCredentialsError if access.authorization() is None else DaemonError
        raise kind(f"{address.url} requires credentials (HTTP 401); {_CREDENTIALS}")
    if status[1] == b"421":
        raise DaemonError(f"{address.url}: {body.decode('ascii', 'replace').strip()}")
    if status[1] != b"200":
        code = status[1][:3].decode("ascii", "replace")
        raise DaemonError(f"{address.url} answers with HTTP {code}; {_OTHER}")
    return body


def _exchange(peer: socket.socket, sent: bytes, seconds: float) -> bytes:
    """The whole response, cut off shortly after ``LONGEST_ANSWER`` bytes.

    Raises:
        TimeoutError: it did not end in time. OSError: it was cut off.
    """
    deadline = time.monotonic() + seconds
    peer.settimeout(seconds)
    peer.sendall(sent)
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
