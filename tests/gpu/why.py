"""``python -m gpu.why NAME`` from tests/: a scenario's activities and PyTorch's records."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gpu import ranks
from gpu.__main__ import FOLDER
from support import scenarios


def main(name: str) -> None:
    """Run it, and print both accounts on one clock."""
    with tempfile.TemporaryDirectory() as place:
        for case in ranks.run(scenarios.declared(FOLDER / f"{name}.py"), Path(place)):
            events = [e for e in case.watched.events if e["event"] != "compilation"]
            zero = events[0]["t"]
            for event in events:
                fields = {k: v for k, v in event.items() if k not in ("t", "event")}
                print(f"{(event['t'] - zero) / 1e9:9.3f} agent   {event['event']} {fields}")
            for one in case.watched.account["compilations"]:
                start, end = ((one[key] - zero) / 1e9 for key in ("start", "end"))
                print(f"{start:9.3f} PyTorch until {end:.3f}, {one}")
            for mark in case.marks:
                print(f"{(mark - zero) / 1e9:9.3f} step")


if __name__ == "__main__":
    main(sys.argv[1])
