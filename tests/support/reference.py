"""The reference that is made from the code: ``cd tests && python -m support.reference``.

Whole pages, and tables between markers in pages whose other text is written by hand.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import warmwatch
from support.builders import snapshot
from warmwatch.shared.deployment import LABELS
from warmwatch.shared.states import NEEDS_ATTENTION, Conditions, State
from warmwatch.shared.variables import Monitor, Training
from warmwatch_monitor.commands.check.output import CheckDocument
from warmwatch_monitor.commands.compare.comparison import Comparison
from warmwatch_monitor.commands.doctor.command import DoctorDocument
from warmwatch_monitor.commands.export import ExportDocument
from warmwatch_monitor.commands.modes.table import Modes
from warmwatch_monitor.commands.report.parts import Report
from warmwatch_monitor.commands.run import RunDocument
from warmwatch_monitor.commands.runs import RunsDocument
from warmwatch_monitor.commands.stacks import StacksDocument
from warmwatch_monitor.commands.status import CODES
from warmwatch_monitor.figures.declared import texts_below
from warmwatch_monitor.metrics.families import Family
from warmwatch_monitor.metrics.tables import DaemonSeries, families
from warmwatch_monitor.server.command import ServeDocument
from warmwatch_monitor.status.schema.events import CHANGES, ResetEvent, SampleEvent
from warmwatch_monitor.status.schema.json_schema import schema_file, schema_text

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
ALERTS = ROOT / "docs" / "how-to" / "alerts.md"
MADE = "<!-- Made by `cd tests && python -m support.reference`; do not edit. -->"
WIDTH = 100
OF_GPUS = "warmwatch_gpu_"  # gpus.md has these
PARTS = {  # how the names of metrics begin -> heading
    "warmwatch_host": "Host",
    "warmwatch": "Runs, ranks and the daemon",
    "process": "The daemon's process",
}

PAGE = re.compile(r"\b(docs/[\w/-]+\.md)(#[\w-]+)?")
TABLE = re.compile(
    r"(<!-- made by `python -m support.reference`: ([\w ]+) -->).*?(<!-- end -->)", re.DOTALL
)
JSON_OUTPUT = {
    "run": RunDocument,
    "runs": RunsDocument,
    "export": ExportDocument,
    "check": CheckDocument,
    "stacks": StacksDocument,
    "doctor": DoctorDocument,
    "serve": ServeDocument,
    "report": Report,
    "compare": Comparison,
    "modes": Modes,
}


def metrics() -> str:
    """Every metric family."""
    lines = [MADE, "", "# Metrics", ""]
    lines += [
        "Every family of `/metrics`, except those of [GPUs](gpus.md#what-each-series-means).",
        "Names that end in `_total` are counters, in `_info` info metrics with the value 1;",
        "`warmwatch_step_seconds` is a histogram, and all others are gauges. Names, labels and",
        "meaning are public: they change with a version. A series is absent if its value is",
        "unknown. Ranks have the labels `run` and `rank`.",
        "[Prometheus and Grafana](../how-to/prometheus-and-grafana.md#scrape) shows how to scrape.",
        "From two minutes after its end, a rank has no histogram, and of labels such as `phase`",
        "only those that are not 0 (one, if all are): [scale](../explanation/scale.md).",
    ]
    every = [*families(snapshot(), "0"), *DaemonSeries().families(snapshot())]
    rest = [family for family in every if not family.name.startswith(OF_GPUS)]
    for start, heading in PARTS.items():
        part = [family for family in rest if family.name.startswith(start)]
        rest = [family for family in rest if family not in part]
        lines += ["", f"## {heading}", "", *sorted(row(family) for family in part)]
    lines += ["", "## Labels with fixed values", ""]
    lines += [
        'Of a family whose text begins with "1 for the value that holds", a rank has one series',
        "for each value of the label while one of them holds, and none otherwise: none of",
        "`warmwatch_compile_phase` while nothing compiles, always all of `warmwatch_state`. Of",
        "all others it has one for each value that is known, 0 included; of a timeout that of its",
        "backend, and of progress that of what is counted now.",
        "",
        "| label | values | metrics |",
        "|---|---|---|",
    ]
    lines += fixed_values(every)
    lines += ["", "## Labels of `warmwatch_run_info`", ""]
    lines += [
        "Versions, launcher, host and owner of each rank, and what its cluster software calls it:",
        "the first of these variables in the training's environment that is set. A value has 1 to",
        "100 printable ASCII characters; without one the label is absent. Slurm, Ray and SkyPilot",
        "set theirs. On Kubernetes, [the manifest sets them](../how-to/kubernetes.md#labels).",
        "",
        "| label | variable |",
        "|---|---|",
    ]
    for label in dict.fromkeys(LABELS.values()):
        names = ", ".join(f"`{one}`" for one, known in LABELS.items() if known == label)
        lines.append(f"| `{label}` | {names} |")
    return "\n".join(lines) + "\n"


def fixed_values(families: Iterable[Family]) -> list[str]:
    """A row for each label and its closed list of values."""
    metrics: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for family in families:
        if family.label and any(family.columns):
            known = metrics.setdefault((family.label, tuple(family.columns)), [])
            known.append(f"`{family.sample_name}`")
    return [
        f"| `{label}` | {', '.join(f'`{one}`' for one in values)} | {', '.join(names)} |"
        for (label, values), names in metrics.items()
    ]


def functions() -> str:
    """Every public function of ``warmwatch``, by docstring."""
    lines = [MADE, "", "# Functions of `warmwatch`", ""]
    lines += [
        "The signatures and docstrings. [Python API](python-api.md) shows how to use them,",
        "[attach](../how-to/attach.md#the-line-of-each-framework) the modules for frameworks.",
    ]
    for name in warmwatch.__all__:
        function = getattr(warmwatch, name)
        lines += ["", f"## `{name}`", "", "```python", call(name, function), "```", ""]
        lines += ["```text", inspect.getdoc(function) or "", "```"]
    return "\n".join(lines) + "\n"


def json_output() -> str:
    """The page with links to the JSON Schema of each ``--json`` document that is not `/status`."""
    lines = [MADE, "", "# JSON output of commands", ""]
    lines += [
        "Every command has `--json`: one object, whose keys may be added; within one",
        "`schema_version` none changes its meaning. `status`, `wait` and `top` print `/status`",
        "([HTTP](http.md)), `demo` prints what `report` does. `run` and `check` take a file,",
        "because stdout is their command's. JSON Schemas, with the meaning of each key, of the",
        "others; `status.schema.json` of the package has what they share with",
        "[`/status`](status-and-events.md):",
        "",
    ]
    lines += [f"- [`{name} --json`](json/{name}.schema.json)" for name in JSON_OUTPUT]
    return "\n".join(lines) + "\n"


def json_schema(document: type) -> str:
    """The JSON Schema of a ``--json`` document, without what is part of `/status`."""
    shared = set(_definitions(schema_file()))
    head, mark, _ = schema_text(document).partition('"$defs": {\n')
    definitions = _definitions(schema_text(document))
    own = ",\n".join(one for one in definitions if one not in shared)
    schema = f"{head}{mark}{own}\n}}}}\n"
    for title in [one.split('"')[1] for one in definitions if one in shared]:
        schema = schema.replace(f'"#/$defs/{title}"', f'"status.schema.json#/$defs/{title}"')
    return schema


def _definitions(schema: str) -> list[str]:
    """The definitions of a schema as `schema_text` prints them, without what separates them."""
    named = schema.strip().partition('"$defs": {\n')[2].removesuffix("\n}}")
    return re.split(r',\n(?=")', named)


def documents() -> str:
    """Every key of ``/status`` and of each event, from the schema."""
    known = json.loads(schema_file())["$defs"]
    kinds = {one.__name__: one.kind for one in (*CHANGES, SampleEvent)}
    kinds[ResetEvent.__name__] = "reset"
    lines = [MADE, "", "# Keys of `/status` and `/events`", ""]
    lines += [
        "Every key of the [`/status`](#status) document and of the data of each event, with its",
        "type: `s` are seconds, `time` is seconds since the epoch, `[]` is a list. A key is always",
        "there. With a `?` behind its type it is null if its value is unknown or absent. The JSON",
        "Schema is at `/openapi.json`. [HTTP](http.md) shows how to request both. The event",
        "`snapshot` holds a whole `/status` document, and `stopping` only `at`.",
        "",
        "The events of a run and of a rank also have these keys:",
        "",
    ]
    own = known["StateEvent"]["properties"]
    common = {key: meaning(own[key]) for key in ("at", "run", "summary", "rank")}
    lines += [f"- `{key}` {text}" for key, text in common.items()]
    defined: dict[tuple[str, str], str] = {}
    for name, one in known.items():
        kind = f" (event `{kinds[name]}`)" if name in kinds else ""
        lines += ["", f"## {name}", "", one.get("description", "").rstrip(".") + f"{kind}."]
        if values := one.get("enum"):
            lines += ["", f"One of {values_of(values)}."]
        described = {key: meaning(each) for key, each in one.get("properties", {}).items()}
        if name in kinds:
            described = {key: text for key, text in described.items() if common.get(key) != text}
        if described:
            lines += ["", *keys_of(name, described, defined)]
    return "\n".join(lines) + "\n"


def keys_of(
    name: str, described: dict[str, str], defined: dict[tuple[str, str], str]
) -> Iterator[str]:
    """A line for each key: those with one text share it, and what stands above is only named."""
    same: dict[str, list[str]] = {}
    for key, text in described.items():
        above = defined.setdefault((key, text), name)
        line = text if above == name else f"as in [{above}](#{above.lower()})."
        same.setdefault(line, []).append(f"`{key}`")
    for line, keys in same.items():
        yield f"- {', '.join(keys)} {line}"


def meaning(described: dict[str, Any]) -> str:
    """The type of a key and its text."""
    return f"({kind_of(described)}): {described.get('description', '')}"


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON Schema in words: ``s?``."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return values_of(schema["enum"])
    if "anyOf" in schema:
        kinds = [kind_of(one) for one in schema["anyOf"] if one != {"type": "null"}]
        return " or ".join(kinds) + "?"
    if "prefixItems" in schema:
        return f"[{', '.join(kind_of(one) for one in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"{kind_of(schema['items'])}\\[]"
    if "additionalProperties" in schema:
        return f"object of {kind_of(schema['additionalProperties'])}"
    unit = schema.get("x-unit", schema.get("type", "any"))
    return "time" if unit == "s since the epoch" else str(unit)


def values_of(values: list[object]) -> str:
    return ", ".join(f"`{json.dumps(value)}`" for value in values)


def call(name: str, function: Callable[..., object]) -> str:
    """The signature without types, as ruff formats it."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    line = f"{name}{inspect.Signature(parameters)}"
    if len(line) <= WIDTH:
        return line
    before, _, after = line.partition("(")
    return "\n".join([f"{before}(", *(f"    {one}," for one in after[:-1].split(", ")), ")"])


