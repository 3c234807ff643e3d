"""What can be seen in the process of a training, written to ``report.json`` at its end.

``guest.json`` in its folder says what to do: ``training``, the script; ``agent``, the folder whose
``sitecustomize`` attaches it; ``attach``, the modules that attach it in a fork, which runs no
``sitecustomize``. The report is written by the exit handler that was registered first, and so runs
last. PyTorch is only looked at where the training has imported it.
"""

import atexit
import collections
import gc
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import threading
import traceback
import warnings
import weakref


def _state():
    """What the agent must leave as it is, by subject: lists of lines."""

    def digest(value):
        return hashlib.sha256(repr(value).encode()).hexdigest()[:16]

    frozen, enabled = gc.get_freeze_count() > 0, gc.isenabled()
    for _ in range(5):  # what finalizers release needs a further collection
        gc.collect()
    found = {
        "process": [
            f"{name}: {value}"
            for name, value in (
                ("collector", (enabled, frozen, gc.get_threshold(), gc.get_debug())),
                ("limit of recursion", sys.getrecursionlimit()),
                ("trace", (sys.gettrace(), sys.getprofile(), threading.gettrace())),
                ("switch interval", sys.getswitchinterval()),
                ("excepthook", (sys.excepthook, threading.excepthook, sys.unraisablehook)),
                ("handlers", [(int(n), signal.getsignal(n)) for n in signal.valid_signals()]),
                ("mask", sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))),
                ("timer", signal.getitimer(signal.ITIMER_REAL)),
                ("folder", os.getcwd()),
                ("filters of warnings", warnings.filters),
                ("threads", sorted(t.name for t in threading.enumerate())),
                ("flags", sys.flags),
            )
        ],
        "environment": [
            f"{name}={value}" for name, value in sorted(os.environ.items()) if name != "PYTHONPATH"
        ],
        "random state": [f"random: {digest(random.getstate())}"],
    }
    if "numpy.random" in sys.modules:  # a new Python seeds it by chance: only how much was drawn
        _, _, *drawn = sys.modules["numpy.random"].get_state()
        found["random state"].append(f"numpy: {drawn}")
    # The agent counts operations with their formulas; versions before 2.8 may not import them.
    formulas = {"torch.utils.flop_counter", "torch.utils.module_tracker"}
    own = {"warmwatch", "sitecustomize", *sys.stdlib_module_names}
    found["modules"] = [
        name for name in sorted({*sys.modules} - formulas) if name.partition(".")[0] not in own
    ]
    if "torch" in sys.modules:
        found |= _torch_state(sys.modules["torch"], digest)
    if "torch._dynamo.utils" in sys.modules:
        found |= _compiled(sys.modules["torch._dynamo.utils"])
    return found


def _torch_state(torch, digest):
    alive = collections.Counter()
    kinds = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    for one in gc.get_objects():
        kind = type(one)  # `isinstance` would call properties of the training
        if issubclass(kind, kinds) and not kind.__module__.startswith("torch._subclasses"):
            # swap_tensors() refuses a tensor with a weak reference
            held = f" {weakref.getweakrefcount(one)}" if issubclass(kind, torch.Tensor) else ""
            alive[f"{kind.__module__}.{kind.__qualname__}{held}"] += 1
    grad = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()
    hooks = sys.modules["torch.nn.modules.module"]
    state = {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "modes": grad,
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "module hooks": [len(v) for n, v in sorted(vars(hooks).items()) if n.endswith("_hooks")],
    }
    return {
        "random state of torch": [digest(torch.get_rng_state().tolist())],
        "torch": [f"{name}: {value}" for name, value in state.items()],
        "alive, with weak references": [f"{n} {name}" for name, n in sorted(alive.items())],
    }


# a config's text and times differ from run to run; so do what is measured and where a cache lies
_LEFT_OUT = ("_s", "_us", "_ms", "_ns", "_time", "_version", "_config", "_keys", "_times")


def _compiled(utils):
    counters = [
        f"{kind}: {name}: {count}"
        for kind, counts in sorted(utils.counters.items())
        for name, count in sorted((str(name), count) for name, count in counts.items())
    ]
    compilations = []
    for order, one in enumerate(utils.get_compilation_metrics()):
        values = {
            name: sorted(map(str, value)) if isinstance(value, (set, frozenset)) else value
            for name in type(one).__dataclass_fields__
            if not name.endswith(_LEFT_OUT)
            and name not in ("start_time", "frame_key")
            and (value := getattr(one, name)) is not None
        }
        head = f"{order}: {values.get('compile_id')} {values.get('co_name')}"
        compilations += [f"{head}: {name}: {value}" for name, value in values.items()]
    return {"counters": counters, "compilations": compilations}


def _report(path, pid):
    if pid != os.getpid():
        return  # a forked child
    try:
        found = _state()
    except BaseException:
        found = {"observer": [traceback.format_exc()]}
    with open(path + ".new", "w") as file:
        json.dump(found, file, default=str)
    os.rename(path + ".new", path)


def begin():
    """Attach the agent, if the order says so; returns the training's path and its code."""
    with open("guest.json") as file:
        order = json.load(file)
    atexit.register(_report, os.path.abspath("report.json"), os.getpid())
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].set_compilation_metrics_limit(100_000)
    path = order["training"]
    sys.argv[:] = [path]
    sys.path[0] = os.path.dirname(path)
    if order["attach"]:
        os.environ["PYTHONPATH"] = os.pathsep.join([order["agent"], os.environ["PYTHONPATH"]])
        sys.path.append(os.path.dirname(os.path.dirname(order["agent"])))
        for name in order["attach"]:
            importlib.import_module(name)
    random.seed(0)
    with open(path) as file:
        return path, compile(file.read(), path, "exec")
