"""Queries a daemon: ``/status`` and ``/history``."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from warmwatch_monitor.base.access import ANYBODY, Access
from warmwatch_monitor.base.errors import (
    DaemonError,
    NoCredentialsError,
    NoDaemonError,
    SilentDaemonError,
)
from warmwatch_monitor.base.settings import DEFAULT_SERVICE_USER, Address, Settings
from warmwatch_monitor.status.schema.status import SCHEMA_VERSION, Status

Answer = dict[str, Any]

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
_LONGEST_HEAD, _HEAD_END = 65_536, b"\r\n\r\n"
LONGEST_ANSWER = 64 << 20  # bytes; the answer for 512 ranks has about 1 MB
_OTHER = "give the daemon's address with --address HOST:PORT, or --dir to read the records"
_CREDENTIALS = "give valid ones with --token-file or --user-file, or --dir to read the records"


class Daemon(Struct, frozen=True):
    """The daemon to query.

    ``sockets``: without an explicit address, paths of UNIX sockets at which it may listen, if as
    root, the caller or ``service_user``. Any user can listen at the default TCP address, so no
    command trusts what is there.
    """

    address: Address
    access: Access = ANYBODY
    sockets: tuple[str, ...] | None = None
    service_user: str = DEFAULT_SERVICE_USER

    def history(self, seconds: int, points: int) -> Answer | None:
        """Its last ``seconds``, in at most ``points`` values each; ``None`` if it stores none.

        Raises as :func:`query_daemon`.
        """
        try:
            values = _parsed(_fetch(self, f"/history?seconds={seconds}&points={points}"))
        except (ValueError, RecursionError):
            return None
        is_known = isinstance(values, dict) and {"at", "ranks", "gpus"} <= values.keys()
        return values if is_known else None

    def request_run(self, run: str) -> None:
        """Have it read the records of ``run`` before others of the same owner."""
        from urllib.parse import urlencode  # few commands name a run that was not read yet

        with suppress(DaemonError):  # the answer may be 404
            _fetch(self, f"/status?{urlencode({'run': run}, errors='replace')}")


def daemon_of(settings: Settings) -> Daemon:
    """The daemon that these settings mean."""
    if settings.address_set:
        return Daemon(settings.address, settings.access)
    return Daemon(settings.address, settings.access, settings.sockets, settings.service_user)


def query_daemon(daemon: Daemon, within: float | None = None) -> Answer:
    """The daemon's whole ``/status``. ``within``: timeout in seconds, if shorter than the default.

    Raises:
        NoDaemonError: nothing answers there. DaemonError: something else answers, or the daemon
        rejects ``access``. UsageError: ``access`` cannot be used.
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
    builtins: Answer = msgspec.to_builtins(answer)
    return builtins


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


def connect(daemon: Daemon, seconds: float) -> socket.socket:
    """A connection to the daemon, over TLS if its address has ``https://``.

    Raises:
        NoDaemonError: nothing answers there. NoCredentialsError: only others may use its socket.
        OSError: TLS fails, or takes longer than ``seconds``. UsageError: ``access`` cannot be used.
    """
    if daemon.sockets is not None:
        return _connected_locally(daemon.sockets, daemon.service_user, seconds)
    address, access = daemon.address, daemon.access
    access.authorization()  # reports a file that cannot be used before a missing daemon
    tls = access.tls() if address.tls else None
    try:
        # Bytes: for a text, Python first loads its encoder of international names.
        host: Any = address.host.encode() if address.host.isascii() else address.host
        peer = socket.create_connection((host, address.port), min(CONNECT_SECONDS, seconds))
    except (OSError, ValueError) as error:  # a host that is no name is a ValueError
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise NoDaemonError(
            f"no daemon answers at {address} ({reason.lower()}); start one with: warmwatch serve, "
            "or give --dir to read the records"
        ) from None
    if tls is None:
        return peer
    try:
        peer.settimeout(seconds)  # a daemon that has just begun may take a while
        return tls.wrap_socket(peer, server_hostname=address.host)
    except BaseException:
        peer.close()
        raise


