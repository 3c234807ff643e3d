"""A Python that has imported a program's libraries, and forks a process for each program.

Imports take most of the time of a small training (PyTorch) and of a daemon (its web server). So all
workers of the tests share processes that have done them (``Preloaded``). The forked child becomes
the program; :func:`serve` returns only there. It has its own environment, folder, streams and
``sys.argv``, the script as ``__main__``, and the interpreter's own exit. So exit codes, signals,
``atexit`` and tracebacks are real. No preloaded Python has imported the agent, and the one for
``plain`` trainings has not imported Dynamo either.

A program that returns or calls ``sys.exit`` ends after its last exit handler, with those of the C
library: to free the modules of PyTorch would take half of the CPU time of a small training.
``finalizes`` leaves that in.

A child differs from a fresh Python in what the kernel reports: the command line and the environment
in ``/proc/PID``. Its libraries have already read their environment. So a program can be forked only
if its environment differs in nothing but variables that are read later (``OWN`` of a training,
``OWN_OF_COMPILER`` if the compiler is imported): see ``fits``.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType

from support.forked import Forked
from support.isolation import SHARED

TESTS = Path(__file__).resolve().parents[1]
_SERVE = """from support import preloaded
try: exec(preloaded.serve({!r}), globals())
except SystemExit as end: __import__("support.preloaded").preloaded.ended(end.code); raise
else: __import__("support.preloaded").preloaded.ended(0)
"""
_USABLE = b"usable"
_STREAMS = 4  # standard input, output and errors, and the socket for the end
_MOST = 1 << 17  # bytes of an order: mostly the environment
# includes what Dynamo imports, which takes longer than Dynamo itself
TORCH = ("torch", "sympy", "torch.distributed.fsdp", "torch.fx.experimental.symbolic_shapes")
# includes what Inductor imports when it first compiles; modules that this PyTorch lacks are skipped
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
    "torch.distributed.tensor.experimental",
    # of torch.utils.cpp_extension, which a training must import itself
    *("setuptools.command.build_ext", "sympy.physics.units", "sympy.tensor.tensor"),
)
# what `warmwatch serve` and most commands import
DAEMON = (
    *("warmwatch", "warmwatch_monitor.server.command", "warmwatch_monitor.server.api.app"),
    *("uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.on", "pynvml"),
    *("warmwatch_monitor.commands.check.command", "warmwatch_monitor.commands.modes.command"),
    *("warmwatch_monitor.commands.status", "warmwatch_monitor.commands.wait"),
)
# Variables that are read after the fork: by the agent, the monitor, the scenarios and pytest.
OWN_OF_DAEMON = ("WARMWATCH_", "PYTEST_", "XDG_", "TZ", "OTEL_", "NO_PROXY", "no_proxy")
# Variables that are read even where Inductor is imported already.
OWN_OF_COMPILER = (
    *(*OWN_OF_DAEMON, "SCENARIO_", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
)
# Variables that Dynamo and Inductor read when they are imported, too.
OWN = (*OWN_OF_COMPILER, "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_", "CXX")
_LOGS = ("TORCH_LOGS", "TORCH_TRACE")  # PyTorch has to read these again


class Preloaded:
    """A connection to the process that forks. The process ends with its last connection.

    The first worker that needs the process starts it. ``environment``: of that process.
    ``modules``: what it imports. ``own``: prefixes of the variables that a program may set itself.
    """

    def __init__(
        self, environment: Mapping[str, str], modules: Sequence[str], own: tuple[str, ...]
    ) -> None:
        self._environment, self._own = dict(environment), own
        self._orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        SHARED.mkdir(parents=True, exist_ok=True)
        given = sorted(one for one in environment.items() if not one[0].startswith(own))
        name = hashlib.sha256(repr((modules, own, given)).encode()).hexdigest()[:16]
        self._address, self._errors = SHARED / name, SHARED / f"{name}.stderr"
        with (SHARED / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._orders.connect(str(self._address))
            except OSError:  # not started, or it ended with its last connection
                self._start(modules)
                self._orders.connect(str(self._address))

    def _start(self, modules: Sequence[str]) -> None:
        self._address.unlink(missing_ok=True)
        paths = filter(None, [str(TESTS), self._environment.get("PYTHONPATH")])
        with (
            closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as clients,
            self._errors.open("w") as errors,
        ):
            clients.bind(str(self._address))
            clients.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE.format(tuple(modules))],
                stdin=clients,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**self._environment, "PYTHONPATH": os.pathsep.join(paths)},
            )

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a forked program can have this environment."""
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
        """Whether the process has imported no module that the training must import itself."""
        with suppress(ConnectionError):
            return self._orders.recv(len(_USABLE)) == _USABLE
        return False

    def start(
        self,
        script: Path,
        cwd: Path,
        env: Mapping[str, str],
        stderr: int | None = None,
        arguments: Sequence[str] = (),
        *,
        finalizes: bool = False,
    ) -> Forked:
        """Run ``script`` as ``python script arguments...`` does, in the folder ``cwd``.

        Its errors go to the file ``stderr``, or into a pipe. ``finalizes``: at its end, the
        interpreter frees all modules and objects.
        """
        reports, tells = socket.socketpair()
        (stdin, write), (read, stdout) = os.pipe(), os.pipe()
        errors, own = (None, stderr) if stderr is not None else os.pipe()
        order = {
            "argv": [str(script), *arguments],
            "cwd": str(cwd),
            "env": dict(env),
            "finalizes": finalizes,
        }
        given = [stdin, stdout, own, tells.fileno()]
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], given)
        finally:
            tells.close()
            for theirs in (stdin, stdout, *([] if errors is None else [own])):
                os.close(theirs)
        try:
            return Forked(reports, write, read, errors)
        except ValueError:  # no pid was sent
            raise AssertionError(f"no fork:\n{self._errors.read_text()}") from None


