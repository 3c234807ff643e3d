"""Identifies a client for limits per peer: by address, or on this machine by the socket's user.

All clients on this machine share an address, so the kernel is queried for the owner of the client's
socket. Netlink's ``sock_diag`` reads one socket at a time: thousands of others do not slow it down.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

from starlette.types import Scope

LOCAL_UID = "local_uid"  # in a scope's state: the user at the other end of a UNIX socket
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFF
_UID_AT = _HEADER.size + 4 + 48 + 12  # after family, state, the addresses, and three numbers


def peer_of(scope: Scope) -> str:
    """A name for a request's sender: equal for clients that share a limit."""
    local = scope.get("state", {}).get(LOCAL_UID)
    if local is not None:
        return f"user {local}"
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return ""
    host = str(client[0])
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback and server and server[1]:
        uid = owner_of((host, int(client[1])), (str(server[0]), int(server[1])))
        return str(address) if uid is None else f"user {uid}"
    if address.version == 6:  # a provider assigns all of these to one customer
        return str(ip_address(int(address) >> 64 << 64))
    return str(address)


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user who owns ``client``'s end of a TCP connection; ``None`` if unknown."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        near, far = (socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (client, server))
        body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
        body += struct.pack("!HH", client[1], server[1]) + near + far
        body += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
        size = _HEADER.size + len(body)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(0.2)
            kernel.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST, 1, 0) + body)
            reply = kernel.recv(4096)
        if _HEADER.unpack_from(reply)[1] != _BY_FAMILY:
            return None
        return int(struct.unpack_from("=I", reply, _UID_AT)[0])
    except (OSError, ValueError, struct.error):
        return None  # a service may have no access to AF_NETLINK
