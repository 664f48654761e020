"""Envelopes, tables, numbers and the bytes of results."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.tools import results
from merchantbench_gym.tools.results import ToolError, canonical, dumps, echo, failure, money, rounded, table

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)


def test_success_has_ok_first() -> None:
    assert list(results.success(a=1, b=None)) == ["ok", "a", "b"]


def test_failure_holds_the_error_and_nothing_else() -> None:
    assert failure(ToolError("not_found", "no such product")) == {
        "ok": False,
        "error": {"code": "not_found", "message": "no such product"},
    }
    problems = [{"path": "$.a", "message": "is required"}]
    body = failure(ToolError("invalid_arguments", "text", "$.a", problems))
    assert body["error"] == {
        "code": "invalid_arguments", "message": "text", "path": "$.a", "errors": problems,
    }  # fmt: skip
    body["error"]["errors"][0]["path"] = "changed"
    assert problems[0]["path"] == "$.a"


def test_error_codes_are_a_closed_list() -> None:
    assert len(results.ERROR_CODES) == len(set(results.ERROR_CODES)) == 21
    with pytest.raises(ValueError, match="surprise"):
        ToolError("surprise", "text")


def test_content_is_compact_unicode_in_key_order() -> None:
    assert dumps({"b": [1, None, True], "a": "é界"}) == '{"b":[1,null,true],"a":"é界"}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": object()}, {1, 2}])
def test_content_must_be_json(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


def test_canonical_form_does_not_depend_on_key_order() -> None:
    assert canonical({"b": 1, "a": {"d": 2, "c": 3}}) == canonical({"a": {"c": 3, "d": 2}, "b": 1})


def test_table_counts_and_copies_its_rows() -> None:
    row = ("P00001", 2)
    got = table(("product_id", "n"), [row, ["P00002", 3]])
    assert got == {"columns": ["product_id", "n"], "rows": [["P00001", 2], ["P00002", 3]], "count": 2}
    assert list(got) == ["columns", "rows", "count"]
    assert isinstance(got["rows"][0], list)


@given(st.integers(-(10**12), 10**12))
def test_money_is_cents_over_a_hundred(cents: int) -> None:
    shown = money(cents)
    assert Decimal(repr(shown)) * 100 == cents


@pytest.mark.parametrize(
    ("x", "digits", "shown"),
    [
        (2.675, 2, 2.68), (2.665, 2, 2.66), (1.005, 2, 1.0), (0.125, 2, 0.12), (0.135, 2, 0.14),
        (-0.04, 1, 0.0), (3.65, 1, 3.6), (3.75, 1, 3.8), (7, 1, 7.0), (1e-9, 3, 0.0),
    ],
)  # fmt: skip
def test_rounding_is_half_even_on_the_shortest_decimal(x: float, digits: int, shown: float) -> None:
    assert rounded(x, digits) == shown
    assert repr(rounded(x, digits)) != "-0.0"


@given(
    st.floats(-1e10, 1e10) | st.integers(-(10**9), 10**9).map(lambda n: n / 2000),
    st.integers(0, 4),
)
def test_rounding_goes_by_the_decimal_form(x: float, digits: int) -> None:
    exact = Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN)
    assert rounded(x, digits) == float(exact)


def test_echo_is_short_and_encodable() -> None:
    assert echo("abc") == "abc"
    assert echo("x" * 81) == "x" * 79 + "…"
    assert echo("x" * 80) == "x" * 80
    assert echo("a\ud800b\udfff") == "a\ufffdb\ufffd"
    assert echo(True) == "true" and echo(None) == "null" and echo([1, "a"]) == '[1,"a"]'
    assert echo(float("nan")) == "nan"
    assert echo(object()) == "object"
    assert echo(10**5000) == "int"


@given(st.text(st.characters(), max_size=200) | st.lists(st.floats()) | st.binary())
def test_echo_never_fails(value: object) -> None:
    text = echo(value)
    assert len(text) <= 80
    json.dumps(text).encode()
    text.encode()


@given(JSON, st.booleans(), st.booleans())
def test_a_kept_encoder_does_what_a_new_one_does(value: object, ensure_ascii: bool, sort_keys: bool) -> None:
    encode = results.compact_encoder(ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    expected = json.dumps(
        value, ensure_ascii=ensure_ascii, sort_keys=sort_keys, allow_nan=False, separators=(",", ":")
    )
    assert encode(value) == expected
    circle: list[object] = [value]
    circle.append(circle)
    for unfit in (circle, [value, float("nan")], {"a": [object()]}):
        with pytest.raises((TypeError, ValueError)):
            encode(unfit)
        assert encode(value) == expected
