"""Writes a run into its file, turn by turn, from inside the turns."""

from __future__ import annotations

import datetime
import json
import sqlite3
import weakref
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.error import ResetNeeded

import merchantbench_gym
from merchantbench_gym.market.world import STATUSES
from merchantbench_gym.recording import schema
from merchantbench_gym.recording.actions import action_text, numbers_text, record_message
from merchantbench_gym.recording.journal import Journal, dumps
from merchantbench_gym.recording.past import Past
from merchantbench_gym.recording.schema import (
    FORMAT,
    Pathish,
    call_rows,
    erase_turn,
    insert,
    insertion,
    rows,
)
from merchantbench_gym.recording.stack import describe_env, describe_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Record = dict[str, Any]

TURN_COLUMNS = (
    "merchant",
    "window",
    "turn",
    "turn_id",
    "body_hash",
    "time",
    "charged",
    "rejected",
    "net_assets",
    "state_digest",
)
INSERT_TURN = insertion(
    "turn",
    (
        *("seq", "step", "deciding", "own", *TURN_COLUMNS),
        *("text", "action", "note", "closed_by", "metrics", "reward", "calls", "contents"),
    ),
)
OTHER_DRIVER = "other-"
"""Ids of turns that did not come through the recorded stack, though its merchant made them, begin so."""

KINDS = ("READ", "WRITE", "CONTROL", "")


