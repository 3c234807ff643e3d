"""``g++`` with a cache, as Inductor calls it in the tests.

This compiler takes most of the time of a small compiled training, and the tests train the same
models again and again. Inductor, its caches and PyTorch's counters behave as without the cache. The
cache key is the source, the arguments and the compiler; the objects are in .cache/objects of the
repository. A test that needs the real compiler sets COLD. With CXX=g++, Inductor would precompile
its header once more, which takes longer than the kernels.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "objects"
COLD = "SCENARIO_COLD"  # environment variable: compile also what is in the cache


def main(arguments: list[str]) -> int:
    """Its exit code."""
    real = shutil.which("g++")
    if real is None:
        sys.exit("g++: not found")
    sources = [one for one in arguments if one.endswith(".cpp")]
    if len(sources) != 1 or "-o" not in arguments or {"-E", "-c", "-x"} & {*arguments}:
        os.execv(real, [real, *arguments])  # no kernel: a question, a header, an extension
    out = arguments[arguments.index("-o") + 1]
    cached = CACHE / _key(real, arguments, sources[0], out)
    if COLD in os.environ or not cached.exists():
        code = subprocess.call([real, *arguments])
        if code == 0:
            _keep(out, cached)
        return code
    shutil.copy(cached, out)
    return 0


def _key(real: str, arguments: list[str], source: str, out: str) -> str:
    """Of what decides what comes out. A header's name has the hash of its text in it."""
    compiler = Path(real).stat()
    parts = [real, str(compiler.st_size), str(compiler.st_mtime_ns)]
    before = ""
    for one in arguments:
        if one not in (source, out):
            parts.append(Path(one).name if before == "-include" else one)
        before = one
    digest = hashlib.sha256("\0".join(parts).encode())
    # 2.6 includes a header by its path in the cache of this test
    digest.update(re.sub(rb'(#include ").*/', rb"\1", Path(source).read_bytes()))
    return digest.hexdigest()


def _keep(out: str, cached: Path) -> None:
    """Atomic, also with concurrent writers."""
    cached.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=cached.parent)
    os.close(handle)
    shutil.copy(out, temporary)
    Path(temporary).rename(cached)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
