"""What a Prometheus answers, from its JSON to the answer of ``warmwatch status --prometheus``."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from fuzz.choices import Choices
from support import builders
from support.documents import status
from warmwatch_monitor.base.errors import FleetError
from warmwatch_monitor.metrics import render
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.sources.fleet import assemble
from warmwatch_monitor.sources.fleet.samples import samples

_VIEWS = builders.in_every_state()
_VALUES = ("NaN", "+Inf", "-Inf", "1e308", "-1", "", "x", "0", "1", "1e18", "9" * 5000, "٣")
_ODD = (
    None,
    1,
    [],
    {},
    "x",
    True,
    [1],
    [None, "1"],
    [0, 1],
    {"__name__": 5},
    [0, "1", 2],
    [[], {}],
)


def _series() -> list[dict[str, object]]:
    """All that daemons tell of ranks in every state, as Prometheus has it."""
    found = []
    for instance, view in enumerate(_VIEWS.values()):
        text = render(builders.snapshot(view, gpus=(builders.gpu(),)), None)[0].decode()
        found += [
            {
                "metric": {"__name__": s.name, **s.labels, "instance": str(instance % 2)},
                "value": [builders.EPOCH, str(s.value)],
            }
            for family in text_string_to_metric_families(text)
            for s in family.samples
            if s.value or "_bucket" not in s.name
        ]
    return found


_SERIES = _series()
_LABELS = (
    "run",
    "rank",
    "uuid",
    "gpu",
    "state",
    "phase",
    "kind",
    "instance",
    "warm_steps",
    "__name__",
)


def ask(data: bytes) -> None:
    """An answer of Prometheus' form with odd parts, or any JSON."""
    choices = Choices(data)
    if choices.below(8) == 7:
        try:
            answer = json.loads(choices.rest())
        except (ValueError, RecursionError):  # the fetch refuses it
            return
    else:
        answer = _answer(choices)
    try:
        found = tuple(samples(json.dumps(answer).encode(), "http://prometheus"))
    except FleetError as error:
        assert str(error).startswith("http://prometheus "), error
        return
    json.loads(json_body(status(assemble(found, builders.EPOCH))).plain)


def _answer(choices: Choices) -> object:
    start, length = choices.below(len(_SERIES)), choices.below(120)
    result: list[object] = [dict(one) for one in _SERIES[start : start + length]]
    while not choices.over and result:
        place = choices.below(len(result))
        one = result[place]
        kind = choices.below(4)
        if kind == 3 or not isinstance(one, dict) or "metric" not in one:
            result[place] = choices.pick(_ODD)
        elif kind == 2:
            one["value"] = choices.pick(_ODD)
        elif kind == 1:
            one["value"] = [builders.EPOCH, choices.pick(_VALUES)]
        else:
            label = choices.pick(_LABELS)
            metric = dict(one["metric"])
            if choices.below(4) == 3:
                metric.pop(label, None)
            else:
                metric[label] = choices.pick(_VALUES) if choices.below(2) else choices.text()
            one["metric"] = metric
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return answer if choices.below(16) < 15 else {**answer, "data": choices.pick(_ODD)}
