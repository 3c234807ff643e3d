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

from warmwatch_monitor.access import ANYBODY, Access
from warmwatch_monitor.errors import FleetError
from warmwatch_monitor.model import Sample

# The series that an answer needs, without the prefix. Others, such as buckets, are not fetched.
_RANK_NAMES = (
    *("state_start_timestamp_seconds", "clean_steps", "attach_timestamp_seconds", "world_size"),
    *("compile_start_timestamp_seconds", "compile_end_timestamp_seconds"),
    "compiling_start_timestamp_seconds",
    *("compile_seconds_total", "compilations_total", "graphs_total", "graph_breaks_total"),
    *("compile_failures_total", "compile_fallbacks_total", "recompiles_total"),
    *("recompiles_after_warm_total", "compile_cache_hits_total", "compile_cache_misses_total"),
    *("compile_workers", "warmup_seconds", "warmup_steps", "warmup_end_timestamp_seconds"),
    *("steps_total", "last_step_timestamp_seconds", "steady_step_seconds", "stall_limit_seconds"),
    *("step_seconds_count", "step_seconds_sum"),
    *("run_info", "rank_gpu_info", "end_info", "oom_killed"),
    *("tokens_total", "samples_total"),
    *("compile_wrappers_total", "cudagraph_skips_total", "torch_memory_bytes"),
    *("compile_progress_done", "compile_progress_planned"),
    *("batches_total", "data_wait_seconds_total", "last_batch_timestamp_seconds"),
    *("recent_step_seconds", "last_step_age_seconds", "slower_ratio", "slower_before_seconds"),
    *("compile_limit_seconds", "collective_timeout_seconds"),
    *("checkpoint_seconds_total", "checkpoint_start_timestamp_seconds"),
    *("evaluation_seconds_total", "evaluation_start_timestamp_seconds", "evaluations_total"),
    *("between_cells_start_timestamp_seconds", "limited_share_ratio"),
)
_ONE_HOT = ("state", "compile_phase", "condition", "compile_disabled", "limited_by")
_GPU_NAMES = (
    *("utilization_ratio", "power_watts", "power_limit_watts"),
    *("sm_active_ratio", "tensor_active_ratio"),
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
        return tuple(sample for query in _queries(run) for sample in self._ask(query))

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


def _queries(run: str | None) -> Iterator[str]:
    which = "" if run is None else f",run=~{json.dumps(re.escape(run) + _OF_ANYBODY)}"
    yield f"{{__name__=~{_names('', _ONE_HOT)}{which}}} == 1"
    yield f"{{__name__=~{_names('', _RANK_NAMES)}{which}}}"
    rank_gpus = f"warmwatch_rank_gpu_info{{{which.removeprefix(',')}}}"
    yield f"{{__name__=~{_names('gpu_', _GPU_NAMES)}}} and on (uuid) {rank_gpus}"


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
        found = [_sample(one) for one in _result(body)]
    except (ValueError, LookupError, RecursionError, msgspec.MsgspecError):
        raise FleetError(f"{url} does not answer as Prometheus; {_OTHER}") from None
    return (sample for sample in found if abs(sample.value) < _LARGEST)  # which NaN is not


def _result(body: bytes) -> list[_Series]:
    answer = msgspec.json.decode(body, type=_Answer)
    if answer.status != "success":
        raise ValueError("not a success")
    return answer.data.result


def _sample(one: _Series) -> Sample:
    name = one.metric.pop("__name__").removeprefix("warmwatch_")
    return Sample(name=name, labels=one.metric, value=float(one.value[1]))
