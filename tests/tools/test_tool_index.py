"""What holds for every tool of the index: names, schemas, examples, answers to any arguments."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import TOOL_NAMES, Scenario, ScenarioError, load_scenario
from merchantbench_gym.session import Session, Turn
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.registry import Tool, tool_schema_hash
from merchantbench_gym.tools.results import ERROR_CODES, ToolError

NOTES = {"read_memory_doc", "write_memory_doc"}
WRITES = {"list_product", "delist_product", "adjust_price", "write_memory_doc"}
KEYWORDS = {
    "type", "description", "properties", "required", "additionalProperties", "items", "enum", "default",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
}  # fmt: skip

ALL = list(default_registry())
by_name = pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)


def scenario(**tools: Any) -> Scenario:
    return load_scenario("smoke", {"tools": tools} if tools else None)


@pytest.fixture(scope="module")
def session() -> Session:
    """Two days into a run with a full shelf; every tool granted."""
    made = Session(World(scenario(denied=[]), 1))
    made.open()
    items = [{"product_id": f"P{i:05d}", "sale_price": 30.0} for i in range(100)]
    call(made, "list_product", {"items": items})
    for _ in range(4):
        call(made, "end_of_step", {})
        made.advance()
    return made


def call(session: Session, name: str, arguments: Any) -> dict[str, Any]:
    result = session.submit(0, Turn(batch=normalise([{"name": name, "arguments": arguments}])))
    content = result.results[0]["content"]
    assert len(content) <= 32_000
    body: dict[str, Any] = json.loads(content)
    assert isinstance(body["ok"], bool)
    if not body["ok"]:
        assert set(body) == {"ok", "error"} and body["error"]["code"] in ERROR_CODES
        assert set(body["error"]) <= {"code", "message", "path", "errors"}
    return body


def tried(session: Session, name: str, arguments: Any) -> dict[str, Any]:
    """Call a tool of a clone, which has all its turns left."""
    return call(session.clone(), name, arguments)


def names(schemas: list[dict[str, Any]]) -> list[str]:
    return [schema["function"]["name"] for schema in schemas]


def test_names_and_order() -> None:
    assert len(TOOL_NAMES) == len(set(TOOL_NAMES)) == 28
    registered = default_registry().names
    assert list(registered) == [name for name in TOOL_NAMES if name in registered]
    assert not NOTES & set(registered)


@pytest.mark.skipif(len(ALL) < 26, reason="tools of the index are still missing")
def test_every_tool_of_the_index_exists() -> None:
    assert set(default_registry().names) == set(TOOL_NAMES) - NOTES
    assert len(default_registry().schemas(load_scenario().tools.denied)) == 24


@by_name
def test_kind(tool: Tool) -> None:
    expected = "CONTROL" if tool.name == "end_of_step" else "WRITE" if tool.name in WRITES else "READ"
    assert tool.kind == expected


@by_name
def test_schema(tool: Tool) -> None:
    def walk(node: dict[str, Any]) -> None:
        assert set(node) <= KEYWORDS
        if node["type"] == "object":
            assert node["additionalProperties"] is False and set(node["required"]) <= set(node["properties"])
            for child in node["properties"].values():
                assert child["description"].strip()
                walk(child)
        if node["type"] == "array":
            walk(node["items"])

    schema = tool.schema()
    assert set(schema) == {"type", "function"} and schema["type"] == "function"
    function = schema["function"]
    assert set(function) == {"name", "description", "parameters"} and function["name"] == tool.name
    assert re.search(r"[.!]( |$)", function["description"])
    assert function["parameters"]["type"] == "object"
    walk(function["parameters"])
    json.dumps(schema)


@by_name
def test_examples_execute(tool: Tool, session: Session) -> None:
    for example in tool.examples:
        body = tried(session, tool.name, example)
        if not body["ok"]:
            assert body["error"]["code"] in ("not_found", "not_available", "invalid_range")


@by_name
def test_results_are_fresh(tool: Tool, session: Session) -> None:
    example = copy.deepcopy(tool.examples[0])
    first = tried(session, tool.name, example)
    assert example == tool.examples[0]
    schema = tool.schema()
    schema.clear()
    assert tool.schema()
    assert tried(session, tool.name, example) == first


def leaves(tool: Tool) -> list[tuple[str, dict[str, Any]]]:
    return list(tool.schema()["function"]["parameters"]["properties"].items())


REFUSED: dict[str, list[Any]] = {
    "integer": ["7", True, 7.5, float("nan"), "\ud800", [1], {}],
    "number": ["7", True, float("nan"), float("inf"), [1.0], {}],
    "string": [7, True, 7.5, "\ud800", ["x"], {}],
    "boolean": ["true", 1, 0, 1.0],
    "array": ["x", 7, {}, True],
}


@by_name
def test_tolerance_of_every_parameter(tool: Tool) -> None:
    example = tool.examples[0]
    required = set(tool.schema()["function"]["parameters"]["required"])
    for name, node in leaves(tool):
        for value in REFUSED[node["type"]]:
            (parsed,) = normalise([{"name": tool.name, "arguments": {**example, name: value}}]).calls
            error = parsed.fault
            if error is None:
                with pytest.raises(ToolError) as caught:
                    tool.validate(parsed.arguments or {})
                error = caught.value
            assert error.code == "invalid_arguments" and error.path is not None
            assert error.path.startswith(f"$.{name}")
        if name in required:
            with pytest.raises(ToolError, match=name):
                tool.validate({**example, name: None})
        else:
            without = {key: value for key, value in example.items() if key != name}
            assert tool.validate({**example, name: None}) == tool.validate(without)
        if node["type"] == "integer" and "enum" not in node:
            whole = float(node.get("minimum", 1)) + 1.0
            checked = tool.validate({**example, name: whole})[name]
            assert checked == whole and type(checked) is int


@by_name
def test_unknown_argument(tool: Tool, session: Session) -> None:
    body = tried(session, tool.name, {**tool.examples[0], "merchant": 0, "t": 7, "seed": 1})
    assert body["error"]["code"] == "invalid_arguments"
    assert [problem["path"] for problem in body["error"]["errors"]] == ["$.merchant", "$.t", "$.seed"]


def drawn(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values a schema allows."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if node["type"] == "integer":
        low, high = node.get("minimum", -5), node.get("maximum", 200)
        return st.integers(low, high) | st.integers(low, min(high, low + 5))
    if node["type"] == "number":
        return st.floats(node.get("minimum", -10), node.get("maximum", 1e6), allow_nan=False)
    if node["type"] == "boolean":
        return st.booleans()
    if node["type"] == "array":
        return st.lists(drawn(node["items"]), min_size=node.get("minItems", 0), max_size=3)
    if node["type"] == "object":
        properties = {name: drawn(child) for name, child in node["properties"].items()}
        required = {name: properties.pop(name) for name in node["required"]}
        return st.fixed_dictionaries(required, optional=properties)
    ids = st.sampled_from(["P00001", "P00017", "sup_0001", "O00001", "electronics", "", "steel", "ß界\x00"])
    return (ids | st.text(max_size=8)).map(lambda text: text[: node.get("maxLength", 64)])


@by_name
@settings(max_examples=20)
@given(data=st.data())
def test_allowed_calls_are_valid_and_answer_well(tool: Tool, session: Session, data: st.DataObject) -> None:
    arguments = data.draw(drawn(tool.schema()["function"]["parameters"]))
    body = tried(session, tool.name, arguments)
    if not body["ok"]:
        assert body["error"]["code"] not in ("invalid_arguments", "internal", "result_too_large")


@by_name
@settings(max_examples=20)
@given(data=st.data())
def test_any_arguments_answer_well(tool: Tool, session: Session, data: st.DataObject) -> None:
    parameters = tool.schema()["function"]["parameters"]["properties"]
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
    arguments = data.draw(
        st.dictionaries(st.sampled_from([*parameters, "x"]), anything, max_size=4) | anything
    )
    body = tried(session, tool.name, arguments)
    assert body["ok"] or body["error"]["code"] != "internal"


@by_name
def test_reads_change_nothing(tool: Tool, session: Session) -> None:
    if tool.kind == "READ":
        twin = session.clone()
        before = twin.world.digest()
        for example in tool.examples:
            call(twin, tool.name, example)
        assert twin.world.digest() == before


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


@by_name
def test_times_have_one_form_and_seats_no_name(tool: Tool, session: Session) -> None:
    for example in tool.examples:
        for text in strings(tried(session, tool.name, example)):
            assert "merchant_0" not in text
            assert not re.search(r"\bD\d+H\d(?!\d)|\bD\d+H\d{3}|\bD0", text)


# --- denied tools and hashes ---


@by_name
def test_denied(tool: Tool) -> None:
    if tool.name == "end_of_step":
        with pytest.raises(ScenarioError):
            scenario(denied=[tool.name])
        return
    session = Session(World(scenario(denied=[tool.name]), 1))
    session.open()
    assert tool.name not in names(session.schemas(0))
    if tool.name != "list_tools":
        assert tool.name not in names(call(session, "list_tools", {})["tools"])
    assert call(session, tool.name, tool.examples[0])["error"]["code"] == "tool_denied"


def test_denied_names_must_exist() -> None:
    with pytest.raises(ScenarioError):
        scenario(denied=["no_such_tool"])


def test_list_tools_fits_even_with_everything_granted(session: Session) -> None:
    body = tried(session, "list_tools", {})
    assert body["ok"] and body["count"] == len(body["tools"]) == len(default_registry())


def test_schema_hash_follows_the_granted_schemas() -> None:
    registry = default_registry()
    assert tool_schema_hash(registry, scenario()) == tool_schema_hash(registry, load_scenario())
    fewer = scenario(denied=["query_balance"])
    assert tool_schema_hash(registry, scenario()) != tool_schema_hash(registry, fewer)
    assert re.fullmatch(r"[0-9a-f]{64}", tool_schema_hash(registry, scenario()))
