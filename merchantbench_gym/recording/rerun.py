"""Executing a recorded run again and comparing it with its file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from merchantbench_gym.recording.actions import recorded_batch
from merchantbench_gym.recording.recorder import storable
from merchantbench_gym.recording.schema import JournalMismatch, Pathish, Row, call_rows, read_run, rows
from merchantbench_gym.recording.stack import build_env, check_hashes
from merchantbench_gym.session import Session, Turn, TurnRefused
from merchantbench_gym.tools.results import canonical

TURN_FIELDS = ("turn_id", "body_hash", "time", "text", "charged", "rejected", "net_assets", "state_digest")
CALL_FIELDS = ("id", "name", "kind", "ok", "code", "applied", "rejected", "content")


@dataclass(frozen=True)
class Divergence:
    """The first place where a run executed again differs from its file.

    Attributes:
        window: Window of the turn.
        turn: Number of the turn in it.
        position: Position of the call in the turn, None if the difference is in the turn itself.
        field: What differs.
        recorded: Its value in the file.
        replayed: Its value now.
    """

    window: int
    turn: int
    position: int | None
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        """Return place and both values in one line."""
        call = "" if self.position is None else f", call {self.position}"
        values = f"recorded {_cut(self.recorded)}, replayed {_cut(self.replayed)}"
        return f"window {self.window}, turn {self.turn}{call}, {self.field}: {values}"

    def mismatch(self) -> JournalMismatch:
        """The exception for it."""
        call = "" if self.position is None else f", call {self.position}"
        place = f"window {self.window}, turn {self.turn}{call}, {self.field}"
        hint = "salvage copies the turns before it"
        return JournalMismatch(place, self.recorded, self.replayed, hint)


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


@dataclass(frozen=True)
class Replay:
    """What came of executing a run again.

    Attributes:
        turns: Turns that are as recorded.
        divergence: The first difference, None if there is none.
    """

    turns: int
    divergence: Divergence | None

    @property
    def identical(self) -> bool:
        """Whether everything is as recorded."""
        return self.divergence is None

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        found = None if self.divergence is None else asdict(self.divergence)
        return {"identical": self.identical, "turns": self.turns, "divergence": found}

    def __str__(self) -> str:
        """Return ``identical`` or the first difference."""
        return "identical" if self.divergence is None else str(self.divergence)


def replay(path: Pathish, on_turn: Callable[[int], object] | None = None) -> Replay:
    """Execute every call of a run again, on an environment without its wrappers, and compare.

    Args:
        path: The run file; it is not changed.
        on_turn: Called with the number of turns after each.

    Returns:
        The outcome; its text is ``identical``, or tells the first difference.

    Raises:
        FileNotFoundError: There is no such file.
        JournalMismatch: It holds no run of this format, is damaged, or was made with other rules.
    """
    with read_run(path) as connection:
        return verify(connection, on_turn)


def verify(connection: sqlite3.Connection, on_turn: Callable[[int], object] | None = None) -> Replay:
    """As :func:`replay`, with an open file; turns are read one by one."""
    run = rows(connection, "SELECT * FROM run")[0]
    session = fresh_session(run)
    records: list[dict[str, Any]] = []
    session.add_listener(records.append)
    turns = 0
    for turn in turn_rows(connection):
        found = resubmit(session, turn, records)
        if found is not None:
            return Replay(turns, found)
        turns += 1
        if on_turn is not None:
            on_turn(turns)
    return Replay(turns, _end_differs(run, session, connection))


def _end_differs(run: Row, session: Session, connection: sqlite3.Connection) -> Divergence | None:
    if run["status"] != "finished" or session.finished:
        return None
    last = rows(connection, "SELECT window, turn FROM turn ORDER BY seq DESC LIMIT 1")
    window, turn = (last[0]["window"], last[0]["turn"]) if last else (0, 0)
    return Divergence(window, turn, None, "status", "finished", "running")


def fresh_session(run: Row) -> Session:
    """A session at the beginning of a run, with the tools its wrappers add.

    Raises:
        JournalMismatch: The rules are others now.
    """
    try:
        env = build_env(run)
    except JournalMismatch:
        env = build_env(run, bare=True)
    env.reset(seed=int(run["seed"]))
    check_hashes(run, env.unwrapped)
    session: Session = env.unwrapped.session
    return session


def turn_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """The turns of a run in their order, each with its calls under ``calls``."""
    seq = 0
    while found := rows(connection, "SELECT * FROM turn WHERE seq > ? ORDER BY seq LIMIT 1", (seq,)):
        turn = found[0]
        seq = turn["seq"]
        yield {**turn, "calls": call_rows(turn)}


def place(turn: Row) -> tuple[int, int, int]:
    """Merchant, window and turn number of a row."""
    return turn["merchant"], turn["window"], turn["turn"]


def resubmit(session: Session, turn: Row, records: list[dict[str, Any]]) -> Divergence | None:
    """Make a recorded turn again and compare; the clock runs if it can.

    Args:
        session: A session that stands before the turn.
        turn: The recorded turn.
        records: Where a listener of the session puts the records of turns; taken from here.
    """
    records.clear()
    try:
        batch = recorded_batch(turn)
        session.submit(turn["merchant"], Turn(turn["turn_id"], turn["window"], batch))
    except json.JSONDecodeError as error:
        return Divergence(turn["window"], turn["turn"], None, "action", turn["action"], str(error))
    except TurnRefused as refused:
        return Divergence(turn["window"], turn["turn"], None, "turn", turn["turn_id"], refused.code)
    found = difference(turn, records.pop())
    if found is not None:
        return found
    run_clock(session)
    return None if turn["reward"] is None else _reward_differs(session, turn)


def _reward_differs(session: Session, turn: Row) -> Divergence | None:
    if session.world.merchants > 1:
        return None  # the others may still be deciding
    reward = session.world.net_assets(turn["merchant"]) - turn["net_assets"]
    if reward == turn["reward"]:
        return None
    return Divergence(turn["window"], turn["turn"], None, "reward", turn["reward"], reward)


def run_clock(session: Session) -> None:
    """Let the clock run if every live merchant has ended its step."""
    phases = [session.phase(m) for m in range(session.world.merchants)]
    if "done" in phases and "deciding" not in phases:
        session.advance()


def difference(turn: Row, record: Mapping[str, Any]) -> Divergence | None:
    """Compare a recorded turn with the record of the same turn made again; calls come first."""
    where = (turn["window"], turn["turn"])
    for call, again in zip(turn["calls"], record["calls"], strict=False):
        position = again["position"]
        if call["position"] != position:
            return Divergence(*where, position, "position", call["position"], position)
        arguments = canonical_text(call["arguments"])
        if arguments != (now := canonical(again["arguments"])):
            return Divergence(*where, position, "arguments", arguments, now)
        for name in CALL_FIELDS:
            value = storable(again[name]) if name == "name" else again[name]
            if call[name] != value:
                return Divergence(*where, position, name, call[name], value)
    if len(turn["calls"]) != len(record["calls"]):
        return Divergence(*where, None, "calls", len(turn["calls"]), len(record["calls"]))
    renamed = {**record, "text": storable(record["text"])}
    for name in TURN_FIELDS:
        if turn[name] != renamed[name]:
            return Divergence(*where, None, name, turn[name], renamed[name])
    for mine, its in (("closed_by", "window_closed_by"), ("window", "window"), ("turn", "turn")):
        if turn[mine] != record[its]:
            return Divergence(*where, None, mine, turn[mine], record[its])
    return None


def canonical_text(text: str) -> str:
    """JSON text in canonical form; text that is none stays as it is."""
    try:
        return canonical(json.loads(text))
    except ValueError:
        return text
