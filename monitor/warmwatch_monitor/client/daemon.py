"""Queries a daemon: ``/status`` and ``/history``, and checks the shape of the answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from warmwatch.shared.states import State
from warmwatch_monitor.access import ANYBODY, Access
from warmwatch_monitor.client.listeners import distrust, listeners
from warmwatch_monitor.errors import DaemonError, ForeignDaemonError, NoDaemonError
from warmwatch_monitor.settings import Address, Settings

# A type; some kinds, of which it is one; a set of texts; [what all in a list are], with ... where
# it is never empty; keys and what lies under them: one with ? may be missing, and * is any.
_Kind = Any

_LARGEST = 2.0**64  # more counts nothing, and cannot be written as a duration either
_NOTHING = type(None)
_TEXT, _COUNT, _NUMBER, _FLAG = ((kind, _NOTHING) for kind in (str, int, float, bool))
_STATES = frozenset(state.value for state in State)
_PLACE = {"name": _TEXT, "file": _TEXT, "line": _COUNT}
_FUNCTION = {
    **_PLACE,
    **dict.fromkeys(("others", "compilations", "cache_hits", "cache_misses"), int),
    "seconds": float,
    "phase_seconds": {"*": float},
    "ops": _COUNT,
    "kernels": _COUNT,
}
_COMPILATION = {
    "name": _TEXT,
    "?file": _TEXT,
    "?line": _COUNT,
    "?caller": _TEXT,
    "seconds": _NUMBER,
    "?total_seconds": _NUMBER,
    "category": _TEXT,
    "reason": _TEXT,
    "?plain": _TEXT,
    "advice": _TEXT,
}
_COMPILE = {
    "phase": _TEXT,
    "seconds": float,
    "recompiles": _COUNT,
    "graph_breaks": _COUNT,
    "?last": ([_COMPILATION], _NOTHING),
    "?breaks": ([{"count": int, "reason": str, "?advice": _TEXT}], _NOTHING),
    "?functions": ([_FUNCTION], _NOTHING),
    "?underway": (_PLACE, _NOTHING),
    "?progress": ({"of": str, "done": int, "total": int}, _NOTHING),
    "?varying": ([{"words": _TEXT}], _NOTHING),
}
_WORTH = {
    **dict.fromkeys(("tokens_per_second", "samples_per_second", "mfu_ratio"), _NUMBER),
    "estimated": bool,
}
_END = {
    "how": str,
    "?exit_code": _COUNT,
    "?exception": _TEXT,
    "?place": ({"name": str, "file": str, "line": int}, _NOTHING),
    "?signal": _TEXT,
    "?out_of_memory": _FLAG,
}
_RANK = {
    "rank": int,
    "state": _STATES,
    "since": _NUMBER,
    "?attached_at": _NUMBER,
    "steps": int,
    "clean_steps": int,
    "?last_step_age_seconds": _NUMBER,
    "step_seconds": {"median": _NUMBER, "last": _NUMBER, "?typical": _NUMBER, "?recent": _NUMBER},
    "compile": _COMPILE,
    "warmup": {"ended": bool, "count": _COUNT},
    "pid": _COUNT,
    "host": _TEXT,
    "gpus": [str],
    "evidence": [str],
    "conditions": [{"condition": str, "words": str}],
    "?worth": (_WORTH, _NOTHING),
    "?end": (_END, _NOTHING),
}
_RUN = {
    "run": str,
    "?name": _TEXT,
    "?owner": _TEXT,
    "?owner_uid": _COUNT,
    "state": _STATES,
    "compiling": _FLAG,
    "warm": _FLAG,
    "summary": str,
    "?details": [str],
    "ranks": [_RANK, ...],
}
_GPU = {
    "uuid": str,
    "index": int,
    "name": _TEXT,
    "profile": _TEXT,
    "trouble": _TEXT,
    **dict.fromkeys(("utilization_ratio", "sm_active_ratio", "temperature_celsius"), _NUMBER),
    "power_watts": _NUMBER,
    "power_limit_watts": _NUMBER,
    "throttled": ([str], _NOTHING),
    "memory_used_bytes": _COUNT,
    "memory_total_bytes": _COUNT,
}
_OBSERVED = {
    "pid": int,
    "command": str,
    "gpus": [str],
    "cpu_ratio": _NUMBER,
    "likely_compiling": _FLAG,
    "evidence": [str],
}
_SOURCE = {"source": str, "up": bool, "last_success": _NUMBER, "error": _TEXT}
_ANSWER = {
    "summary": str,
    "?details": [str],
    "compiling": _FLAG,
    "warm": _FLAG,
    "?at": _NUMBER,
    "runs": [_RUN],
    "gpus": [_GPU],
    "?observed": [_OBSERVED],
    "sources": [_SOURCE],
    "?exports": [{"export": str, "up": _FLAG, "error": _TEXT}],
    "?directories": [str],
    "?incomplete": _TEXT,
    "?left_out_uids": [int],
}


def fault(answer: Mapping[str, Any]) -> str | None:
    """Where ``answer`` is not what commands read, as ``runs.ranks.state``; ``None``: nowhere."""
    return next(_faults(answer, _ANSWER, ""), None)


def _faults(value: Any, kind: _Kind, where: str) -> Iterator[str]:
    """The places below ``where`` that are something else; first of all ``where`` itself."""
    if isinstance(kind, tuple):
        if all(any(_faults(value, one, where or "it")) for one in kind):
            yield from _faults(value, kind[0], where)
    elif isinstance(kind, dict):
        yield from _of_object(value, kind, where)
    elif isinstance(kind, list):
        if not isinstance(value, list) or (not value and len(kind) > 1):
            yield where
        else:
            for one in value:
                yield from _faults(one, kind[0], where)
    elif not _is(value, kind):
        yield where


def _of_object(value: Any, kinds: Mapping[str, _Kind], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield where
        return
    for key, kind in kinds.items():
        name = key.removeprefix("?")
        place = f"{where}.{name}" if where else name
        if name == "*":
            for one in value.values():
                yield from _faults(one, kind, place)
        elif name in value:
            yield from _faults(value[name], kind, place)
        elif name == key:
            yield place


def _is(value: Any, kind: _Kind) -> bool:
    if isinstance(kind, frozenset):
        return isinstance(value, str) and value in kind
    if kind in (int, float):
        number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        return number and abs(value) < _LARGEST  # which what is no number (NaN) is not
    return isinstance(value, kind)


Answer = dict[str, Any]

SCHEMA_VERSION = 1
CONNECT_SECONDS = 2.0
_TRIES = 3  # a daemon that starts meanwhile is there at the next one
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


def query_daemon(daemon: Daemon, within: float | None = None) -> Answer:
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


def query_history(daemon: Daemon) -> Answer | None:
    """The daemon's last hour, of every three seconds; ``None`` where it keeps none.

    Raises as :func:`query_daemon`.
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
        NoDaemonError: nobody answers there. ForeignDaemonError: see :func:`query_daemon`. OSError:
        TLS fails, or takes longer than ``seconds``. UsageError: ``access`` names what cannot be
        used.
    """
    address, access, service_user = daemon
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
        return socket.create_connection((address.host, address.port), min(CONNECT_SECONDS, seconds))
    except (OSError, ValueError) as error:  # a host that is no name is a ValueError
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise NoDaemonError(
            f"no daemon answers at {address} ({reason.lower()}); start one with: warmwatch serve, "
            "or give --dir to read the records"
        ) from None


def _connected_to_trusted(address: Address, service_user: str, seconds: float) -> socket.socket:
    """A connection that a trusted user accepted, on an address that nobody named.

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
    """The body of the reply. Raises as :func:`query_daemon`."""
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
