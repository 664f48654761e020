"""Canonical bytes of plain data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market.codec import CodecError, decode, encode, seal, unseal

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert encode(back) == encode(value)
    assert unseal(seal(value)) == value


def test_equal_values_have_equal_bytes() -> None:
    assert encode({"b": [1, 2], "a": 0.5}) == encode({"a": 0.5, "b": (1, 2)})
    assert encode({2: "x", 1: "y"}) == encode({1: "y", 2: "x"})
    distinct: list[Any] = [
        None,
        False,
        0,
        0.0,
        -0.0,
        "",
        b"",
        (),
        {},
        True,
        1,
        1.0,
        "1",
        b"1",
        (1,),
        2**70,
        -(2**70),
        "\ud800",
    ]
    assert len({encode(value) for value in distinct}) == len(distinct)
    assert all(repr(decode(encode(value))) == repr(value) for value in distinct)


@pytest.mark.parametrize("value", [{1, 2}, object(), 1 + 2j])
def test_other_data_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        encode(value)


@given(VALUES, st.integers(0, 200))
def test_cut_data_are_refused(value: Any, length: int) -> None:
    data = encode(value)
    with pytest.raises(CodecError):
        decode(data[: min(length, len(data) - 1)])
    with pytest.raises(CodecError, match="go on after"):
        decode(data + b"N")


@pytest.mark.parametrize("data", [b"", b"?", b"s\x02\0\0\0\xff\xff", b"l\xff\xff\xff\x7f", b"I\x01\0\0\0x"])
def test_damaged_data_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"MBWS1\n", b"other", seal(1)[:-1], seal(1) + b"N", "text", None])
def test_unsealed_data_are_refused(data: Any) -> None:
    with pytest.raises(CodecError):
        unseal(data)
