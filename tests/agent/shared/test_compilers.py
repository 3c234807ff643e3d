"""Which commands build something, by their words alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmwatch.shared.compilers import built_by, help_for


@pytest.mark.parametrize(
    ("command", "compiler"),
    [
        (["g++", "-O2", "-c", "big.cpp", "-o", "big.o"], "g++"),
        (["/usr/local/cuda/bin/nvcc", "kernel.cu"], "nvcc"),
        ([Path("/usr/bin/x86_64-linux-gnu-gcc-12"), "a.c"], "gcc"),
        ([b"ptxas", b"--gpu-name=sm_90", b"a.ptx"], "ptxas"),
        (["ptxas-blackwell", "a.ptx"], "ptxas-blackwell"),
        (["ninja", "-v", "-C", "build"], "ninja"),
        (["make", "-C", "megatron/data"], "make"),
        (["cmake", "--build", "."], "cmake"),
        (["ccache", "g++", "-c", "a.cpp"], "g++"),
        (["env", "CC=gcc", "nice", "-n", "5", "clang++", "a.cpp"], "clang++"),
        (["bash", "-lc", "cd csrc && CXX=g++ ninja"], "ninja"),
        ("cd csrc; nvcc -c kernel.cu", "nvcc"),
        (("rustc", "lib.rs"), "rustc"),
        ("make", "make"),
        # questions
        (["gcc", "--version"], None),
        (["gcc", "-v"], None),
        (["gcc", "-print-file-name=libgomp.so"], None),
        (["gcc", "-dumpmachine"], None),
        (["gcc", "-x", "c", "/dev/null", "-E", "-v"], None),
        (["nvcc", "-V"], None),
        (["nvcc", "--version"], None),
        (["ninja", "--version"], None),
        (["ninja", "-t", "compdb"], None),
        (["make", "-n"], None),
        # other programs
        (["python", "train.py"], None),
        (["git", "make"], None),
        (["bash", "-c", "echo ninja"], None),
        (["bash", "build.sh"], None),
        ("echo 'unbalanced", None),
        ("", None),
        ([], None),
        (None, None),
        ([None, 7], None),
    ],
)
def test_which_compiler_a_command_builds_with(command: object, compiler: str | None) -> None:
    assert built_by(command) == compiler


# What a machine lacks where a compilation fails


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No working C++ compiler found in config.cpp.cxx: (None, 'g++')", "name one in CXX"),
        ("SubprocException:\nRuntimeError: Failed to find C compiler. Please", "name one in CC"),
        ("/tmp/a.cpp:2:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("TritonMissing: Cannot find a working triton installation. Either", "Install the Triton"),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "from one environment"),
        ("OSError: [Errno 28] No space left on device: '/tmp/torchinductor_me/a'", "free it"),
        (
            "RuntimeError: one of the variables has been modified by an inplace operation: [torch.",
            "inplace=True",
        ),
        ("Constraints violated (L['x'].size()[0])! For more information", "maybe_mark_dynamic"),
        ("RuntimeError: a patient's value", None),
    ],
    ids=[
        "g++",
        "gcc",
        "headers",
        "triton",
        "libstdc++",
        "disk",
        "in place",
        "marked",
        "of the user",
    ],
)
def test_the_help_is_for_what_is_lacking_and_quotes_nothing(text: str, words: str | None) -> None:
    help = help_for(text)
    assert (help is None) == (words is None)
    assert words is None or words in str(help)
