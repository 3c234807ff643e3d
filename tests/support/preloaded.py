"""A Python that has imported PyTorch, and forks for each training instead of starting one anew.

Most of what a small training costs is the import of PyTorch. So each worker of the tests has one
process that did it (``Preloaded``). What it forks becomes the training (:func:`serve` returns in it
alone): with its own environment, folder, streams and ``sys.argv``, the script as ``__main__``, and
the interpreter's own end, so exit codes, signals, ``atexit`` and what is printed of an exception
are real. Neither Dynamo nor the agent is imported before: a training meets both as one does that
says ``import torch, warmwatch.auto``.

What differs from a Python started anew is what the kernel knows of the program: its command line
and the environment in ``/proc/PID``. And PyTorch has read its environment already: a training whose
own differs in more than ``OWN``, or with the compiler ``OWN_OF_COMPILER``, cannot be forked from it
(``fits``).
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import CodeType

_SERVE = "from support import preloaded; exec(preloaded.serve({!r}), globals())"
_USABLE = b"usable"
_MOST = 1 << 17  # bytes of an order, which are those of the environment mostly
# with what Dynamo imports besides itself, which costs more than it does
TORCH = ("torch", "sympy", "torch.distributed.fsdp", "torch.fx.experimental.symbolic_shapes")
# with what it imports when it first compiles; what of it this PyTorch does not have is left out
COMPILER = (
    *TORCH,
    "torch._dynamo",
    "torch._dynamo.backends.inductor",
    "torch._inductor.compile_fx",
    "torch._inductor.choices",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.fx_passes.serialized_patterns.addmm_pattern",
    "torch.distributed.tensor.experimental",
)
# Variables that are read after the fork: by the agent, the scenarios, Inductor and pytest.
OWN = ("WARMWATCH_", "SCENARIO_", "TORCHINDUCTOR_", "TRITON_", "CXX", "PYTEST_CURRENT_TEST")
# Variables that are read even where Inductor is imported already.
OWN_OF_COMPILER = (
    *("WARMWATCH_", "SCENARIO_", "PYTEST_CURRENT_TEST"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
)
_LOGS = ("TORCH_LOGS", "TORCH_TRACE")  # PyTorch is told to read these anew


class Forked:
    """A process that a preloaded one forked, to be used as a ``subprocess.Popen`` is."""

    def __init__(self, told: socket.socket, stdin: int, stdout: int) -> None:
        self._told = told.makefile("r")
        told.close()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self.returncode: int | None = None
        self.pid = int(self._told.readline())
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended already
            self._handle = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Its exit code; of one that a signal killed, the signal's number below 0."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(int(self._told.readline()))
            self._told.close()
            if self._handle is not None:
                os.close(self._handle)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To this process, and never to a later one with its pid."""
        if self.poll() is None and self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Preloaded:
    """The process that forks. It was started with ``environment``, and ends with this one.

    ``modules``: imported in it. ``own``: how the names of variables begin that a training may have.
    """

    def __init__(
        self, environment: Mapping[str, str], modules: Sequence[str], own: tuple[str, ...]
    ) -> None:
        self._environment, self._own = dict(environment), own
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it closes with us
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE.format(tuple(modules))],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=self._environment,
            )
        atexit.register(self._end)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether what it forks can have this environment."""
        if not self._usable:
            return False
        names = {*environment, *self._environment} - {*_LOGS}
        return not any(
            environment.get(name) != self._environment.get(name)
            for name in names
            if not name.startswith(self._own)
        )

    @cached_property
    def _usable(self) -> bool:
        """Whether this PyTorch leaves to the training what it is to meet itself."""
        return self._orders.recv(len(_USABLE)) == _USABLE

    def start(self, script: Path, cwd: Path, env: Mapping[str, str], stderr: int) -> Forked:
        """Run ``script`` as ``python script`` does, in the folder ``cwd``."""
        told, tells = socket.socketpair()
        (stdin, write), (read, stdout) = os.pipe(), os.pipe()
        order = {"script": str(script), "cwd": str(cwd), "env": dict(env)}
        given = [stdin, stdout, stderr, tells.fileno()]
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], given)
        finally:
            tells.close()
            os.close(stdin)
            os.close(stdout)
        try:
            return Forked(told, write, read)
        except ValueError:  # nobody told a pid
            self._errors.seek(0)
            raise AssertionError(f"no fork:\n{self._errors.read().decode()}") from None

    def _end(self) -> None:
        self._orders.close()
        self.process.wait()
        self._errors.close()


def serve(modules: Sequence[str]) -> CodeType:
    """Fork whenever it is ordered, until nobody can order any more; the script, in what is forked.

    One thread alone, which waits for an order or the end of a child. What a child must not keep
    open are the orders, and what the tests are told of the others.
    """
    for module in modules:
        with suppress(ImportError):
            import_module(module)
    import torch

    torch.set_num_threads(1)
    unseen = {"torch.utils.cpp_extension", "triton", "warmwatch"}
    unseen |= {"torch._dynamo"} - {*modules}
    (_,) = Path("/proc/self/task").iterdir()  # else a thread would be missing in what is forked
    orders = socket.socket(fileno=os.dup(0))
    if unseen & {*sys.modules}:  # as some versions of PyTorch import more
        sys.exit()
    orders.send(_USABLE)
    ready = select.poll()
    ready.register(orders, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}  # pidfd -> pid, and where its end is told
    while True:
        for number, _ in ready.poll():
            if number != orders.fileno():
                _tell_end(number, *children.pop(number), ready)
                continue
            order, streams, _, _ = socket.recv_fds(orders, _MOST, 4)
            if not order:
                sys.exit()
            tells = streams.pop()
            if not (pid := os.fork()):
                own = [orders.detach(), tells, *children, *(told for _, told in children.values())]
                for descriptor in own:
                    os.close(descriptor)
                return _become(streams, **json.loads(order))
            os.write(tells, f"{pid}\n".encode())
            for stream in streams:
                os.close(stream)
            children[handle := os.pidfd_open(pid)] = pid, tells
            ready.register(handle, select.POLLIN)


def _tell_end(handle: int, pid: int, tells: int, ready: select.poll) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody asks any more
        os.write(tells, f"{status}\n".encode())
    ready.unregister(handle)
    os.close(handle)
    os.close(tells)


def _become(streams: list[int], script: str, cwd: str, env: dict[str, str]) -> CodeType:
    """Make this process what ``python script`` is."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)
    main = vars(sys.modules["__main__"])
    del main["preloaded"]
    main |= {"__file__": script, "__cached__": None}
    if any(name in env for name in _LOGS):
        logs = import_module("torch._logging._internal")
        logs.LOG_TRACE_HANDLER = None  # else it keeps the folder that it has, which is none
        logs._init_logs()
    return compile(Path(script).read_text(), script, "exec")
