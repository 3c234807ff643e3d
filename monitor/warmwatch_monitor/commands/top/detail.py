"""What ``top`` shows of one row, and the table of GPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.style import Style
from rich.text import Text

from warmwatch.shared.phrases import duration, place, took
from warmwatch_monitor.commands.terminal.reasons import reasons
from warmwatch_monitor.commands.terminal.table import functions, wrapped
from warmwatch_monitor.commands.top.chart import Series, Window, axis, chart
from warmwatch_monitor.commands.top.history import History
from warmwatch_monitor.commands.top.listing import Entry
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.output.amounts import a_step, if_known
from warmwatch_monitor.output.summary import PHASE_STYLES, STYLES, details_of

_HEAD = ("", "GPU", "power", "busy", "SMs", "memory", "temp", "held down by", "name")
_LEFT = frozenset({"", "held down by", "name"})
_UNKNOWN = "-"


def gpus(answer: Mapping[str, Any], own: frozenset[str], width: int) -> list[Text]:
    """A line for each GPU; a star marks ``own``, those of the chosen rank."""
    value = answer.get("gpus") or ()
    if not value:
        return [Text(line, style="dim") for line in _none(answer, width)]
    rows = [_HEAD, *(_row(gpu, gpu["uuid"] in own) for gpu in value)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = []
    gauged = {head for head, read in _GAUGED.items() if any(read(gpu) is not None for gpu in value)}
    if width < sum(widths) + 2 * len(widths) + len(gauged) * (_GAUGE + 1):
        gauged = set()
    for row, gpu in zip(rows, (None, *value), strict=True):
        line = Text(style="dim" if gpu is None else "", no_wrap=True)
        for at, (head, text, wide) in enumerate(zip(_HEAD, row, widths, strict=True)):
            line.append("  " if at else "")
            line.append(text.ljust(wide) if head in _LEFT else text.rjust(wide))
            if head in gauged:
                ratio = None if gpu is None else _GAUGED[head](gpu)
                line.append(" ").append(_gauge(ratio, warns=head == "memory"))
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    for gpu in value:
        trouble = f"GPU {gpu['index']}: {gpu['trouble']}" if gpu["trouble"] else ""
        lines += [Text(line, style="red") for line in wrapped(trouble, width) if line]
    return lines


_GAUGE = 12  # characters of a bar
# columns with a bar, and the value of the bar
_GAUGED: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "busy": lambda gpu: gpu["utilization_ratio"],
    "memory": lambda gpu: _share(gpu["memory_used_bytes"], gpu["memory_total_bytes"]),
}


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _gauge(ratio: float | None, *, warns: bool) -> Text:
    """``█████░░░``; blank if the ratio is not known. A busy GPU is no warning, full memory is."""
    if ratio is None:
        return Text(" " * _GAUGE)
    full = round(min(1.0, max(0.0, ratio)) * _GAUGE)
    level = "green" if ratio < _HIGH else "yellow" if ratio < _FULL else "red"
    style = level if warns else "cyan"
    return Text("█" * full, style=style) + Text("░" * (_GAUGE - full), style="dim")


_HIGH, _FULL = 0.75, 0.97  # of a bar that warns: yellow and red from here on


def _none(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    """Why there are no GPUs, if a source reports a reason."""
    yield "no GPU is known here"
    for source in answer.get("sources", ()):
        if source["source"] == "nvml" and source["error"]:
            yield from wrapped(f"{source['source']}: {source['error']}", width)


def _row(gpu: Mapping[str, Any], own: bool) -> tuple[str, ...]:
    return (
        "*" if own else "",
        str(gpu["index"]),
        _of(gpu["power_watts"], gpu["power_limit_watts"], 1, "W"),
        if_known(_percent, gpu["utilization_ratio"], _UNKNOWN),
        if_known(_percent, gpu["sm_active_ratio"], _UNKNOWN),
        _of(gpu["memory_used_bytes"], gpu["memory_total_bytes"], 2**30, "GiB"),
        if_known("{:.0f} C".format, gpu["temperature_celsius"], _UNKNOWN),
        ", ".join(gpu["throttled"] or ()),
        gpu["profile"] or gpu["name"] or "",
    )


def _of(value: float | None, most: float | None, unit: float, name: str) -> str:
    """``686/700 W``."""
    if value is None:
        return _UNKNOWN
    capacity = "" if most is None else f"/{most / unit:.0f}"
    return f"{value / unit:.0f}{capacity} {name}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


_BAR, _LEAST_BAR = 30, 10
_LEAST_ROWS, _MOST_ROWS, _TALLEST = 2, 8, 16  # of one plot; the tallest if rows are left
# panes below the plots, and whether a rank has any of it
_BELOW_PLOTS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "evidence": lambda rank: bool(rank["evidence"] or rank["conditions"]),
    "recompiles": lambda rank: bool(
        any(value["reason"] for value in rank["compile"].get("last") or ())
        or rank["compile"].get("breaks")
    ),
    "GPUs": lambda rank: bool(rank["gpus"]),
    "functions": lambda rank: bool(rank["compile"].get("functions")),
}
_MOST_REASONS = 20


class Shown(NamedTuple):
    """The input of the detail lines.

    Attributes:
        answer: the whole answer. entry: the row. history: earlier samples.
        window: the time range of the plots. width, height: of the place.
        above: the sentences above the list. opened: whether the list is hidden.
    """

    answer: Mapping[str, Any]
    entry: Entry
    history: History
    window: Window
    width: int
    height: int
    above: Sequence[str] = ()
    opened: bool = False

    @property
    def sentence(self) -> str:
        """The sentence of the run, unless it stands above."""
        summary: str = self.entry.run["summary"]
        return "" if summary in self.above else summary

    @property
    def known(self) -> str:
        """What stands above: it is not repeated."""
        return " ".join((*self.above, self.sentence))

    @property
    def rank(self) -> Mapping[str, Any]:
        """The rank that represents the row."""
        return self.entry.ranks[0]

    @property
    def run(self) -> dict[str, Any]:
        """The run with only the ranks of the row."""
        return {**self.entry.run, "ranks": list(self.entry.ranks)}


def heading(shown: Shown) -> list[Text]:
    """The rank, its state unless the row shows it, and the progress of its compilation."""
    rank, cells = shown.rank, shown.entry.cells
    line = Text(f"{shown.entry.run['run']} rank {cells['rank']}", style="bold")
    if shown.opened:
        line.append("  ").append(rank["state"], style=STYLES.get(rank["state"], ""))
        if cells["detail"]:
            style = PHASE_STYLES.get(cells["detail"], "")
            line.append(" (").append(cells["detail"], style=f"not bold {style}").append(")")
        line.append(f" for {age}" if (age := cells["since"]) else "", style="not bold")
    where = f"pid {rank['pid']}" if rank["pid"] is not None else ""
    where = ", ".join(filter(None, [where, rank["host"]])) if len(shown.entry.ranks) == 1 else ""
    line.append(f"   {where}", style="not bold dim")
    return [line, *_progress(shown)]


def _progress(shown: Shown) -> Iterator[Text]:
    """``kernels ████░░░░ 31 of 86, about 12 s left``, or the function if there is no count."""
    compile = shown.rank["compile"]
    if compile["phase"] is None:
        return
    underway, counted = compile.get("underway"), compile.get("progress")
    what = place(underway["name"], underway["file"], underway["line"]) if underway else ""
    if what and underway["backward"]:
        what = f"the backward of {what}"
    what = "" if what in shown.known else what
    if not counted or not counted["total"]:
        if what:
            yield Text(f"compiles {what}", style="yellow")
        return
    done = min(counted["done"], counted["total"])
    left = shown.history.seconds_left((shown.entry.run["run"], shown.rank["rank"]))
    text = (
        f" {done} of {counted['total']}{f', about {duration(left)} left for these' if left else ''}"
    )
    text += f"   {what}" if what else ""
    wide = max(_LEAST_BAR, min(_BAR, shown.width - len(f"{counted['of']} {text}")))
    full = wide * done // counted["total"]
    line = Text(f"{counted['of']} ")
    line.append("█" * full, style="yellow").append("░" * (wide - full), style="dim")
    yield line.append(text)


def _plots(shown: Shown) -> list[Text]:
    """The plots, and below them as many of the other panes as fit; the plots get the rest."""
    room, below = shown.height - len(_charts(shown, _MOST_ROWS)), list[Text]()
    text = shown.known
    for name, has_any in _BELOW_PLOTS.items():
        lines = PANES[name](shown) if has_any(shown.rank) else []
        new = [paragraph for paragraph in _paragraphs(lines) if _plain(paragraph) not in text]
        parts = [line for texts in new for line in texts]
        if parts and len(below) + len(parts) + 2 <= room:
            below += [Text(), Text(name, style="bold"), *parts]
            text = " ".join((text, *map(_plain, new)))
    return [*_charts(shown._replace(height=shown.height - len(below)), _TALLEST), *below]


def _paragraphs(lines: Sequence[Text]) -> list[list[Text]]:
    """Each with the indented lines that continue it."""
    groups: list[list[Text]] = []
    for line in lines:
        if groups and line.plain.startswith(" "):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _plain(lines: Sequence[Text]) -> str:
    return " ".join(line.plain.strip() for line in lines)


def _charts(shown: Shown, most: int) -> list[Text]:
    """``most``: rows of one plot."""
    whose = shown.entry.run["run"], shown.rank["rank"]
    spans = shown.history.compiling(whose)
    points = shown.history.steps(whose)
    # the plot shows each second, so that a long step is seen, and the label the speed
    series = [Series("step time", points, took, peaks=True, now=a_step(shown.rank))]
    series += _of_gpu(shown)
    rows = (shown.height - 1) // len(series)
    rows = max(_LEAST_ROWS, min(most, rows))
    lines = [
        line
        for item in series
        for line in chart(
            item, spans, shown.window, shown.width, rows if item.points else _LEAST_ROWS
        )
    ]
    return [*lines, axis(shown.window, shown.width, spans)]


def _of_gpu(shown: Shown) -> Iterator[Series]:
    """Plots of the rank's first GPU, if it has values."""
    values = {gpu["uuid"]: gpu for gpu in shown.answer.get("gpus", ())}
    gpu = next((values[uuid] for uuid in shown.rank["gpus"] if uuid in values), None)
    if gpu is None:
        return
    name, limit = f"GPU {gpu['index']}", gpu["power_limit_watts"]
    if gpu["power_watts"] is not None:
        watts = shown.history.watts(gpu["uuid"])
        yield Series(f"{name} power", watts, "{:.0f} W".format, limit)
    if gpu["utilization_ratio"] is not None:
        busy = shown.history.activity(gpu["uuid"])
        yield Series(f"{name} busy", busy, _percent, 1.0)


