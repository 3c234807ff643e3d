"""Building blocks of the metric tables: families, labels, and series that read a value.

As text they are the Prometheus format or OpenMetrics, which differ in their headers.

prometheus_client negotiates the format and defines how numbers are formatted. Its own encoders take
five times as long for the five hundred ranks of one host; tests compare these lines with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import copysign
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, get_args

from msgspec import Struct, field
from msgspec.structs import replace
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from warmwatch_monitor.figures.declared import Figure, field_texts, figures, of_type

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Labels:
    """The labels that the samples of one row share, in order of their names."""

    __slots__ = ("_around", "values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {name: _utf8(values[name]) for name in sorted(values)}
        self._around: dict[str, tuple[str, str]] = {}

    def around(self, own: str) -> tuple[str, str]:
        """The text before and after the label ``own``, including commas.

        All of it if ``own`` is "".
        """
        if own not in self._around:
            before = [pair(n, v) for n, v in self.values.items() if n < own]
            after = [pair(n, v) for n, v in self.values.items() if n > own]
            if own:
                self._around[own] = (
                    "".join(f"{p}," for p in before),
                    "".join(f",{p}" for p in after),
                )
            else:
                self._around[own] = "", ",".join(after)
        return self._around[own]

    def with_own(self, own: str, value: str) -> dict[str, str]:
        """All labels of a sample with the label ``own``; these alone, where it is ""."""
        return {**self.values, own: value} if own else self.values


@lru_cache(maxsize=8192)
def pair(name: str, value: str) -> str:
    """``name="value"``, escaped. Most are the same at each scrape."""
    return f'{name}="{value.translate(ESCAPES)}"'


def _utf8(value: str) -> str:
    """Encodable as UTF-8: a script's name may contain other bytes."""
    return value.encode("utf-8", "replace").decode()


Type = Literal["gauge", "counter", "info", "histogram"]

ONE_COLUMN = ("",)
_SUFFIXES = {"counter": "_total", "info": "_info"}


class Distribution(Struct, frozen=True, kw_only=True):
    """A histogram's value: the count up to each bound, the total count, and the sum.

    ``upto`` is empty where only count and sum are of use.
    """

    upto: Sequence[int]
    count: int
    sum: float


Value = float | Distribution | None


class Family(Struct):
    """One family.

    Attributes:
        name: as in OpenMetrics, without ``_total`` or ``_info``. help, type: its metadata.
        label: its own label, or "". columns: the values of that.
        bounds: of a histogram, the upper bounds of its buckets except the last.
        rows: the labels that a row's samples share, and its values, in the order of columns; there
        is no sample where a value is ``None``.
    """

    name: str
    help: str
    type: Type
    label: str = ""
    columns: Sequence[str] = ONE_COLUMN
    bounds: Sequence[float] = ()
    rows: list[tuple[Labels, Sequence[Value]]] = field(default_factory=list)

    @property
    def sample_name(self) -> str:
        """The name of its samples; a histogram adds suffixes to it."""
        return self.name + _SUFFIXES.get(self.type, "")

    def add(self, labels: Labels, value: Value) -> None:
        """Add a row of one value; ``None`` is not known, and adds nothing."""
        if value is not None:
            self.rows.append((labels, (value,)))

    @property
    def empty(self) -> bool:
        return next(self.samples(), None) is None

    def samples(self) -> Iterator[tuple[Labels, str, float | Distribution]]:
        """Every known value: the row's labels, the column, the value."""
        for labels, values in self.rows:
            for column, value in zip(self.columns, values, strict=True):
                if value is not None:
                    yield labels, column, value


T = TypeVar("T")
_Columns = Callable[[T], Mapping[str, float] | None]


class Series(Struct, Generic[T], frozen=True, kw_only=True):
    """One value for each ``T``, from ``read``.

    With ``label`` one for each of ``columns``, from ``read_columns`` by name; without
    ``columns``, one for each name that it returns.
    """

    name: str
    type: Type
    help: str
    read: Callable[[T], float | None] | None = None
    label: str = ""
    columns: Sequence[str] = ()
    read_columns: _Columns[T] | None = None

    def family(self, subjects: Sequence[tuple[Labels, T]]) -> Family:
        family = Family(
            name=self.name.removesuffix("_total"), help=self.help, type=self.type, label=self.label
        )
        if self.read is not None:
            for labels, subject in subjects:
                family.add(labels, self.read(subject))
        if self.read_columns is not None:
            read = [(labels, self.read_columns(subject)) for labels, subject in subjects]
            rows = [(labels, values) for labels, values in read if values]
            family.columns = self.columns or list(dict.fromkeys(c for _, vs in rows for c in vs))
            for labels, values in rows:
                family.rows.append((labels, [values.get(name) for name in family.columns]))
        return family


def series(figure: Figure, text: str, read: Callable[[T], Any]) -> Series[T]:
    """The family of a figure with this text. ``read`` returns its value, with a label those by
    name.
    """
    name, hot = f"warmwatch_{figure.metric}", figure.one_of
    made: Series[T] = Series(
        name=name,
        type="counter" if name.endswith("_total") else "gauge",
        help=f"1 for the value that holds, else 0: {text}" if hot else text,
        label=figure.label,
        columns=figure.values,
    )
    if not figure.label:
        return replace(made, read=read)
    if hot:
        return replace(made, read_columns=partial(_one_hot, read, figure.values))
    return replace(made, read_columns=read)


def shared(annotated: Any, read: Callable[[T], Any]) -> Series[T]:
    """The family of a type that fields share, and that declares a figure with its text."""
    figure = of_type(annotated)
    assert figure is not None
    return series(figure, figure.text, read)


