"""What was asked of the compiler and did not happen: never compiled, turned off, no CUDA graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warmwatch_monitor.export.words.wording import counted, own_words, place
from warmwatch_monitor.model import Figures, Log

_OFF = {
    "environment": "TORCHDYNAMO_DISABLE",
    "stance": 'torch.compiler.set_stance("force_eager")',
    "config": "torch._dynamo.config.disable (or TORCH_COMPILE_DISABLE)",
}
_OF_NEW = {"eager_on_recompile": "run eagerly", "fail_on_recompile": "fail"}
# PyTorch's words for leaving CUDA graphs out (torch 2.6 to 2.15); the first that is found in them.
_PLAIN = (
    ("mutated inputs", "a compiled function changes its inputs in place"),
    ("cpu device", "part of the graph is on the CPU"),
    ("multiple devices", "a graph spans several devices"),
    ("symbolic shapes", "its shapes are dynamic"),
    ("dynamic shape", "its shapes are dynamic"),
    ("re-recording limit", "it was recorded anew too often: inputs come at new addresses"),
    ("memory overlap", "an input overlaps itself in memory"),
    ("cpp wrapper", "the C++ wrapper is on"),
    ("annotation", "an annotation in the program turns them off"),
)
_OPERATOR = re.compile(r"incompatible op (?P<name>[\w.:]+)")


def turned_off(figures: Figures) -> str | None:
    """``compilation is turned off by TORCHDYNAMO_DISABLE``; ``None`` where it is not."""
    by, step = figures.compile.disabled, figures.compile.disabled_since_step
    if by is None:
        return None
    since = f" since step {step + 1}" if step else ""
    if by in _OF_NEW:
        return f"new inputs {_OF_NEW[by]}{since}: {_stance(by)}"
    return f"compilation is turned off{since} by {_OFF[by]}"


def uncompiled_calls(figures: Figures) -> str:
    """``14 calls ran eagerly, the first in step 12: torch.compiler.set_stance("force_eager")``."""
    compile = figures.compile
    told = (
        (compile.eager_calls, compile.eager_calls_since, "ran eagerly", "force_eager"),
        (compile.refused_calls, compile.refused_calls_since, "failed", "fail_on_recompile"),
    )
    return "; ".join(
        f"{counted(calls, 'call')} {what}, the first in step {since}: {_stance(name)}"
        for calls, since, what, name in told
        if calls and since
    )


def _stance(name: str) -> str:
    return f'torch.compiler.set_stance("{name}")'


def never_compiled(figures: Figures) -> tuple[str, str]:
    """What did not happen, and the likely reasons, since PyTorch gives none."""
    wrapped = figures.compile.wrappers
    times = "" if wrapped is None else f" {_times(wrapped)}"
    steps = counted(figures.steps.count, "step")
    return (
        f"torch.compile was called{times} and nothing has compiled in {steps}",
        (
            "another object is called than the one it gave back, or it is for evaluation only, or "
            "a stance was set around the calls"
        ),
    )


def cudagraph_skipped(figures: Figures) -> str:
    """``CUDA graphs were asked for and left out twice: ...``, the last reason that is known."""
    skips = figures.compile.cudagraph_skips
    times = "" if skips is None else f" {_times(skips)}"
    known = [*_skips(figures.log)]
    why = f": {max(known)[1]}" if known else ""
    return f"CUDA graphs were asked for and left out{times}{why}"


def _skips(log: Log) -> Iterator[tuple[int, str]]:
    """When, and why: of each that has a reason. Of a compilation its own line says the function."""
    for made in log.compilations:
        if made.cudagraph_skip:
            yield made.at_ns, plain_skip(made.cudagraph_skip) or own_words(made.cudagraph_skip)
    for one in log.skips:
        where = place(one.name, one.file, one.line)
        why = plain_skip(one.reason) or own_words(one.reason)
        yield one.at_ns, f"{why}, at {where}" if where else why


def _times(number: int) -> str:
    return "once" if number == 1 else counted(number, "time")


def plain_skip(reason: str | None) -> str | None:
    """PyTorch's reason in plain words; ``None`` where nobody knows them."""
    if not reason:
        return None
    if operator := _OPERATOR.search(reason):
        return f"{operator['name']} cannot be recorded"
    return next((words for part, words in _PLAIN if part in reason.lower()), None)
