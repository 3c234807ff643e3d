"""What the machine or the code lacks where a compilation fails, and what helps.

Each is known by a constant part of the text of PyTorch, Triton, a compiler or the loader; nothing
else of the text is recorded. (torch 2.6 to 2.15, Triton 3.2 to 3.6)
"""

from __future__ import annotations

_CACHES = "TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR"
# the first that the text contains
_HELP = (
    (
        "No working C++ compiler found",
        "Install a C++ compiler, such as g++, or name one in CXX: PyTorch found none.",
    ),
    (
        "Failed to find C compiler",
        "Install a C compiler, such as gcc, or name one in CC: Triton found none.",
    ),
    (
        "Python.h: No such file or directory",
        "Install the headers of this Python (python3-dev, python3-devel): Python.h is missing.",
    ),
    (
        "Cannot find a working triton installation",
        "Install the Triton that this PyTorch requires: it found none that works.",
    ),
    (
        "too old to be supported by the triton GPU compiler",
        'Triton does not support this GPU: use a newer one, or backend="cudagraphs".',
    ),
    (
        "version `GLIBCXX_",
        "The compiler is newer than the libstdc++ of this Python: take both from one environment.",
    ),
    (
        "libcuda.so cannot found",
        "Triton did not find libcuda.so: name its folder in TRITON_LIBCUDA_PATH.",
    ),
    (
        "derivative for ",
        "An operator has no derivative, eagerly either: put it into an autograd.Function.",
    ),
    (
        "modified by an inplace operation",
        (
            "An in-place operation changes what the backward needs, eagerly, too: write it without "
            "one, such as without inplace=True."
        ),
    ),
    (
        "Constraints violated (",
        (
            "The code makes a constant of a size that mark_dynamic() promises to vary: call "
            "maybe_mark_dynamic(), or take the size from the input wherever it is a number."
        ),
    ),
    (
        "No space left on device",
        f"A disk is full. If the compile caches are there, free it or name others in {_CACHES}.",
    ),
    (
        "Read-only file system",
        f"A file system is read-only. If the compile caches are there, name others in {_CACHES}.",
    ),
)


def help_for(text: str) -> str | None:
    """What helps against a failure with this text; ``None`` where that is not known."""
    return next((words for part, words in _HELP if part in text), None)
