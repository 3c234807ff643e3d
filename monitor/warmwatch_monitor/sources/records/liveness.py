"""Whose a record is and whether its process lives: boot, owner, and the holder of its lock."""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct

from warmwatch.shared import record
from warmwatch.shared.clock_origin import boot_id, clock_offset_ns
from warmwatch.shared.record import Identity
from warmwatch_monitor.model.records import Owner
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.records.folder import SlotReading


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
_LONGEST_LOGIN = 64


class Owners:
    """Names of users, looked up once each, in a thread: a directory service may hang.

    One that gives no answer in time delays no further user: they are numbers.
    """

    def __init__(self) -> None:
        self._own = os.geteuid()
        self._known: dict[int, Owner] = {}
        self._pending: dict[int, None] = {}  # in order
        self._busy = False  # a thread looks them up
        self._names: dict[int, str | None] = {}
        self._answered = threading.Condition()
        self._hung_at = -1  # the number of answers at the last timeout

    def of(self, uid: int) -> Owner:
        if uid not in self._known:
            self.expect([uid])
            name = self._name(uid) or str(uid)
            self._known[uid] = Owner(uid=uid, name=name, own=uid == self._own)
        return self._known[uid]

    def expect(self, uids: Iterable[int]) -> None:
        """Start looking up these users."""
        with self._answered:
            self._pending.update((uid, None) for uid in uids if uid not in self._names)
            if self._pending and not self._busy:
                threading.Thread(target=self._look_up, name="warmwatch-owners", daemon=True).start()
                self._busy = True  # last: at a limit of threads, the next poll starts it

    def _look_up(self) -> None:
        while True:
            with self._answered:
                uid = next(iter(self._pending), None)
                if uid is None:
                    self._busy = False
                    return
            name = login(uid)
            with self._answered:
                self._names[uid] = name
                del self._pending[uid]
                self._answered.notify()

    def _name(self, uid: int) -> str | None:
        with self._answered:
            while uid not in self._names and self._hung_at != len(self._names):
                if not self._answered.wait(_PATIENCE_SECONDS):
                    self._hung_at = len(self._names)
            return self._names.get(uid)


def login(uid: int) -> str | None:
    """A user's login name, if it is unique; ``None`` if there is no usable one."""
    try:
        name = pwd.getpwuid(uid).pw_name
        alone = pwd.getpwnam(name).pw_uid == uid
    except (KeyError, OSError, ValueError):
        return None
    return name if alone and _is_usable(name) else None


def _is_usable(login: str) -> bool:
    """Whether it has only ASCII letters, digits, ``_``, ``.`` and ``-``, and may end in ``$``.

    An @ would make two runs look like one, and digits alone are another user's uid.
    """
    name = login.removesuffix("$")
    word = name.replace(".", "_").replace("-", "_")
    begins_well = not name.startswith((".", "-"))
    return word.isascii() and word.isidentifier() and begins_well and len(name) <= _LONGEST_LOGIN


class Presence(Enum):
    """What is known of a process that no longer holds the lock."""

    THERE = "there"
    GONE = "gone"
    REPLACED = "replaced"  # it runs another program (exec)
    UNKNOWN = "unknown"


class Holder(Struct, frozen=True, kw_only=True):
    """A process by its pid here and its start in clock ticks since the boot.

    Attributes:
        uids: of its user, real and effective; none if unknown.
        pids: its pids in its pid namespaces, this one's first.
        peak, code: its peak mapped memory, and the size of its program's code, in kB.
    """

    pid: int
    started: int
    uids: frozenset[int] = frozenset()
    pids: tuple[int, ...] = ()
    peak: int = 0
    code: int = 0

    def may_own(self, owner: int, pid: int | None = None) -> bool:
        """Whether this process can own a record of the user ``owner``, as far as is known.

        ``pid``: the record's; a process that has changed its user since is still the same one.
        """
        return not self.uids or bool(self.uids & {0, owner}) or pid in self.pids


def holder(pid: int) -> Holder | None:
    """The process that has ``pid`` now; ``None`` if it cannot be read."""
    stat = _stat(pid)
    if stat is None:
        return None
    values = proc.status(pid)
    return Holder(
        pid=pid,
        started=stat.started,
        uids=frozenset(_numbers(values, "Uid")),
        pids=_numbers(values, "NSpid"),
        peak=_number(values, "VmPeak"),
        code=_number(values, "VmExe"),
    )


def presence(holder: Holder, inode: int) -> Presence:
    """Whether ``holder`` still exists, with the file ``inode`` open."""
    stat = _stat(holder.pid)
    if stat is None or stat.started != holder.started or stat.exits:
        return Presence.GONE
    if _runs_another_program(holder, proc.status(holder.pid)):
        return Presence.REPLACED
    return Presence.UNKNOWN if _has_open(holder.pid, inode) is False else Presence.THERE


def writer(pid: int, inode: int, owner: int) -> Holder | None:
    """The process ``pid``, if it certainly writes ``owner``'s slot ``inode``; else ``None``.

    For a reader that never saw the lock held. The pid comes from the record: in another pid
    namespace it belongs to another process, and a forged record may contain any.
    """
    result = holder(pid) if pid and _has_open(pid, inode) else None
    return result if result and result.may_own(owner) else None


