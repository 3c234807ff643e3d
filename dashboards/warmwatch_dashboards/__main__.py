"""Write ``dashboards/json/``; with ``--check`` only compare it with what the code gives."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from warmwatch_dashboards.fleet import fleet
from warmwatch_dashboards.gpu import gpu
from warmwatch_dashboards.run import run

FOLDER = Path(__file__).parent.parent / "json"
DASHBOARDS: tuple[Callable[[], build.Dashboard], ...] = (fleet, run, gpu)


def rendered() -> dict[str, str]:
    """The text of each file by its name."""
    boards = [make().build() for make in DASHBOARDS]
    return {
        f"{board.uid}.json": json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
        for board in boards
    }


def differing(folder: Path) -> list[str]:
    """Names of files in ``folder`` that are missing, too many, or not what the code gives."""
    wanted = rendered()
    found = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(name for name in wanted | found if wanted.get(name) != found.get(name))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="warmwatch_dashboards", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where they differ"
    )
    if parser.parse_args().check:
        if names := differing(FOLDER):
            sys.exit(f"not what the code gives: {', '.join(names)}; run `make dashboards`")
        return
    FOLDER.mkdir(exist_ok=True)
    wanted = rendered()
    for name in differing(FOLDER):
        if name in wanted:
            (FOLDER / name).write_text(wanted[name])
        else:
            (FOLDER / name).unlink()


if __name__ == "__main__":
    main()
