"""For scripts of trainings: stop at a gate, pass a value to the test. See ``trainings.py``."""

from __future__ import annotations

import json
import sys


def gate(name: str) -> None:
    """Report that the training is at ``name``, and wait until the test lets it continue."""
    print(f"@gate {name}", flush=True)
    sys.stdin.readline()


def result(value: object) -> None:
    """Pass a JSON value to the test."""
    print(f"@result {json.dumps(value)}", flush=True)
