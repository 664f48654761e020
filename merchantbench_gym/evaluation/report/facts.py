"""What a run file tells about each seat of its run."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from merchantbench_gym.evaluation.report.again import Again, execute
from merchantbench_gym.market.world import STATUSES
from merchantbench_gym.recording import schema
from merchantbench_gym.recording.schema import CALL_COLUMNS, TABLES, Pathish, Row, damaged, read_run

LONGEST = 20_000
"""Characters of a content that are read at most; no page shows more of it."""


@dataclass
class SeatFacts:
    """One seat of a run: a column of the page. Amounts are cents.

    Attributes:
        file: Path of the run file.
        run: Row of the run table.
        scenario: The scenario as plain data.
        merchant: The seat.
        policy: What the file says about who played it.
        turns: Its turns with their calls under ``calls`` and events under ``events``.
        figures: Figures at the end of each window, with ``day`` (days since the start).
        notes: Versions of its notes.
        model_calls: Calls of a model.
        again: What executing the run again told.
        prices: Changes of sale prices by product id: day and price, None when it left the shelf.
    """

    file: str
    run: Row
    scenario: dict[str, Any]
    merchant: int
    policy: dict[str, Any]
    turns: list[Row]
    figures: list[dict[str, float]]
    notes: list[Row]
    model_calls: list[Row]
    again: Again
    name: str = ""
    prices: dict[str, list[tuple[float, float | None]]] = field(default_factory=dict)

    @property
    def finish(self) -> dict[str, Any]:
        """Figures at the end of the run as executed again, empty if that did not work."""
        return self.again.seats[self.merchant] if self.again.seats else {}

    @property
    def initial(self) -> int:
        """Net assets at the start."""
        given = self.scenario.get("merchant", {})
        cents = 100 * (given.get("initial_cash", 0) + given.get("initial_deposit", 0))
        return int(round(cents, 0))

    @property
    def final(self) -> int:
        """Net assets at the end, or as far as the record goes."""
        last = self.turns[-1] if self.turns else None
        return self.initial if last is None else int(last["net_assets"]) + int(last["reward"] or 0)

    @property
    def reason(self) -> str:
        """Why the run of this seat ended."""
        return str(self.finish.get("end_reason") or self.run["reason"])

    @property
    def statuses(self) -> dict[str, int]:
        """Orders by status."""
        if self.finish:
            return dict(self.finish["statuses"])
        last = self.figures[-1] if self.figures else {}
        return {name: int(last.get(name, 0)) for name in STATUSES}

    def calls(self) -> Iterator[Row]:
        """All its calls in order."""
        for turn in self.turns:
            yield from turn["calls"]

    def as_json(self) -> dict[str, Any]:
        """Its identity and outcome as plain data; amounts in currency units."""
        return {
            "file": self.file,
            "label": self.run["label"],
            "merchant": self.merchant,
            "scenario": str(self.scenario.get("name", "")),
            "scenario_hash": self.run["scenario_hash"],
            "seed": int(self.run["seed"]),
            "policy": str(self.policy.get("name", "")),
            "status": self.run["status"],
            "reason": self.reason,
            "turns": len(self.turns),
            "net_assets": self.final / 100,
            "identical": self.again.identical,
        }


KINDS: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,), "REAL": (int, float)}
COLUMNS = {
    **{table: dict(re.findall(r"(\w+) (INTEGER|TEXT|REAL)\b", columns)) for table, columns in TABLES.items()},
    "call": CALL_COLUMNS | {"content": "TEXT"},
}


def rows(source: sqlite3.Connection, table: str, query: str, values: tuple[Any, ...] = ()) -> list[Row]:
    """Rows of a table, each value of the kind its column has; SQLite itself lets any stand anywhere.

    Raises:
        TypeError: A value is of another kind.
    """
    found = schema.rows(source, query, values)
    for row in found:
        for name, value in row.items():
            kind = COLUMNS[table].get(name)
            if kind is not None and value is not None and not isinstance(value, KINDS[kind]):
                raise TypeError(f"{table}.{name} is no {kind}")
    return found


def day_of(time: str) -> float:
    """Days from the start to a time such as ``D26H12``."""
    day, _, hour = time.removeprefix("D").partition("H")
    return int(day) - 1 + int(hour) / 24


@contextmanager
def _whole(path: Pathish) -> Iterator[sqlite3.Connection]:
    """Open a run file whose pages and values are whole.

    Raises:
        JournalMismatch: Something in it cannot be read.
    """
    with read_run(path) as source:
        checked = source.execute("PRAGMA quick_check(1)").fetchone()[0]
        if checked != "ok":
            raise damaged(path, sqlite3.DatabaseError(checked))
        try:
            yield source
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise damaged(path, error) from None


def read_seats(path: Pathish) -> list[SeatFacts]:
    """Read the seats of a run.

    Args:
        path: The run file; it is not changed.

    Raises:
        FileNotFoundError: There is no such file.
        JournalMismatch: It holds no run of this format, or is damaged.
    """
    with _whole(path) as source:
        run = rows(source, "run", "SELECT * FROM run")[0]
        policies = json.loads(run["policy"])
        scenario = json.loads(run["scenario"])
        int(run["seed"])
        for key in ("horizon_days", "activation_period"):
            int(scenario["run"][key])
        again = execute(source, run)
        seats = []
        for merchant in range(int(run["merchants"])):
            seat = SeatFacts(
                file=os.fspath(path),
                run=run,
                scenario=scenario,
                merchant=merchant,
                policy=dict(policies.get(str(merchant), {})),
                turns=_turns(source, merchant),
                figures=[],
                notes=rows(
                    source, "note", "SELECT * FROM note WHERE merchant = ? ORDER BY version", (merchant,)
                ),
                model_calls=_model_calls(source, merchant),
                again=again,
            )
            seat.figures = _figures(source, seat)
            seat.prices = _prices(seat)
            seats.append(seat)
        return seats


def _model_calls(source: sqlite3.Connection, merchant: int) -> list[Row]:
    query = (
        "SELECT window, model, class, usage, cost_micro_usd, duration_s FROM model_call"
        " WHERE merchant = ? ORDER BY seq"
    )
    return [
        {**row, "usage": json.loads(row["usage"])} for row in rows(source, "model_call", query, (merchant,))
    ]


def _turns(source: sqlite3.Connection, merchant: int) -> list[Row]:
    turns = rows(
        source,
        "turn",
        "SELECT merchant, window, turn, time, text, charged, rejected, closed_by, net_assets, reward"
        " FROM turn WHERE merchant = ? ORDER BY seq",
        (merchant,),
    )
    by_place = {(turn["window"], turn["turn"]): turn for turn in turns}
    for turn in turns:
        turn["day"] = day_of(turn["time"])
        turn["calls"], turn["events"] = [], []
    for call in rows(
        source,
        "call",
        "SELECT window, turn, position, name, kind, ok, code, applied, rejected, arguments,"
        f" length(content) AS size, substr(content, 1, {LONGEST}) AS content FROM call"
        " WHERE merchant = ? ORDER BY window, turn, position",
        (merchant,),
    ):
        by_place[call["window"], call["turn"]]["calls"].append(call)
    for event in rows(source, "event", "SELECT * FROM event WHERE merchant = ? ORDER BY seq", (merchant,)):
        # An event at the end of a run that made no turn stands with the last one.
        place = (event["window"], event["turn"])
        if turns:
            by_place.get(place, turns[-1])["events"].append(event)
    return turns


def _figures(source: sqlite3.Connection, seat: SeatFacts) -> list[dict[str, float]]:
    days = {turn["window"]: turn["day"] for turn in seat.turns}
    found: dict[int, dict[str, float]] = {}
    query = "SELECT window, key, value FROM metric WHERE merchant = ? ORDER BY window"
    for window, key, value in source.execute(query, (seat.merchant,)):
        if value is not None:
            found.setdefault(window, {"day": days[window]})[key] = float(value)
    return list(found.values())


def _prices(seat: SeatFacts) -> dict[str, list[tuple[float, float | None]]]:
    """Changes of sale prices, from what the tools answered."""
    changes: dict[str, list[tuple[float, float | None]]] = {}
    for turn in seat.turns:
        for call in turn["calls"]:
            if call["name"] not in ("list_product", "adjust_price", "delist_product") or not call["applied"]:
                continue
            try:
                items = json.loads(call["content"])["items"]
                rows_ = [dict(zip(items["columns"], row, strict=True)) for row in items["rows"]]
            except (ValueError, KeyError, TypeError):
                continue  # cut off, or altered by a wrapper
            for row in rows_:
                price = row.get("new_price", row.get("sale_price"))
                if row.get("ok") and (price is not None or call["name"] == "delist_product"):
                    changes.setdefault(str(row["product_id"]), []).append((turn["day"], price))
    return changes
