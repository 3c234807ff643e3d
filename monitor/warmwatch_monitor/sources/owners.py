"""Whose a record is, as a name that stays: the user's, else the number.

The name stands in labels of metrics, so what was answered first holds for as long as this process
runs. Who knows the names may be a directory service that hangs: it is given a second, and while a
question to it is open, everybody else is a number.
"""

from __future__ import annotations

import os
import pwd
import re
import threading
from collections.abc import Callable

from warmwatch_monitor.model import Owner

_PATIENCE_SECONDS = 1.0
# an @ would make two runs look like one, and figures alone are somebody else's number
_USABLE = re.compile(r"[A-Za-z_][\w.-]{0,63}\$?", re.ASCII)


class Owners:
    """Who is who; asks for each user once."""

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
        """The owner with the number ``uid``."""
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
    """The name of a user, where it is his alone; ``None`` where he has none that can be used."""
    try:
        name = pwd.getpwuid(uid).pw_name
        alone = pwd.getpwnam(name).pw_uid == uid
    except (KeyError, OSError, ValueError):
        return None
    return name if alone and _USABLE.fullmatch(name) else None