def family_of(annotated: Any) -> Family:
    """The same, without rows."""
    made: Series[Any] = shared(annotated, bool)
    return made.family(())


def series_of(
    struct: type[Struct],
    where: Callable[[T], Any],
    own: Mapping[str, Callable[[T], Any]] = MappingProxyType({}),
) -> Iterator[Series[T]]:
    """The families of all figures of ``struct``, of which ``where`` returns the value or ``None``.

    ``own``: how to read a field other than by its name.
    """
    texts = field_texts(struct)
    for name, figure in figures(struct).items():
        read = own.get(name) or partial(_read, where, attrgetter(name))
        if figure.metric:
            yield series(figure, figure.text or texts[name], read)
        elif figure.label:  # a struct for each name
            of_each = get_args(figure.type)[1]
            for inner, item in figures(of_each).items():
                yield series(
                    replace(item, label=figure.label, values=figure.values),
                    field_texts(of_each)[inner],
                    partial(_each, read, attrgetter(inner)),
                )


def _one_hot(
    read: Callable[[T], str | None], values: Sequence[str], of: T
) -> dict[str, float] | None:
    value = read(of)
    return one_hot([value], values) if value in values else None


def _read(where: Callable[[T], Any], field: Callable[[Any], Any], of: T) -> Any:
    value = where(of)
    return None if value is None else field(value)


def _each(read: Callable[[T], Any], field: Callable[[Any], Any], of: T) -> Any:
    values = read(of)
    return None if values is None else {name: field(value) for name, value in values.items()}


def gauge(name: str, help: str, read: Callable[[T], float | None]) -> Series[T]:
    return Series(name=name, type="gauge", help=help, read=read)


def one_hot(chosen: Iterable[str | None], columns: Sequence[str]) -> dict[str, float]:
    """1 for the chosen columns, 0 for the others."""
    on = frozenset(chosen)
    return {column: float(column in on) for column in columns}


_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

# by their media type in Accept; the library defines each content type
_VERSIONS = {
    "application/openmetrics-text": ("", "1.0.0"),
    "text/plain": ("", "0.0.4", "1.0.0"),
}

_spelled: Callable[[Any], str] = floatToGoString
_known = lru_cache(maxsize=8192)(_spelled)


_ZERO, _MINUS_ZERO = _spelled(0.0), _spelled(-0.0)


def number(value: Any) -> str:
    """``value`` as the library formats it; 0 and -0 are one cache key with two texts.

    Two of three values are 0, so they have a shortcut.
    """
    if value:
        return _known(value)
    return _ZERO if copysign(1.0, value) > 0 else _MINUS_ZERO


@lru_cache(maxsize=64)
def content_type(accept: str | None) -> str:
    """The content type of the requested format, of the versions that this module writes.

    The library accepts any version and returns it unchanged.
    """
    names = [name for name in (accept or "").split(",") if _is_written(name)]
    return str(choose_encoder(",".join(names))[1])


def _is_written(accepted: str) -> bool:
    kind, *parameters = (part.strip() for part in accepted.split(";"))
    versions = [
        parameter.partition("=")[2] for parameter in parameters if parameter.startswith("version=")
    ]
    return all(version in _VERSIONS.get(kind, ()) for version in versions)


def encode(families: Iterable[Family], accept: str | None) -> tuple[bytes, str]:
    """Families with a sample in the format that ``Accept`` requests, and its content type."""
    kind = content_type(accept)
    openmetrics = kind.startswith("application/openmetrics-text")
    header = _openmetrics_header if openmetrics else _plain_header
    parts: list[str] = []
    for family in families:
        at = len(parts)
        parts.extend(_histograms(family) if family.type == "histogram" else _lines(family))
        if len(parts) > at:
            name = family.name if openmetrics else family.sample_name
            parts.insert(at, header(name, family.help, family.type))
    if openmetrics:
        parts.append("# EOF")
    parts.append("")  # the last line ends, too
    return "\n".join(parts).encode(), kind


def _lines(family: Family) -> list[str]:
    """One line per sample. Hot path: formats shared parts once."""
    name, label, lines = family.sample_name, family.label, list[str]()
    own = [pair(label, column) if label else "" for column in family.columns]
    for labels, values in family.rows:
        before, after = labels.around(label)
        if not label and not after:
            lines += [f"{name} {number(value)}" for value in values if value is not None]
            continue
        start, end = f"{name}{{{before}", f"{after}}} "
        lines += [
            f"{start}{column}{end}{number(value)}"
            for column, value in zip(own, values, strict=True)
            if value is not None
        ]
    return lines


def _histograms(family: Family) -> Iterator[str]:
    name, label = family.name, family.label
    bounds = [pair("le", bound) for bound in (*map(number, family.bounds), "+Inf")]
    for labels, column, value in family.samples():
        assert isinstance(value, Distribution)
        before, after = labels.around(label)
        own = f"{before}{pair(label, column)}"
        names = bounds if value.upto else bounds[-1:]
        for bound, count in zip(names, (*value.upto, value.count), strict=True):
            yield f"{name}_bucket{{{own},{bound}{after}}} {number(count)}"
        yield f"{name}_count{{{own}{after}}} {number(value.count)}"
        yield f"{name}_sum{{{own}{after}}} {number(value.sum)}"


@lru_cache(maxsize=1024)
def _plain_header(name: str, help: str, type: str) -> str:
    type_ = "gauge" if type == "info" else type
    return f"# HELP {name} {help.translate(_HELP_ESCAPES)}\n# TYPE {name} {type_}"


@lru_cache(maxsize=1024)
def _openmetrics_header(name: str, help: str, type: str) -> str:
    return f"# HELP {name} {help.translate(ESCAPES)}\n# TYPE {name} {type}"
