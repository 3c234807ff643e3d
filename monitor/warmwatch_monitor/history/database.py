"""The database file: location, tables and errors."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct

from warmwatch_monitor.base.errors import StoreError
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.history.listing import Listed
from warmwatch_monitor.history.rows import COMPILED
from warmwatch_monitor.model.run_summary import Compiled
from warmwatch_monitor.sources import proc

OF_A_ROW: tuple[type[Exception], ...] = ()
try:
    import sqlite3

    OF_A_ROW = sqlite3.IntegrityError, sqlite3.DataError
except ImportError:  # a Python built without it: the settings name no history, so none is opened
    pass

# SQLite's write-ahead log needs shared memory, which network filesystems do not have. A home
# directory may be on one.
_LOCAL = frozenset(
    {
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs"),
        *("tmpfs", "ramfs", "overlay"),
    }
)


def shares_memory(directory: Path) -> bool:
    """Whether processes can share mapped files there; false for unknown filesystems."""
    return proc.mount_of(os.path.realpath(directory)).kind in _LOCAL


def _columns(struct: type[Struct], names: Iterable[str]) -> str:
    """Fields of ``struct`` as columns of a table, with the types of its declaration."""
    hints = get_type_hints(struct)
    return ",\n  ".join(f'"{name}" {_sql(hints[name])}' for name in names)


def _sql(type: Any) -> str:
    known = [each for each in get_args(type) or (type,) if each is not NoneType]
    return _SQL[known[0]] + (" NOT NULL" if type is known[0] else "")


_SQL = {str: "TEXT", int: "INTEGER", float: "REAL"}
_RUNS = f"""
CREATE TABLE runs (
  {_columns(Listed, Listed.__struct_fields__)},
  start TEXT,
  what TEXT NOT NULL,
  PRIMARY KEY (id)
)
"""
_RANKS = """
CREATE TABLE ranks (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  state TEXT,
  attached REAL,
  steps INTEGER,
  step_seconds REAL,
  compile_seconds REAL,
  left_out INTEGER NOT NULL,
  answer TEXT NOT NULL,
  first_step_bytes INTEGER,
  death TEXT,
  outside TEXT,
  PRIMARY KEY (id, rank)
)
"""
_COMPILATIONS = f"""
CREATE TABLE compilations (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  number INTEGER NOT NULL,
  {_columns(Compiled, COMPILED)},
  compile_id TEXT,
  phase_seconds TEXT NOT NULL,
  what TEXT NOT NULL,
  PRIMARY KEY (id, rank, number)
)
"""
_SAMPLES = """
CREATE TABLE samples (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER,
  gpu TEXT,
  seconds REAL NOT NULL,
  began REAL NOT NULL,
  after TEXT NOT NULL,
  columns TEXT NOT NULL
)
"""
# views for SQL users: one row per time, instead of lists
_RANK_SAMPLES = """
CREATE VIEW rank_samples AS
SELECT s.id, s.rank, s.began + a.value AS at, s.seconds,
  json_extract(s.columns, '$.steps[' || a.key || ']') AS steps,
  json_extract(s.columns, '$.step_seconds[' || a.key || ']') AS step_seconds,
  json_extract(s.columns, '$.compile_seconds[' || a.key || ']') AS compile_seconds,
  json_extract(s.columns, '$.state[' || a.key || ']') AS state,
  json_extract(s.columns, '$.phase[' || a.key || ']') AS phase
FROM samples AS s, json_each(s.after) AS a WHERE s.rank IS NOT NULL
"""
_GPU_SAMPLES = """
CREATE VIEW gpu_samples AS
SELECT s.id, s.gpu, s.began + a.value AS at, s.seconds,
  json_extract(s.columns, '$.utilization_ratio[' || a.key || ']') AS utilization_ratio,
  json_extract(s.columns, '$.power_watts[' || a.key || ']') AS power_watts,
  json_extract(s.columns, '$.memory_used_bytes[' || a.key || ']') AS memory_used_bytes
