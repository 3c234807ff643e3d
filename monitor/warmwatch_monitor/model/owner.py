"""Whose a record is, and so what its run is called."""

from __future__ import annotations

from msgspec import Struct


class Owner(Struct, frozen=True, kw_only=True):
    """Whose a record is: the user's ``uid`` and ``name`` (else the number).

    ``own``: it is the user that this reader runs as. A run of anybody else is shown with its owner,
    always and not only where two are called the same: so a name never changes because of what
    others do, and nobody can take one that is not his. An own run whose name has an ``@`` has its
    owner behind it too, or somebody's could look like it.
    """

    uid: int
    name: str
    own: bool

    def shown(self, run: str) -> str:
        """What a run of this owner is called: ``gpt2``, ``gpt2@alice``."""
        return run if self.own and "@" not in run else f"{run}@{self.name}"

    def plain(self, shown: str) -> str:
        """The run's own name again."""
        return shown.removesuffix(f"@{self.name}")
