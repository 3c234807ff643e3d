"""A Prometheus server as a data source: what many daemons last reported.

This module only reads the samples; ``assembly.py`` interprets them. Prometheus returns the last
sample of five minutes unless a target is gone, so samples of a dead daemon do not appear.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

import msgspec
from msgspec import Struct

from warmwatch_monitor.base.access import ANYBODY, Access
from warmwatch_monitor.base.errors import FleetError
from warmwatch_monitor.figures.compile import Compile, Counted, OpenActivity
from warmwatch_monitor.figures.rank import LimitedBy, Slower
from warmwatch_monitor.figures.training import Pauses, Warmup
from warmwatch_monitor.model import Memory, Progress, Sample, Steps, Stretch, Who
from warmwatch_monitor.sources.fleet.samples import CLOCK_BEHIND, GPU_NAMES, names

# The series that an answer needs, without the prefix. Others, such as buckets, are not fetched.
_ONE_HOT = ("state", "compile_phase", "condition", "compile_disabled", "limited_by")
_FIGURES = (
    *(Compile, OpenActivity, Counted, Stretch, Progress, Steps, Warmup, Who, Memory, Pauses),
    *(Slower, LimitedBy),
)
_RANK_NAMES = (
    *(name for struct in _FIGURES for name in names(struct) if name not in _ONE_HOT),
    *("clean_steps", "compile_workers", "steady_step_seconds"),
    *("step_seconds_count", "step_seconds_sum"),
    *("run_info", "rank_gpu_info", "end_info", "oom_killed"),
)
# How far the clock of a host is behind the server's.
_CLOCKS = (
    "label_replace(max by (instance) (timestamp(warmwatch_time_seconds) - warmwatch_time_seconds), "
    f'"__name__", "warmwatch_{CLOCK_BEHIND}", "", "")'
)
_OF_ANYBODY = "(@[^@]+)?"  # the suffix of a run's own name, see ``Owner.shown``
_TIMEOUT_SECONDS = 30.0
_LARGEST_REPLY = 256 << 20  # bytes; 10,000 ranks have about 100 MB
_MOST_SERIES = 2_000_000  # 10,000 ranks have about 600,000
_OF_EACH = b'"metric"'  # of each series in an answer
_LARGEST = 2.0**63  # decades in nanoseconds; no series of ours comes near it


class PrometheusSource:
    """Queries the Prometheus at ``url``, such as ``http://host:9090``; the URL may have a path."""

    def __init__(self, url: str, access: Access = ANYBODY) -> None:
        self._url, self._access = url.rstrip("/"), access

    def read(self, run: str | None = None) -> tuple[Sample, ...]:
        """The last samples of every rank and its GPUs, or only those of the runs named ``run``.

        ``run`` is a public name, or an own name of any user's runs.

        Raises:
            FleetError: it cannot be reached, or does not answer like Prometheus. UsageError:
            the credentials cannot be read.
        """
        return tuple(sample for query in queries(run) for sample in self._ask(query))

    def _ask(self, query: str) -> Iterator[Sample]:
        form = urllib.parse.urlencode({"query": query}).encode()
        request = urllib.request.Request(f"{self._url}/api/v1/query", data=form)  # noqa: S310 - checked
        if who := self._access.authorization():
            request.add_unredirected_header("Authorization", who)  # not sent on a redirect
        tls = self._access.tls() if self._url.startswith("https:") else None
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=_TIMEOUT_SECONDS, context=tls
            ) as reply:
                body = reply.read(_LARGEST_REPLY + 1)
                if len(body) > _LARGEST_REPLY:
                    raise ValueError(f"its answer is larger than {_LARGEST_REPLY >> 20} MiB")
        except urllib.error.HTTPError as error:
            advice = _CREDENTIALS if error.code == UNAUTHORIZED else _OTHER
            raise FleetError(f"{self._url} answers with HTTP {error.code}; {advice}") from None
        except (OSError, ValueError, HTTPException) as error:
            cause = getattr(error, "reason", None) or error  # what a URLError wraps
            why = getattr(cause, "strerror", None) or cause
            raise FleetError(
                f"{self._url} does not answer as Prometheus: {why}; {_OTHER}"
            ) from None
        yield from samples(body, self._url)


UNAUTHORIZED = 401
_CREDENTIALS = "give --token-file or --user-file with its credentials"
_OTHER = "give the address of a Prometheus server, such as http://prometheus:9090"


def queries(run: str | None) -> Iterator[str]:
    which = "" if run is None else f",run=~{json.dumps(re.escape(run) + _OF_ANYBODY)}"
    yield f"{{__name__=~{_names('', _ONE_HOT)}{which}}} == 1"
    yield f"{{__name__=~{_names('', _RANK_NAMES)}{which}}}"
    rank_gpus = f"warmwatch_rank_gpu_info{{{which.removeprefix(',')}}}"
    yield f"{{__name__=~{_names('gpu_', GPU_NAMES)}}} and on (uuid) {rank_gpus}"
    yield _CLOCKS


def _names(prefix: str, names: tuple[str, ...]) -> str:
    return f'"warmwatch_{prefix}({"|".join(names)})"'


class _Series(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Result(Struct):
    result: list[_Series]


class _Answer(Struct):
    status: str
    data: _Result


def samples(body: bytes, url: str) -> Iterator[Sample]:
    """The samples of an answer, without values that are not finite or out of range.

    Raises:
        FleetError: it is not an answer from Prometheus.
    """
    try:
        if body.count(_OF_EACH) > _MOST_SERIES:
            raise FleetError(
                f"{url} answers with more than {_MOST_SERIES:,} series; name one run, or ask a "
                "Prometheus server of fewer hosts"
            )
        samples = [_sample(series) for series in _result(body)]
    except (ValueError, LookupError, RecursionError, msgspec.MsgspecError):
        raise FleetError(f"{url} does not answer as Prometheus; {_OTHER}") from None
    return (sample for sample in samples if abs(sample.value) < _LARGEST)  # which NaN is not


def _result(body: bytes) -> list[_Series]:
    answer = msgspec.json.decode(body, type=_Answer)
    if answer.status != "success":
        raise ValueError("not a success")
    return answer.data.result


def _sample(series: _Series) -> Sample:
    name = series.metric.pop("__name__").removeprefix("warmwatch_")
    return Sample(name=name, labels=series.metric, value=float(series.value[1]))