def row(family: Family) -> str:
    label = f"{{{family.label}}}" if family.label else ""
    return f"- `{family.sample_name}{label}`: {family.help}"


def settings(table: type) -> str:
    """The variables of one table of ``shared/variables.py``."""
    rows = [
        f"| `{name}` | {vars(table)[name]} | {text} |" for name, text in meanings(table).items()
    ]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])


def states() -> str:
    """Every state of a rank."""
    codes = {state: code for code, states in CODES.items() for state in states}
    texts = meanings(State)
    rows = [f"| `{one.value}` | {texts[one.name]} | {codes[one]} |" for one in State]
    return "\n".join(["| state | means | exit code of `status` |", "|---|---|---|", *rows])


def conditions() -> str:
    """Every condition of a rank."""
    rows = [
        f"| `{name}` | {text} | {'yes ' if name in NEEDS_ATTENTION else ''}|"
        for name, text in meanings(Conditions).items()
    ]
    return "\n".join(["| condition | means | needs attention |", "|---|---|---|", *rows])


def alerts() -> str:
    """A section for each alert: the comment above its rule."""
    rules = (ROOT / "dashboards" / "rules" / "warmwatch.alerts.yml").read_text()
    sections = re.findall(r"((?: {6}#.*\n)+) {6}- alert: (\w+)\n", rules)
    return "\n\n".join(
        f"## {name}\n\n{re.sub('(?m)^ *# ?', '', comment).strip()}" for comment, name in sections
    )


