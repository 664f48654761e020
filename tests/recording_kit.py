"""Short recorded runs that make every kind of call."""

from __future__ import annotations

from typing import Any

import gymnasium

from merchantbench_gym.baselines import ScriptedPolicy

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
