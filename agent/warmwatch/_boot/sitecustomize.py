"""What ``warmwatch run`` brings into each Python below it: attach when PyTorch is imported.

Every Python reads this that has the folder in its ``PYTHONPATH``, of any version: so it is written
for all of them, and does nothing in those that the agent does not support. It leaves no trace where
nothing is attached: its folder leaves ``sys.path``, and the ``sitecustomize`` that would have run
without it runs in its own name, or none, as if this one did not exist.
"""

import os
import sys

_COMPILERS = (  # programs of PyTorch's own, which import torch and train nothing
    os.path.join("torch", "_inductor", ""),
    "torch._inductor.",
    "torch.distributed.run",
    "torch.distributed.launch",
)


class _UntilTorch(object):
    """A finder that finds nothing: it attaches when somebody looks for what may compile.

    It stays where it is: to take it away while finders are asked would pass over the next one.
    """

    waits = True

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - import's protocol
        if self.waits and name in ("torch", "triton"):
            self.waits = False
            _attach()


class _Brought(object):
    """Finds our package, and nothing else beside it, where nobody else finds one of that name."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        if name != "warmwatch":
            return None
        from importlib.util import spec_from_file_location

        package = os.path.dirname(_HERE)
        return spec_from_file_location(
            name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )


def _attach():
    try:
        if not _is_helper():
            _bring_past_folders()
            import warmwatch.lifecycle.launched  # noqa: F401
    except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
        _complain("warmwatch: could not attach (%r); the training goes on\n" % (error,))


def _bring_past_folders():
    """A mere folder of our name beside the script, such as a checkout, is no package."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec("warmwatch")
    if found is not None and found.origin is None:  # a namespace package
        sys.meta_path.insert(0, _Brought())


def _complain(line):
    try:  # noqa: SIM105 - contextlib takes its time, and is another one in Python 2
        sys.stderr.write(line)
    except (AttributeError, OSError, ValueError):
        pass  # it is none, full or closed: there is nowhere to say it


def _is_helper():
    """Whether the program that runs is PyTorch's own."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
        elif word == "-m":
            return next(words, "").startswith(_COMPILERS[1:])
        elif not word.startswith("-"):
            return _COMPILERS[0] in word
        elif word.startswith("-c"):
            return False
    return False


def _is_off():
    return os.environ.get("WARMWATCH_DISABLE", "").lower() in ("1", "true", "yes", "on")


_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_place for _place in sys.path if _place != _HERE]
if sys.version_info >= (3, 10) and not _is_off():
    sys.meta_path.insert(0, _UntilTorch())
    sys.meta_path.append(_Brought())

_kept = sys.modules.pop(__name__)  # Python 2 would take a module's names away with the module
import sitecustomize  # noqa: E402, F401 - the next one; without one, Python passes over the error
