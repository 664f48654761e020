"""A merchant that calls tools at random: what a shop earns without any judgement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from merchantbench_gym.baselines.policy import END, BasePolicy, marked_up
from merchantbench_gym.spaces import draw_arguments

WRITES = {"list_product": 3, "delist_product": 1, "adjust_price": 2}
"""Writing tools and how often each is drawn, relative to the others."""

IDS = ("product_id", "supplier_id", "order_id", "category")
"""Parameters whose values are taken from results; columns and keys of results have the same names."""

SEARCH = "search_products"
NOTES = frozenset({"read_memory_doc", "write_memory_doc"})
REMEMBERED = 150
READ_SHARE = 2 / 3
MARKUP = (1.0, 3.0)
MAX_TURNS, MAX_CALLS, MAX_ITEMS = 3, 3, 5

Call = dict[str, Any]


class RandomPolicy(BasePolicy):
    """Draws calls that satisfy the schemas of the tools the seat grants; never a malformed one.

    Per window up to three turns of one to three calls, then ``end_of_step``. Reading is twice as likely as
    writing. Ids are those that results have shown; before any, it searches. Prices are the supplier price
    seen last times a factor between 1 and 3. It leaves the notes alone.

    Args:
        seed: Seed of the draws; None takes the one given at ``reset``.
    """

    name = "random"

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._start(0)

    def _start(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._window = -1
        self._turns = 0  # turns left before this window is ended
        self._seen: dict[str, dict[str, float]] = {name: {} for name in IDS}

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        """Start an episode with a fresh generator."""
        super().reset(seat, seed=seed)
        functions = [schema["function"] for schema in seat.tools]
        schemas = {f["name"]: f["parameters"] for f in functions}
        self._writes = [name for name in WRITES if name in schemas]
        self._reads = {
            name: schema
            for name, schema in schemas.items()
            if name not in WRITES and name not in NOTES and name != END["name"]
        }
        self._start(self._seed if self._seed is not None else seed or 0)

    def act(self, observation: Any, info: Mapping[str, Any]) -> list[Call]:
        """Draw the calls of a turn, or end the window."""
        for result in observation["tool_results"]:
            self._look_at(json.loads(result["content"]))
        if info["window"] != self._window:
            self._window = int(info["window"])
            self._turns = int(self._rng.integers(0, MAX_TURNS + 1))
        # The last turn a window has is needed to end it.
        if not self._turns or info["turns_left"] <= 1 or not (self._reads or self._writes):
            return [dict(END)]
        self._turns -= 1
        return [self._call(f"call_{i}") for i in range(int(self._rng.integers(1, MAX_CALLS + 1)))]

    # -- drawing -------------------------------------------------------------------------------------

    def _call(self, call_id: str) -> Call:
        writes = self._writes and (not self._reads or self._rng.random() >= READ_SHARE)
        name, arguments = self._write() if writes else self._read()
        return {"id": call_id, "name": name, "arguments": arguments}

    def _read(self) -> tuple[str, dict[str, Any]]:
        name = list(self._reads)[int(self._rng.integers(len(self._reads)))]
        schema = self._reads[name]
        unknown = {key for key in IDS if not self._seen[key]}
        if unknown.intersection(schema.get("required", ())):
            return self._search()
        properties = {key: below for key, below in schema["properties"].items() if key not in unknown}
        texts = {key: list(self._seen[key]) for key in IDS if self._seen[key]}
        return name, draw_arguments({**schema, "properties": properties}, self._rng, texts)

    def _search(self) -> tuple[str, dict[str, Any]]:
        """A call that shows ids: a search, or whatever reading tool needs no id if there is none."""
        if SEARCH in self._reads:
            return SEARCH, {}
        plain = [name for name, schema in self._reads.items() if not schema.get("required")]
        return (plain[int(self._rng.integers(len(plain)))], {}) if plain else (END["name"], {})

    def _write(self) -> tuple[str, dict[str, Any]]:
        products = self._seen["product_id"]
        if not products:
            return self._search()
        odds = np.cumsum([WRITES[name] for name in self._writes])
        name = self._writes[int(np.searchsorted(odds, self._rng.integers(odds[-1]), side="right"))]
        count = int(self._rng.integers(1, MAX_ITEMS + 1)) if name == "list_product" else 1
        known = list(products)
        picks = self._rng.permutation(len(known))[:count].tolist()
        items: list[dict[str, Any]] = [{"product_id": known[pick]} for pick in picks]
        if name != "delist_product":
            key = "sale_price" if name == "list_product" else "new_price"
            for item in items:
                item[key] = marked_up(products[item["product_id"]], float(self._rng.uniform(*MARKUP)))
        return name, {"items": items}

    # -- remembering ---------------------------------------------------------------------------------

    def _look_at(self, result: Any) -> None:
        """Remember the ids of a result; products only together with a supplier price."""
        for row in _rows(result):
            price = row.get("supplier_price", row.get("price"))
            for name in IDS:
                value = row.get(name)
                if isinstance(value, str) and (name != "product_id" or price):
                    seen = self._seen[name]
                    seen.pop(value, None)  # what was seen last stands last
                    seen[value] = float(price) if name == "product_id" else 0.0
                    if len(seen) > REMEMBERED:
                        del seen[next(iter(seen))]

    def state_dict(self) -> dict[str, Any]:
        """Generator, place in the window and what was seen."""
        generator = self._rng.bit_generator.state
        return {
            "generator": {**generator, "state": {k: str(v) for k, v in generator["state"].items()}},
            "window": self._window,
            "turns": self._turns,
            "seen": {name: list(seen.items()) for name, seen in self._seen.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state made by :meth:`state_dict`."""
        generator = state["generator"]
        numbers = {key: int(value) for key, value in generator["state"].items()}
        self._rng.bit_generator.state = {**generator, "state": numbers}
        self._window, self._turns = int(state["window"]), int(state["turns"])
        self._seen = {name: dict(state["seen"][name]) for name in IDS}


def _rows(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a result, rows of tables included."""
    if isinstance(value, list):
        for item in value:
            yield from _rows(item)
    elif isinstance(value, dict):
        if "columns" in value and "rows" in value:
            for row in value["rows"]:
                yield dict(zip(value["columns"], row, strict=True))
            return
        yield value
        for item in value.values():
            yield from _rows(item)
