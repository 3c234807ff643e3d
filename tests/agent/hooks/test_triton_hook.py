"""What the Triton hook reports, and that kernels behave the same with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from support import triton_standin
from warmwatch import _guard
from warmwatch.hooks.compilers import triton_kernels
from warmwatch.hooks.phases import TRITON_COMPILE as COMPILE
from warmwatch.hooks.phases import TRITON_TUNE as TUNE
from warmwatch.hooks.points import Installed

HALF, FLOAT = (SimpleNamespace(dtype=name) for name in ("fp16", "fp32"))
BUILD = [("begin", COMPILE), ("end", COMPILE)]  # the C compiler's part


class Listener:
    """Records the calls of the hook."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.compiled: list[dict[str, Any]] = []
        self.raises = False
        self.refuses: Exception | None = None

    def refusal(self, of: Mapping[str, Any]) -> Exception | None:
        return self.refuses and type(self.refuses)(of["name"])

    def begin(self, event: str, _of: Mapping[str, Any]) -> None:
        if self.raises:
            raise RuntimeError("ours")
        self.calls.append(("begin", event))

    def end(self, event: str) -> None:
        self.calls.append(("end", event))

    def post(self, fact: str, values: Mapping[str, Any]) -> None:
        if fact == "counted":
            self.calls.append((fact, values["counter"]))
            return
        if fact == "recompile":
            self.calls.append(("again", values["reason"], values["category"], values["name"]))
            return
        self.calls.append((values["kind"], values["name"]))
        self.compiled.append(
            {k: v for k, v in values.items() if k not in ("kind", "seconds", "file", "line")}
        )


