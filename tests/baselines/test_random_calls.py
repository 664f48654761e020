"""The random merchant: what it draws, and that it never draws anything malformed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import RandomPolicy, run_episode

END = "end_of_step"


class Diary(RandomPolicy):
    """Notes what it was shown and what it did."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.windows: dict[int, list[list[dict[str, Any]]]] = {}
        self.prices: dict[str, set[float]] = {}
        self.shown = ""

    def act(self, observation: Any, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        for result in observation["tool_results"]:
            self.shown += result["content"]
            content = json.loads(result["content"])
            for value in [content, *content.values()]:
                self._note_prices(value)
        action = super().act(observation, info)
        self.windows.setdefault(info["window"], []).append(action)
        return action

    def _note_prices(self, table: Any) -> None:
        if not isinstance(table, dict):
            return
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table.get("rows", ())]
        for row in [table, *rows]:
            price = row.get("supplier_price") or row.get("price")
            if "product_id" in row and price:
                self.prices.setdefault(row["product_id"], set()).add(price)


def play(policy: RandomPolicy, seed: int = 1, scenario: str = "month", **overrides: Any) -> Any:
    env = gymnasium.make("MerchantBench-v0", scenario=scenario, overrides=overrides, disable_env_checker=True)
    return run_episode(env, policy, seed=seed, on_error="raise")


@pytest.fixture(scope="module")
def month() -> tuple[Diary, Any]:
    diary = Diary()
    return diary, play(diary)


def test_windows_have_up_to_three_turns_and_an_end_of_their_own(month: tuple[Diary, Any]) -> None:
    lengths: Counter[int] = Counter()
    for turns in month[0].windows.values():
        *calling, last = turns
        lengths[len(calling)] += 1
        assert [call["name"] for call in last] == [END]
        for action in calling:
            assert 1 <= len(action) <= 3
            assert END not in [call["name"] for call in action]
    assert set(lengths) == {0, 1, 2, 3}


def test_no_call_is_malformed(month: tuple[Diary, Any]) -> None:
    counters = month[1].counters
    assert counters["invalid"] == counters["rejected_turns"] == counters["internal_faults"] == 0
    granted = {schema["function"]["name"] for schema in month[0].seat.tools}
    assert set(counters["by_tool"]) == granted  # every tool gets its turn


def test_ids_come_from_results_and_prices_from_supplier_prices(month: tuple[Diary, Any]) -> None:
    diary = month[0]
    sizes: Counter[int] = Counter()
    for call in (call for turns in diary.windows.values() for action in turns for call in action):
        items = call["arguments"].get("items", [])
        ids = [call["arguments"].get(key) for key in ("product_id", "supplier_id", "order_id")]
        for value in filter(None, [*ids, *(item["product_id"] for item in items)]):
            assert f'"{value}"' in diary.shown
        if call["name"] == "list_product":
            sizes[len(items)] += 1
        elif items:
            assert len(items) == 1
        assert len({item["product_id"] for item in items}) == len(items)
        for item in items:
            price = item.get("sale_price", item.get("new_price"))
            if price is not None:
                assert price == round(price, 2)
                known = diary.prices[item["product_id"]]
                assert min(known) - 0.005 <= price <= 3 * max(known) + 0.005
    assert set(sizes) == {1, 2, 3, 4, 5}


def test_shares_of_the_draws() -> None:
    policy = RandomPolicy(5)
    env = gymnasium.make("MerchantBenchSmoke-v0", disable_env_checker=True)
    run_episode(env, policy, seed=1)
    names = Counter(policy._call("x")["name"] for _ in range(6000))
    writes = [names[name] for name in ("list_product", "delist_product", "adjust_price")]
    assert sum(writes) / 6000 == pytest.approx(1 / 3, abs=0.03)
    assert [number / sum(writes) for number in writes] == pytest.approx([1 / 2, 1 / 6, 1 / 3], abs=0.04)


def test_before_any_id_is_known_it_searches() -> None:
    policy = RandomPolicy(1)
    run_episode(gymnasium.make("MerchantBenchSmoke-v0", disable_env_checker=True), policy, seed=1)
    policy._seen = {name: {} for name in policy._seen}
    calls = [policy._call("x") for _ in range(300)]
    assert {call["name"] for call in calls}.isdisjoint({"list_product", "delist_product", "adjust_price"})
    assert {call["name"] for call in calls}.isdisjoint({"get_product_detail", "query_order_detail"})
    assert Counter(call["name"] for call in calls).most_common(1)[0][0] == "search_products"


def test_only_granted_tools() -> None:
    denied = ["search_products", "delist_product", "query_my_orders"]
    result = play(RandomPolicy(), scenario="smoke", tools={"denied": denied})
    assert result.counters["invalid"] == 0
    assert not set(denied) & set(result.counters["by_tool"])


@pytest.mark.parametrize("limit", [1, 2])
def test_few_turns_per_window(limit: int) -> None:
    diary = Diary()
    result = play(diary, scenario="smoke", turns={"max_turns_per_window": limit})
    assert max(len(turns) for turns in diary.windows.values()) == limit
    assert all(turns[-1][-1]["name"] == END for turns in diary.windows.values())
    assert result.end_reason == "horizon"


def test_the_seed_decides() -> None:
    def actions(policy: Diary, seed: int = 1) -> Any:
        play(policy, seed, "smoke")
        return policy.windows

    assert actions(Diary()) == actions(Diary())
    assert actions(Diary(9)) == actions(Diary(9)) != actions(Diary())


def test_a_restart_at_every_turn_changes_nothing(month: tuple[Diary, Any]) -> None:
    class Restarting(RandomPolicy):
        largest = 0

        def act(self, observation: Any, info: Mapping[str, Any]) -> list[dict[str, Any]]:
            text = json.dumps(self.state_dict())
            self.largest = max(self.largest, len(text.encode()))
            self.reset(self.seat, seed=99)
            self.load_state_dict(json.loads(text))
            return super().act(observation, info)

    policy = Restarting()
    assert play(policy).last_net_assets == month[1].last_net_assets
    assert policy.largest <= 16 * 1024


@pytest.mark.slow
def test_a_year_without_a_malformed_call() -> None:
    result = play(RandomPolicy(), 2, "default")
    assert result.counters["invalid"] == result.counters["rejected_turns"] == 0
