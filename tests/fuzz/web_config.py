"""The text of the file of ``--web-config``."""

from __future__ import annotations

from fuzz.choices import LITERALS, Choices
from support.web import HASH
from warmwatch_monitor.server.web_config import WebConfigError, parse

_KEYS = (
    *("tls_server_config", "basic_auth_users", "bearer_token_files", "bearer_token_sha256"),
    *("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version", "alice", "x"),
)
_VALUES = (
    *(b"server.pem", HASH.encode(), b"0" * 64, b"[token]", b"TLS12", b"TLS14", b"NoClientCert"),
    *(
        b"RequireAndVerifyClientCert",
        b"&a [*a]",
        b"*a",
        b"!!python/object:os.system {}",
        b"!!binary x",
    ),
    *(
        b"2001-99-99",
        b"!!timestamp x",
        b"!!int x",
        b"!!float x",
        b"0x",
        b"0b",
        b"1:99:99",
        b"? [a]",
    ),
    *(
        b"{[a]: b}",
        b"{? {} : b}",
        b"<<: *a",
        b"{<<: [1]}",
        b"!!set {a}",
        b"!!omap [a]",
        b"\xef\xbb\xbf",
    ),
    *(b"'\\ud800'", b'"\\ud800"', b'"\\U99999999"', b"|", b">9", b"%YAML 9.9", b"---", b"\t", b"~"),
    *LITERALS,
)


def ask(data: bytes) -> None:
    """A file of this form, or any text."""
    choices = Choices(data)
    raw = choices.rest() if choices.below(8) == 7 else b"\n".join(_lines(choices))
    try:
        text = raw.decode()
    except UnicodeDecodeError:  # reading the file refuses it
        return
    try:
        parse(text)
    except WebConfigError as error:
        assert str(error)
        assert "\n" not in str(error), error


def _lines(choices: Choices) -> list[bytes]:
    lines = []
    for _ in range(1 + choices.below(6)):
        indent = b"  " * choices.below(3)
        key = choices.pick(_KEYS).encode() if choices.below(8) else _value(choices)
        lines.append(b"%b%b: %b" % (indent, key, _value(choices) if choices.below(3) else b""))
    return lines


def _value(choices: Choices) -> bytes:
    return choices.pick(_VALUES) if choices.below(4) < 3 else choices.bytes()
