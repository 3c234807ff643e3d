"""Whether a record's times are of this reader's own clock: of this boot and time namespace.

Monotonic times of another boot mean nothing here, and their record is of a process that is gone.
Those of another time namespace run on beside ours with an offset, and nobody who reads them could
tell: a record that is surely of another one is refused with words, before anything is made of it.
"""

from __future__ import annotations

from msgspec import Struct

from warmwatch.origin import boot_id, clock_offset_ns
from warmwatch.record import Identity


class Origin(Struct, frozen=True, kw_only=True):
    """Where monotonic times come from.

    Attributes:
        boot: the kernel's id of it; empty where it is not known.
        offset_ns: of the time namespace to the machine's clock; ``None`` where it is not known.
    """

    boot: str
    offset_ns: int | None

    def shares_boot(self, identity: Identity) -> bool:
        """Whether a record is of this boot; one of whom that is not known is taken for it."""
        return not identity.boot_id or not self.boot or identity.boot_id == self.boot

    def problem(self, identity: Identity) -> str | None:
        """Why a record's times cannot be read here; ``None`` where they can."""
        theirs = identity.clock_offset_ns
        if not self.shares_boot(identity) or theirs is None or self.offset_ns is None:
            return None
        if (apart := theirs - self.offset_ns) == 0:
            return None
        way = "ahead of" if apart > 0 else "behind"
        return (
            f"it was written in another time namespace, whose clock is {abs(apart) / 1e9:,.0f} s "
            f"{way} this one's, so nothing can be said of its times: run warmwatch in that one"
        )


def here() -> Origin:
    """This process's own."""
    return Origin(boot=boot_id(), offset_ns=clock_offset_ns())
