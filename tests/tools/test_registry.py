"""Registration of tools, argument checks and schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from merchantbench_gym.scenario import TOOL_NAMES
from merchantbench_gym.tools import Registry, tool
from merchantbench_gym.tools.registry import EntityId, Tool, ToolDefinitionError
from merchantbench_gym.tools.results import ToolError

KEYWORDS = {
    "type", "description", "properties", "required", "additionalProperties", "items", "enum", "default",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
}  # fmt: skip


class Line(BaseModel):
    """One line.

    Attributes:
        product_id: Product to change.
        count: How many,
            in pieces.
    """

    product_id: EntityId
    sale_price: float = Field(description="Price.")
    count: Annotated[int, Field(ge=1, le=9)]


@tool(kind="READ", examples=[{"items": [{"product_id": "P00001", "sale_price": 1, "count": 2}]}])
def everything(
    ctx: Any,
    *,
    items: Annotated[list[Line], Field(min_length=1, max_length=4)],
    text: Annotated[str, Field(max_length=5)] = "",
    category: EntityId | None = None,
    at_least: Annotated[float, Field(ge=0, le=5)] | None = None,
    sort_by: Literal["relevance", "price"] = "relevance",
    window_days: Literal[1, 7] = 7,
    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1,
    flag: bool = True,
    statuses: Annotated[list[Literal["late", "shipped"]], Field(max_length=3)] | None = None,
) -> dict[str, Any]:
    """Do a bit of everything.

    Covers what it covers,
    nothing else.

    Args:
        items: The lines.
        text: Free text.
        category: Exact name.
        at_least: Lower bound.
        sort_by: Order
            of the rows.
        window_days: Days.
        page: Page.
        flag: Switch.
        statuses: Which.
    """
    return {"items": len(items)}


@tool(kind="READ", examples=[{}])
def nothing(ctx: Any) -> dict[str, Any]:
    """Do nothing."""
    return {}


GOOD: dict[str, Any] = {"product_id": "P00001", "sale_price": 1.5, "count": 2}


def check(**arguments: Any) -> dict[str, Any]:
    arguments.setdefault("items", [GOOD])
    return everything.validate(arguments)


def problems(checked: Tool = everything, /, **arguments: Any) -> dict[str, str]:
    if checked is everything:
        arguments.setdefault("items", [GOOD])
    with pytest.raises(ToolError) as caught:
        checked.validate(arguments)
    error = caught.value
    assert error.code == "invalid_arguments" and error.errors
    assert error.path == error.errors[0]["path"]
    assert error.path in error.message
    return {entry["path"]: entry["message"] for entry in error.errors}


def test_description_and_parameters_come_from_the_docstring() -> None:
    schema = everything.schema()
    assert schema["type"] == "function"
    function = schema["function"]
    assert function["name"] == "everything"
    assert function["description"] == "Do a bit of everything. Covers what it covers, nothing else."
    properties = function["parameters"]["properties"]
    assert properties["sort_by"]["description"] == "Order of the rows."
    assert properties["items"]["items"]["properties"]["count"]["description"] == "How many, in pieces."


def test_schema_is_flat_and_uses_only_the_allowed_keywords() -> None:
    def walk(node: dict[str, Any]) -> None:
        assert set(node) <= KEYWORDS
        if node["type"] == "object":
            assert node["additionalProperties"] is False
            for child in node["properties"].values():
                assert child["description"]
                walk(child)
        if node["type"] == "array":
            walk(node["items"])

    walk(everything.schema()["function"]["parameters"])
    assert nothing.schema()["function"]["parameters"] == {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "required": [],
    }


def test_schema_states_bounds_choices_and_defaults() -> None:
    parameters = everything.schema()["function"]["parameters"]
    assert parameters["required"] == ["items"]
    properties = {
        name: {k: v for k, v in node.items() if k != "description"}
        for name, node in parameters["properties"].items()
    }
    lines = properties.pop("items")
    assert (lines["type"], lines["minItems"], lines["maxItems"]) == ("array", 1, 4)
    assert lines["items"]["required"] == ["product_id", "sale_price", "count"]
    assert lines["items"]["properties"]["count"] == {
        "type": "integer", "description": "How many, in pieces.", "minimum": 1, "maximum": 9,
    }  # fmt: skip
    assert properties == {
        "text": {"type": "string", "default": "", "maxLength": 5},
        "category": {"type": "string", "maxLength": 64},
        "at_least": {"type": "number", "minimum": 0, "maximum": 5},
        "sort_by": {"type": "string", "enum": ["relevance", "price"], "default": "relevance"},
        "window_days": {"type": "integer", "enum": [1, 7], "default": 7},
        "page": {"type": "integer", "default": 1, "minimum": 1, "maximum": 1_000_000},
        "flag": {"type": "boolean", "default": True},
        "statuses": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "string", "enum": ["late", "shipped"]},
        },
    }


def test_schemas_are_copies() -> None:
    everything.schema()["function"]["parameters"]["properties"].clear()
    assert everything.schema()["function"]["parameters"]["properties"]
    registry = Registry([nothing])
    registry.schemas()[0]["function"]["name"] = "changed"
    assert registry.schemas()[0]["function"]["name"] == "nothing"


def test_values_arrive_typed_and_defaulted() -> None:
    got = check(at_least=3)
    assert got == {
        "items": got["items"], "text": "", "category": None, "at_least": 3.0, "sort_by": "relevance",
        "window_days": 7, "page": 1, "flag": True, "statuses": None,
    }  # fmt: skip
    assert type(got["at_least"]) is float
    line = got["items"][0]
    assert isinstance(line, Line)
    assert (line.product_id, line.sale_price, line.count) == ("P00001", 1.5, 2)


def test_no_arguments_give_fresh_defaults() -> None:
    first = nothing.validate({})
    first["x"] = 1
    assert nothing.validate({}) == {}
    assert "no arguments" in problems(nothing, x=1)["$.x"]


OPTIONAL = ["text", "category", "at_least", "sort_by", "window_days", "page", "flag", "statuses"]


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_for_an_optional_parameter_counts_as_absent(name: str) -> None:
    assert check(**{name: None}) == check()


def test_null_for_a_required_parameter_is_refused() -> None:
    assert list(problems(items=None)) == ["$.items"]
    assert list(problems(items=[{**GOOD, "product_id": None}])) == ["$.items[0].product_id"]


@pytest.mark.parametrize("name", ["category", "at_least", "statuses"])
def test_empty_string_for_an_optional_filter_counts_as_absent(name: str) -> None:
    assert check(**{name: ""}) == check()


def test_empty_string_is_no_choice() -> None:
    assert list(problems(sort_by="")) == ["$.sort_by"]


@pytest.mark.parametrize("name", ["page", "window_days"])
def test_whole_float_is_an_integer(name: str) -> None:
    got = check(**{name: 7.0})[name]
    assert got == 7 and type(got) is int
    assert list(problems(page=2.0**53 + 2)) == ["$.page"]


def test_whole_float_is_an_integer_inside_items() -> None:
    got = check(items=[{**GOOD, "count": 3.0}])["items"][0].count
    assert got == 3 and type(got) is int


@pytest.mark.parametrize("value", ["7", True, 7.5, float("nan"), float("inf"), [7], {}, object(), "\ud800"])
@pytest.mark.parametrize("name", ["page", "window_days"])
def test_no_integer(name: str, value: Any) -> None:
    assert list(problems(**{name: value})) == [f"$.{name}"]


def test_true_is_no_choice_of_one() -> None:
    assert problems(window_days=True) == {"$.window_days": "must be 1 or 7, got true"}


@pytest.mark.parametrize("value", ["7", True, float("nan"), float("-inf"), 10**400, [1.0]])
def test_no_number(value: Any) -> None:
    assert list(problems(at_least=value)) == ["$.at_least"]
    assert list(problems(items=[{**GOOD, "sale_price": value}])) == ["$.items[0].sale_price"]


@pytest.mark.parametrize("value", [1, True, "\ud800", "a\udfffb", "too long", ["a"]])
def test_no_text(value: Any) -> None:
    assert list(problems(text=value)) == ["$.text"]


@pytest.mark.parametrize("value", [0, 1, 1.0, "true", "yes"])
def test_no_flag(value: Any) -> None:
    assert problems(flag=value)["$.flag"].startswith("must be true or false")


@pytest.mark.parametrize("value", [1, 1.0])
def test_what_was_valid_once_does_not_make_its_equals_valid(value: Any) -> None:
    sample = tool(kind="READ", examples=[{"text": "a"}])(everything_once)
    for arguments in ({"text": "a", "number": value}, {"text": "a", "number": value}):
        assert sample.validate(arguments)["number"] == 1
    for arguments in ({"text": "a", "number": True}, {"text": "a", "number": "1"}):
        with pytest.raises(ToolError):
            sample.validate(arguments)
    fresh = sample.validate({"text": "a"})
    fresh["text"] = "b"
    assert sample.validate({"text": "a"})["text"] == "a"


def everything_once(ctx: Any, *, text: str, number: int = 1) -> dict[str, Any]:
    """Do nothing.

    Args:
        text: A text.
        number: A number.
    """
    return {}


def test_messages_name_limit_and_choices() -> None:
    assert problems(sort_by="cheap") == {"$.sort_by": "must be 'relevance' or 'price', got \"cheap\""}
    assert problems(page=0) == {"$.page": "must be at least 1, got 0"}
    assert problems(at_least=5.5) == {"$.at_least": "must be at most 5, got 5.5"}
    assert problems(text="123456") == {"$.text": "must have at most 5 characters"}
    assert problems(items=[]) == {"$.items": "must have at least 1 entries, got 0"}
    assert problems(items=[GOOD] * 5) == {"$.items": "must have at most 4 entries, got 5"}
    assert problems(items=["P1"]) == {"$.items[0]": 'must be an object, got "P1"'}
    assert "items, text, category" in problems(colour=1)["$.colour"]


def test_all_problems_are_reported_together_with_their_paths() -> None:
    got = problems(items=[GOOD, {"product_id": "P1", "sale_price": "x", "count": 1, "y": 0}], page="1", z=0)
    assert set(got) == {"$.items[1].sale_price", "$.items[1].y", "$.page", "$.z"}


def test_at_most_twenty_problems() -> None:
    assert len(problems(**{f"x{i}": i for i in range(50)})) == 20


def test_echo_is_short() -> None:
    got = problems(items=[{**GOOD, "sale_price": "9" * 10_000}], **{"k" * 500: 1})
    assert all(len(path) < 120 and len(message) < 250 for path, message in got.items())


@given(st.dictionaries(st.sampled_from(["items", *OPTIONAL, "other"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)))  # fmt: skip
def test_validation_only_ever_raises_tool_errors(arguments: dict[str, Any]) -> None:
    before = repr(arguments)
    try:
        everything.validate(arguments)
    except ToolError as error:
        assert error.errors and all(entry["path"].startswith("$") for entry in error.errors)
    assert repr(arguments) == before


def test_run_puts_ok_first() -> None:
    result = everything.run(None, check())  # type: ignore[arg-type]
    assert list(result.items()) == [("ok", True), ("items", 1)]


# --- registration that must fail ---


def bad_missing_entry(ctx: Any, *, page: int = 1) -> dict[str, Any]:
    """Summary.

    Args:
        other: Wrong name.
    """
    return {}


def bad_annotation(ctx: Any, *, page: dict[str, int]) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_union(ctx: Any, *, page: int | str = 1) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_bound(ctx: Any, *, page: Annotated[int, Field(multiple_of=2)] = 2) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_positional(ctx: Any, page: int = 1) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_default(ctx: Any, *, page: int | None = 5) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_docstring(ctx: Any) -> dict[str, Any]:
    return {}


class Undescribed(BaseModel):
    """No attributes."""

    price: float


def bad_item(ctx: Any, *, items: list[Undescribed]) -> dict[str, Any]:
    """Summary.

    Args:
        items: Lines.
    """
    return {}


class Optional(BaseModel):
    """One key may be missing.

    Attributes:
        price: Price.
    """

    price: float = 1.0


class Nested(BaseModel):
    """Not flat.

    Attributes:
        prices: Prices.
    """

    prices: list[float]


def bad_optional_item(ctx: Any, *, items: list[Optional]) -> dict[str, Any]:
    """Summary.

    Args:
        items: Lines.
    """
    return {}


def bad_nested_item(ctx: Any, *, items: list[Nested]) -> dict[str, Any]:
    """Summary.

    Args:
        items: Lines.
    """
    return {}


def bad_choices(ctx: Any, *, page: Literal[1, "a"] = 1) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_scalar(ctx: Any, *, page: list[int] = []) -> dict[str, Any]:  # noqa: B006
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_bare(ctx: Any, *, page=1) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_entry(ctx: Any) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def bad_signature(*, page: int = 1) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


def fine(ctx: Any, *, page: int) -> dict[str, Any]:
    """Summary.

    Args:
        page: Page.
    """
    return {}


@pytest.mark.parametrize(
    ("function", "examples", "words"),
    [
        (bad_missing_entry, [{}], "no entry under Args"),
        (bad_annotation, [{"page": {}}], "unsupported annotation"),
        (bad_union, [{}], "unsupported annotation"),
        (bad_bound, [{}], "only ge, le"),
        (bad_positional, [{}], "keyword-only"),
        (bad_default, [{}], "go together"),
        (bad_docstring, [{}], "no docstring"),
        (bad_item, [{"items": []}], "no description"),
        (bad_optional_item, [{"items": []}], "must be required"),
        (bad_nested_item, [{"items": []}], "must be flat"),
        (bad_choices, [{}], "all strings or all integers"),
        (bad_scalar, [{}], "must be a scalar"),
        (bad_bare, [{}], "no annotation"),
        (bad_entry, [{}], "unknown parameters page"),
        (bad_signature, [{}], "first parameter must be ctx"),
        (fine, [{}], "bad example"),
        (fine, [], "at least one example"),
    ],
)
def test_registration_fails(function: Any, examples: list[Any], words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words):
        tool(kind="READ", examples=examples)(function)


def test_unknown_kind_fails() -> None:
    with pytest.raises(ToolDefinitionError, match="kind"):
        tool(kind="NONE", examples=[{"page": 1}])(fine)  # type: ignore[arg-type]


def test_bound_methods_become_tools() -> None:
    class Provider:
        def shout(self, ctx: Any, *, text: str) -> dict[str, Any]:
            """Shout.

            Args:
                text: What.
            """
            return {"text": text.upper()}

    shout = Tool(Provider().shout, kind="READ", examples=[{"text": "a"}])
    assert shout.parameters == ("text",)
    assert shout.run(None, shout.validate({"text": "b"})) == {"ok": True, "text": "B"}  # type: ignore[arg-type]


def named(name: str) -> Tool:
    def function(ctx: Any) -> dict[str, Any]:
        """Do nothing."""
        return {}

    function.__name__ = name
    return tool(kind="READ", examples=[{}])(function)


def test_order_follows_the_index_and_extras_come_last() -> None:
    registry = Registry([named("zzz"), named(TOOL_NAMES[4]), named("aaa"), named(TOOL_NAMES[1])])
    assert registry.names == (TOOL_NAMES[1], TOOL_NAMES[4], "zzz", "aaa")
    assert [schema["function"]["name"] for schema in registry.schemas(["zzz"])] == [
        TOOL_NAMES[1], TOOL_NAMES[4], "aaa",
    ]  # fmt: skip
    assert registry.get("zzz") is not None and registry.get("ZZZ") is None


def test_equal_names_are_an_error() -> None:
    with pytest.raises(ValueError, match="zzz"):
        Registry([named("zzz"), named("zzz")])
