"""What wrappers and policies may write into a run file besides the turns: events and model calls."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from merchantbench_gym.recording.schema import insert, rows
from merchantbench_gym.tools.results import compact_encoder

# Lone surrogates survive as escapes, which SQLite's UTF-8 text could not hold.
dumps = compact_encoder(ensure_ascii=True)

# Turns of another driver carry nothing of what the policy has spent or remembers.
UNFINISHED = (
    "NOT EXISTS (SELECT 1 FROM turn AS t WHERE t.merchant = m.merchant AND t.own"
    " AND (t.window, t.turn) >= (m.window, m.turn))"
)


class Journal:
    """A handle to the run file, and to nothing else.

    Args:
        connection: The open file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._events: list[tuple[int, str, str]] = []

    def event(self, kind: str, body: Any = None, *, merchant: int = 0) -> None:
        """Note an event; it is written with the merchant's next turn, or at the end of the run.

        Args:
            kind: What happened.
            body: More about it, JSON data.
            merchant: Whom it concerns.
        """
        self._events.append((merchant, kind, dumps(body)))

    def model_call(self, *, usage: Any = None, response: Any = None, **row: Any) -> None:
        """Write a call of a model at once.

        Args:
            usage: Its usage, JSON data.
            response: The response message, None if there is none.
            **row: The other columns of the table: ``merchant, window, turn, attempt, request_sha256, model,
                class, http_status, request_id, cost_micro_usd, started, duration_s``.
        """
        insert(self._connection, "model_call", {**row, "usage": dumps(usage), "response": dumps(response)})

    def messages(self, added: Iterable[Mapping[str, Any]], *, merchant: int = 0) -> None:
        """Write messages of a conversation at once; those that are in the file already stay as they are.

        Args:
            added: Mappings of ``sequence, window, turn, kind, body``, body being the message.
            merchant: Whose conversation.
        """
        values = [
            (row["sequence"], merchant, row["window"], row["turn"], row["kind"], dumps(row["body"]))
            for row in added
        ]
        if not values:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany("INSERT OR IGNORE INTO message VALUES (?, ?, ?, ?, ?, ?)", values)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @property
    def label(self) -> str:
        """The word given to the run, "" before it has begun."""
        found = self._connection.execute("SELECT label FROM run").fetchone()
        return "" if found is None else str(found[0])

    def unfinished_calls(self, *, merchant: int = 0) -> list[dict[str, Any]]:
        """Calls of a model after which no turn of its own has been made: the process ended before.

        Args:
            merchant: Whose calls.

        Returns:
            Mappings of ``window, turn, request_sha256, class, http_status, usage, cost_micro_usd`` in order.
        """
        query = (
            "SELECT window, turn, request_sha256, class, http_status, usage, cost_micro_usd"
            f" FROM model_call AS m WHERE merchant = ? AND {UNFINISHED} ORDER BY seq"
        )
        found = rows(self._connection, query, (merchant,))
        return [{**row, "usage": json.loads(row["usage"])} for row in found]

    def pending_response(self, sha256: str, *, merchant: int = 0) -> Any:
        """The response to a request that was answered before, if the turn it was for has not been made.

        Args:
            sha256: Hash of the request.
            merchant: Who asks.

        Returns:
            The response message, None if there is none.
        """
        found = self._connection.execute(
            "SELECT response FROM model_call AS m WHERE merchant = ? AND request_sha256 = ?"
            f" AND response != 'null' AND {UNFINISHED} ORDER BY seq DESC LIMIT 1",
            (merchant, sha256),
        ).fetchone()
        return None if found is None else json.loads(found[0])

    def take_events(self, merchant: int | None) -> list[tuple[int, str, str]]:
        """The events of a merchant, or of all, that have not been written yet; they stay here."""
        return [event for event in self._events if merchant is None or event[0] == merchant]

    def drop_events(self, written: list[tuple[int, str, str]]) -> None:
        """Forget events that have been written."""
        for event in written:
            self._events.remove(event)

    def move(self, connection: sqlite3.Connection) -> None:
        """Write into another file from now on."""
        self._connection = connection
