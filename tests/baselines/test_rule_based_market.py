"""The rule-based merchant in the market."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import PassivePolicy, RuleBasedPolicy, run_episode
from merchantbench_gym.baselines.policy import marked_up
from merchantbench_gym.scenario import DEV_SEEDS
from merchantbench_gym.wrappers import Seat


def final(env: Any, policy: Any, seed: int) -> int:
    result = run_episode(env, policy, seed=seed)
    assert result.ledger_holds and result.last_net_assets is not None
    return result.last_net_assets


@pytest.mark.parametrize("turns", [1, 2, 30])
def test_a_restart_at_any_turn_continues_as_the_control(turns: int) -> None:
    env = gymnasium.make("MerchantBenchMonth-v0", max_turns_per_window=turns)
    control = final(env, RuleBasedPolicy("random"), 5)
    for stop in (1, 2, 40, 41, 42):
        first = RuleBasedPolicy("random")
        run_episode(env, first, seed=5, limits={"turns": stop})
        second = RuleBasedPolicy("random")
        second.reset(Seat.from_env(env), seed=5)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        result = run_episode(env, second, seed=5, start=env.unwrapped.observe())
        assert result.last_net_assets == control


def test_at_most_three_turns_a_window_and_no_wasted_call() -> None:
    env = gymnasium.make("MerchantBenchMonth-v0")
    result = run_episode(env, RuleBasedPolicy("random"), seed=2)
    counters = result.counters
    assert counters["turns"] <= 3 * 60
    assert counters["invalid"] == counters["rejected_turns"] == counters["business_errors"] == 0
    assert counters["by_tool"]["end_of_step"] == 60


@pytest.mark.parametrize("turns", [1, 2])
def test_it_earns_money_even_with_few_turns(turns: int) -> None:
    env = gymnasium.make("MerchantBenchMonth-v0", max_turns_per_window=turns)
    result = run_episode(env, RuleBasedPolicy("random"), seed=1)
    assert result.last_net_assets is not None and result.last_net_assets > 300_000
    assert result.counters["turns"] == 60 * turns


def test_every_listing_is_at_the_supplier_price_times_markup() -> None:
    env = gymnasium.make("MerchantBenchSmoke-v0")
    listed: list[tuple[float, float]] = []

    def on_turn(observation: Any, reward: float, info: Any) -> None:
        for result in observation["tool_results"]:
            if result["name"] == "list_product":
                table = json.loads(result["content"])["items"]
                sale, price = table["columns"].index("sale_price"), table["columns"].index("supplier_price")
                listed.extend((row[sale], row[price]) for row in table["rows"])

    run_episode(env, RuleBasedPolicy("random", markup=1.5), seed=1, on_turn=on_turn)
    assert len(listed) >= 50
    assert all(sale == marked_up(price, 1.5) for sale, price in listed)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["MerchantBenchMonth-v0", "MerchantBench-v0"])
def test_it_beats_doing_nothing(env_id: str) -> None:
    env = gymnasium.make(env_id)
    scores = [final(env, RuleBasedPolicy("random"), seed) for seed in DEV_SEEDS]
    assert sum(scores) / len(scores) > final(env, PassivePolicy(), 1)


@pytest.mark.slow
def test_a_year_is_the_same_every_time() -> None:
    env = gymnasium.make("MerchantBench-v0")
    assert final(env, RuleBasedPolicy("random"), 3) == final(env, RuleBasedPolicy("random"), 3)