class Recorder:
    """A listener that writes every turn as one transaction, and what surrounds the turns.

    A turn is written inside its undo scope: if that fails, the turn has not happened. The driver of the
    environment calls :meth:`begin` after every reset and steps inside :meth:`step`.

    Args:
        path: The run file.
        label: A word for the run.
        policy: The player, or a mapping that describes it.
        connection: The open file to continue a run in.

    Attributes:
        path: The run file in use; a later episode has a file of its own.
        label: The word for the run.
        journal: What wrappers and policies write through.
        past: What a resumed run did before; None for a run that was not resumed.
        fronts: Of a resumed run the seats that keep a conversation, by merchant.
        watch: Gets the records of turns that are made before the recording begins.

    Raises:
        FileExistsError: There is a run in the file already.
    """

    reads_only = True  # tells the session that records need not be copied for it

    def __init__(
        self,
        path: Pathish,
        *,
        label: str = "",
        policy: Any = None,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        self.path = Path(path)
        self.past: Past | None = None
        self.fronts: dict[int, Any] = {}
        self.watch: Callable[[Record], object] | None = None
        self._stem = self.path
        self._episodes = 0
        self.label = label
        self._identity: dict[str, Any] = {}
        self._players: dict[int, Any] = {}
        self._env: Any = None
        self._db = schema.create(path) if connection is None else connection
        # A recorder that nobody closes, after a crash for instance, must not leave an open file behind.
        weakref.finalize(self, self._db.close)
        self.journal = Journal(self._db)
        self._start()
        if isinstance(policy, Mapping):
            self._identity = {"0": dict(policy)}
        elif policy is not None:
            self.played_by(policy)

    def _start(self) -> None:
        """Forget the episode before."""
        self._step = -1
        self._seq = 0
        self._actions: dict[int, Any] | None = None
        self._deciding = 0
        self._last: dict[int, tuple[int, int]] = {}
        self._unpaid: dict[int, tuple[int, int]] = {}  # seq and net assets of a turn that ended its window
        self._rewards: list[tuple[int, int]] = []  # reward and seq of turns, not written yet
        self._counts: dict[int, dict[str, int]] = {}

    # --- what the driver tells ---

    def played_by(self, policy: Any, *, seed: int | None = None, merchant: int = 0) -> None:
        """Note who plays a seat; the state of the policy is written with its turns.

        Args:
            policy: The player.
            seed: Seed of its own generator.
            merchant: The seat.
        """
        self._players[merchant] = policy
        identity = describe_policy(policy)
        if seed is not None:
            identity["seed"] = str(seed)
        self._identity[str(merchant)] = {**self._identity.get(str(merchant), {}), **identity}
        self._db.execute("UPDATE run SET policy = ?", (dumps(self._identity),))

    def player(self, merchant: int) -> tuple[dict[str, Any], Any]:
        """Who played a seat so far, and the state of the policy after its last turn, None if unknown."""
        query = "SELECT note FROM turn WHERE own AND merchant = ? ORDER BY seq DESC LIMIT 1"
        last = self._db.execute(query, (merchant,)).fetchone()
        note = json.loads(last[0]) if last else None
        state = note.get("state") if isinstance(note, dict) else None
        return self._identity.get(str(merchant), {}), state

    def begin(self, env: Any, outer: Any, options: Mapping[str, Any] | None) -> None:
        """Start a run: the environment has been reset.

        Args:
            env: The environment whose session is recorded.
            outer: The outermost recorded layer of its stack.
            options: What ``reset`` was given.
        """
        self.past = None
        if self._seq:
            self._end("stopped", "reset", ("finished", "stopped"))
            self._next_file()
        self._start()
        self._env = env
        session = env.session
        # A path with wrappers of callables is recorded too; it just cannot be rebuilt from the file.
        row = {
            "id": 1,
            "format": FORMAT,
            "package_version": merchantbench_gym.__version__,
            **describe_env(env),
            "merchants": session.world.merchants,
            "scenario": dumps(env.scenario.resolved()),
            **env.hashes,
            "seed": str(session.world.seed),
            "options": dumps_or_text(dict(options or {})),
            "stack": dumps_or_text(describe_stack(outer)),
            "policy": dumps(self._identity),
            "label": self.label,
            "status": "running",
            "reason": "",
            "started": _now(),
            "ended": None,
        }
        with self._transaction():
            self._db.execute("DELETE FROM run")
            self._db.execute("DELETE FROM event")
            self._db.execute("DELETE FROM message")
            insert(self._db, "run", row)

    def go_on(self, env: Any, past: Past) -> None:
        """Continue the run of the file, whose turns the environment has made again.

        Args:
            env: The environment whose session is recorded.
            past: What came of these turns.
        """
        self._env, self.past, self.watch = env, past, None
        self._episodes = 1
        session = env.session
        columns = "seq, step, merchant, window, turn, note, closed_by, net_assets, reward, calls"
        for turn in rows(self._db, f"SELECT {columns}, '' AS contents FROM turn ORDER BY seq"):
            self._seq, self._step = turn["seq"], turn["step"]
            self._last[turn["merchant"]] = (turn["window"], turn["turn"])
            counts = self._counts.setdefault(turn["merchant"], {})
            if turn["closed_by"]:
                counts.clear()
            else:
                kinds = [call["kind"] for call in call_rows(turn)]
                _count(counts, kinds, json.loads(turn["note"]))
            if turn["closed_by"] and turn["reward"] is None:
                self._unpaid[turn["merchant"]] = (turn["seq"], turn["net_assets"])
        run = rows(self._db, "SELECT policy, label FROM run")[0]
        self._identity, self.label = json.loads(run["policy"]), run["label"]
        self._db.execute("UPDATE run SET status = 'running', reason = '', ended = NULL")
        self._settle(session)

    @contextmanager
    def step(self, actions: Mapping[int, Any]) -> Iterator[None]:
        """Around one step of the environment: which seats hand in which action.

        Args:
            actions: Action by merchant.
        """
        if self._env is None:
            raise ResetNeeded("call reset() of the recorded environment first")
        session = self._env.session
        self._step += 1
        self._actions = dict(actions)
        seats = range(session.world.merchants)
        self._deciding = sum(session.phase(m) == "deciding" for m in seats)
        before = self._seq
        try:
            yield
            if before < self._seq < before + self._deciding:
                # Some seats repeated a turn; the step is whole all the same.
                made = (self._seq - before, self._step)
                self._db.execute("UPDATE turn SET deciding = ? WHERE step = ?", made)
        finally:
            self._actions = None
            self._settle(session)

    def stop(self, reason: str) -> None:
        """Note that the run ends before its end; it can be resumed."""
        self._end("stopped", reason)

    def close(self) -> None:
        """Close the file; a run that goes on is noted as stopped."""
        with suppress(sqlite3.ProgrammingError):  # closed already
            self._end("stopped", "closed", ("finished", "stopped"))
            self._db.close()

    # --- turns ---

    def __call__(self, record: Record) -> None:
        """Write the record of a turn; runs inside the turn."""
        if self._env is None:
            if self.watch is not None:
                self.watch(record)
            return
        merchant, seq = record["merchant"], self._seq + 1
        place = (merchant, record["window"], record["turn"])
        own = merchant in (self._actions or ()) and not record["turn_id"].startswith(OTHER_DRIVER)
        action = self._action_text(self._actions[merchant]) if own and self._actions else None
        if action is None:
            action = action_text(record_message(record))
        events, note = self.journal.take_events(merchant), record["note"]
        counts = dict(self._counts.get(merchant, ()))
        _count(counts, [call["kind"] for call in record["calls"]], note)
        metrics = dumps(self._figures(merchant, counts)) if record["window_closed_by"] else None
        turn = self._turn_row(record, own, action, metrics)
        with self._transaction():
            self._write_rewards()
            if self._last.get(merchant) == place[1:]:
                # The world has undone the turn after it was written.
                self._erase(place)
            self._db.execute(INSERT_TURN, turn)
            written = [*((kind, body) for _, kind, body in events), *_events_of(note)]
            if written:
                self._db.executemany(
                    "INSERT INTO event (merchant, window, turn, kind, body) VALUES (?, ?, ?, ?, ?)",
                    [(*place, kind, body) for kind, body in written],
                )
            if merchant not in self._last or "WRITE" in counts:
                self._write_notes(merchant)
        self._rewards.clear()
        if events:
            self.journal.drop_events(events)
        self._seq = seq
        self._last[merchant] = place[1:]
        self._counts[merchant] = {} if record["window_closed_by"] else counts
        if record["window_closed_by"]:
            self._unpaid[merchant] = (seq, record["net_assets"])

    def _action_text(self, action: Any) -> str:
        numeric = getattr(self._env, "numeric", False)
        return numbers_text(action) if numeric else action_text(action)

    def _turn_row(self, record: Record, own: bool, action: str, metrics: str | None) -> tuple[Any, ...]:
        merchant, note = record["merchant"], record["note"]
        player = self._players.get(merchant) if own else None
        if player is not None and (note is None or isinstance(note, dict)) and "state" not in (note or {}):
            note = {**(note or {}), "state": player.state_dict()}
        # Money moves only while the clock runs, which takes the end of a window.
        closed_by = record["window_closed_by"]
        reward = None if closed_by else 0
        place = (self._seq + 1, max(self._step, 0), self._deciding, int(own))
        text = storable(record["text"])
        figures = [record[name] for name in TURN_COLUMNS]
        rest = (text, action, dumps(note), closed_by, metrics, reward)
        return (*place, *figures, *rest, *_call_texts(record))

    def _erase(self, place: tuple[int, int, int]) -> None:
        query = "SELECT seq FROM turn WHERE merchant = ? AND window = ? AND turn = ?"
        for (seq,) in self._db.execute(query, place).fetchall():
            erase_turn(self._db, seq, place)

    def _write_notes(self, merchant: int) -> None:
        """Write the versions of a merchant's notes that are new, if the environment keeps notes."""
        for provider in self._env.session.providers:
            stored = getattr(provider, "notes", None)
            if stored is None:
                continue
            known = self._db.execute("SELECT COUNT(*) FROM note WHERE merchant = ?", (merchant,)).fetchone()
            for version in list(stored(merchant))[known[0] :]:
                content = version["content"]
                row = {key: version[key] for key in ("version", "window", "turn")}
                size = len(content.encode("utf-8", "surrogatepass"))
                insert(
                    self._db,
                    "note",
                    {"merchant": merchant, **row, "bytes": size, "content": storable(content)},
                )

    def _figures(self, merchant: int, counts: dict[str, int]) -> dict[str, float | None]:
        """Figures of a shop as its window closes; amounts in cents."""
        world = self._env.session.world
        rating = world.rating(merchant)
        return {
            **world.accounts(merchant)._asdict(),
            "net_assets": world.net_assets(merchant),
            **dict(zip(STATUSES, world.status_counts(merchant), strict=True)),
            "rating": rating.rating,
            "listings": world.shelf_size(merchant),
            **{f"calls_{kind.lower() or 'none'}": counts.get(kind, 0) for kind in KINDS},
            "tokens": counts.get("tokens", 0),
            "cost_micro_usd": counts.get("cost_micro_usd", 0),
        }

    # --- the rest ---

    def _settle(self, session: Any) -> None:
        """Note rewards once the clock has run, and write the end of the run."""
        for merchant, (seq, before) in list(self._unpaid.items()):
            window = self._last[merchant][0]
            if session.window != window or session.phase(merchant) == "closed":
                reward = session.world.net_assets(merchant) - before
                self._rewards.append((reward, seq))
                del self._unpaid[merchant]
        if session.finished and not self._unpaid:
            self._end("finished", session.end_reason(0))

    def _write_rewards(self) -> None:
        # They follow from the turns, so they can wait for the next one: a transaction costs more than they.
        if self._rewards:
            self._db.executemany("UPDATE turn SET reward = ? WHERE seq = ?", self._rewards)

    def _end(self, status: str, reason: str, unless: tuple[str, str] = ("finished", "")) -> None:
        with self._transaction():
            self._write_rewards()
            for merchant, kind, body in self.journal.take_events(None):
                window, turn = self._last.get(merchant, (0, 0))
                event = {"merchant": merchant, "window": window, "turn": turn, "kind": kind, "body": body}
                insert(self._db, "event", event)
            self._db.execute(
                "UPDATE run SET status = ?, reason = ?, ended = ? WHERE status NOT IN (?, ?)",
                (status, reason, _now(), *unless),
            )
        self._rewards.clear()
        self.journal.drop_events(self.journal.take_events(None))

    def _next_file(self) -> None:
        """Go on in a file of its own."""
        self._episodes += 1
        self._db.close()
        self.path = self._stem.with_name(f"{self._stem.stem}-{self._episodes + 1}{self._stem.suffix}")
        self._db = schema.create(self.path)
        weakref.finalize(self, self._db.close)
        self.journal.move(self._db)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def describe_policy(policy: Any) -> dict[str, Any]:
    """Name, version and, if it tells, configuration of a policy."""
    identity = {"name": policy.name, "version": policy.version}
    report = policy.report()
    identity |= {key: report[key] for key in ("model", "config_hash") if key in report}
    describe = getattr(getattr(policy, "config", None), "describe", None)
    return identity if describe is None else {**identity, "config": describe()}


def dumps_or_text(value: Any) -> str:
    """JSON of a value; of what is no JSON data its type."""
    return json.dumps(value, default=lambda item: f"<{type(item).__name__}>")


def _call_texts(record: Record) -> tuple[str, str]:
    """The calls of a turn as JSON of their CALL_COLUMNS, and their results one after the other."""
    calls, texts = record["calls"], getattr(record, "arguments", None)
    listed, start = [], 0
    for call, text in zip(calls, texts or [""] * len(calls), strict=True):
        arguments, size = call["arguments"], len(call["content"])
        if not text or type(arguments) is not dict or not text.isascii():
            text = dumps(arguments)
        outcome = (int(call["ok"]), call["code"], call["applied"], call["rejected"])
        listed.append((call["id"], storable(call["name"]), call["kind"], text, *outcome, start, size))
        start += size
    return dumps(listed), "".join([call["content"] for call in calls])


def _events_of(note: Any) -> list[tuple[str, str]]:
    events = note.get("events") if isinstance(note, dict) else None
    if not isinstance(events, list):
        return []
    return [(str(item.get("kind", "")), dumps(item)) for item in events if isinstance(item, dict)]


def _count(counts: dict[str, int], kinds: Iterable[str], note: Any) -> None:
    """Add the calls of a turn by kind, and what its note tells of."""
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    for key, number in _usage(note).items():
        counts[key] = counts.get(key, 0) + number


def _usage(note: Any) -> dict[str, int]:
    """Tokens and cost that a note tells of."""
    if not isinstance(note, dict):
        return {}
    usage = note.get("usage")
    tokens = (
        [usage.get(key, 0) for key in ("input", "output", "cache_read", "cache_write")]
        if (isinstance(usage, dict))
        else []
    )
    cost = note.get("cost_micro_usd")
    known = sum(number for number in tokens if isinstance(number, int))
    return {"tokens": known, "cost_micro_usd": cost if isinstance(cost, int) else 0}


def storable(text: str) -> str:
    """Text that SQLite can hold: lone surrogates become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