@pytest.fixture(name="triton")
def _triton(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return triton_standin.install(monkeypatch)


@pytest.fixture(name="errors")
def _errors() -> Iterator[list[str]]:
    errors: list[str] = []
    _guard.connect(lambda where, _error: errors.append(where))
    yield errors
    _guard.connect(None)


def install(listener: Listener) -> Installed:
    return triton_kernels.install(listener)  # type: ignore[arg-type]


def scale(x: Any, n: Any, block: Any) -> None:
    """A kernel's function."""


def test_a_kernel_is_reported_once_with_its_name_and_cache_result(
    triton: SimpleNamespace,
) -> None:
    listener = Listener()
    install(listener)
    for _ in range(3):
        triton.JITFunction(scale).run(
            FLOAT, 4, 128
        )  # the second time for example another process's
    first, *others = listener.compiled
    assert first == {"name": "scale", "cache": "miss"}
    assert others == [{"name": "scale", "cache": "hit"}] * 2
    assert listener.calls[:6] == [
        ("begin", COMPILE),
        ("counted", "cache_misses.triton"),
        ("triton", "scale"),
        ("end", COMPILE),
        *BUILD,
    ]


def test_a_recompile_reports_its_reason(triton: SimpleNamespace) -> None:
    listener = Listener()
    install(listener)
    kernel = triton.JITFunction(scale)
    kernel.run(FLOAT, 4, 128)
    kernel.run(FLOAT, 8, 128)  # another size is no other kernel
    kernel.run(HALF, 4, 128)
    again = "x: expected *fp32, actual *fp16"
    assert ("again", again, "dtype", "scale") in listener.calls
    assert listener.compiled[1:] == [
        {"name": "scale", "cache": "miss", "reason": again, "category": "dtype"}
    ]


def test_a_refused_kernel_is_not_compiled(triton: SimpleNamespace) -> None:
    """``attach(after_warm="raise")``: the launch raises, and nothing of it was compile activity."""
    listener = Listener()
    install(listener)
    kernel = triton.JITFunction(scale)
    kernel.run(FLOAT, 4, 128)
    calls = list(listener.calls)
    listener.refuses = RuntimeError()
    kernel.run(FLOAT, 4, 128)
    with pytest.raises(RuntimeError, match="scale"):
        kernel.run(HALF, 4, 128)
    assert listener.calls == calls


@pytest.mark.parametrize("lost", [False, True])
def test_a_nested_compilation_does_not_change_the_outer_kernel(
    triton: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """``lost``: a signal handler raised before the end of the inner one."""
    inner, listener = triton.JITFunction(scale), Listener()

    def outer() -> None: ...

    def make_ir(source: Any) -> None:
        if source.fn is not inner:
            with suppress(KeyboardInterrupt):
                inner.run(FLOAT, 4, 128)

    def ends(reporter: Any, source: Any, error: BaseException | None) -> None:
        if lost and source.fn is inner:
            raise KeyboardInterrupt
        original(reporter, source, error)

    original = triton_kernels._Reporter.compile_ends
    monkeypatch.setattr(triton_kernels._Reporter, "compile_ends", ends)
    monkeypatch.setattr(triton.ASTSource, "make_ir", make_ir)
    install(listener)
    triton.JITFunction(outer).run(FLOAT, 4, 128)
    named = [(one["name"], one["cache"]) for one in listener.compiled]
    assert named == ([("outer", "miss")] if lost else [("scale", "miss"), ("outer", "miss")])
    calls = [one[0] for one in listener.calls]
    assert calls.count("begin") == calls.count("end")


def test_a_tuning_is_one_compilation_with_all_its_configurations(triton: SimpleNamespace) -> None:
    """The next size is another one: its kernels exist already, so no kernel is built."""
    listener = Listener()
    install(listener)
    tuned = triton.Autotuner(triton.JITFunction(scale), (64, 128))
    for n in (4, 4, 8):
        tuned.run(FLOAT, n)
    trial = [("begin", COMPILE), ("counted", "cache_misses.triton"), ("end", COMPILE), *BUILD]
    again = ("again", "n: expected 4, actual 8", "shape", "scale")
    assert listener.calls == [
        *[("begin", TUNE), *trial, *trial, ("triton", "scale"), ("end", TUNE)],
        *[("begin", TUNE), again, ("triton", "scale"), ("end", TUNE)],
    ]
    assert listener.compiled == [
        {"name": "scale", "cache": "miss"},
        {"name": "scale", "reason": again[1], "category": "shape"},
    ]


def test_a_kernel_that_does_not_compile_raises_and_is_a_failure(triton: SimpleNamespace) -> None:
    listener = Listener()
    install(listener)
    with pytest.raises(ValueError, match="does not compile"):
        triton.JITFunction(scale).run(FLOAT, 4, 0)
    assert listener.compiled == [{"name": "scale", "failure": "ValueError"}]
    assert listener.calls[-1] == ("end", COMPILE)


def test_an_error_of_the_agent_is_counted_and_the_kernel_is_compiled(
    triton: SimpleNamespace, errors: list[str]
) -> None:
    listener = Listener()
    install(listener)
    listener.raises = True
    kernel = triton.JITFunction(scale)
    triton.Autotuner(kernel, (64, 128)).run(FLOAT, 4)
    assert len(kernel.cache) == 2
    assert set(errors) == {"hooks.triton"}


def test_uninstalling_restores_every_hook_point(triton: SimpleNamespace) -> None:
    """A wrapper that a kernel has bound in the meantime reports no event."""

    def hook_points() -> list[Any]:
        methods = (triton.Autotuner._bench, triton.Autotuner.prune_configs)
        others = (triton.ASTSource.make_ir, triton.JITFunction._do_compile, triton.build._build)
        return [triton.compiler.compile, *methods, *others]

    before, listener = hook_points(), Listener()
    installed = install(listener)
    assert all(a is not b for a, b in zip(before, hook_points(), strict=True))
    kernel = triton.JITFunction(scale)
    kernel.run(FLOAT, 4, 128)
    installed.uninstall()
    assert hook_points() == before
    calls = list(listener.calls)
    kernel.run(FLOAT, 4, 256)
    assert listener.calls == calls