def meanings(table: type) -> dict[str, str]:
    """The text below each constant of a class, with links to the pages that it names."""
    texts = texts_below(table.__module__)[table.__name__]
    return {name: PAGE.sub(_link, text) for name, text in texts.items()}


def _link(found: re.Match[str]) -> str:
    """A page named in the code, as a link from the reference."""
    page, fragment = ROOT / found[1], found[2] or ""
    name = fragment.removeprefix("#") or page.stem
    path = os.path.relpath(page, FOLDER)
    return f"[{name.replace('-', ' ')}]({path}{fragment})"


def with_tables(page: Path) -> str:
    """The page, with the tables between its markers made again."""

    def filled(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{TABLES[found[2]]()}\n\n{found[3]}"

    return TABLE.sub(filled, page.read_text())


TABLES: dict[str, Callable[[], str]] = {
    "settings of the training": partial(settings, Training),
    "settings of the monitor": partial(settings, Monitor),
    "states": states,
    "conditions": conditions,
    "alerts": alerts,
}


PAGES: dict[Path, Callable[[], str]] = {
    **{
        page: partial(with_tables, page)
        for page in (FOLDER / "settings.md", FOLDER / "states.md", ALERTS)
    },
    FOLDER / "metrics.md": metrics,
    FOLDER / "functions.md": functions,
    FOLDER / "json-output.md": json_output,
    **{
        FOLDER / "json" / f"{name}.schema.json": partial(json_schema, document)
        for name, document in JSON_OUTPUT.items()
    },
    FOLDER / "status-and-events.md": documents,
}


if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text())
        sys.stdout.write(f"{path.name}\n")