_UCRED = struct.Struct("3i")


def _connected_locally(paths: Iterable[str], service_user: str, seconds: float) -> socket.socket:
    """A connection to the first of these UNIX sockets at which a trusted user listens.

    Another user may have created such a path: the kernel reports who listens. Raises as
    ``connect``.
    """
    refused = False
    for path in paths:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.settimeout(seconds)
            peer.connect(path)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            _, uid, _ = _UCRED.unpack(credentials)
            if uid in (0, os.geteuid()) or uid == _uid_of(service_user):
                return peer
        except PermissionError:
            refused = True
        except OSError:  # no daemon is there
            pass
        peer.close()
    if refused:
        raise NoCredentialsError(
            "the daemon requires credentials; give its address with --address and --token-file"
        )
    raise NoDaemonError("no daemon answers; start one with: warmwatch serve")


def _uid_of(name: str) -> int | None:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, OSError, ValueError):
        return None


class NotHttpError(Exception):
    """What answers does not speak HTTP, or sends a head without end."""


def _response(daemon: Daemon, path: str, seconds: float) -> tuple[int, bytes]:
    """Send a request, and read the response within ``seconds``: its status, and the body.

    By HTTP/1.0, so that a body has no chunks. Importing ``http.client`` would take longer than all
    of a command's work. Secrets go only to an address that was given explicitly.

    Raises:
        TimeoutError: it has not answered. OSError: it ended the connection, or TLS fails.
        NotHttpError. Otherwise as :func:`connect`.
    """
    until = time.monotonic() + seconds
    with connect(daemon, seconds) as peer:
        secret = daemon.access.authorization() if daemon.sockets is None else None
        authorization = f"Authorization: {secret}\r\n" if secret else ""
        peer.settimeout(seconds)
        peer.sendall(
            f"GET {path} HTTP/1.0\r\nHost: {daemon.address}\r\nAccept: application/json\r\n"
            f"{authorization}Connection: close\r\n\r\n".encode()
        )
        received, longest = bytearray(), _LONGEST_HEAD
        while part := _receive(peer, until):
            received += part
            if longest == _LONGEST_HEAD and _HEAD_END in received:
                longest = LONGEST_ANSWER
            if len(received) > longest:
                raise NotHttpError
    if not received:
        raise ConnectionError
    head, end, body = received.partition(_HEAD_END)
    version, _, status = head.partition(b" ")
    if not end or not version.lower().startswith(b"http/1.") or not status[:3].isdigit():
        raise NotHttpError
    return int(status[:3]), bytes(body)


def _receive(peer: socket.socket, until: float) -> bytes:
    """What has come; nothing at the end. Raises TimeoutError, OSError."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    peer.settimeout(left)
    return peer.recv(1 << 20)


def _fetch(daemon: Daemon, path: str = "/status", within: float | None = None) -> bytes:
    """The body of the reply. Raises as :func:`query_daemon`."""
    address, access = daemon.address, daemon.access
    seconds = ANSWER_SECONDS if within is None else min(ANSWER_SECONDS, within)
    try:
        status, body = _response(daemon, path, seconds)
    except TimeoutError:
        what = "the daemon" if daemon.sockets is not None else f"what listens at {address}"
        raise SilentDaemonError(f"{what} has not answered within {seconds:.2g} s", _OTHER) from None
    except OSError as error:
        raise _cut_off(address, access, error) from None
    except NotHttpError:
        raise _stranger(address) from None
    if status == 401:
        kind = NoCredentialsError if access.authorization() is None else DaemonError
        raise kind(f"{address.url} requires credentials (HTTP 401); {_CREDENTIALS}")
    if status == 421:
        raise DaemonError(f"{address.url}: {body.decode('ascii', 'replace').strip()}")
    if status != 200:
        raise DaemonError(f"{address.url} answers with HTTP {status}; {_OTHER}")
    return body


def _stranger(address: Address) -> DaemonError:
    return DaemonError(f"{address.url} does not answer as warmwatch does; {_OTHER}")


def _cut_off(address: Address, access: Access, error: OSError) -> DaemonError:
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
