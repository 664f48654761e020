"""Actions of every kind through the step of an environment: what they answer, and what they must not do.

Every row of the table of action forms, nested junk, and a collection of nasty values. Whatever is handed in,
a step returns in form, the books balance, and a turn that executed nothing leaves the world as it was.
"""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import MerchantEnv, marketplace
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.results import ERROR_CODES

LONG = 9 * 1024 * 1024
READ = {tool.name for tool in default_registry() if tool.kind == "READ"}


def made() -> MerchantEnv:
    """A store on its third day with a shelf and orders under way."""
    env = MerchantEnv("smoke", {"tools": {"denied": ["market_brief"]}})
    env.reset(seed=3)
    items = [{"product_id": f"P{i:05d}", "sale_price": 150.0} for i in range(20)]
    env.step([{"name": "list_product", "arguments": {"items": items}}])
    for _ in range(4):
        env.step([{"name": "end_of_step"}])
    return env


STORE = made()


@dataclass
class Outcome:
    """What a step answered."""

    codes: list[str]
    ids: list[str]
    names: list[str]
    paths: list[str | None]
    turns: int
    closed: str


def take(action: Any, env: MerchantEnv | None = None) -> Outcome:
    """Take a step on a copy of the store, and check all that holds for every step."""
    env = STORE.clone() if env is None else env
    world = env.session.world
    digest, before, turns = world.digest(), world.accounts(0), env.session.turns_left(0)
    observation, reward, terminated, truncated, info = env.step(action)
    assert env.observation_space.contains(observation)
    results = observation["tool_results"]
    bodies = [json.loads(result["content"]) for result in results]
    assert all(type(body["ok"]) is bool for body in bodies)
    codes = ["" if body["ok"] else body["error"]["code"] for body in bodies]
    assert set(codes) <= {"", *ERROR_CODES} and "internal" not in codes
    executed = [r["name"] for r, code in zip(results, codes, strict=True) if not code]
    if set(executed) <= READ:
        assert world.digest() == digest
        assert (reward, info["window_closed_by"]) == (0.0, "") or turns == 1
    after = world.accounts(0)
    assert after.net_assets == after.balance + after.deposit + after.in_transit + after.receivable
    assert round(100 * reward) == after.net_assets - before.net_assets
    assert sum(world.terms(0)) == after.net_assets - 300_000
    assert after.deposit >= 0 and not truncated and not terminated
    errors = [body.get("error", {}) for body in bodies]
    return Outcome(
        codes,
        [result["tool_call_id"] for result in results],
        [result["name"] for result in results],
        [error.get("path") for error in errors],
        turns - env.session.turns_left(0),
        info["window_closed_by"],
    )


# The rows of the table, by number

QUERY: dict[str, Any] = {"id": "q", "name": "query_balance"}
END: dict[str, Any] = {"id": "e", "name": "end_of_step"}


def function(call: Mapping[str, Any], kind: Any = "function") -> dict[str, Any]:
    rest = {key: value for key, value in call.items() if key != "id"}
    return {"id": call.get("id"), "type": kind, "function": rest}


def message(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "hm", "tool_calls": list(calls), **more}


def sdk(call: Mapping[str, Any]) -> SimpleNamespace:
    inner = SimpleNamespace(name=call["name"], arguments=call.get("arguments", "{}"))
    return SimpleNamespace(id=call["id"], type="function", function=inner)