def _recompiles(shown: Shown) -> list[Text]:
    texts = []
    for text, advice in reasons([shown.run], most=_MOST_REASONS):
        texts += [Text(line) for line in wrapped(text, shown.width)]
        texts += [
            Text(line, style="green") for line in wrapped(advice, shown.width, "    ") if line
        ]
    for value in shown.rank["compile"].get("varying") or ():
        varies = wrapped(value["words"], shown.width) if value["words"] else []
        texts += [Text(line, style="green") for line in varies]
    earlier = "earlier " if shown.rank["state"] == "recompiling" else ""
    return texts or [Text(f"no {earlier}recompile and no graph break", style="dim")]


def _words(run: Mapping[str, Any], rank: Mapping[str, Any]) -> Iterator[str]:
    """The run's details and the evidence, without duplicates: a rank's own limit is enough."""
    own_limit = rank["limited_by"] is not None
    clauses = (
        clause
        for clause in run["clauses"]
        if not (own_limit and clause["kind"] == Kind.LIMIT.value)
    )
    yield from dict.fromkeys((*details_of({"clauses": clauses}), *rank["evidence"]))


def _evidence(shown: Shown) -> list[Text]:
    rank = shown.rank
    texts = [(condition["words"], "bold red") for condition in rank["conditions"]]
    red = {text for text, _ in texts}
    texts += [(text, "") for text in _words(shown.entry.run, rank) if text not in red]
    return [Text(line, style=style) for text, style in texts for line in wrapped(text, shown.width)]


PANES: Mapping[str, Callable[[Shown], list[Text]]] = {
    "plots": _plots,
    "recompiles": _recompiles,
    "functions": lambda shown: [Text(line) for line in functions([shown.run], shown.width)],
    "GPUs": lambda shown: gpus(shown.answer, frozenset(shown.rank["gpus"]), shown.width),
    "evidence": _evidence,
}


def tabs(chosen: str) -> Text:
    """``1 plots  2 recompiles ...``, with the chosen one marked."""
    line = Text()
    for number, name in enumerate(PANES, 1):
        look = Style.parse("reverse" if name == chosen else "dim")
        click = Style.from_meta({"@click": f"app.pane({name!r})"})
        line.append(f" {number} {name} ", style=look + click)
    return line


def detail(shown: Shown, pane: str) -> Sequence[Text]:
    """The heading, and the lines of ``pane`` in what is left of the height."""
    head = [*heading(shown), tabs(pane)]
    for line in head:
        line.truncate(shown.width, overflow="ellipsis")
    head[:0] = [Text(line) for line in wrapped(shown.sentence, shown.width) if line]
    rest = shown._replace(height=max(1, shown.height - len(head)))
    return [*head, *PANES[pane](rest)]