FROM samples AS s, json_each(s.after) AS a WHERE s.gpu IS NOT NULL
"""

_SCHEMA = (
    _RUNS,
    "CREATE INDEX runs_by_began ON runs (began)",
    "CREATE INDEX runs_by_name ON runs (name, began)",
    "CREATE INDEX runs_by_seen ON runs (seen)",
    "CREATE INDEX runs_by_start ON runs (start)",
    _RANKS,
    _COMPILATIONS,
    _SAMPLES,
    "CREATE INDEX samples_by_run ON samples (id)",
    _RANK_SAMPLES,
    _GPU_SAMPLES,
)
VERSION = 1  # of the schema; 0 is a file without tables


FILE = "history.db"
_SIDE_FILES = ("-journal", "-wal", "-shm")
OFF = "the history is off (WARMWATCH_STATE); set it to a directory, or unset it"
_ELSEWHERE = "set WARMWATCH_STATE to a directory of your own, or to off"


class Database:
    """The file of the history. ``patience``: seconds to wait for another writer.

    Raises:
        StoreError: the history is off.
    """

    def __init__(self, settings: HistorySettings, *, patience: float = 5.0) -> None:
        if settings.directory is None:
            raise StoreError(OFF)
        self._directory, self._chosen = Path(settings.directory), settings.chosen
        self.path = self._directory / FILE
        self._patience = patience

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection; creates the file if there is none. Raises StoreError."""
        with self._explained():
            self._make()
            with closing(self._connect("rw")) as connection:
                self._prepare(connection)
                yield connection

    @property
    def is_read_only(self) -> bool:
        """Whether root reads another user's file, such as the service's. It never writes to it."""
        with contextlib.suppress(OSError):
            return os.geteuid() == 0 != self.path.stat().st_uid
        return False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection; to an empty database in memory if there is none. Raises StoreError."""
        with self._explained():
            mode = "memory"
            if self._is_there(of_any_user=os.geteuid() == 0):
                mode = self._mode_to_read()
            with closing(self._connect(mode)) as connection:
                if mode == "memory":
                    self._create(connection)
                elif mode == "rw":
                    self._prepare(connection)
                yield connection

    def _mode_to_read(self) -> str:
        """Read-only, unless the file needs a rollback; memory while it has no tables yet."""
        mode = "ro"
        try:
            version = self._version_by(mode)
        except sqlite3.OperationalError as error:
            # a writer was killed: SQLite rolls back its transaction
            if "readonly" in str(error) and not self.is_read_only:
                return "rw"
            if "unable to open" not in str(error):
                raise
            # SQLite cannot create its index in a read-only directory, where nothing writes either
            mode = "ro&immutable=1"
            version = self._version_by(mode)
        return mode if version else "memory"

    def _version_by(self, mode: str) -> int:
        with closing(self._connect(mode)) as connection:
            return self._version(connection)

    def _connect(self, mode: str) -> sqlite3.Connection:
        where = f"file:{quote(os.fsencode(self.path))}?mode={mode}"
        connection = sqlite3.connect(where, self._patience, isolation_level=None, uri=True)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        if version == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        mode = "WAL" if shares_memory(self._directory) else "DELETE"
        self._log(connection, mode)
        if mode == "WAL":  # consistent with WAL, but a power failure may lose the last writes
            connection.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            self._create(connection)

    def _log(self, connection: sqlite3.Connection, mode: str) -> None:
        """Set the journal mode. SQLite refuses at once, without its usual wait, if another
        process of this user does the same at this moment."""
        until = time.monotonic() + self._patience
        while True:
            try:
                connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
                return
            except sqlite3.OperationalError as error:
                if "is locked" not in str(error) or time.monotonic() >= until:
                    raise
            time.sleep(0.01)

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, VERSION):
            raise StoreError(
                f"{self.path} was written by another warmwatch (version {version}, supported: "
                f"{VERSION}); install that one, or {_ELSEWHERE}"
            )
        return version

    def _create(self, connection: sqlite3.Connection) -> None:
        """Create the tables in one transaction; waits for another process that does the same."""
        with transaction(connection):
            if self._version(connection) == 0:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")

    def _make(self) -> None:
        """Create the directory and the file, readable by their owner only."""
        if not self._is_there():
            self._refuse_another_users()
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.suppress(FileExistsError):  # another process of this user was faster
                os.close(os.open(self.path, flags, 0o600))  # SQLite's other files take its mode
            self._is_there()

    def _is_there(self, *, of_any_user: bool = False) -> bool:
        try:
            link = self.path.lstat()
            if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
                raise StoreError(f"{self.path} is a link of user {link.st_uid}; {_ELSEWHERE}")
        except FileNotFoundError:
            return False
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise StoreError(
                f"{self.path} is a link to a file that does not exist; remove it, or {_ELSEWHERE}"
            ) from None
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would block until it has a writer
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise StoreError(f"{self.path} is {what}; remove it, or {_ELSEWHERE}")
        if status.st_uid != os.geteuid() and not of_any_user:
            raise StoreError(f"{self.path} is another user's; {_ELSEWHERE}")
        for suffix in _SIDE_FILES:  # SQLite opens these itself, and would block on a pipe
            file = self.path.with_name(FILE + suffix)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(file.lstat().st_mode):
                    raise StoreError(f"{file} is not a regular file; remove it, or {_ELSEWHERE}")
        return True

    def _refuse_another_users(self) -> None:
        """Refuse a directory of another user: sudo keeps HOME, and root's file would block them."""
        above = next(parent for parent in self.path.parents if parent.exists())
        if not self._chosen and above.stat().st_uid != os.geteuid():
            raise StoreError(f"{self.path} would be in another user's {above}; {_ELSEWHERE}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(self._sentence(error)) from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise StoreError(f"{self._directory} cannot be used ({why}); {_ELSEWHERE}") from None
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"{self.path} has content that warmwatch did not write: {error}; remove that run"
            ) from None

    def _sentence(self, error: sqlite3.Error) -> str:
        text = str(error)
        if "is locked" in text:
            return f"{self.path} is being written by another program; will retry"
        if "is full" in text:
            return f"{self.path}: the disk is full; make room, or {_ELSEWHERE}"
        if "no such column" in text or "no column named" in text:
            return f"{self.path} has another form; move it away, and a new one is created"
        if isinstance(error, sqlite3.OperationalError):
            return f"{self.path} cannot be written or read ({text}); {_ELSEWHERE}"
        return f"{self.path} is damaged ({text}); move it away, and a new one is created"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end, roll back on an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk ends it
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
