"""What a machine lacks where a compilation fails."""

from __future__ import annotations

import pytest

from warmwatch.shared.compilers import help_for


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
