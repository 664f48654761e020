"""Short recorded runs that make every kind of call."""

from __future__ import annotations

import sqlite3
from typing import Any

import gymnasium

from merchantbench_gym.baselines import ScriptedPolicy
from merchantbench_gym.recording.schema import CALL_COLUMNS

END = {"id": "end", "name": "end_of_step", "arguments": {}}


def listing(*products: int, price: float = 40.0) -> dict[str, Any]:
    items = [{"product_id": f"P{product:05d}", "sale_price": price} for product in products]
    return {"id": "list", "name": "list_product", "arguments": {"items": items}}


BALANCE = {"id": "look", "name": "query_balance", "arguments": {}}
SCRIPT: list[Any] = [
    [BALANCE, listing(*range(8))],
    {
        "role": "assistant",
        "content": "thinking 🤔 é \ud800",
        "tool_calls": None,
    },
    [{"id": "bad", "name": "adjust_price", "arguments": '{"items": '}, {"name": "no_such_tool"}],
    "not json",
    [listing(9, 9, 100000), END],
    [END],
    None,
    [BALANCE, END],
]
DAYS = {"run": {"horizon_days": 4}}


def make(**arguments: Any) -> Any:
    return gymnasium.make(
        "merchantbench_gym:MerchantBenchSmoke-v0",
        **{"overrides": DAYS, **arguments},
        disable_env_checker=True,
    )


def policy() -> ScriptedPolicy:
    return ScriptedPolicy(SCRIPT)


def let_calls_be_altered(connection: sqlite3.Connection) -> None:
    """Let a connection UPDATE and DELETE calls, which are a view of the turns, to alter a file."""
    values = {**{name: f"NEW.{name}" for name in CALL_COLUMNS}, "start": "length(contents)"}
    values["size"] = "length(NEW.content)"
    changes = ", ".join(
        f"'$[' || OLD.position || '][{i}]', {values[name]}" for i, name in enumerate(CALL_COLUMNS)
    )
    where = "WHERE merchant = OLD.merchant AND window = OLD.window AND turn = OLD.turn"
    connection.execute(
        "CREATE TEMP TRIGGER alter_call INSTEAD OF UPDATE ON main.call BEGIN UPDATE turn SET"
        f" calls = json_set(calls, {changes}), contents = contents || NEW.content {where}; END"
    )
    connection.execute(
        "CREATE TEMP TRIGGER drop_call INSTEAD OF DELETE ON main.call BEGIN UPDATE turn SET"
        f" calls = json_remove(calls, '$[' || OLD.position || ']') {where}; END"
    )
