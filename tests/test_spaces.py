from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, create_shared_memory, iterate
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.spaces import (
    IdRange,
    OpenText,
    ToolCalls,
    draw_arguments,
    observation_space,
    store_box,
)

ITEM = {
    "type": "object",
    "properties": {"product_id": {"type": "string"}, "sale_price": {"type": "number"}},
    "required": ["product_id", "sale_price"],
    "additionalProperties": False,
}
LIST = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": ITEM, "minItems": 1, "maxItems": 3}},
    "required": ["items"],
    "additionalProperties": False,
}
SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "words", "maxLength": 8},
        "page": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1},
        "rating": {"type": "number", "minimum": 0, "maximum": 5},
        "sort_by": {"type": "string", "enum": ["relevance", "price_asc"]},
        "exact": {"type": "boolean"},
        "product_ids": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["sort_by"],
    "additionalProperties": False,
}


def schema(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "…", "parameters": parameters}}


END = schema("end_of_step", {"type": "object", "properties": {}})
SCHEMAS = [schema("search_products", SEARCH), schema("list_product", LIST), END]
TEXTS = {"product_id": IdRange("P{:05d}", 40)}


def satisfies(value: Any, rules: dict[str, Any]) -> bool:
    """An independent reading of the few keywords tool schemas use."""
    if "enum" in rules and value not in rules["enum"]:
        return False
    kinds = {
        "string": str,
        "number": (int, float),
        "integer": int,
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    if not isinstance(value, kinds[rules["type"]]):
        return False
    if isinstance(value, dict):
        known = rules["properties"]
        return set(rules.get("required", ())) <= set(value) <= set(known) and all(
            satisfies(below, known[name]) for name, below in value.items()
        )
    if isinstance(value, list):
        within = rules.get("minItems", 0) <= len(value) <= rules.get("maxItems", 1e9)
        return within and all(satisfies(item, rules["items"]) for item in value)
    if isinstance(value, str):
        return rules.get("minLength", 0) <= len(value) <= rules.get("maxLength", 1e9)
    return rules.get("minimum", -1e18) <= value <= rules.get("maximum", 1e18)


# OpenText


@pytest.mark.parametrize("text", ["", "abc", "café", "跨境电商", "\x00\n", "\U0001f600", "\U0010ffff"])
def test_open_text_holds_any_unicode_text(text: str) -> None:
    assert text in OpenText(10)


@pytest.mark.parametrize("value", ["x" * 11, None, 3, b"abc", ["a"], "\ud800", "ok\udfff"])
def test_open_text_refuses_what_is_too_long_or_no_text(value: Any) -> None:
    assert value not in OpenText(10)


def test_open_text_has_a_smallest_length() -> None:
    assert "" not in OpenText(10, min_length=1)
    assert "a" in OpenText(10, min_length=1)


def test_open_text_samples_are_members_and_repeatable() -> None:
    space = OpenText(20, min_length=3)
    space.seed(5)
    drawn = [space.sample() for _ in range(200)]
    assert all(text in space for text in drawn)
    assert any(not text.isascii() for text in drawn)
    space.seed(5)
    assert drawn == [space.sample() for _ in range(200)]
    assert len(space.sample(mask=(7, None))) == 7
    assert len(space.sample(probability=(7, None))) == 7


def test_open_text_says_what_cannot_be_masked() -> None:
    space = OpenText(20)
    with pytest.raises(ValueError, match="no list of characters"):
        space.sample(mask=(None, np.ones(3, dtype=np.int8)))
    with pytest.raises(ValueError, match="length must lie in"):
        space.sample(mask=(21, None))
    with pytest.raises(ValueError, match="only one"):
        space.sample(mask=(1, None), probability=(1, None))
    assert not hasattr(space, "character_set")


def test_open_text_pickles_small_and_compares() -> None:
    space = OpenText(4096, seed=3)
    assert len(pickle.dumps(OpenText(4096))) < 1_000
    twin = pickle.loads(pickle.dumps(space))
    assert twin == space
    assert twin.sample() == space.sample()
    assert space != OpenText(4096, min_length=1)
    assert space != spaces.Text(4096)
    assert repr(space) == "OpenText(4096, min_length=0)"
    assert is_space_dtype_shape_equiv(space, twin)
    assert not is_space_dtype_shape_equiv(space, OpenText(5))


@given(st.text(max_size=12))
def test_open_text_flattens_and_back(text: str) -> None:
    space = OpenText(12)
    flat = flatten(space, text)
    assert isinstance(flat, np.ndarray)
    assert flat.shape == (flatdim(space),) == (12,)
    assert flat in flatten_space(space)
    assert unflatten(space, flat) == text


def test_open_text_refuses_shared_memory_with_advice() -> None:
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        create_shared_memory(OpenText(5))
    with pytest.raises(CustomSpaceError, match="SyncVectorEnv"):
        create_shared_memory(observation_space(), n=2)


# ToolCalls


def call(**changes: Any) -> dict[str, Any]:
    return {"id": "call_1", "name": "search_products", "arguments": '{"query":"lamp"}', **changes}


def test_tool_calls_hold_the_canonical_form() -> None:
    space = ToolCalls(SCHEMAS)
    assert () in space
    assert (call(),) in space
    assert (call(), call(id="x", name="unknown", arguments="{}")) in space
    assert (call(arguments='{"a":{"b":[1,null,true,1.5e3]}}'),) in space


@pytest.mark.parametrize(
    "action",
    [
        None,
        "[]",
        [call()],
        (call(extra=1),),
        ({"id": "a", "name": "b"},),
        (call(id=""),),
        (call(id="x" * 129),),
        (call(id="\ud800"),),
        (call(id=1),),
        (call(name=""),),
        (call(name="x" * 65),),
        (call(arguments={"query": "lamp"}),),
        (call(arguments=""),),
        (call(arguments="[]"),),
        (call(arguments="null"),),
        (call(arguments='{"a":NaN}'),),
        (call(arguments='{"a":1e999}'),),
        (call(arguments='{"a":1,"a":2}'),),
        (call(arguments='{"a":'),),
        (call(arguments='{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),),
        (call(),) * 1025,
        {"role": "assistant", "tool_calls": []},
    ],
)
def test_tool_calls_refuse_every_other_form(action: Any) -> None:
    assert action not in ToolCalls(SCHEMAS)


def test_tool_call_samples_satisfy_their_schemas() -> None:
    space = ToolCalls(SCHEMAS, TEXTS, seed=1)
    rules = {
        "search_products": SEARCH,
        "list_product": LIST,
        "end_of_step": {"type": "object", "properties": {}},
    }
    seen = set()
    for _ in range(300):
        action = space.sample()
        assert action
        assert action in space
        for one in action:
            seen.add(one["name"])
            assert satisfies(json.loads(one["arguments"]), rules[one["name"]])
        assert "end_of_step" not in [one["name"] for one in action[:-1]]
        assert len({one["id"] for one in action}) == len(action)
    assert seen == set(rules)


def test_drawn_ids_are_plausible_and_numbers_mostly_small() -> None:
    space = ToolCalls(SCHEMAS[:2], TEXTS, seed=2)
    pages, ids = [], set()
    for _ in range(300):
        for one in space.sample():
            arguments = json.loads(one["arguments"])
            pages += [arguments["page"]] if "page" in arguments else []
            ids |= {item["product_id"] for item in arguments.get("items", [])}
            ids |= set(arguments.get("product_ids", []))
    assert ids <= {f"P{i:05d}" for i in range(40)}
    assert len(ids) > 20
    assert 1 in pages
    assert np.median(pages) < 10_000


def test_tool_call_samples_are_repeatable_and_follow_a_mask() -> None:
    space = ToolCalls(SCHEMAS, TEXTS)
    space.seed(9)
    drawn = [space.sample() for _ in range(20)]
    space.seed(9)
    assert drawn == [space.sample() for _ in range(20)]
    assert len(space.sample(mask=(4, None))) == 4
    assert space.sample(mask=(0, None)) == ()
    assert len(space.sample(probability=(np.array([2, 3]), None))) in (2, 3)
    with pytest.raises(ValueError, match="only one"):
        space.sample(mask=(1, None), probability=(1, None))


def test_tool_call_samples_without_other_tools_or_without_end() -> None:
    only_end = ToolCalls([END], seed=0)
    assert [one["name"] for one in only_end.sample()] == ["end_of_step"]
    assert [one["name"] for one in only_end.sample(mask=(3, None))] == ["end_of_step"]
    no_end = ToolCalls(SCHEMAS[:2], seed=0)
    assert all(no_end.sample() for _ in range(30))
    with pytest.raises(ValueError, match="no tools"):
        ToolCalls().sample()


def test_grant_changes_samples_but_not_members() -> None:
    space = ToolCalls(SCHEMAS, seed=0)
    space.grant([END])
    assert [one["name"] for one in space.sample()] == ["end_of_step"]
    assert (call(),) in space
    assert space == ToolCalls(SCHEMAS)
    assert space != spaces.Sequence(spaces.Discrete(2))
    assert repr(space) == "ToolCalls(end_of_step)"


def test_the_given_schema_is_neither_kept_nor_changed() -> None:
    given_schemas = copy.deepcopy(SCHEMAS)
    space = ToolCalls(given_schemas, seed=4)
    given_schemas[0]["function"]["parameters"]["properties"]["sort_by"]["enum"].append("bogus")
    assert "bogus" not in json.dumps([space.sample() for _ in range(100)])


def test_copies_of_tool_calls_draw_alike_and_apart() -> None:
    space = ToolCalls(SCHEMAS, TEXTS, seed=3)
    for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        ahead = copy.deepcopy(space)
        assert [twin.sample() for _ in range(5)] == [ahead.sample() for _ in range(5)]
    assert len(pickle.dumps(ToolCalls(SCHEMAS, TEXTS))) < 10_000


def test_tool_calls_survive_json() -> None:
    space = ToolCalls(SCHEMAS, TEXTS, seed=3)
    drawn = [space.sample() for _ in range(5)]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(drawn)))) == drawn


