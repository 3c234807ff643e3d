"""Attaches the agent when PyTorch is imported, in every Python process under ``warmwatch run``.

``warmwatch run`` puts this folder on ``PYTHONPATH``. Python processes of any version load this
file. So it is valid in all of them, and does nothing in versions that the agent does not support.
It removes its folder from ``sys.path`` and then runs the next ``sitecustomize``, if any, under that
name. So a process without PyTorch behaves as if this file did not exist.
"""

import os
import sys

_COMPILERS = (  # programs of PyTorch that import torch and do not train
    os.path.join("torch", "_inductor", ""),
    "torch._inductor.",
    "torch.distributed.run",
    "torch.distributed.launch",
)


class _UntilTorch(object):
    """A finder that finds nothing, and attaches when ``torch`` or ``triton`` is looked up.

    It stays in ``sys.meta_path``: removing it during the lookup would skip the next finder.
    """

    waits = True

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - import's protocol
        if self.waits and name in ("torch", "triton"):
            self.waits = False
            _attach()


class _PackageFinder(object):
    """Finds the package ``warmwatch``, and no other module of its folder, if no finder else did."""

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
        if not _is_helper() and _is_found():
            import warmwatch.lifecycle.launched  # noqa: F401
    except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
        _complain("warmwatch: could not attach (%r); the training goes on\n" % (error,))


def _is_found():
    """Whether ``import warmwatch`` finds the package, and nothing of the program's.

    The package comes before a folder of that name, such as a checkout next to the script. A module
    of that name may be the script itself, which would run a second time.
    """
    from importlib.machinery import PathFinder

    item = PathFinder.find_spec("warmwatch")
    if item is None:
        return True
    if item.origin is None:  # a namespace package
        sys.meta_path.insert(0, _PackageFinder())
    elif item.submodule_search_locations is None:
        _complain(
            "warmwatch: not attached: %s has the name of warmwatch's package; rename it\n"
            % item.origin
        )
        return False
    return True


def _complain(line):
    try:  # noqa: SIM105 - Python 2 has no contextlib.suppress
        sys.stderr.write(line)
    except (AttributeError, OSError, ValueError):
        pass  # None, full or closed


def _is_helper():
    """Whether this process runs one of PyTorch's own programs."""
    arguments = iter(sys.orig_argv[1:])
    for word in arguments:
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(arguments, None)
        elif word == "-m":
            return next(arguments, "").startswith(_COMPILERS[1:])
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
    sys.meta_path.append(_PackageFinder())

_this = sys.modules.pop(__name__)  # a reference: Python 2 clears the globals of a freed module
import sitecustomize  # noqa: E402, F401 - the next one; Python ignores the error if there is none
