"""Credentials and trusted certificates of commands, for a daemon or a Prometheus server.

Settings have the names of files, never secrets. The files are read on every use, so a replaced
token takes effect immediately.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.base.timeouts import read_text

if TYPE_CHECKING:
    import ssl

ACCESS_KEYS = ("token_file", "user_file", "ca", "cert", "key")


class Access(Struct, frozen=True):
    """The files with a command's credentials; ``None``: not used.

    Attributes:
        token_file: a bearer token.
        user_file: ``NAME:PASSWORD``.
        ca: CA certificates that verify the server.
        cert, key: the client certificate and its key.
        names: the option or variable of each, for messages.
    """

    token_file: str | None = None
    user_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    names: Mapping[str, str] = MappingProxyType({})

    def authorization(self) -> str | None:
        """Value of the ``Authorization`` header. Raises UsageError if the file is invalid."""
        if self.token_file is not None:
            return f"Bearer {self._line('token_file', self.token_file)}"
        if self.user_file is not None:
            text = self._line("user_file", self.user_file)
            if ":" not in text:
                name = self.names.get("user_file", "user_file")
                raise UsageError(f"{name}: {self.user_file} does not hold NAME:PASSWORD")
            return f"Basic {binascii.b2a_base64(text.encode(), newline=False).decode()}"
        return None

    def tls(self) -> ssl.SSLContext:
        """The TLS context of the connection. Raises UsageError if a file cannot be used."""
        import ssl  # here: importing it takes a good part of the time of `status`

        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.names.get('ca', 'ca')}: {self.ca}: {_why(error)}") from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password=lambda: b"")
            except (OSError, ValueError) as error:
                name = self.names.get("cert", "cert")
                raise UsageError(f"{name}: {self.cert}: {_why(error)}") from None
        return context

    def _line(self, key: str, path: str) -> str:
        name = self.names.get(key, key)
        try:
            text = read_text(path, _LONGEST, pipes=True).strip()
        except (OSError, ValueError) as error:
            raise UsageError(f"{name}: cannot read {path}: {_why(error)}") from None
        if not text or not text.isprintable() or (key == "token_file" and not text.isascii()):
            raise UsageError(f"{name}: {path} does not hold one line of text")
        return text


_LONGEST = 1 << 16  # bytes of a file with a token or a password
ANYBODY = Access()


def _why(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error).lower()
