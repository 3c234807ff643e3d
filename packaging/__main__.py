"""``python packaging [DIST]``: build and check the files of a release, from a clean checkout.

Writes to DIST (default ``dist``): wheel, sdist, ``pylock.toml`` (the monitor's dependencies with
hashes, PEP 751) and ``man-pages.tar.gz``. Two builds of one commit give the same bytes: hatchling
takes file times from ``SOURCE_DATE_EPOCH``, or sets all of them to one date.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def main(dist: Path) -> None:
    """Build everything; the first failing program ends the script with its exit code."""
    dist.mkdir(parents=True, exist_ok=True)
    if left := sorted(dist.iterdir()):
        sys.exit(f"{dist} is not empty ({left[0].name}): a release is built from nothing")
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", dist, ROOT)
    packages = sorted(dist.iterdir())
    run(BIN / "twine", "check", "--strict", *packages)
    run(BIN / "check-wheel-contents", *dist.glob("*.whl"))
    lock(dist / "pylock.toml")
    man_pages(dist / "man-pages.tar.gz")
    for path in sorted(dist.iterdir()):
        print(f"{path.stat().st_size:>9,} bytes  {path}")


def run(*command: object, **variables: str) -> None:
    """Run a program in the checkout."""
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env={**os.environ, **variables}, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def lock(target: Path) -> None:
    """Pin the dependencies of ``warmwatch[monitor,otlp]``, for every platform, with hashes."""
    run(
        *(BIN / "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
        *("--extra", "monitor", "--extra", "otlp", "--format", "pylock.toml"),
        *("--python-version", "3.10", "--output-file", target, "pyproject.toml"),
        UV_CUSTOM_COMPILE_COMMAND="make release",  # the header, instead of this machine's paths
    )


def man_pages(target: Path) -> None:
    """Write the manual of each command, from its ``--help``."""
    import click
    from click_man.core import write_man_pages

    from warmwatch._version import __version__
    from warmwatch_monitor.commands.cli import cli

    git = shutil.which("git") or sys.exit("git is not installed")
    committed = subprocess.check_output([git, "log", "-1", "--format=%cs"], cwd=ROOT, text=True)
    # the command line loads its commands when they are used; click-man reads `commands`
    context = click.Context(cli)
    for name in cli.list_commands(context):
        if command := cli.get_command(context, name):
            cli.commands[name] = command
    archive = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        write_man_pages(
            "warmwatch", cli, version=__version__, target_dir=folder, date=committed.strip()
        )
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for page in sorted(Path(folder).iterdir()):
                member = tarfile.TarInfo(f"man1/{page.name}")
                member.size = page.stat().st_size
                tar.addfile(member, io.BytesIO(page.read_bytes()))
    target.write_bytes(gzip.compress(archive.getvalue(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve())
