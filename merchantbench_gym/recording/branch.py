"""Copies of the beginning of a run: branching off, and saving what a damaged file still holds."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from merchantbench_gym.recording.rerun import fresh_session, place, resubmit, turn_rows
from merchantbench_gym.recording.schema import Pathish, Row, create, insert, read_run, rows

OF_A_TURN = ("event", "note", "model_call", "message")
"""Tables whose rows name the turn they belong to."""


def fork(path: Pathish, out: Pathish, window: int, turn: int = 0) -> Path:
    """Copy the beginning of a run into a file of its own, which can be resumed.

    Args:
        path: The run file; it is not changed.
        out: The new file.
        window: Index of the window to branch off in.
        turn: Turns of that window to take along.

    Returns:
        Path of the new file.

    Raises:
        FileExistsError: The new file holds a run.
        FileNotFoundError: There is no run file.
        JournalMismatch: It holds no run of this format, or is damaged.
        ValueError: The run did not get to this point.
    """
    with read_run(path) as source:
        turns = list(turn_rows(source))
        kept = [row for row in turns if (row["window"], row["turn"]) <= (window, turn)]
        begun = window == 0 or any(row["window"] == window - 1 and row["closed_by"] for row in turns)
        made = max((row["turn"] for row in turns if row["window"] == window), default=0)
        if not begun or window < 0 or not 0 <= turn <= made:
            raise ValueError(f"the run did not get to window {window}, turn {turn}")
        return _copy(source, out, kept, "forked")


def salvage(path: Pathish, out: Pathish) -> int:
    """Copy the longest whole and consistent beginning of a run out of a damaged file.

    The turns are made again one by one; the first one that cannot be read or comes out differently ends the
    copy.

    Args:
        path: The run file; it is not changed.
        out: The new file, which can be resumed.

    Returns:
        Number of turns saved.

    Raises:
        FileExistsError: The new file holds a run.
        FileNotFoundError: There is no run file.
        JournalMismatch: Not even the description of the run can be read.
    """
    with read_run(path, damaged_too=True) as source:
        session = fresh_session(rows(source, "SELECT * FROM run")[0])
        records: list[dict[str, Any]] = []
        session.add_listener(records.append)
        kept: list[Row] = []
        # A page that is cut off may read as anything.
        with suppress(sqlite3.DatabaseError, ValueError, TypeError, KeyError, IndexError):
            for turn in turn_rows(source):
                if resubmit(session, turn, records) is not None:
                    break
                kept.append(turn)
        _copy(source, out, kept, "salvaged")
        return len(kept)


def _copy(source: sqlite3.Connection, out: Pathish, turns: list[Row], reason: str) -> Path:
    run = rows(source, "SELECT * FROM run")[0]
    with closing(create(out)) as target:
        target.execute("BEGIN IMMEDIATE")
        insert(target, "run", {**run, "status": "stopped", "reason": reason})
        for turn in turns:
            for row in rows(source, "SELECT * FROM turn WHERE seq = ?", (turn["seq"],)):
                insert(target, "turn", row)
            for table in OF_A_TURN:
                _take(source, target, table, "merchant = ? AND window = ? AND turn = ?", place(turn))
        _take(source, target, "note", "window IS NULL", ())
        target.execute("COMMIT")
    return Path(os.fspath(out))


def _take(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, where: str, values: tuple[Any, ...]
) -> None:
    """Copy rows that tell more about a turn; what cannot be read is left out."""
    with suppress(sqlite3.DatabaseError):
        for row in rows(source, f"SELECT * FROM {table} WHERE {where}", values):
            insert(target, table, row)
