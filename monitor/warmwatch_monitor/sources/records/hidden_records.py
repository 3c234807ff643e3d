"""Records of living processes that are out of reach, because another directory has their place.

After a file system is mounted over the record directory, or unmounted lazily, the directory looks
empty. Its trainings go on. So their runs are unknown, which is not the same as "no run".
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmwatch_monitor.sources.records.directory import Listing
    from warmwatch_monitor.sources.records.followed_record import FollowedRecord


class HiddenRecords:
    """Those of the directories at ``paths``, until they are back or their processes have ended."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._places: dict[str, tuple[int, int] | None] = {}
        self._hidden: dict[str, FollowedRecord] = {}

    def note(
        self,
        listings: Sequence[Listing],
        before: Mapping[str, FollowedRecord],
        now: Mapping[str, FollowedRecord],
        now_ns: int,
    ) -> None:
        """Take over new listings; ``before``, ``now``: the records that were and are followed."""
        if before is not now:
            self._hide(
                listings, (followed for folder, followed in before.items() if folder not in now)
            )
        for path, listing in zip(self._paths, listings, strict=True):
            self._places[path] = listing.place
        for folder, record in tuple(self._hidden.items()):
            if folder in now or not record.lives_at(now_ns):
                del self._hidden[folder]

    def _hide(self, listings: Sequence[Listing], gone: Iterable[FollowedRecord]) -> None:
        replaced = {
            path
            for path, listing in zip(self._paths, listings, strict=True)
            if listing.place != self._places.get(path)
        }
        for record in gone:
            if record.alive and os.path.dirname(record.folder) in replaced:
                self._hidden[record.folder] = record

    def problem(self, path: str) -> str | None:
        """Why records of the directory are unknown; ``None`` if none is hidden."""
        count = sum(os.path.dirname(folder) == path for folder in self._hidden)
        if not count:
            return None
        whose = f"{count} living processes have their records"
        if count == 1:
            whose = "a living process has its record"
        return (
            f"{path} is another directory than before (a file system was mounted or unmounted "
            f"there, or it was replaced), and {whose} in the old one"
        )
