"""The identity's bytes: UTF-8 JSON, cut to fit; each field is validated when read.

Anybody may be able to write into a record directory, so every field is validated. A field of the
wrong type or beyond a sane bound rejects the record, with the field's name, before other code sees
it. Unknown keys are a newer agent's and are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any

from warmwatch.shared import deployment
from warmwatch.shared.record.facts import Identity
from warmwatch.shared.record.sealed_blocks import RecordError, unseal
from warmwatch.shared.values import (
    COMPILE_CACHES,
    DTYPES,
    LARGEST,
    LARGEST_AMOUNT,
    MOST_RANKS,
    OTHER_DTYPE,
    TEXT_LIMIT,
    printable,
)

_NUMBER_LIMIT = 10**7
_COUNT_LIMIT = 256
_CACHE_STATES = ("cold", "warm")
_FLOPS = (*DTYPES, OTHER_DTYPE)  # no cache has one of these names
_OFFSET_LIMIT = 2**62  # nanoseconds: of a clock, either sign


def pack_identity(identity: Identity, limit: int) -> bytes:
    """JSON of ``identity``, cut to ``limit`` bytes by shortening its names.

    Raises:
        RecordError: it does not fit even then.
    """
    fields = identity._asdict().items()
    values = {k: v for k, v in fields if k == "run" or v not in (None, "", (), {})}
    for length in (TEXT_LIMIT, 40):
        body = json.dumps({k: _shorten(v, length) for k, v in values.items()}).encode()
        if len(body) <= limit:
            return body
    raise RecordError(f"the identity takes {len(body)} bytes, {limit} are there")


def _shorten(value: Any, length: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten(item, length) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    # a lone surrogate from a file name that is not UTF-8 would break code that prints it
    return value[:length].encode("utf-8", "replace").decode()


def unpack_identity(body: bytes) -> Identity:
    """Read and check an identity.

    Raises:
        RecordError: the bytes are not an identity; the message names the wrong field.
    """
    try:
        loads = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"its identity cannot be read ({error})") from None
    if not isinstance(loads, dict):
        raise RecordError("its identity is no JSON object")
    if not loads.get("run"):
        raise RecordError("its run has no name")
    return Identity(**_checked(loads))


@lru_cache(maxsize=512)
def unseal_identity(sealed: bytes) -> Identity:
    """The identity in a sealed place.

    Raises:
        TornError: the place is not whole. RecordError: it holds no identity.
    """
    return unpack_identity(unseal(sealed))


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, (kind, optional) in _KINDS.items():
        if name not in fields or (fields[name] is None and optional):
            continue
        value: Any = tuple(fields[name]) if isinstance(fields[name], list) else fields[name]
        if (problem := kind(value)) is not None:
            raise RecordError(f"its identity's {name} {problem}: {repr(fields[name])[:80]}")
        values[name] = _known_labels(fields[name]) if name == "labels" else _shown(value)
    return values


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        caches = {name: value[name] for name in COMPILE_CACHES if value.get(name) in _CACHE_STATES}
        return caches | {name: value[name] for name in _FLOPS if name in value}
    return tuple(map(printable, value)) if isinstance(value, tuple) else value


def _known_labels(value: Any) -> dict[str, str]:
    """Another label, or another value, is a newer agent's."""
    generator = (
        name for name in deployment.LABELS.values() if deployment.is_value(value.get(name))
    )
    return {name: value[name] for name in generator}


def _table(value: object) -> str | None:
    return None if isinstance(value, dict) else "is no table"


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return "is not text"
    if len(value) > TEXT_LIMIT:
        return f"has more than {TEXT_LIMIT} characters"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "is not Unicode text"
    return None


def _number(value: object, limit: int = _NUMBER_LIMIT) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "is not a whole number"
    return None if 0 <= value <= limit else f"is not between 0 and {limit}"


def _rank(value: object) -> str | None:
    """The agent applies the same limit, so it rejects no real record."""
    return _number(value, MOST_RANKS)


def _work(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "is not a whole number"
    return None if 0 < value <= LARGEST else f"is not between 1 and {LARGEST}"


def _offset(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "is not a whole number"
    return None if abs(value) < _OFFSET_LIMIT else "is more than any clock is apart"


def _amount(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    # compared unconverted: an integer may be too large for a float
    return None if 0 < value <= LARGEST_AMOUNT else "is not positive and finite"


def _texts(value: object) -> str | None:
    if not isinstance(value, tuple):
        return "is not a list"
    if len(value) > _COUNT_LIMIT:
        return f"has more than {_COUNT_LIMIT} entries"
    return next((problem for item in value if (problem := _text(item)) is not None), None)


def _caches(value: object) -> str | None:
    """An unknown cache, or an unknown state of one, is a newer agent's."""
    if not isinstance(value, dict):
        return "is no table"
    generator = (value[name] for name in COMPILE_CACHES if name in value)
    return None if all(isinstance(item, str) for item in generator) else "is neither cold nor warm"


def _dtypes(value: object) -> str | None:
    """An unknown type is a newer agent's."""
    if not isinstance(value, dict):
        return "is no table"
    generator = (_amount(value[name]) for name in _FLOPS if name in value)
    return next((problem for problem in generator if problem is not None), None)


_BY_TYPE: Mapping[Any, Callable[[object], str | None]] = {
    str: _text,
    int: _number,
    float: _amount,
    tuple[str, ...]: _texts,
    Mapping[str, str]: _caches,
    Mapping[str, float]: _dtypes,
}
_BY_NAME = {
    "rank": _rank,
    "local_rank": _rank,
    "world_size": _rank,
    "attempt": _rank,
    "tokens_per_step": _work,
    "samples_per_step": _work,
    "parameters": _work,
    "parameters_seen": _work,
    "clock_offset_ns": _offset,
    "labels": _table,
}


def _kind(name: str, annotation: Any) -> tuple[Callable[[object], str | None], bool]:
    """The check of a field, and whether it may be ``null``."""
    optional = isinstance(annotation, UnionType)
    return _BY_NAME.get(name) or _BY_TYPE[
        annotation.__args__[0] if optional else annotation
    ], optional


_KINDS = {name: _kind(name, of) for name, of in Identity.__annotations__.items()}
