"""A record to be made: in which directory, and under which name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from warmwatch import places
from warmwatch._neighbours import free_run
from warmwatch._readers import FOLDER, mode, readers
from warmwatch._record_files import Files, make
from warmwatch.record import Identity


class Making:
    """A record to be made in ``directory``, by whichever thread.

    Args:
        named: somebody chose the run's name. child: ends it. chosen: somebody chose the directory.

    Attributes:
        plain: the identity with no number. awaited: somebody waits for the record.
    """

    def __init__(
        self, directory: str, identity: Identity, *, named: bool, child: str, chosen: bool
    ) -> None:
        self.directory, self.plain = directory, replace(identity, run=identity.run + child)
        self._identity, self._named, self._child, self._chosen = identity, named, child, chosen
        self._decided: dict[None, Identity] = {}
        self.awaited = False

    @property
    def identity(self) -> Identity:
        """What it carries: decided once."""
        return self._decided[None]

    def decide(self, identity: Identity) -> Identity:
        """Give it an identity, unless it has one."""
        return self._decided.setdefault(None, identity)

    def run(self, image: Callable[[Identity], bytes], who: str | None) -> Files:
        """Make it, with the slot that ``image`` is asked for. Raises OSError."""
        place = _usable(
            Path(self.directory), chosen=self._chosen, mode=mode(FOLDER, who or "owner")
        )
        asked = self._identity
        run = asked.run if self._named else free_run(place, asked, self._child)
        known = self.decide(replace(asked, run=run + self._child))
        return make(place, image(known), known, readers(str(place), who))


def _usable(directory: Path, *, chosen: bool, mode: int) -> Path:
    """The directory, made where that is ours to do."""
    if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
        raise OSError(f"{directory}: {problem}")
    if chosen or str(directory) != places.SHARED:
        directory.mkdir(mode, parents=chosen, exist_ok=True)
        if (problem := places.obstacle(str(directory), os, chosen=chosen)) is not None:
            raise OSError(f"{directory}: {problem}")  # somebody else was faster
    return directory