class Raising:
    """Every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")


class RaisingCalls:
    """A message whose calls cannot be read."""

    role = "assistant"
    content = None

    @property
    def tool_calls(self) -> Any:
        raise ValueError("no")


def calls(count: int) -> list[dict[str, Any]]:
    return [{"id": f"c{i}", "name": "query_balance"} for i in range(count)]


def arguments(value: Any, name: str = "search_products") -> list[dict[str, Any]]:
    return [{"id": "q", "name": name, "arguments": value}]


DEEP = "[" * 100_000
SURROGATE = "\ud800"
MALFORMED = ["malformed_action"]


def each(*values: Any) -> tuple[Any, ...]:
    return values


ROWS: list[tuple[int, Any, list[str]]] = [
    *((1, action, []) for action in each(None, "", " \n\t", "null", " null ", "[]", [], ())),
    *((2, kind([QUERY | {"index": 0}]), [""]) for kind in (list, tuple)),
    (2, [{"name": "query_balance"}], [""]),
    (3, (function(QUERY), {"id": "r", "name": "query_balance"}), ["", ""]),
    (3, [{"function": {"name": "query_balance"}}], [""]),
    (3, [function(QUERY, "custom"), {"id": "r", "name": "query_balance"}], ["malformed_action", ""]),
    (4, message(function(QUERY)), [""]),
    (4, {"tool_calls": [QUERY]}, [""]),
    (4, MappingProxyType(message(QUERY)), [""]),
    *(
        (5, action, [])
        for action in each(
            {"role": "assistant", "content": "hm"},
            message(),
            message(tool_calls=None),
            {"tool_calls": []},
            {"tool_calls": None, "function_call": None},
        )
    ),
    (6, SimpleNamespace(role="assistant", content="hm", tool_calls=[sdk(QUERY)]), [""]),
    (6, SimpleNamespace(tool_calls=[function(QUERY), sdk(QUERY | {"id": "r"})]), ["", ""]),
    (6, SimpleNamespace(role="assistant", content="hm", tool_calls=None), []),
    (6, RaisingCalls(), MALFORMED),
    (6, Raising(), MALFORMED),
    (6, [Raising(), QUERY], ["malformed_action", ""]),
    (7, json.dumps([QUERY]), [""]),
    (7, json.dumps(message(function(QUERY))), [""]),
    (7, json.dumps({"role": "assistant", "content": "hm"}), []),
    (7, '[{"name": "query_balance", "name": "query_balance"}]', MALFORMED),
    (7, '[{"name": "query_balance", "index": NaN}]', MALFORMED),
    *((8, text, MALFORMED) for text in ("search for lamps", "7", "-1e3", '"[]"', "true", "[1", DEEP)),
    (8, " " + "x" * LONG, MALFORMED),
    *(
        (9, action, MALFORMED)
        for action in each(
            {},
            QUERY,
            {"role": "user", "content": "hm"},
            {"role": "tool", "tool_call_id": "a", "content": "{}"},
            {"role": 7, "tool_calls": []},
            {"role": "assistant", "function_call": {"name": "query_balance", "arguments": "{}"}},
            message(tool_calls="query_balance"),
            message(tool_calls={"0": QUERY}),
            json.dumps(QUERY),
        )
    ),
    *(
        (10, action, MALFORMED)
        for action in each(b"[]", bytearray(b"[]"), 7, 7.5, True, {1}, np.zeros(3), object())
    ),
    (10, (call for call in [QUERY]), MALFORMED),
    (10, np.array([QUERY]), MALFORMED),
    (10, np.int64(7), MALFORMED),
    (11, calls(1025), MALFORMED),
    (12, calls(65), ["too_many_calls"] * 65),
    (12, calls(1024), ["too_many_calls"] * 1024),
    (12, calls(64), [""] * 64),
    *(
        (13, [entry, {"id": "r", "name": "query_balance"}], ["malformed_action", ""])
        for entry in each(
            "query_balance", None, 7, [], {}, {"id": "a"}, {"name": None}, {"name": 7}, {"name": ""},
            {"name": "x" * 65}, {"name": SURROGATE}, {"function": None}, {"name": "a", "function": None},
            {"function": {}}, {"function": "query_balance"}, b"query_balance", np.zeros(2),
        )
    ),
    *(
        (14, [{"id": bad, "name": "query_balance"}, {"id": "auto_0", "name": "query_balance"}], ["", ""])
        for bad in each(None, "", 7, ["a"], "x" * 129, SURROGATE, object())
    ),
    (15, [QUERY, QUERY], ["duplicate_call_id"] * 2),
    (15, [QUERY, {"id": "q", "name": "end_of_step"}], ["duplicate_call_id"] * 2),
    (16, [{"id": "a", "name": "Query_balance"}, QUERY], ["unknown_tool", ""]),
    (16, [{"id": "a", "name": "market_brief"}, QUERY], ["tool_denied", ""]),
    (16, [{"id": "a", "name": "read_memory_doc"}], ["unknown_tool"]),
    (17, [QUERY | {"arguments": {}}], [""]),
    *((17, [QUERY | {"arguments": value}], [""]) for value in each(None, "", " \n", "null", " null ", "{}")),
    (18, arguments({"query": "lamp", "page": 2}), [""]),
    (18, arguments('{"query": "lamp", "page": 2}'), [""]),
    *(
        (19, arguments(text), ["invalid_json"])
        for text in (
            "{", "lamp", "{'query': 1}", '{"page": NaN}', '{"page": -Infinity}', '{"page": 1e999}',
            '{"page": 1, "page": 1}', '{"page": ' + "9" * 5000 + "}", '{"query": ' + DEEP, '{"page": 1} x',
            '{"query": ' + "[" * 99 + "]" * 99 + "}", "{" + " " * (2**21) + "}", "\ufeff{}",
        )
    ),
    *(
        (20, arguments(value), ["invalid_arguments"])
        for value in each(7, 7.5, True, [], [1], (), "7", "[]", '"lamp"', "true", '"{}"', b"{}", np.zeros(1))
    ),
    *(
        (21, arguments(value), ["invalid_arguments"])
        for value in each(
            {"query": SURROGATE}, '{"query": "\\ud800"}', {"price_min": float("nan")},
            {"price_min": float("-inf")}, {"price_min": np.float32("inf")}, {"query": "x" * (2**21)},
            {"items": [1] * 2**20}, {7: 1}, {SURROGATE: 1}, {"query": b"lamp"}, {"page": 10**5000},
        )
    ),
    (22, [END, {"id": "f", "name": "end_of_step"}], ["end_of_step_misplaced"] * 2),
    (22, [END, QUERY], ["end_of_step_misplaced"] * 2),
    (22, [QUERY, END, {"id": "r", "name": "query_balance"}], ["end_of_step_misplaced"] * 3),
    (25, [{"role": "user", "content": "hm"}, QUERY], ["malformed_action", ""]),
    (25, [{"role": "assistant", "content": "hm"}], MALFORMED),
    (25, [{"tool_call_id": "q", "name": "", "content": "{}"}], MALFORMED),
]  # fmt: skip


@pytest.mark.parametrize(
    "place", range(len(ROWS)), ids=[f"row_{row}-{i}" for i, (row, _, _) in enumerate(ROWS)]
)
def test_every_row_of_the_table_through_the_step(place: int) -> None:
    row, action, codes = ROWS[place]
    outcome = take(action)
    assert outcome.codes == codes
    assert (outcome.turns, outcome.closed) == (1, "")
    assert len(set(outcome.ids)) == len(outcome.ids) or row == 15
    if row in (8, 9, 10, 11):
        assert (outcome.ids, outcome.names) == ([""], [""])
    if row == 13:
        assert (outcome.names[0], outcome.paths[0]) == ("", "$[0]")
    if row == 14:
        assert outcome.ids == ["auto_0_", "auto_0"]
    if row in (19, 20):
        assert outcome.paths == ["$"]
    if row == 21:
        assert outcome.paths[0] is not None


def test_every_row_is_there() -> None:
    elsewhere = {23, 24}  # of a merchant that waits for others; below
    assert {row for row, _, _ in ROWS} == set(range(1, 26)) - elsewhere


@pytest.mark.parametrize(
    ("row", "action", "codes"),
    [
        (23, None, []),
        (23, [], []),
        (23, "", []),
        (23, {"role": "assistant", "content": "hm"}, []),
        (24, [QUERY], ["not_deciding"]),
        (24, [QUERY, {"name": "no_such_tool"}, None], ["not_deciding"] * 3),
        (24, calls(65), ["not_deciding"] * 65),
        (24, "search for lamps", ["not_deciding"]),
        (24, object(), ["not_deciding"]),
        (24, b"", ["not_deciding"]),
    ],
)
def test_rows_of_a_merchant_that_waits(row: int, action: Any, codes: list[str]) -> None:
    market = marketplace.parallel_env("smoke", merchants=2)
    market.reset(seed=3)
    market.step({"merchant_0": [END], "merchant_1": None})
    state, digest = market.unwrapped.session.turns_left(1), market.unwrapped.session.world.digest()
    observations = market.step({"merchant_0": action, "merchant_1": None})[0]
    results = observations["merchant_0"]["tool_results"]
    assert [json.loads(r["content"])["error"]["code"] for r in results] == codes
    assert market.unwrapped.session.turns_left(1) == state - 1
    assert market.unwrapped.session.world.digest() == digest


def test_object_and_text_are_equal_through_the_step() -> None:
    value = {"query": "lamp", "page_size": 3, "price_max": 40.0}
    stores = [STORE.clone(), STORE.clone()]
    for store, form in zip(stores, (value, json.dumps(value)), strict=True):
        store.step(arguments(form))
    np.testing.assert_equal(stores[0].observe(), stores[1].observe())


def test_a_lone_end_that_fails_keeps_the_window_open() -> None:
    outcome = take([{"name": "end_of_step", "arguments": {"now": True}}])
    assert (outcome.codes, outcome.turns, outcome.closed) == (["invalid_arguments"], 1, "")


# Nasty values


class EndlessList(list[Any]):
    """Says it is short and never ends."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield None