def serve(modules: Sequence[str]) -> CodeType:
    """Fork on each request until no client is left; run the script in the child.

    A single thread waits for a client, a request or the end of a child. A child must close the
    clients' sockets and the report sockets of the other children.
    """
    atexit.register(_end)  # before all imports: handlers that are registered later run before it
    if not _import(modules):
        sys.exit()
    (_,) = Path("/proc/self/task").iterdir()  # one thread: a fork would lose any other
    listener = socket.socket(fileno=os.dup(0))
    ready = select.poll()
    ready.register(listener, select.POLLIN)
    clients: dict[int, socket.socket] = {}
    children: dict[
        int, tuple[int, int]
    ] = {}  # pidfd -> pid, and the descriptor to report its end to
    while True:
        for number, _ in ready.poll():
            if number == listener.fileno():
                client, _ = listener.accept()
                with suppress(ConnectionError):  # the client is gone
                    client.send(_USABLE)
                clients[client.fileno()] = client
                ready.register(client, select.POLLIN)
                continue
            if number in children:
                _tell_end(number, *children.pop(number), ready)
                continue
            order, streams = b"", list[int]()
            with suppress(ConnectionError):  # the client is gone and left data unread
                order, streams, _, _ = socket.recv_fds(clients[number], _MOST, _STREAMS)
            if not order:
                ready.unregister(number)
                clients.pop(number).close()
                if not clients:
                    sys.exit()
                continue
            tells = streams.pop()
            if not (pid := os.fork()):
                own = [
                    *(one.detach() for one in (listener, *clients.values())),
                    tells,
                    *children,
                    *(reports for _, reports in children.values()),
                ]
                for descriptor in own:
                    os.close(descriptor)
                return _become(streams, **json.loads(order))
            with suppress(BrokenPipeError):  # the client is gone
                os.write(tells, f"{pid}\n".encode())
            for stream in streams:
                os.close(stream)
            children[handle := os.pidfd_open(pid)] = pid, tells
            ready.register(handle, select.POLLIN)


def _import(modules: Sequence[str]) -> bool:
    """Import them; returns whether nothing was imported that a training must import itself."""
    os.environ["TORCH_WARM_POOL"] = "0"  # else 2.6 starts compile workers and a thread on import
    for module in modules:
        with suppress(ImportError):
            import_module(module)
    if "torch" in modules:
        import_module("torch").set_num_threads(1)
    unseen = {"torch", "torch._dynamo", "torch.utils.cpp_extension", "triton", "warmwatch"}
    unseen -= {*modules}
    if "torch._dynamo" in modules:
        _begin_to_compile()
        unseen.discard("triton")  # Inductor imports it if it is installed, as CUDA builds require
    gc.freeze()  # else a collection in each child copies the pages of all objects
    return not unseen & {*sys.modules}  # some versions of PyTorch import more


def _begin_to_compile() -> None:
    """Do what Inductor does once in a process before it compiles, if that starts no thread.

    The hash of PyTorch's source for the keys of the caches, and the patterns that it looks for.
    """
    from torch._inductor import config
    from torch._inductor.codecache import torch_key
    from torch._inductor.fx_passes import serialized_patterns

    if config.cpp.vec_isa_ok is None:
        config.cpp.vec_isa_ok = True  # 2.6 does not read TORCHINDUCTOR_VEC_ISA_OK
    torch_key()
    for pattern in iter_modules(serialized_patterns.__path__, f"{serialized_patterns.__name__}."):
        import_module(pattern.name)


def _tell_end(handle: int, pid: int, tells: int, ready: select.poll) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # the client is gone
        os.write(tells, f"{status}\n".encode())
    ready.unregister(handle)
    os.close(handle)
    os.close(tells)


_exit_code: int | None = None  # of a program that ended in an ordinary way
_finalizes = False


def ended(code: object) -> None:
    """Called when the program has returned or called ``sys.exit``."""
    global _exit_code
    code = code or 0
    if not _finalizes and isinstance(code, int) and 0 <= code < 256:  # not an error text
        _exit_code = code


def _end() -> None:
    """Skip the interpreter's teardown, but not the exit of the C library.

    The agent's exit status is written there. The interpreter lock is kept (``PyDLL``), so no other
    thread runs Python code meanwhile.
    """
    if _exit_code is None:
        return
    with suppress(OSError, ValueError):  # closed or full: the interpreter reports it
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.PyDLL(None).exit(_exit_code)


def _become(
    streams: list[int], argv: list[str], cwd: str, env: dict[str, str], *, finalizes: bool
) -> CodeType:
    """Turn this process into ``python`` with ``argv``: a script and its arguments."""
    global _finalizes
    _finalizes = finalizes
    script = argv[0]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if "triton" in sys.modules:  # that of PyTorch 2.15 reports at the end what is frozen as leaked
        atexit.register(gc.unfreeze)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv[:] = argv
    sys.path[0] = str(Path(script).parent)
    main = vars(sys.modules["__main__"])
    del main["preloaded"]
    main |= {"__file__": script, "__cached__": None}
    if any(name in env for name in _LOGS):
        logs = import_module("torch._logging._internal")
        logs.LOG_TRACE_HANDLER = None  # else PyTorch keeps the handler, which has no folder
        logs._init_logs()
    return compile(Path(script).read_text(), script, "exec")
