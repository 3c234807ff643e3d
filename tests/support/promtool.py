"""Series of imagined daemons and ranks over time, and the alerts that the rules make of them.

promtool evaluates the rules. It prints what it got where a test expects nothing, so a test here
reads alerts and samples as values.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from warmwatch.shared.states import CONDITIONS, ENDED, State

RULES = Path(__file__).parents[2] / "dashboards" / "rules"
ALERTS = re.findall(
    r"^ *- alert: (\w+)", (RULES / "warmwatch.alerts.yml").read_text(), re.MULTILINE
)
FINAL_SECONDS = 120.0  # how long a daemon exports the zeros of an ended rank
STEP = 15

Value = float | Callable[[float], float | None] | None
Labels = Mapping[str, str]


def about(first: float, last: float) -> Any:
    """Minutes; the alerts may be evaluated before or after the recording rules, which is a step."""
    return pytest.approx((first, last), abs=1.1 * STEP / 60)


class World:
    """Series, one sample every 15 s from 0 to ``minutes``."""

    def __init__(self, minutes: float) -> None:
        self.seconds = int(minutes * 60)
        self._series: list[dict[str, str]] = []

    def add(
        self, name: str, value: Value, gone: Callable[[float], bool] | None = None, **labels: str
    ) -> None:
        """One series. ``value``: by the time in seconds. ``gone``: when no scrape has it."""
        values: list[str] = []
        for at in range(0, self.seconds + 1, STEP):
            one = None if gone and gone(at) else value(at) if callable(value) else value
            stale = values and values[-1] not in ("_", "stale")
            values.append(repr(float(one)) if one is not None else "stale" if stale else "_")
        known = ",".join(f"{k}={json.dumps(v)}" for k, v in labels.items() if v)
        self._series.append({"series": f"{name}{{{known}}}", "values": " ".join(values)})
        self.__dict__.pop("_timeline", None)

    def left(self, name: str, **labels: str) -> None:
        """One sample at 0 of a series without an end, as a restart of Prometheus leaves it."""
        known = ",".join(f"{k}={json.dumps(v)}" for k, v in labels.items())
        self._series.append({"series": f"{name}{{{known}}}", "values": "1"})

    def daemon(self, instance: str = "a", **more: Any) -> Daemon:
        return Daemon(self, instance, **more)

    def samples(self, *queries: tuple[str, float]) -> list[list[tuple[dict[str, str], float]]]:
        """What each expression has at its time in minutes."""
        cases = [{"expr": expr, "eval_time": f"{round(at * 60)}s"} for expr, at in queries]
        printed = self._run(promql_expr_test=cases)
        found = dict(_GOT.findall(printed))
        return [_samples(found.get(number, "")) for number in map(str, range(len(queries)))]

    @cached_property
    def _timeline(self) -> dict[float, dict[str, list[tuple[dict[str, str], dict[str, str]]]]]:
        """By minute: the labels and annotations of the alerts that fire, by name.

        One run of promtool for all alerts and times: each evaluates all rules.
        """
        instants = range(0, self.seconds + 1, STEP)
        cases = [{"alertname": name, "eval_time": f"{at}s"} for at in instants for name in ALERTS]
        timeline: dict[float, Any] = {at / 60: {} for at in instants}
        for name, time, got in _FIRING.findall(self._run(alert_rule_test=cases)):
            firing = [(_pairs(labels), _pairs(texts)) for labels, texts in _NOTIFIED.findall(got)]
            for labels, _ in firing:
                del labels["alertname"]
            timeline[_minutes(time)][name] = firing
        return timeline

    def history(self) -> Iterator[tuple[str, dict[str, str], list[tuple[float, float]]]]:
        """Each alert that fired with its labels, and the first and last minute of each time."""
        known: list[tuple[str, dict[str, str], list[tuple[float, float]]]] = []
        for at, found in self._timeline.items():
            for name, firing in found.items():
                for labels, _ in firing:
                    times = next((t for n, ls, t in known if (n, ls) == (name, labels)), None)
                    if times is None:
                        known.append((name, labels, [(at, at)]))
                    elif at - times[-1][1] <= STEP / 60:
                        times[-1] = times[-1][0], at
                    else:
                        times.append((at, at))
        yield from known

    @property
    def alerts(self) -> dict[str, list[tuple[float, float]]]:
        """The times of each alert by its name.

        It fails where an alert of a name has several sets of labels: each is a notification.
        """
        found: dict[str, list[tuple[float, float]]] = {}
        for name, labels, times in self.history():
            assert name not in found, (name, labels)
            found[name] = times
        return found

    def texts(self, alert: str, at: float) -> dict[str, str]:
        """The annotations of the only alert of this name that fires then."""
        ((_, texts),) = self.notified([alert], at)[alert]
        return texts

    def notified(
        self, alerts: Sequence[str], at: float
    ) -> dict[str, list[tuple[dict[str, str], dict[str, str]]]]:
        """The labels and annotations of the alerts of these names that fire then."""
        firing = self._timeline[at]
        return {name: firing[name] for name in alerts if name in firing}

    def _run(self, **cases: Any) -> str:
        test = {
            "interval": f"{STEP}s",
            "input_series": self._series,
            **{
                kind: [
                    {
                        **case,
                        **({"expr": _numbered(case["expr"], number)} if "expr" in case else {}),
                    }
                    for number, case in enumerate(listed)
                ]
                for kind, listed in cases.items()
            },
        }
        files = [str(path) for path in sorted(RULES.glob("*.yml"))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.yml"
            document = {"rule_files": files, "evaluation_interval": f"{STEP}s", "tests": [test]}
            path.write_text(json.dumps(document))
            command = ["promtool", "test", "rules", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ", err: " not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout + done.stderr


class Daemon:
    """A daemon that is scraped as ``instance``.

    Attributes:
        place: the labels of ``warmwatch_daemon_info``. clock: how far it is ahead, by the time.
        down: when a scrape of it fails. unread: when it cannot read its records.
        target: when it is a target of Prometheus at all.
    """

    def __init__(
        self,
        world: World,
        instance: str,
        *,
        host: str = "",
        pod: str = "",
        clock: Callable[[float], float] = lambda _: 0.0,
        lag: float = 0.0,
        down: Callable[[float], bool] = lambda _: False,
        unread: Callable[[float], bool] = lambda _: False,
        target: Callable[[float], bool] = lambda _: True,
        directory: str = "",
        job: str = "warmwatch",
    ) -> None:
        self._world, self.clock = world, clock
        self._target = {"instance": instance, "job": job}
        self.host = host or f"node-{instance}"
        self._gone = lambda at: down(at) or not target(at)
        self._unread = unread
        world.add("up", lambda at: float(not down(at)), lambda at: not target(at), **self._target)
        self.add("warmwatch_build_info", 1, version="1")
        place = {"daemon_namespace": "monitoring", "daemon_pod": pod} if pod else {}
        self.add("warmwatch_daemon_info", 1, daemon_host=self.host, **place)
        self.add("warmwatch_time_seconds", lambda at: at + clock(at) - lag)
        directory = directory or self.host
        self.add("warmwatch_source_up", lambda at: float(not unread(at)), source="records")
        self.add("warmwatch_record_directory_info", 1, directory="/run", directory_id=directory)

    def add(self, name: str, value: Value, **labels: str) -> None:
        self._world.add(name, value, self._gone, **self._target, **labels)

    def rank(
        self,
        run: str = "gpt2",
        rank: int = 0,
        states: Sequence[tuple[float, str]] = ((0, "warm"),),
        *,
        attached: float | Callable[[float], float] = 5.0,
        host: str = "",
        owner: str = "ada",
        world_size: int | None = None,
        timeout: float | None = None,
        conditions: Mapping[str, tuple[float, float]] | None = None,
        end: Labels | None = None,
        ended_at: float | None = None,
        is_end_known: Callable[[float], bool] = lambda _: True,
        oom: bool = False,
        restarts: bool = False,
        gpu: str = "",
        names: Labels | None = None,
        quiet_since: float | None = None,
        stall_limit: float = 60,
        steps: float | None = None,
        removed: float = math.inf,
    ) -> None:
        """Its series. ``states``: from which second on, each; ``conditions``: from when to when.

        A stall is at the last step; a compilation began with its state. ``ended_at``: when its last
        state began, if not when the daemon shows it. ``is_end_known``: when it shows that.
        ``restarts``: whether its torchrun may start it again. ``names``: what its cluster software
        calls it. ``quiet_since``: when it made its last step. ``stall_limit``: in seconds.
        ``steps``: their number, if it matters. ``removed``: from when on the daemon does not show
        it, since its retention is over.
        """
        who = {"run": run, "rank": str(rank)}
        life = _Life(states, ended_at, is_end_known)

        def add(name: str, value: Callable[[float], float | None], **labels: str) -> None:
            hidden = lambda at: not states[0][0] <= at < removed or self._unread(at)  # noqa: E731
            exists = lambda at: None if hidden(at) else value(at)  # noqa: E731
            self.add(f"warmwatch_{name}", exists, **who, **labels)

        for one in State:
            add("state", lambda at, name=one.value: life.shows(name, at), state=one.value)
        stamps = {
            "state_start": life.since,
            "attach": attached if callable(attached) else lambda _: attached,
            "compile_start": lambda at: life.since(at) if life.compiles(at) else None,
        }
        for name, stamp in stamps.items():
            add(f"{name}_timestamp_seconds", partial(self._shown, stamp))
        add("compiling", lambda at: float(life.compiles(at)))
        add("warm", lambda at: float(life.at(at)[1] in ("warm", "eager")))
        since = 1e9 if quiet_since is None else quiet_since
        add("last_step_age_seconds", lambda at: at - since if at >= since else life.quiet(at))
        known = {"host": host or self.host, "owner": owner, "launch": "0a1b", **(names or {})}
        add("run_info", lambda _: 1, **known)
        add("world_size", lambda _: world_size)
        living = lambda value: lambda at: None if life.is_over(at) else value  # noqa: E731
        add("collective_timeout_seconds", living(timeout), backend="nccl")
        add("stall_limit_seconds", living(stall_limit))
        add("steps_total", lambda _: steps)
        for name in CONDITIONS:
            held = (conditions or {}).get(name, (1.0, 0.0))
            add("condition", lambda at, h=held: float(h[0] <= at <= h[1]), condition=name)
        if end is not None:
            add("end_info", lambda at: 1 if life.is_over(at) else None, **end)
            add("oom_killed", lambda at: float(oom) if life.is_over(at) else None)
        if restarts:
            add("restart_possible", lambda at: 1 if life.is_over(at) else None)
        if gpu:
            add("rank_gpu_info", lambda at: None if life.is_over(at) else 1, uuid=gpu)

    def _shown(self, stamp: Callable[[float], float | None], at: float) -> float | None:
        """A moment by its clock of now, as a daemon exports it."""
        moment = stamp(at)
        return None if moment is None else moment + self.clock(at)


class _Life(NamedTuple):
    """The states of a rank over time; see :meth:`Daemon.rank`."""

    states: Sequence[tuple[float, str]]
    ended_at: float | None
    is_end_known: Callable[[float], bool]

    def at(self, at: float) -> tuple[float, str]:
        return [one for one in self.states if one[0] <= at][-1]

    def is_over(self, at: float) -> bool:
        return State(self.at(at)[1]) in ENDED

    def compiles(self, at: float) -> bool:
        return self.at(at)[1] in ("compiling", "recompiling")

    def shows(self, name: str, at: float) -> float | None:
        """A daemon exports the zeros of an ended rank for a while, if it knows when that ended."""
        since, now = self.at(at)
        if now == name:
            return 1
        zeros = self.is_end_known(at) and at - since <= FINAL_SECONDS
        return None if self.is_over(at) and not zeros else 0

    def since(self, at: float) -> float | None:
        began = self.at(at)[0]
        if not self.is_over(at):
            return began
        return (
            (began if self.ended_at is None else self.ended_at) if self.is_end_known(at) else None
        )

    def quiet(self, at: float) -> float | None:
        since, now = self.at(at)
        if self.is_over(at):
            return None
        return at - since + 60 if now == "stalled" else 1


_GOT = re.compile(r'expr: ".*?# (\d+)", time: .*?\n\s+exp: nil\s*\n\s+got: (.*)')
_FIRING = re.compile(r"alertname: (\w+), time: (\w+), ?\n(.*?)(?=\n    alertname: |\Z)", re.DOTALL)
_TIME = re.compile(r"(\d+)([hms])")
_NOTIFIED = re.compile(r"Labels:\{(.*)\}\n\s+Annotations:\{(.*)\}[,\s]")
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_SAMPLE = re.compile(r'(?:\w+:)*\w*(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}) (\S+?)(?:, |$)')


def _numbered(expr: str, number: int) -> str:
    """The expression with a comment by which its result is found in what promtool prints."""
    return f"{expr} # {number}"


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(value) for name, value in _PAIR.findall(text)}


def _samples(text: str) -> list[tuple[dict[str, str], float]]:
    return [(_pairs(labels), float(value)) for labels, value in _SAMPLE.findall(text)]


def _minutes(time: str) -> float:
    """`1h2m15s`, as promtool prints a time."""
    parts = {unit: int(number) for number, unit in _TIME.findall(time)}
    return parts.get("h", 0) * 60 + parts.get("m", 0) + parts.get("s", 0) / 60
