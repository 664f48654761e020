"""Form of a run file: its tables, and how it is made and opened.

A run file is an SQLite database in WAL mode. A commit survives the death of the process at any moment; a
machine that loses power may lose the last turns, never part of one.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 3
"""Version of the format; a reader refuses any other."""

# Seeds reach 2**64 - 1, beyond SQLite's integers: they are text. Amounts are cents.
TABLES: Final[dict[str, str]] = {
    "run": """
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, package_version TEXT NOT NULL,
        env_id TEXT NOT NULL, env TEXT NOT NULL, arguments TEXT NOT NULL, merchants INTEGER NOT NULL,
        scenario TEXT NOT NULL,
        scenario_hash TEXT NOT NULL, catalog_hash TEXT NOT NULL, tool_schema_hash TEXT NOT NULL,
        seed TEXT NOT NULL, options TEXT NOT NULL, stack TEXT NOT NULL, policy TEXT NOT NULL,
        label TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, started TEXT NOT NULL, ended TEXT
    """,
    # step numbers the steps of the environment, deciding counts the seats that had to make a turn in it;
    # own is 0 for a turn that did not come through the recorded stack. metrics is a JSON object of the
    # shop's figures as the window closed, NULL for a turn that did not close it. calls is a JSON array of its
    # calls, each an array of the CALL_COLUMNS; contents holds their results one after the other. That a turn
    # is one row makes it cheap to write: every table, and every index, costs a commit pages of its own.
    "turn": """
        seq INTEGER PRIMARY KEY, step INTEGER NOT NULL, deciding INTEGER NOT NULL, own INTEGER NOT NULL,
        merchant INTEGER NOT NULL, window INTEGER NOT NULL, turn INTEGER NOT NULL, turn_id TEXT NOT NULL,
        action TEXT NOT NULL, body_hash TEXT NOT NULL, time TEXT NOT NULL, text TEXT NOT NULL,
        note TEXT NOT NULL, charged INTEGER NOT NULL, rejected TEXT NOT NULL, closed_by TEXT NOT NULL,
        net_assets INTEGER NOT NULL, state_digest TEXT NOT NULL, metrics TEXT, reward INTEGER,
        calls TEXT NOT NULL, contents TEXT NOT NULL
    """,
    "note": """
        merchant INTEGER NOT NULL, version INTEGER NOT NULL, window INTEGER, turn INTEGER,
        bytes INTEGER NOT NULL, content TEXT NOT NULL, PRIMARY KEY (merchant, version)
    """,
    "model_call": """
        seq INTEGER PRIMARY KEY, merchant INTEGER NOT NULL, window INTEGER NOT NULL, turn INTEGER NOT NULL,
        attempt INTEGER NOT NULL, request_sha256 TEXT NOT NULL, model TEXT NOT NULL, class TEXT NOT NULL,
        http_status INTEGER, request_id TEXT, usage TEXT NOT NULL, cost_micro_usd INTEGER,
        response TEXT NOT NULL, started TEXT NOT NULL, duration_s REAL NOT NULL
    """,
    "event": """
        seq INTEGER PRIMARY KEY, merchant INTEGER NOT NULL, window INTEGER NOT NULL, turn INTEGER NOT NULL,
        kind TEXT NOT NULL, body TEXT NOT NULL
    """,
    "message": """
        sequence INTEGER NOT NULL, merchant INTEGER NOT NULL, window INTEGER NOT NULL, turn INTEGER NOT NULL,
        kind TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (merchant, sequence)
    """,
}

CALL_COLUMNS: Final = {
    "id": "TEXT",
    "name": "TEXT",
    "kind": "TEXT",
    "arguments": "TEXT",
    "ok": "INTEGER",
    "code": "TEXT",
    "applied": "INTEGER",
    "rejected": "INTEGER",
    "start": "INTEGER",
    "size": "INTEGER",
}
"""What is written of a call, and its kind; start and size tell where its result stands in the contents."""

_CALL: Final = ", ".join(f"json_extract(value, '$[{i}]') AS {name}" for i, name in enumerate(CALL_COLUMNS))

VIEWS: Final[dict[str, str]] = {
    "call": f"""
        SELECT merchant, window, turn, position, id, name, kind, arguments, ok, code, applied, rejected,
            substr(contents, start + 1, size) AS content
        FROM (SELECT merchant, window, turn, contents, key AS position, {_CALL} FROM turn, json_each(calls))
    """,
    "metric": "SELECT merchant, window, key, value FROM turn, json_each(metrics)",
}
"""Other ways to read the tables."""

TABLE_NAMES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"

Row = dict[str, Any]
Pathish = str | os.PathLike[str]


class JournalMismatch(Exception):
    """A run file does not fit: it is damaged, or made by or for something else.

    Attributes:
        field: What does not fit.
        recorded: Its value in the file.
        found: Its value now.
    """

    def __init__(self, field: str, recorded: Any, found: Any, hint: str = "") -> None:
        super().__init__(field, recorded, found, hint)
        self.field = field
        self.recorded = recorded
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        """Return field and both values in one line, or the hint alone if there are no values."""
        if self.recorded is None and self.found is None:
            return self.hint
        text = f"{self.field}: the run file has {_short(self.recorded)}, here it is {_short(self.found)}"
        return f"{text}; {self.hint}" if self.hint else text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def damaged(path: Pathish, error: Exception) -> JournalMismatch:
    """The exception for a file that SQLite cannot read."""
    hint = "salvage copies what can still be read"
    return JournalMismatch("file", f"damaged data ({error}) in {os.fspath(path)}", "an intact file", hint)


def has_run(path: Pathish) -> bool:
    """Whether a file holds anything that must not be overwritten.

    A process that died before it had described its run leaves a file that holds nothing yet.
    """
    if not Path(path).exists() or not Path(path).stat().st_size:
        return False
    try:
        connection = sqlite3.connect(path)
        try:
            names = {name for (name,) in connection.execute(TABLE_NAMES)}
            return not names <= set(TABLES) or ("run" in names and _started(connection))
        finally:
            connection.close()
    except sqlite3.Error:
        return True  # whatever it is, it is not ours to overwrite


def _started(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM run").fetchone() is not None


def create(path: Pathish) -> sqlite3.Connection:
    """Make a run file without a run in it.

    Raises:
        FileExistsError: There is a file with something in it.
    """
    if has_run(path):
        raise FileExistsError(
            f"{os.fspath(path)} exists already and is never overwritten; "
            "recording.resume continues the run in it"
        )
    connection = _connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE VIEW IF NOT EXISTS {name} AS {query}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def open_run(path: Pathish) -> sqlite3.Connection:
    """Open an existing run file for reading and writing.

    Raises:
        FileNotFoundError: There is no such file.
        JournalMismatch: It holds no run of this format, or is damaged.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no run file {os.fspath(path)}")
    connection = None
    try:
        connection = _connect(path)
        check_format(connection, path)
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        raise damaged(path, error) from None
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


