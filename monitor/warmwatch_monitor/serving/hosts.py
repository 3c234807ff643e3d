"""By which names the daemon may be asked. Pure, but for what this machine is called.

A page that a browser loaded from elsewhere can have its own name point here (DNS rebinding), and
read what it gets; the ``Host`` header then has that name. An address in it is no such page's, so
every address is right, and of names those that this machine is known by or that were allowed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK = "localhost"


def own_names(*, beyond: bool) -> tuple[str, ...]:
    """What this machine calls itself; and ``beyond`` itself, for which others may be asked."""
    return (socket.gethostname(), *((socket.getfqdn(),) if beyond else ()))


def allowed_names(*names: str) -> frozenset[str]:
    """The names, each in full and in short, as :func:`is_allowed` takes them."""
    whole = {_plain(name) for name in (LOOPBACK, *names)}
    return frozenset({*whole, *(name.partition(".")[0] for name in whole)})


def is_allowed(header: str, names: Iterable[str]) -> bool:
    """Whether a request with this ``Host`` header is meant for this machine."""
    host = host_of(header)
    return is_address(host) or host.endswith(f".{LOOPBACK}") or host in names


def host_of(header: str) -> str:
    """The name or address in a ``Host`` header, without port, brackets and a dot at the end."""
    host = header.strip()
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return _plain(host.rpartition(":")[0] if ":" in host else host)


def is_address(host: str) -> bool:
    """Whether it is an IP address, and no name."""
    try:
        _address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether this bound address can be reached from this machine alone."""
    return _address(host).is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Of IPv6 it may have a zone, which names an interface. Raises ValueError: it is none."""
    address, percent, _ = host.partition("%")
    return ipaddress.IPv6Address(address) if percent else ipaddress.ip_address(host)


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()