def test_unknown_types_cannot_be_drawn() -> None:
    rules = {"properties": {"x": {"type": "null"}}, "required": ["x"]}
    with pytest.raises(ValueError, match="'null' for x"):
        draw_arguments(rules, np.random.default_rng(0))


def test_drawn_texts_are_padded_to_their_smallest_length() -> None:
    rules = {"properties": {"x": {"type": "string", "minLength": 30}}, "required": ["x"]}
    assert len(draw_arguments(rules, np.random.default_rng(0))["x"]) >= 30


def test_id_range() -> None:
    ids = IdRange("sup_{:04d}", 12)
    assert len(ids) == 12
    assert ids[3] == "sup_0003"
    assert ids[-1] == "sup_0011"
    assert ids[:2] == ["sup_0000", "sup_0001"]
    with pytest.raises(IndexError):
        ids[12]


# The observation space and vector environments


def test_store_box() -> None:
    box = store_box()
    assert (box.shape, box.dtype) == ((28,), np.float32)
    assert (box.low.min(), box.high.max()) == (-4, 4)


class Echo(gymnasium.Env[dict[str, Any], Any]):
    """Hands every action back as text."""

    def __init__(self) -> None:
        self.observation_space = observation_space()
        self.action_space = ToolCalls(SCHEMAS, TEXTS)

    def _observation(self, action: Any) -> dict[str, Any]:
        results = tuple(
            {"tool_call_id": one["id"], "name": one["name"], "content": "灯 " + one["arguments"]}
            for one in action
        )
        return {"text": json.dumps(action), "tool_results": results, "store": np.zeros(28, np.float32)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(()), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return self._observation(action), 0.0, False, False, {}


def test_batching() -> None:
    single, actions = observation_space(), ToolCalls(SCHEMAS, TEXTS, seed=1)
    batched = batch_space(single, 3)
    members = [single.sample() for _ in range(3)]
    together = concatenate(single, members, create_empty_array(single, n=3))
    assert together in batched
    assert create_empty_array(single, n=3)["text"] == ("", "", "")
    assert create_empty_array(OpenText(4, min_length=2), n=2) == ("  ", "  ")
    many = batch_space(actions, 3)
    several = many.sample()
    assert len({json.dumps(one) for one in several}) == 3
    assert list(iterate(many, several)) == list(several)


def test_vector_environments_carry_texts_unchanged() -> None:
    vector = SyncVectorEnv([Echo, Echo])
    observation, _ = vector.reset(seed=1)
    assert observation in vector.observation_space
    vector.action_space.seed(3)
    actions = vector.action_space.sample()
    observation, *_ = vector.step(actions)
    assert observation in vector.observation_space
    assert observation["text"] == tuple(json.dumps(action) for action in actions)
    assert observation["tool_results"][1][0]["content"] == "灯 " + actions[1][0]["arguments"]
    vector.close()


def test_async_vector_environment_with_shared_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([Echo])
