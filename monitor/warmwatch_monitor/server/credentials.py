"""Checks an ``Authorization`` header.

Tokens are compared by their digests, each with every known one. A password costs bcrypt's time,
once: the result is cached under a key that only this process can make, so a scrape costs a hash of
its header. One password is tried at a time, off the event loop, and requests that would wait long
are refused. So clients that guess passwords use at most one thread of the training's machine.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct

_CACHED = 1024  # cached results, separately for right and wrong passwords
_MOST_WAITING, _MOST_OF_A_PEER = 64, 4
_UNMAPPED = 65_534  # how the kernel shows users of other user namespaces
_LONGEST_PASSWORD = 72  # bcrypt ignores the rest, here and where the hash was made


class Client(Struct, frozen=True, kw_only=True):
    """An authenticated client.

    Attributes:
        name: for the access log. owner_uid: the user whose runs only it may read; ``None``: all.
    """

    name: str
    owner_uid: int | None = None


def local_client(uid: int) -> Client | None:
    """The client at the other end of a UNIX socket: root and this process's user read every run.

    ``None``: a user whom this user namespace does not have; many users look the same here.
    """
    if uid == _UNMAPPED:
        return None
    return Client(name=f"user {uid}", owner_uid=None if uid in (0, os.geteuid()) else uid)


class BusyError(Exception):
    """Too many passwords are being tried: the client must retry."""


class Passwords:
    """Tries passwords and caches the results. Used only on the event loop."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._trying: dict[bytes, asyncio.Future[bool]] = {}
        self._thread = ThreadPoolExecutor(1, "warmwatch-passwords")
        self._leaving = self._busy = False
        self._lines: OrderedDict[str, deque[tuple[asyncio.Future[bool], str, bytes]]] = (
            OrderedDict()
        )

    async def matches(self, hash: str, password: bytes, peer: Callable[[], str] = str) -> bool:
        """Whether ``hash`` belongs to ``password``. Raises BusyError."""
        key = hmac.digest(self._secret, b"%b:%b" % (hash.encode(), password), "sha256")
        if key in self._right or key in self._wrong:
            return key in self._right
        trying = self._trying.get(key)
        if trying is None:
            trying = self._queued(peer(), hash, password)
            self._trying[key] = trying
            trying.add_done_callback(partial(self._keep, key))
        await asyncio.wait((trying,))  # other requests wait for the same result
        if trying.cancelled():
            raise BusyError
        return trying.result()

    def _queued(self, peer: str, hash: str, password: bytes) -> asyncio.Future[bool]:
        """The future result. Peers take turns, so a guessing client delays no other login."""
        line = self._lines.get(peer, ())
        full = len(line) >= _MOST_OF_A_PEER or len(self._trying) >= _MOST_WAITING
        if full or self._leaving:
            raise BusyError
        tried = asyncio.get_running_loop().create_future()
        self._lines.setdefault(peer, deque()).append((tried, hash, password))
        self._next()
        return tried

    def _next(self) -> None:
        """Try the next peer's password, unless one is being tried."""
        if self._busy or self._leaving or not self._lines:
            return
        peer, line = self._lines.popitem(last=False)
        tried, hash, password = line.popleft()
        if line:
            self._lines[peer] = line  # behind the other peers
        self._busy = True
        loop = asyncio.get_running_loop()
        trial = loop.run_in_executor(self._thread, _checked, hash, password)
        trial.add_done_callback(partial(self._tried, tried))

    def _tried(self, tried: asyncio.Future[bool], trial: asyncio.Future[bool]) -> None:
        self._busy = False
        if not tried.done():
            if trial.cancelled():
                tried.cancel()
            elif (error := trial.exception()) is not None:
                tried.set_exception(error)
            else:
                tried.set_result(trial.result())
        self._next()

    def leave(self) -> None:
        """Drop the waiting passwords, and accept no more.

        The exit waits for the one being tried: Python aborts if its exit stops a thread in bcrypt.
        """
        self._leaving = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        for trying in tuple(self._trying.values()):
            trying.cancel()

    def _keep(self, key: bytes, tried: asyncio.Future[bool]) -> None:
        del self._trying[key]
        if tried.cancelled() or tried.exception():
            return
        cache = self._right if tried.result() else self._wrong
        cache[key] = None
        if len(cache) > _CACHED:
            cache.popitem(last=False)


def _checked(hash: str, password: bytes) -> bool:
    import bcrypt  # only needed with users

    try:
        return bcrypt.checkpw(password[:_LONGEST_PASSWORD], hash.encode())
    except ValueError:
        return False


class Credentials:
    """The known clients: ``users`` (bcrypt hashes by name), and ``tokens`` by SHA-256 digest."""

    def __init__(
        self,
        users: Mapping[str, str],
        tokens: Iterable[tuple[str, Client]],
        passwords: Passwords,
    ) -> None:
        self._users = {name.encode(): hash for name, hash in users.items()}
        self._tokens = [(bytes.fromhex(digest), client) for digest, client in tokens]
        self._passwords = passwords
        # Checked for an unknown name, so that it takes as long as a known one.
        cost = max((int(hash.split("$")[2]) for hash in users.values()), default=4)
        self._unknown_hash = f"$2b${cost:02d}${'.' * 53}"
        kinds = [("Basic", users), ("Bearer", self._tokens)]
        self.challenges = tuple(f'{kind} realm="warmwatch"' for kind, known in kinds if known)

    def __bool__(self) -> bool:
        return bool(self.challenges)

    async def identify(self, header: bytes, peer: Callable[[], str] = str) -> Client | None:
        """The client that an ``Authorization`` header belongs to. Raises BusyError.

        ``peer``: names the sender; called if a password has to be tried.
        """
        kind, _, given = header.strip().partition(b" ")
        if kind.lower() == b"bearer":
            return self._holder(given.strip())
        if kind.lower() == b"basic" and self._users:
            try:
                name, _, password = base64.b64decode(given.strip(), validate=True).partition(b":")
            except ValueError:
                return None
            hash = self._users.get(name)
            right = await self._passwords.matches(hash or self._unknown_hash, password, peer)
            return Client(name=name.decode()) if right and hash is not None else None
        return None

    def _holder(self, token: bytes) -> Client | None:
        if not token:
            return None
        digest = hashlib.sha256(token).digest()
        # compare with all of them: the time then depends on none
        equal = [hmac.compare_digest(digest, known) for known, _ in self._tokens]
        return next((self._tokens[at][1] for at, is_it in enumerate(equal) if is_it), None)
