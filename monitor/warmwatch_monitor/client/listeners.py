"""Which user listens at a local address or a UNIX socket, as the kernel reports it.

Any user can listen at the default address before the daemon does, and answer anything. So commands
trust it only if its listener belongs to root, the caller, or the user that runs the service.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct

from warmwatch_monitor.settings import Address

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
_WORD = 8  # hexadecimal digits of four bytes
_IPV6_BYTES = 16
_UCRED = struct.Struct("3i")
_MAPPED = bytes(10) + b"\xff\xff"


class Listener(Struct, frozen=True):
    """A listening socket: its user and its inode, which no other socket has while it is open."""

    uid: int
    inode: int


def distrust(found: frozenset[Listener], service_user: str) -> str | None:
    """Why the listeners of an address are not trusted, in words; ``None`` if they are.

    Each of them may accept the connection, so all must be trusted.
    """
    for uid in sorted({one.uid for one in found}):
        if not _is_trusted(uid, service_user):
            return f"it belongs to user {_name_of(uid)}"
    return None if found else "its owner is unknown"


def connected_locally(
    paths: Iterable[str], service_user: str, seconds: float
) -> socket.socket | None:
    """A connection to the first of these UNIX sockets at which a trusted user listens."""
    for path in paths:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.settimeout(seconds)
            peer.connect(path)
            # of the process that listens, when it began to
            _, uid, _ = _UCRED.unpack(
                peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            )
            if _is_trusted(uid, service_user):
                return peer
        except OSError:  # none is there, or it was refused
            pass
        peer.close()
    return None


def _is_trusted(uid: int, service_user: str) -> bool:
    return uid in (0, os.geteuid()) or uid == _uid_of(service_user)


def listeners(address: Address) -> frozenset[Listener]:
    """The sockets that listen there, as far as the kernel shows them."""
    try:
        return frozenset(_listeners(address))
    except (OSError, ValueError):
        return frozenset()


def _listeners(address: Address) -> Iterator[Listener]:
    """Raises OSError, ValueError."""
    wanted = _packed(address.host)
    for table in _TABLES:
        try:
            with open(table, encoding="utf-8") as file:
                next(file, None)
                for line in file:
                    fields = line.split()
                    if fields[3] != _LISTENING:  # listening ones come first
                        break
                    host, _, port = fields[1].partition(":")
                    if int(port, 16) == address.port and _takes(_address(host), wanted):
                        yield Listener(uid=int(fields[7]), inode=int(fields[9]))
        except FileNotFoundError:  # a kernel without IPv6
            continue


def _packed(host: str) -> bytes:
    """Raises OSError: ``host`` is not an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _unmapped(socket.inet_pton(family, host))


def _address(text: str) -> bytes:
    """As the kernel prints it: words of four bytes, each in the machine's order. ValueError."""
    words = (text[at : at + _WORD] for at in range(0, len(text), _WORD))
    return _unmapped(b"".join(int(word, 16).to_bytes(4, "little") for word in words))


def _unmapped(address: bytes) -> bytes:
    """An IPv4 address that is written as an IPv6 one, ``::ffff:127.0.0.1``, as its four bytes."""
    return address.removeprefix(_MAPPED)


def _takes(bound: bytes, wanted: bytes) -> bool:
    """Whether a socket that is ``bound`` so may accept a connection to ``wanted``."""
    if not any(bound):  # an unspecified IPv6 address takes IPv4 too, unless IPV6_V6ONLY is set
        return len(bound) == _IPV6_BYTES or len(wanted) != _IPV6_BYTES
    return bound == wanted


def _uid_of(name: str) -> int | None:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, OSError, ValueError):
        return None


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)
