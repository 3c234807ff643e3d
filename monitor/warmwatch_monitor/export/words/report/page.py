"""A report in words: the page that terminal, HTML and Markdown show. Pure.

``moment``: how a time is put for the reader, which is not ours to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warmwatch_monitor.export.document import Document, Section
from warmwatch_monitor.export.report.parts import Report
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.report.changed import since_last_time
from warmwatch_monitor.export.words.report.compiled import again, broken, failure, timeline
from warmwatch_monitor.export.words.report.cost import cost
from warmwatch_monitor.export.words.report.do import to_do
from warmwatch_monitor.export.words.report.ranks import ranks
from warmwatch_monitor.export.words.report.where import where
from warmwatch_monitor.export.words.wording import counted
from warmwatch_monitor.model.account import Wrapping

# A cache in which anything lies may hold nothing of this run, so it is not called warm.
_WERE = {"warm": "not empty at the start", "cold": "empty at the start"}
Moment = Callable[[float], str]


def page(report: Report, moment: Moment) -> Document:
    """All of it."""
    return Document(
        title=f"Warmwatch report: {report.run}",
        state=report.state,
        answer=answer(report),
        warnings=report.doubts,
        facts=tuple(facts(report, moment)),
        sections=tuple(section for section in _sections(report) if section is not None),
    )


def short(report: Report) -> Document:
    """What is said at the end of a launch: the same account, without its details."""
    parts = (failure(report), where(report), again(report), to_do(report), ranks(report))
    return Document(
        title=report.run,
        state=report.state,
        answer=answer(report),
        warnings=report.doubts,
        sections=tuple(section for section in parts if section is not None),
    )


def _sections(report: Report) -> Iterator[Section | None]:
    yield failure(report)
    yield where(report)
    yield since_last_time(report)
    yield again(report)
    yield to_do(report)
    yield cost(report)
    yield timeline(report)
    yield broken(report)
    yield ranks(report)


def answer(report: Report) -> str:
    """The sentence, and behind it what was found out and an end's sentence does not say."""
    said = [report.summary or f"{report.run}: {report.state}"]
    if not report.living:
        said += [words for words in report.conditions.values() if words not in report.summary]
        if not report.conditions and not report.compile_seconds and report.steps:
            before = counted(report.graphs_before or 0, "graph")
            said.append(
                f"nothing was compiled since it was attached; {before} before that"
                if report.graphs_before
                else f"it ran ahead-of-time compiled code ({', '.join(report.precompiled)})"
                if report.precompiled
                else "nothing was compiled: it ran eagerly"
            )
    return "; ".join(said)


def facts(report: Report, moment: Moment) -> Iterator[tuple[str, str]]:
    """What the run was."""
    what = report.what
    yield "began", moment(report.began)
    if report.ended is not None:
        yield "ended", f"{moment(report.ended)}, after {took(report.ended - report.began)}"
    else:
        said = "so far" if report.living else "as last seen"
        yield said, f"{took(max(0.0, report.seen - report.began))}, at {moment(report.seen)}"
    for name, value in (
        ("host", report.host),
        (
            "script",
            f"{what.script} ({what.commit[:12]})" if what.script and what.commit else what.script,
        ),
        ("ranks", str(report.world_size) if (report.world_size or 1) > 1 else None),
        ("GPUs", models(what.gpus)),
        ("torch", _versions(report)),
        ("torch.compile", "; ".join(_wrapping(one) for one in what.wrappings) or what.disabled),
        ("caches", _caches(report)),
    ):
        if value:
            yield name, value


def _caches(report: Report) -> str:
    """How they were when it began, and what of this run was in them."""
    were = ", ".join(
        f"{name} {_WERE.get(state, state)}" for name, state in report.what.caches.items()
    )
    hits = sum(one.cache_hits for one in report.functions)
    asked = hits + sum(one.cache_misses for one in report.functions)
    if not were or not asked:
        return were
    return f"{were}; of this run's compilations {hits} of {asked} were found in a cache"


def models(gpus: tuple[str, ...]) -> str | None:
    """``8 x NVIDIA H100``."""
    counts = {name: gpus.count(name) for name in dict.fromkeys(gpus)}
    return (
        ", ".join(f"{many} x {name}" if many > 1 else name for name, many in counts.items()) or None
    )


def _versions(report: Report) -> str | None:
    what = report.what
    pairs = (
        ("CUDA", what.cuda),
        ("Triton", what.triton),
        ("driver", what.driver),
        ("Python", what.python),
    )
    more = ", ".join(f"{name} {value}" for name, value in pairs if value)
    return f"{what.torch}{f' ({more})' if more else ''}" if what.torch else None


def _wrapping(one: Wrapping) -> str:
    said = [one.mode]
    said += [one.backend] if one.backend != "inductor" else []
    said += ["fullgraph"] if one.fullgraph else []
    said += [] if one.dynamic is None else [f"dynamic={one.dynamic}"]
    said += [name.partition("=")[0] for name in one.options]
    return ", ".join(said) + (f" ({one.count} times)" if one.count > 1 else "")
