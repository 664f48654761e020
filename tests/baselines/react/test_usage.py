"""Tokens and money."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.baselines.react.usage import TOKENS, Reading, Tally, cost_of, read_usage


def prices(*values: str) -> dict[str, Decimal]:
    kinds = ("input", "output", "cache_read", "cache_write")
    return {kind: Decimal(value) for kind, value in zip(kinds, values, strict=False)}


def reading(*tokens: int) -> Reading:
    return Reading({**dict.fromkeys(TOKENS, 0), **dict(zip(TOKENS, tokens, strict=False))}, known=True)


@pytest.mark.parametrize(
    ("usd", "tokens", "expected"),
    [
        (("1000", "2000", "100", "5000"), (500, 200, 300, 100, 50), 1_430_000),
        (("1000", "2000", "100", "5000"), (600, 2000, 400, 0), 4_640_000),
        (("5", "30", "0.5"), (1234, 567, 89_001, 11), 67_736),
        (("0.5", "0"), (1,), 0),
        (("0.5", "0"), (3,), 2),
        (("0.1", "0.2"), (1, 1, 0, 0), 0),
    ],
)
def test_costs(usd: tuple[str, ...], tokens: tuple[int, ...], expected: int) -> None:
    assert cost_of(reading(*tokens), prices(*usd)) == expected


def test_an_unknown_cost_is_not_zero() -> None:
    usd = prices("1", "1")
    assert cost_of(reading(1), None) is None
    assert cost_of(Reading(), usd) is None
    assert cost_of(read_usage({"prompt_tokens": -1, "completion_tokens": 5}), usd) is None
    tally = Tally()
    tally.response(reading(1), 7)
    assert tally.cost == 7
    tally.response(Reading(), None)
    tally.response(reading(1), 7)
    assert (tally.cost, tally.counts["missing"], tally.counts["input"]) == (None, 1, 2)


def test_cached_tokens_are_part_of_the_prompt() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 2000,
        "prompt_tokens_details": {"cached_tokens": 400},
        "completion_tokens_details": {"reasoning_tokens": 50},
        "cacheReadInputTokensCompatible": 1,
        "cache_creation_input_tokens": 100,
    }
    read = read_usage(usage)
    assert read.tokens == dict(zip(TOKENS, (500, 2000, 400, 100, 50), strict=True))
    assert (read.prompt, read.known, read.bad) == (1000, True, ())
    assert Reading.load(read.to_json()) == read


@pytest.mark.parametrize(
    ("extra", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 1}, "cache_read_input_tokens": 3}, 1),
        ({"prompt_tokens_details": {"cached_tokens": None}, "cacheReadInputTokensCompatible": 2}, 2),
        ({"prompt_tokens_details": None, "cache_read_input_tokens": 3}, 3),
        ({"cacheReadInputTokensCompatible": 2, "cache_read_input_tokens": 3}, 2),
        ({}, 0),
    ],
)
def test_places_of_cached_tokens(extra: dict[str, Any], cached: int) -> None:
    read = read_usage({"prompt_tokens": 10, "completion_tokens": 1, **extra})
    assert (read.tokens["cache_read"], read.tokens["input"], read.bad) == (cached, 10 - cached, ())


def test_more_cached_than_prompted() -> None:
    read = read_usage({"prompt_tokens": 1, "completion_tokens": 1, "cache_read_input_tokens": 5})
    assert read.tokens["input"] == 0


@pytest.mark.parametrize("usage", [None, {}, [], "12", {"total_tokens": 3}, {"prompt_tokens": None}])
def test_no_usage(usage: Any) -> None:
    read = read_usage(usage)
    assert (read.known, read.prompt, sum(read.tokens.values())) == (False, 0, 0)
    assert read.to_json() is None
    assert Reading.load(None) == read


@pytest.mark.parametrize("value", ["12", -1, 1.5, True, None, [1]])
def test_what_is_no_number_of_tokens(value: Any) -> None:
    read = read_usage({"prompt_tokens": value, "completion_tokens": 3})
    assert (read.prompt, read.tokens["output"], read.bad) == (0, 3, ("prompt_tokens",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cacheReadInputTokensCompatible",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cached_tokens",
    ]
)


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=2)) | JSON)
def test_reading_never_fails(usage: Any) -> None:
    read = read_usage(usage)
    assert all(type(number) is int and number >= 0 for number in read.tokens.values())
    assert cost_of(read, prices("1", "2")) is None or not read.bad


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 5), max_size=5))
def test_sums_survive_being_stored(tokens: list[tuple[int, ...]]) -> None:
    tally = Tally()
    for row in tokens:
        tally.response(reading(*row), cost_of(reading(*row), prices("1.5", "2.25")))
    assert Tally.load(tally.to_json()) == tally
    assert tally.counts["output"] == sum(row[1] for row in tokens)
