"""Keyed randomness: published outputs, both forms, transforms, statistics."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market import draws
from merchantbench_gym.market.draws import (
    GAMMA,
    NEVER,
    draw,
    integer,
    integer_array,
    mix,
    normal,
    poisson_quantile,
    real,
    sm,
    sm_array,
    uniform,
    uniform_array,
    wait,
    wait_array,
)

WORD = st.integers(0, 2**64 - 1)
KEY = st.integers(0, 2**40)
UNIT = st.integers(0, 2**53 - 1).map(lambda n: n * 2.0**-53)
SEEDS = (0, 1, 42, 2**63)


def test_published_outputs_of_splitmix64() -> None:
    assert [sm(1234567, n) for n in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert sm(0, 0) == 0xE220A8397B1DCDAF


def test_channel_numbers() -> None:
    names = "SUPPLIER PRODUCT TITLE HOUR_SHAPE CURVE_NOISE PRICE_TIMELINE LISTING_TIMELINE SHIPPING_TIMELINE"
    names += " ARRIVAL FATE QUEUE CONTENTION"
    assert [getattr(draws, name) for name in names.split()] == list(range(1, 13))


@given(WORD, KEY)
def test_sm_is_the_generator_by_random_access(h: int, n: int) -> None:
    state = (h + (n + 1) * GAMMA) % 2**64
    assert sm(h, n) == mix(state)
    assert 0 <= sm(h, n) < 2**64


@given(WORD, st.lists(KEY, max_size=4))
def test_draw_is_a_path(seed: int, keys: list[int]) -> None:
    node = sm(seed, 9)
    for key in keys:
        node = sm(node, key)
    assert draw(seed, 9, *keys) == node


@given(st.lists(st.tuples(WORD, KEY), min_size=1, max_size=8), st.randoms())
def test_array_form_equals_scalar_form(pairs: list[tuple[int, int]], order: Any) -> None:
    words = np.array([h for h, _ in pairs], dtype=np.uint64)
    keys = np.array([n for _, n in pairs], dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = sm_array(words, keys)
        assert whole.dtype == np.uint64
        assert [int(x) for x in whole] == [sm(h, n) for h, n in pairs]
        # Any chunking, any order of evaluation.
        index = list(range(len(pairs)))
        order.shuffle(index)
        for i in index:
            assert int(sm_array(words[i : i + 1], keys[i : i + 1])[0]) == int(whole[i])
        grid = sm_array(words[:, None], np.arange(5))
        assert grid.shape == (len(pairs), 5)
        assert [int(x) for x in grid[:, 3]] == [sm(h, 3) for h, _ in pairs]
        h0, n0 = pairs[0]
        assert [int(x) for x in sm_array(h0, keys)] == [sm(h0, n) for _, n in pairs]
        assert [int(x) for x in sm_array(words, n0)] == [sm(h, n0) for h, _ in pairs]
        assert [int(x) for x in sm_array(h0, n0)] == [sm(h0, n0)]
        assert uniform_array(whole).tolist() == [uniform(int(x)) for x in whole]


def test_array_form_leaves_its_arguments_alone() -> None:
    words = np.array([1, 2, 3], dtype=np.uint64)
    keys = np.array([4, 5, 6], dtype=np.uint64)
    first = sm_array(words, keys)
    first[:] = 0
    uniform_array(words)
    assert words.tolist() == [1, 2, 3]
    assert keys.tolist() == [4, 5, 6]


@given(WORD)
def test_uniform_lies_below_one(x: int) -> None:
    u = uniform(x)
    assert 0.0 <= u < 1.0
    assert u == (x >> 11) / 2**53


def test_uniform_of_the_largest_word() -> None:
    assert uniform(2**64 - 1) == 1.0 - 2.0**-53


@pytest.mark.parametrize(
    ("u", "a", "b", "expected"),
    [(0.0, 168, 672, 168), (0.5, 168, 672, 420), (1.0 - 2.0**-53, 168, 672, 672), (0.25, 1, 47, 12)],
)
def test_integer_examples(u: float, a: int, b: int, expected: int) -> None:
    assert integer(u, a, b) == expected
    assert integer_array(np.array([u]), a, b).tolist() == [expected]


@given(UNIT, st.integers(-1000, 10**6), st.integers(0, 10**6))
def test_integer_stays_in_its_range(u: float, low: int, width: int) -> None:
    for x in (u, 1.0 - 2.0**-53):
        result = integer(x, low, low + width)
        assert type(result) is int
        assert low <= result <= low + width
        assert integer_array(np.array([x]), low, low + width).tolist() == [result]


@given(UNIT)
def test_real(u: float) -> None:
    assert real(u, 10.0, 500.0) == 10.0 + 490.0 * u
    assert real(np.array([u]), 10.0, 500.0).tolist() == [10.0 + 490.0 * u]


@pytest.mark.parametrize(
    ("u", "hazard", "expected"),
    [
        (0.0, 0.01, 1),
        (0.5, 0.01, 69),
        (0.9, 0.001, 2302),
        (0.999, 0.005, 1379),
        (0.5, 1.0, 1),
        (0.9, 2.0, 1),
        (0.5, 0.0, NEVER),
        (0.5, -1.0, NEVER),
        (0.9, 5e-324, NEVER),
        (0.0, 5e-324, 1),
        (1.0 - 2.0**-53, 1e-9, NEVER),
    ],
)
def test_wait_examples(u: float, hazard: float, expected: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wait(u, hazard) == expected
        assert wait_array(np.array([u, u]), np.array([hazard, 0.5])).tolist() == [expected, wait(u, 0.5)]


@given(UNIT, st.floats(0.0001, 0.9))
def test_wait_inverts_the_geometric_distribution(u: float, hazard: float) -> None:
    hours = wait(u, hazard)
    assert hours >= 1
    # P(wait <= k) = 1 - (1 - h)^k: u lies between the values at hours - 1 and hours.
    assert 1.0 - (1.0 - hazard) ** (hours - 1) <= u + 1e-9
    assert u - 1e-9 <= 1.0 - (1.0 - hazard) ** hours


def test_wait_has_mean_one_over_the_hazard() -> None:
    u = uniform_array(sm_array(5, np.arange(100_000)))
    hazard = np.array([[0.5], [0.05], [0.002]])
    mean = wait_array(u, hazard).mean(axis=1)
    spread = np.sqrt(1.0 - hazard[:, 0]) / hazard[:, 0]
    assert (np.abs(mean - 1.0 / hazard[:, 0]) < 5.0 * spread / math.sqrt(100_000)).all()


def test_normal() -> None:
    words = uniform_array(sm_array(sm_array(3, np.arange(100_000))[:, None], np.arange(2)))
    z = normal(words[:, 0], words[:, 1])
    assert abs(z.mean()) < 5.0 / math.sqrt(100_000)
    assert abs(z.var() - 1.0) < 5.0 * math.sqrt(2.0 / 100_000)
    assert normal(0.0, 0.3) == 0.0
    assert math.isfinite(normal(1.0 - 2.0**-53, 0.0))
    assert normal(0.5, 0.0) == pytest.approx(math.sqrt(2.0 * math.log(2.0)), rel=1e-15)


@pytest.mark.parametrize(
    ("u", "q", "expected"),
    [
        (0.0, 0.5, 0),
        (0.6, 0.5, 0),
        (0.61, 0.5, 1),
        (0.909, 0.5, 1),
        (0.91, 0.5, 2),
        (0.99, 0.5, 3),
        (0.5, 1.0, 1),
        (0.5, 1000.0, 1000),
        (0.9, 0.0, 0),
        (0.9, -1.0, 0),
        (1.0 - 2.0**-53, 1e-300, 0),
        (1.0 - 2.0**-53, 2.0**-33, 0),
        (1.0 - 2.0**-53, 2.0**-31, 1),
    ],
)
def test_quantile_examples(u: float, q: float, expected: int) -> None:
    assert poisson_quantile(u, q) == expected


def _exact_quantile(u: float, q: float) -> int:
    """Count j with F(j; q) <= u from exact sums of q^j / j!."""
    limit = Fraction(u) * Fraction(math.exp(q)) if q <= 30.0 else None
    total, term, n = Fraction(0), Fraction(1), 0
    if limit is None:
        # e^q by its own series: exact to far below a double.
        x, series, power = Fraction(q), Fraction(0), Fraction(1)
        for k in range(1, int(q * 4 + 200)):
            series += power
            power = power * x / k
        limit = Fraction(u) * series
    while True:
        total += term
        if total > limit:
            return n
        n += 1
        term = term * Fraction(q) / n


@pytest.mark.parametrize("q", [0.02, 0.5, 3.0, 30.0, 31.0, 200.0])
@pytest.mark.parametrize("u", [0.001, 0.25, 0.5, 0.77, 0.999, 1.0 - 2.0**-40])
def test_quantile_equals_exact_summation(u: float, q: float) -> None:
    assert poisson_quantile(u, q) == _exact_quantile(min(u, 1.0 - 2.0**-32), q)


@given(UNIT, UNIT, st.floats(0.0, 1000.0), st.floats(0.0, 1000.0))
def test_inv13_quantile_is_monotone(u: float, v: float, q: float, r: float) -> None:
    (u, v), (q, r) = sorted((u, v)), sorted((q, r))
    assert poisson_quantile(u, q) <= poisson_quantile(v, q)
    assert poisson_quantile(u, q) <= poisson_quantile(u, r)


@given(UNIT, st.sampled_from([29.9, 29.999999, 30.0]), st.sampled_from([30.000001, 30.1]))
def test_inv13_quantile_is_monotone_across_the_two_branches(u: float, q: float, r: float) -> None:
    assert poisson_quantile(u, q) <= poisson_quantile(u, r)


@given(st.floats(1e-6, 1000.0))
def test_quantile_is_bounded(q: float) -> None:
    assert 0 <= poisson_quantile(1.0 - 2.0**-53, q) <= math.floor(q + 9.0 * math.sqrt(q) + 25.0)


@pytest.mark.parametrize(
    "q", [0.02, 0.5, 3.0, 30.0, 30.0001, 200.0, pytest.param(1000.0, marks=pytest.mark.slow)]
)
def test_quantile_has_the_moments_of_poisson(q: float) -> None:
    words = uniform_array(sm_array(draw(11, draws.ARRIVAL, 0), np.arange(20_000)))
    counts = np.array([poisson_quantile(u, q) for u in words.tolist()])
    assert abs(counts.mean() - q) < 5.0 * math.sqrt(q / 20_000)
    assert abs(counts.var() - q) < 5.0 * math.sqrt((q + 2.0 * q * q) / 20_000)


def _arrival_nodes(seed: int, merchant: int, products: int, hours: int, channel: int = 9) -> Any:
    by_product = sm_array(draw(seed, channel, merchant), np.arange(products))
    return sm_array(by_product[:, None], np.arange(hours))


def _chi_square_z(cells: Any, count: int) -> float:
    observed = np.bincount(cells.ravel(), minlength=count)
    expected = cells.size / count
    chi = float(((observed - expected) ** 2).sum() / expected)
    return (chi - (count - 1)) / math.sqrt(2.0 * (count - 1))


def _correlation_z(a: Any, b: Any) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * math.sqrt(a.size)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_arrivals_look_uniform_and_independent(seed: int) -> None:
    u = uniform_array(_arrival_nodes(seed, 0, 200, 8760))
    assert abs(_chi_square_z((u * 256).astype(np.int64), 256)) < 5.0
    coarse = (u * 16).astype(np.int64)
    assert abs(_chi_square_z(coarse[:, 0::2] * 16 + coarse[:, 1::2], 256)) < 5.0
    assert abs(_chi_square_z(coarse[:, 1:-1:2] * 16 + coarse[:, 2::2], 256)) < 5.0
    other_merchant = uniform_array(_arrival_nodes(seed, 1, 200, 8760))
    other_seed = uniform_array(_arrival_nodes((seed + 1) % 2**64, 0, 200, 8760))
    for a, b in [
        (u[:, :-1], u[:, 1:]),
        (u[:, :-24], u[:, 24:]),
        (u[:-1], u[1:]),
        (u, other_merchant),
        (u, other_seed),
    ]:
        assert abs(_correlation_z(a, b)) < 5.0


@pytest.mark.parametrize("seed", SEEDS)
def test_arrival_fate_offset_and_ordinals_are_uncorrelated(seed: int) -> None:
    arrival = uniform_array(_arrival_nodes(seed, 0, 20, 2000))
    hours = _arrival_nodes(seed, 0, 20, 2000, channel=draws.FATE)
    first, second = sm_array(hours, 0), sm_array(hours, 1)
    fate, offset = uniform_array(sm_array(first, 0)), uniform_array(sm_array(first, 1))
    for a, b in [(arrival, fate), (fate, offset), (fate, uniform_array(sm_array(second, 0)))]:
        assert abs(_correlation_z(a, b)) < 5.0


@pytest.mark.parametrize("hours", [400, pytest.param(8760, marks=pytest.mark.slow)])
def test_nodes_of_a_year_are_distinct(hours: int) -> None:
    nodes = np.concatenate(
        [
            _arrival_nodes(42, merchant, 200, hours, channel).ravel()
            for channel in (draws.ARRIVAL, draws.FATE, draws.QUEUE)
            for merchant in (0, 1)
        ]
    )
    nodes.sort()
    assert (nodes[1:] != nodes[:-1]).all()


def test_global_generators_are_replaced_in_these_tests() -> None:
    """The guard of the market tests is in force (see conftest)."""
    with pytest.raises(AssertionError, match="global generator"):
        np.random.random()
