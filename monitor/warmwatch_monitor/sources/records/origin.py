"""Whether a record is of this boot and time namespace, and which user owns it."""

from __future__ import annotations

import os
import pwd
import re
import threading
from collections.abc import Callable

from msgspec import Struct

from warmwatch.shared.clock_origin import boot_id, clock_offset_ns
from warmwatch.shared.record import Identity
from warmwatch_monitor.model import Owner


class Origin(Struct, frozen=True, kw_only=True):
    """The origin of monotonic times.

    Attributes:
        boot: the kernel's id of it; empty if unknown.
        offset_ns: of the time namespace to the machine's clock; ``None`` if unknown.
    """

    boot: str
    offset_ns: int | None

    def shares_boot(self, identity: Identity) -> bool:
        """Whether a record is of this boot; true if its boot is unknown."""
        return not identity.boot_id or not self.boot or identity.boot_id == self.boot

    def problem(self, identity: Identity) -> str | None:
        """Why a record's times cannot be read here; ``None`` if they can."""
        theirs = identity.clock_offset_ns
        if not self.shares_boot(identity) or theirs is None or self.offset_ns is None:
            return None
        if (apart := theirs - self.offset_ns) == 0:
            return None
        way = "ahead of" if apart > 0 else "behind"
        return (
            f"it was written in another time namespace, whose clock is {abs(apart) / 1e9:,.0f} s "
            f"{way} this one's, so its times are unknown: run warmwatch in that namespace"
        )


def here() -> Origin:
    """This process's own origin."""
    return Origin(boot=boot_id(), offset_ns=clock_offset_ns())


_PATIENCE_SECONDS = 1.0
# an @ would make two runs look like one, and digits alone are another user's uid
_USABLE = re.compile(r"[A-Za-z_][\w.-]{0,63}\$?", re.ASCII)


class Owners:
    """Names of users; looks each user up once."""

    def __init__(
        self,
        own: int | None = None,
        ask: Callable[[int], str | None] | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._own = os.geteuid() if own is None else own
        self._ask, self._patience = ask or login, patience
        self._known: dict[int, Owner] = {}
        self._asking: threading.Thread | None = None

    def of(self, uid: int) -> Owner:
        """The owner with the uid ``uid``."""
        if uid not in self._known:
            name = self._name(uid)
            self._known[uid] = Owner(uid=uid, name=name, own=uid == self._own)
        return self._known[uid]

    def _name(self, uid: int) -> str:
        if self._asking is not None and self._asking.is_alive():
            return str(uid)
        answers: list[str | None] = []
        self._asking = threading.Thread(
            target=lambda: answers.append(self._ask(uid)), name="warmwatch-owners", daemon=True
        )
        self._asking.start()
        self._asking.join(self._patience)
        return (answers[0] if answers else None) or str(uid)


def login(uid: int) -> str | None:
    """A user's login name, if it is unique; ``None`` if there is no usable one."""
    try:
        name = pwd.getpwuid(uid).pw_name
        alone = pwd.getpwnam(name).pw_uid == uid
    except (KeyError, OSError, ValueError):
        return None
    return name if alone and _USABLE.fullmatch(name) else None