@contextmanager
def read_run(path: Pathish, *, damaged_too: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a run file for reading alone; neither it nor its folder changes.

    Args:
        path: The run file.
        damaged_too: Read on where the file is cut off, as far as that goes.

    Raises:
        FileNotFoundError: There is no such file.
        JournalMismatch: It holds no run of this format, or is damaged.
    """
    place = Path(path).resolve()
    if not place.is_file():
        raise FileNotFoundError(f"there is no run file {os.fspath(path)}")
    # Without a log beside it nobody writes into the file, and SQLite need not put one there.
    mode = "mode=ro" if place.with_name(f"{place.name}-wal").exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{place.as_uri()}?{mode}", uri=True, isolation_level=None)
    try:
        if damaged_too:
            connection.execute("PRAGMA writable_schema = ON")
        check_format(connection, path)
        yield connection
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from None
    finally:
        connection.close()


def _connect(path: Pathish) -> sqlite3.Connection:
    # A run may be driven by another thread than the one that opened its file, never by two at a time.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # In pages. A checkpoint waits for the disk, twice in a year of the default market; without them the
        # log grows large, which takes longer.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # In pages: a turn writes about six, most of them new; keeping few leaves the processor's cache to the
        # market.
        connection.execute("PRAGMA cache_size = 64")
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection, path: Pathish) -> None:
    """Raise unless a database holds a run of this format.

    Raises:
        JournalMismatch: It does not.
    """
    names = {name for (name,) in connection.execute(TABLE_NAMES)}
    if "run" not in names:
        raise JournalMismatch("run", None, None, f"there is no run in {os.fspath(path)}")
    found = connection.execute("SELECT format FROM run").fetchone()
    if found is None:
        hint = f"there is no run in {os.fspath(path)}: it had not begun, start it anew"
        raise JournalMismatch("run", None, None, hint)
    if found[0] != FORMAT:
        raise JournalMismatch("format", found[0], FORMAT)


def rows(connection: sqlite3.Connection, query: str, values: Iterable[Any] = ()) -> list[Row]:
    """Run a query and return its rows as dicts."""
    cursor = connection.execute(query, tuple(values))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def call_rows(turn: Row) -> list[Row]:
    """The calls of a turn, as the view of calls has them.

    Args:
        turn: Row of the turn.

    Raises:
        sqlite3.DatabaseError: They cannot be read.
    """
    # Not through the view: SQLite's text ends at a null character, which a name may hold.
    place = {key: turn[key] for key in ("merchant", "window", "turn")}
    found = []
    try:
        for position, values in enumerate(json.loads(turn["calls"])):
            call = dict(zip(CALL_COLUMNS, values, strict=True))
            start, size = call.pop("start"), call.pop("size")
            content = turn["contents"][start : start + size]
            found.append({**place, "position": position, **call, "content": content})
    except (ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"calls of turn {turn['seq']}: {error}") from None
    return found


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Insert one row."""
    connection.execute(insertion(table, row), tuple(row.values()))


def insertion(table: str, columns: Collection[str]) -> str:
    """The statement that inserts a row with some columns in this order."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def erase_turn(connection: sqlite3.Connection, seq: int, place: tuple[int, int, int]) -> None:
    """Delete a turn and what was written with it.

    Args:
        connection: The open file, inside a transaction.
        seq: Number of the turn.
        place: Its merchant, window and turn.
    """
    connection.execute("DELETE FROM turn WHERE seq = ?", (seq,))
    for table in ("event", "note"):
        connection.execute(f"DELETE FROM {table} WHERE merchant = ? AND window = ? AND turn = ?", place)