class EndlessMapping(Mapping[Any, Any]):
    """A mapping that never ends, of keys of one kind."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __getitem__(self, key: Any) -> Any:
        return None

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.key


class StrangeText(str):
    """Text that raises when it is used."""

    def strip(self, *_: Any) -> str:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class StrangeKey(str):
    """A key that is equal to nothing."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class Lying(dict[Any, Any]):
    """Holds other things than it says."""

    def items(self) -> Any:
        return [1, 2]


class Growing:
    """A message that makes a new message of itself whenever it is asked."""

    role = None

    def __getattr__(self, name: str) -> Any:
        return Growing()


class Loud:
    """Raises in its representation too."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def loop() -> dict[str, Any]:
    value: dict[str, Any] = {"query": []}
    value["query"].append(value)
    return value


def tower(height: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(height):
        value = [value] if kind == "array" else {"a": value}
    return value


NASTY: dict[str, Callable[[], Any]] = {
    "megabyte": lambda: "x" * 2**20,
    "megabytes of surrogates": lambda: SURROGATE * 2**20,
    "NUL": lambda: "\x00",
    "surrogate pair as two": lambda: "\ud83d\ude00",
    "right-to-left and combining": lambda: "\u202e\u0301" * 40,
    "huge integer": lambda: 10**100_000,
    "negative huge integer": lambda: -(10**100_000),
    "beyond 2**53": lambda: 2**53 + 1,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "smallest float": lambda: 5e-324,
    "negative zero": lambda: -0.0,
    "largest float": lambda: 1.7976931348623157e308,
    "decimal": lambda: Decimal("1.5"),
    "fraction": lambda: Fraction(1, 3),
    "complex": lambda: 1j,
    "bytes": lambda: b"P00001",
    "array": lambda: np.zeros((3, 3)),
    "object array": lambda: np.array([{"a": 1}, None], dtype=object),
    "array of no dimension": lambda: np.array(7),
    "structured scalar": lambda: np.zeros(1, dtype=[("a", "i4")])[0],
    "long double": lambda: np.longdouble("1e4000"),
    "numpy time": lambda: np.datetime64("2025-06-01"),
    "numpy text": lambda: np.str_("P00001"),
    "generator": lambda: (x for x in "ab"),
    "range": lambda: range(3),
    "set": lambda: {1},
    "deque": lambda: deque([1]),
    "user list": lambda: UserList([1]),
    "user dict": lambda: UserDict({"a": 1}),
    "ordered dict": lambda: OrderedDict(a=1),
    "class": lambda: dict,
    "function": lambda: len,
    "exception": lambda: ValueError("no"),
    "raising": Raising,
    "loud": Loud,
    "growing": Growing,
    "strange text": lambda: StrangeText("P00001"),
    "strange key": lambda: {StrangeKey("query"): 1},
    "lying mapping": lambda: Lying(a=1),
    "mixed keys": lambda: {1: 1, None: 2, (1,): 3, "a": 4},
    "loop": loop,
    "deep array": lambda: tower(5_000, "array"),
    "deep object": lambda: tower(5_000, "object"),
    "wide array": lambda: [0] * 300_000,
    "wide object": lambda: {f"k{i}": i for i in range(100_000)},
    "endless list": lambda: EndlessList([None]),
    "endless mapping": lambda: EndlessMapping("a"),
    "endless mapping of numbers": lambda: EndlessMapping(1),
    "one nested": lambda: [[[[{"a": [{}]}]]]],
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "action": lambda value: value,
    "entry": lambda value: [value],
    "calls": lambda value: {"role": "assistant", "tool_calls": value},
    "role": lambda value: {"role": value, "tool_calls": [QUERY]},
    "content": lambda value: {"role": "assistant", "content": value, "tool_calls": [QUERY]},
    "parts": lambda value: {"role": "assistant", "content": [value, {"text": value}]},
    "attribute": lambda value: SimpleNamespace(role="assistant", content=value, tool_calls=value),
    "id": lambda value: [{"id": value, "name": "query_balance"}],
    "name": lambda value: [{"id": "a", "name": value}],
    "type": lambda value: [{"id": "a", "type": value, "function": {"name": "query_balance"}}],
    "function": lambda value: [{"id": "a", "function": value}],
    "arguments": lambda value: [{"id": "a", "name": "list_product", "arguments": value}],
    "argument": lambda value: [{"id": "a", "name": "search_products", "arguments": {"query": value}}],
    "number": lambda value: [{"id": "a", "name": "search_products", "arguments": {"page": value}}],
    "items": lambda value: [{"id": "a", "name": "list_product", "arguments": {"items": value}}],
    "item": lambda value: [{"id": "a", "name": "list_product", "arguments": {"items": [value]}}],
    "price": lambda value: [
        {
            "id": "a",
            "name": "list_product",
            "arguments": {"items": [{"product_id": "P00030", "sale_price": value}]},
        }
    ],
}


@pytest.mark.parametrize("place", PLACES)
def test_nasty_values_in_every_place(place: str) -> None:
    for name, make in NASTY.items():
        outcome = take(PLACES[place](make()))
        assert (outcome.turns, outcome.closed) == (1, ""), name


def test_a_store_survives_all_of_it_in_one_run() -> None:
    env = STORE.clone()
    net = env.observe()[1]["net_assets"]
    other = STORE.clone()
    for number, make in enumerate(NASTY.values()):
        env.step(PLACES["entry" if number % 2 else "argument"](make()))
        if number % 10 == 9:
            env.step([END])
            other.step([END])
        if env.session.window > other.session.window:  # the quota closed the window
            other.step([END])
    assert env.session.window == other.session.window > 5
    assert env.session.world.digest() == other.session.world.digest()
    assert env.observe()[1]["net_assets"] == other.observe()[1]["net_assets"] != net


# Nested junk

TOOLS = [*sorted(READ), "list_product", "delist_product", "adjust_price", "end_of_step", "no_such_tool"]
KEYS = [
    *("id", "name", "arguments", "function", "type", "role", "content", "tool_calls", "function_call"),
    *("items", "product_id", "sale_price", "new_price", "query", "page", "page_size", "statuses", "mode"),
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=3)
    | st.sampled_from([*TOOLS, "assistant", "function", "P00001", "sup_0001", "O00001", "late", "{}", "[]"])
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3).map(lambda d: SimpleNamespace(**d))
    ),
    max_leaves=25,
)
plausible = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(TOOLS)},
        optional={
            "id": scalars,
            "arguments": st.dictionaries(st.sampled_from(KEYS[9:]), junk, max_size=4) | junk,
        },
    ),
    max_size=4,
)


@settings(max_examples=150)
@given(junk)
def test_nested_junk(action: Any) -> None:
    outcome = take(action)
    assert outcome.turns <= 1 or outcome.closed


@settings(max_examples=150)
@given(plausible)
def test_tools_with_junk_for_arguments(action: Any) -> None:
    take(action)


@settings(max_examples=100)
@given(junk.map(lambda value: json.dumps(value, default=str)) | st.text(st.sampled_from('[]{}":,0aeE+-. ')))
def test_junk_as_text(action: str) -> None:
    take(action)
