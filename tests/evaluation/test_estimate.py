"""What a run with a model will need: sizes measured, requests added up, cost."""

from __future__ import annotations

from typing import Any

import pytest

from merchantbench_gym.evaluation.estimate import OUTPUT_TOKENS, Sizes, estimate_run, measure_sizes
from merchantbench_gym.scenario import load_scenario

SIZES = Sizes(fixed=1_000, observation=100, result=300)
PRICES = {"input": 2, "output": 10, "cache_read": "0.2"}


def of_days(days: int, calls: int = 2, trigger: int = 160_000, **others: Any) -> Any:
    scenario = load_scenario("smoke", {"run": {"horizon_days": days}})
    return estimate_run(scenario, SIZES, "case", calls, trigger=trigger, keep=500, **others)


def test_requests_add_up() -> None:
    found = of_days(1)  # two windows of two calls
    sizes = [1_100, 1_100 + OUTPUT_TOKENS + 300]
    sizes += [sizes[1] + 100, sizes[1] + 100 + OUTPUT_TOKENS + 300]
    assert (found.windows, found.calls) == (2, 4)
    assert found.prompt_tokens == sum(sizes)
    assert found.cached_tokens == sum(sizes[:-1])
    assert found.output_tokens == 4 * OUTPUT_TOKENS
    assert found.compactions == 0


def test_history_is_cut_at_the_trigger() -> None:
    found = of_days(30, trigger=3_000)
    assert found.compactions > 0
    assert found.prompt_tokens < found.calls * 3_000
    assert of_days(30).compactions == 0


def test_the_turn_limit_caps_the_calls() -> None:
    scenario = load_scenario("smoke", {"run": {"horizon_days": 1}, "turns": {"max_turns_per_window": 3}})
    found = estimate_run(scenario, SIZES, "case", 12, trigger=160_000, keep=30_000)
    assert found.calls == 6


def test_cost_with_and_without_a_cache() -> None:
    found = of_days(1, prices=PRICES)
    full = (found.prompt_tokens * 2 + found.output_tokens * 10) / 1e6
    fresh = found.prompt_tokens - found.cached_tokens
    cached = (fresh * 2 + found.cached_tokens * 0.2 + found.output_tokens * 10) / 1e6
    assert found.cost_usd == pytest.approx(full, abs=0.005)
    assert found.cost_usd_cached == pytest.approx(cached, abs=0.005)
    assert of_days(1, prices={"input": 2, "output": 10}).cost_usd_cached == found.cost_usd


def test_without_prices_the_cost_is_unknown_not_zero() -> None:
    assert of_days(1).cost_usd is None
    assert of_days(1).cost_usd_cached is None


def test_sizes_are_those_of_the_scenario() -> None:
    scenario = load_scenario("smoke")
    with_notes, without = measure_sizes(scenario), measure_sizes(scenario, memory=False)
    assert with_notes.fixed > without.fixed > 5_000
    assert with_notes.observation > 100
    assert with_notes.result > 50
    assert measure_sizes(scenario) == with_notes
