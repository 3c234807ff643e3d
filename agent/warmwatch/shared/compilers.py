"""Names of compilers that run as processes of their own, and the command lines that build. Pure.

Used by the agent, for the processes that the training starts, and by the monitor, for those below
it. Only the base name of a program is ever used.

What the machine or the code lacks where a compilation fails is known by a constant part of the text
of PyTorch, Triton, a compiler or the loader; nothing else of the text is recorded. (torch 2.6 to
2.15, Triton 3.2 to 3.6)
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

# ``x86_64-linux-gnu-g++-12`` is g++; collect2 and the assembler are GCC's own helpers, tileiras and
# ptxas-blackwell those of CUTLASS and Triton.
_KNOWN = re.compile(
    r"(?:[\w.]+-)*"
    r"(cc1plus|cc1|g\+\+|gcc|gfortran|f951|c\+\+|cc|amdclang\+\+|amdclang|clang\+\+|clang|icpx|icx"
    r"|nvcc|nvc\+\+|cicc|ptxas(?:-blackwell)?|cudafe\+\+|fatbinary|nvlink|tileiras|cuobjdump"
    r"|nvdisasm|hipcc|hipify-clang|rustc|cargo|llc|ninja|make|cmake|as|collect2|ld|ld\.\w+|lld|mold"
    r"|lto1|lto-wrapper)"
    r"(?:-[\d.]+)?"
)
# These build without an operand, as their files say what to build.
_DRIVERS = frozenset({"ninja", "make", "cmake", "cargo"})
_WRAPPERS = frozenset({"ccache", "sccache", "distcc", "env", "nice", "ionice", "time", "timeout"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
# Such a command asks for a version or a list, and builds nothing.
_QUERY = re.compile(
    r"-v|-V|-vV|-h|-###|-dump\w+|-t|-n|--?(?:version|help|verbose|print-\S*|dry-run\S*|list\S*)"
    r"|--target-help"
)
_OPERATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")"})
_LONGEST_COMMAND, _LONGEST_NAME = 10_000, 100


def known_name(name: str) -> str | None:
    """The display name of a compiler; ``None`` for anything else."""
    match = _KNOWN.fullmatch(name[:_LONGEST_NAME])
    return match[1] if match else None


def built_by(command: object) -> str | None:
    """The compiler that a command of ``subprocess`` runs to build something; ``None`` if none.

    ``command``: a string for a shell, or a sequence of words.
    """
    if isinstance(command, str | bytes | os.PathLike):
        return _of_shell(os.fsdecode(command))
    if not isinstance(command, Sequence) or not command:
        return None
    parts = [os.fsdecode(w) for w in command if isinstance(w, str | bytes | os.PathLike)]
    return _of_words(parts)


def _of_words(words: Sequence[str]) -> str | None:
    at = 0
    while at < len(words):
        name = os.path.basename(words[at])[:_LONGEST_NAME]
        if name in _SHELLS:
            options = words[at + 1 :]
            given = [i for i, item in enumerate(options) if re.fullmatch(r"-\w*c", item)]
            return _of_shell(options[given[0] + 1]) if given and options[given[0] + 1 :] else None
        if (text := known_name(name)) is not None:
            return text if _builds(text, words[at + 1 :]) else None
        # a wrapper's own options and numbers, and the variables of ``env``
        if name not in _WRAPPERS and not (at and re.match(r"-|\d|\w+=", words[at])):
            return None
        at += 1
    return None


def _builds(name: str, arguments: Sequence[str]) -> bool:
    """Whether it has work: no query, and for all but build drivers an operand."""
    if any(_QUERY.fullmatch(argument) for argument in arguments):
        return name == "ninja" and "-v" in arguments and not {"-t", "-n"} & set(arguments)
    if name in _DRIVERS:
        return True
    kinds = {i + 1 for i, text in enumerate(arguments) if text in ("-x", "-o")}
    return any(
        not text.startswith("-") and text != os.devnull
        for i, text in enumerate(arguments)
        if i not in kinds
    )


def _of_shell(text: str) -> str | None:
    """The first command of a shell's text that builds."""
    try:
        lexer = shlex.shlex(text[:_LONGEST_COMMAND], posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:  # an unbalanced quote
        return None
    parts: list[str] = []
    for token in [*tokens, ";"]:
        if token not in _OPERATORS:
            parts.append(token)
            continue
        while parts and re.match(r"\w+=", parts[0]):
            parts.pop(0)
        if (name := _of_words(parts)) is not None:
            return name
        parts = []
    return None


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
