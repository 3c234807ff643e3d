"""Certificates, and requests as strangers send them."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

TOKEN = "0123456789abcdef-the-token"
# of "open sesame", with the least cost, so that a test does not wait for it
HASH = "$2b$04$nsDMs/N3Fk0MhoT1pHCSYOQdnvkuSFaa/Z1Cejci7PEOQnb7GFYEO"
PASSWORD = "open sesame"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    url: str,
    path: str = "/status",
    *,
    method: str = "GET",
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Reply:
    """One request on a new connection; ``headers`` replace the usual ones."""
    where = urlsplit(url)
    assert where.hostname
    connection: http.client.HTTPConnection
    if where.scheme == "https":
        connection = http.client.HTTPSConnection(
            where.hostname, where.port, timeout=60, context=tls
        )
    else:
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        named = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, named, reply.read())
    finally:
        connection.close()


class Authority:
    """Signs certificates; its own is ``file``."""

    def __init__(self, place: Path) -> None:
        self._place, self.file, self._key = place, place / "ca.pem", place / "ca.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", self._key, "-out", self.file, "-subj", "/CN=authority"),
            *("-days", "2"),
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """A certificate for this machine's loopback, and its key."""
        cert, key, ask = (self._place / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", key, "-out", ask, "-subj", f"/CN={name}"),
        )
        names = self._place / "names"
        names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl(
            *("x509", "-req", "-in", ask, "-CA", self.file, "-CAkey", self._key, "-days", "2"),
            *("-CAcreateserial", "-out", cert, "-extfile", names),
        )
        return cert, key

    def options(self, name: str) -> tuple[str, ...]:
        """Options of a daemon that serves with such a certificate."""
        cert, key = self.sign(name)
        return "--tls-cert", str(cert), "--tls-key", str(key)

    def trusted(self) -> ssl.SSLContext:
        """For a client that trusts what this authority signs."""
        return ssl.create_default_context(cafile=str(self.file))


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