def launcher_lives(identity: Identity) -> bool | None:
    """Whether the ``torchrun`` that started a rank, and may start it again, lives.

    ``False`` of a rank without one; ``None``: it cannot be seen.
    """
    if identity.launcher != "torchelastic":
        return False
    kind, _, key = identity.launch.partition(":")
    pid, namespace, started = (*key.split(":"), "", "")[:3]
    if kind != "parent" or not pid.isdecimal():
        return None
    try:
        if str(os.stat(f"{proc.PROC}/self/ns/pid").st_ino) != namespace:
            return None
    except OSError:
        return None
    stat = _stat(int(pid))
    return stat is not None and not stat.exits and str(stat.started) == started


def _runs_another_program(holder: Holder, values: Mapping[str, str]) -> bool:
    peak, code = _number(values, "VmPeak"), _number(values, "VmExe")
    return 0 < peak < holder.peak or 0 < code != holder.code > 0


def _numbers(values: Mapping[str, str], name: str) -> tuple[int, ...]:
    return tuple(int(word) for word in values.get(name, "").split() if word.isdecimal())


def _number(values: Mapping[str, str], name: str) -> int:
    """0 if it is missing."""
    return next(iter(_numbers(values, name)), 0)


def _stat(pid: int) -> proc.Stat | None:
    try:
        return proc.stat(pid)
    except OSError:
        return None


def _has_open(pid: int, inode: int) -> bool | None:
    """Whether it has the file open or mapped; ``None`` if another user's may not be read."""
    folder = f"{proc.PROC}/{pid}/fd"
    try:
        if any(_inode(f"{folder}/{name}") == inode for name in os.listdir(folder)):
            return True
        return any(_maps(line, inode) for line in proc.text(f"{proc.PROC}/{pid}/maps").splitlines())
    except OSError:
        return None


def _maps(line: str, inode: int) -> bool:
    """Whether a line of /proc/PID/maps is of the slot ``inode``: it outlives its descriptor."""
    fields = line.split(maxsplit=5)
    return len(fields) == 6 and fields[4] == str(inode) and record.SLOT in fields[5]


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:  # closed meanwhile
        return None


_REST_NS = 2 * 10**9


class Life:
    """The combined result of all polls of one record.

    Attributes:
        alive: as of the last poll. pid: of the process that holds the lock, or held it and still
            exists; ``None`` if not known.
        gone_ns: when it was first found gone after it had been alive; ``None`` if it lives, or
            was never seen alive.
        rests: nothing of it has changed for a while after it was gone.
        replaced: its process runs on without the record, most likely as another program.
    """

    def __init__(self) -> None:
        self._holder: Holder | None = None
        self._sign_ns: int | None = None
        self._since_ns: int | None = None
        self.alive = False
        self.pid: int | None = None
        self.gone_ns: int | None = None
        self.rests = self.replaced = False

    def note(self, reading: SlotReading, now_ns: int, *, ours: bool = True) -> None:
        """Add a poll that was made at ``now_ns``.

        A record from another boot (not ``ours``) is dead, whatever holds its lock.
        """
        held = reading.held and self._is_own(reading)
        if held or reading.moved:
            self._sign_ns = now_ns
        alive = ours and (held or self._lives_unheld(reading, now_ns))
        if alive:
            self.gone_ns = None
        elif self.alive:
            self.gone_ns = now_ns
        if self._since_ns is None or alive or self.alive or reading.moved:
            self._since_ns = now_ns
        self.alive = alive
        self.pid = self._pid(reading.pid if held else None) if alive else None
        self.rests = not alive and now_ns - self._since_ns >= _REST_NS

    def _pid(self, held_by: int | None) -> int | None:
        return held_by or (self._holder.pid if self._holder else None)

    def _is_own(self, reading: SlotReading) -> bool:
        """Whether the record's own process holds the lock; stores that process.

        Nothing is known of a holder in another pid namespace, so it is accepted.
        """
        if reading.pid is None:
            self._holder = None
            return True
        result = self._holder
        if result is None or result.pid != reading.pid:
            result = holder(reading.pid)
        if result is not None and not result.may_own(reading.owner, reading.slot.identity.pid):
            return False
        self._holder = result
        return True

    def _lives_unheld(self, reading: SlotReading, now_ns: int) -> bool:
        end = record.ENDS[reading.slot.compile.end_code]
        if end not in ("", "finished"):
            return False
        if self._holder is None and self._since_ns is None:  # not seen before
            self._holder = writer(reading.slot.identity.pid, reading.inode, reading.owner)
        there = presence(self._holder, reading.inode) if self._holder else Presence.UNKNOWN
        runs_on = self._holder is not None and there is Presence.UNKNOWN
        self.replaced = runs_on or there is Presence.REPLACED
        if there in (Presence.GONE, Presence.REPLACED):  # only a change can bring it back
            self._holder = self._sign_ns = None
        if end:  # a change proves nothing any more, and it may have closed all its files
            return self._holder is not None
        if there is Presence.UNKNOWN:
            return self._sign_ns is not None and now_ns - self._sign_ns < _REST_NS
        return there is Presence.THERE
