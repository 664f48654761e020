"""The rule-based merchant, rule by rule, on hand-made windows."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from merchantbench_gym.baselines.policy import marked_up
from merchantbench_gym.baselines.rule_based import MAX_TARGET, RuleBasedPolicy

Actions = list[list[dict[str, Any]]]


def started(shop: Any, **settings: Any) -> RuleBasedPolicy:
    policy = RuleBasedPolicy(**{"mode": "random", **settings})
    policy.reset(shop.seat(), seed=1)
    return policy


def names(actions: Actions) -> list[list[str]]:
    return [[call["name"] for call in action] for action in actions]


def calls(actions: Actions, name: str) -> list[dict[str, Any]]:
    return [call["arguments"] for action in actions for call in action if call["name"] == name]


@pytest.mark.parametrize(
    ("price", "markup", "sale"),
    [
        (0.20, 2.0, 0.40),
        (5, 2.0, 10),
        (7, 2.0, 14),
        (12.33, 1.5, 18.50),
        (12.35, 1.5, 18.52),
        (1.15, 1.1, 1.26),  # 1.265 exactly, though the binary product is above it
    ],
)
def test_price_vectors(price: float, markup: float, sale: float) -> None:
    assert marked_up(price, markup) == sale


def test_first_window_reads_sources_and_lists(shop: Any) -> None:
    actions = shop.play_window(started(shop))
    assert names(actions)[0] == [
        "query_balance",
        "query_my_listings",
        "query_supply_chain_anomalies",
        "review_my_listings",
        "search_products",
    ]
    assert names(actions)[1] == ["search_products"] * 12
    assert names(actions)[2] == ["list_product", "end_of_step"]
    assert len(shop.shelf) == 50
    assert all(row["sale_price"] == marked_up(row["supplier_price"], 2.0) for row in shop.shelf.values())


def test_quiet_window_takes_two_turns_and_changes_nothing(shop: Any) -> None:
    policy = started(shop)
    shop.play_window(policy)
    assert names(shop.play_window(policy)) == [
        ["query_balance", "query_my_listings", "query_supply_chain_anomalies"],
        ["end_of_step"],
    ]


def test_review_is_read_once_a_day(shop: Any) -> None:
    policy = started(shop)
    read = [bool(calls(shop.play_window(policy), "review_my_listings")) for _ in range(6)]
    assert read == [True, False] * 3


def test_random_pages_vector(shop: Any) -> None:
    actions = shop.play_window(started(shop))  # 1,000 products are 20 pages
    pages = [arguments["page"] for arguments in calls(actions[1:], "search_products")]
    assert pages == [2, 4, 5, 6, 7, 9, 12, 13, 14, 17, 19, 20]
    assert {arguments["page_size"] for arguments in calls(actions[1:], "search_products")} == {50}


def test_same_seed_and_day_same_picks_whatever_the_episode(shop: Any) -> None:
    policy = started(shop)
    shop.play_window(policy)
    first = sorted(shop.shelf)
    shop.shelf.clear()
    shop.window = -1
    policy.reset(shop.seat(), seed=99)
    shop.play_window(policy)
    assert sorted(shop.shelf) == first


def test_another_day_or_seed_picks_differently(shop: Any) -> None:
    shop.play_window(started(shop))
    first = set(shop.shelf)
    for window, seed in ((1, 42), (-1, 43)):
        shop.shelf.clear()
        shop.window = window
        shop.play_window(started(shop, selection_seed=seed))
        assert set(shop.shelf) != first


def test_picks_are_uniform_over_the_catalogue(shop: Any) -> None:
    shop.catalogue = {f"P{index:05d}": 10.0 for index in range(700)}
    counts: Counter[int] = Counter()
    draws = 1000
    for seed in range(draws):
        shop.shelf.clear()
        shop.window = -1
        shop.play_window(started(shop, selection_seed=seed, shelf_target=1))
        counts[int(next(iter(shop.shelf))[1:]) // 50] += 1
    expected = draws / 14
    statistic = sum((counts[page] - expected) ** 2 / expected for page in range(14))
    assert statistic < 34.5  # 99.9 % point of chi-square with 13 degrees of freedom


def test_withdrawn_and_slow_products_are_delisted(shop: Any) -> None:
    policy = started(shop)
    shop.play_window(policy)
    kept, withdrawn, slow, on_time = sorted(shop.shelf)[:4]
    shop.shelf[withdrawn]["supplier_available"] = False
    shop.shelf[slow]["supplier_ship_hours"] = 49
    shop.shelf[on_time]["supplier_ship_hours"] = 48
    actions = shop.play_window(policy)
    assert calls(actions, "delist_product") == [{"items": [{"product_id": withdrawn}, {"product_id": slow}]}]
    assert {kept, on_time} <= set(shop.shelf)
    assert not calls(actions, "list_product")  # not the first window of the day


def test_anomalies_alone_are_enough_to_delist(shop: Any) -> None:
    shop.put("P00001", 10, on=False)
    shop.put("P00002", 10)
    shop.failing = {"query_my_listings"}
    actions = shop.play_window(started(shop))
    assert calls(actions, "delist_product") == [{"items": [{"product_id": "P00001"}]}]
    assert not calls(actions, "list_product")  # the shelf is unknown


def test_free_places_are_filled_in_the_first_window_of_the_next_day(shop: Any) -> None:
    policy = started(shop)
    shop.play_window(policy)
    gone = sorted(shop.shelf)[:3]
    for product in gone:
        shop.shelf[product]["supplier_available"] = False
    shop.play_window(policy)
    assert len(shop.shelf) == 47
    actions = shop.play_window(policy)
    assert len(calls(actions, "list_product")[0]["items"]) == 3
    assert len(shop.shelf) == 50


def test_a_product_that_leaves_is_not_listed_again_in_the_same_window(shop: Any) -> None:
    shop.catalogue = {"P00001": 10.0, "P00002": 11.0}
    shop.put("P00001", 10, ship=60)
    actions = shop.play_window(started(shop))
    assert calls(actions, "delist_product") == [{"items": [{"product_id": "P00001"}]}]
    assert calls(actions, "list_product") == [{"items": [{"product_id": "P00002", "sale_price": 22.0}]}]


def test_an_empty_shelf_is_filled_at_any_hour(shop: Any) -> None:
    policy = started(shop)
    shop.play_window(policy)
    for row in shop.shelf.values():
        row["supplier_available"] = False
    actions = shop.play_window(policy)  # second window of the day
    assert len(actions) == 3
    assert len(shop.shelf) == 50


def test_prices_follow_the_supplier_in_one_batch(shop: Any) -> None:
    shop.put("P00001", 12.35, sale=20.0)
    shop.put("P00002", 12.35, sale=18.52)
    shop.put("P00003", 0.0, sale=5.0)
    shop.put("P00004", 7.0, sale=1.0, on=False)
    actions = shop.play_window(started(shop, markup=1.5))
    assert calls(actions, "adjust_price") == [{"items": [{"product_id": "P00001", "new_price": 18.52}]}]
    assert names(actions)[-1] == ["delist_product", "adjust_price", "list_product", "end_of_step"]


def test_target_is_limited_by_the_shelf(shop: Any) -> None:
    shop.max_listings = 7
    shop.play_window(started(shop))
    assert len(shop.shelf) == 7


def test_large_shelf_is_read_page_by_page(shop: Any) -> None:
    shop.max_listings = 400
    policy = started(shop, shelf_target=120)
    shop.play_window(policy)
    actions = shop.play_window(policy)
    assert [arguments["page"] for arguments in calls(actions, "query_my_listings")] == [1, 2, 3]
    assert [arguments["page"] for arguments in calls(actions, "query_supply_chain_anomalies")] == [1, 2, 3]


def test_more_than_a_hundred_items_are_split(shop: Any) -> None:
    shop.max_listings = 400
    actions = shop.play_window(started(shop, shelf_target=250))
    assert [len(arguments["items"]) for arguments in calls(actions, "list_product")] == [100, 100, 50]


def test_stale_rule_is_off_unless_asked_for(shop: Any) -> None:
    for product, days in (("P00001", 6), ("P00002", 7), ("P00003", 30)):
        shop.put(product, shop.catalogue[product])
        shop.idle_days[product] = days
    shop.play_window(started(shop))
    assert {"P00001", "P00002", "P00003"} <= set(shop.shelf)
    shop.window = -1
    actions = shop.play_window(started(shop, stale=True, stale_days=7))
    assert calls(actions, "delist_product") == [
        {"items": [{"product_id": "P00002"}, {"product_id": "P00003"}]}
    ]
    assert not {"P00002", "P00003"} & set(shop.shelf)


def test_stale_rule_acts_in_the_first_window_of_a_day_only(shop: Any) -> None:
    shop.put("P00001", 10.0)
    policy = started(shop, stale=True, stale_days=7)
    shop.play_window(policy)
    shop.idle_days["P00001"] = 7
    assert not calls(shop.play_window(policy), "delist_product")
    assert calls(shop.play_window(policy), "delist_product")


def test_cash_guard_has_hysteresis(shop: Any) -> None:
    for product in ("P00001", "P00002"):
        shop.put(product, 10)
    policy = started(shop, cash_guard=True)
    shop.balance = 400
    first = shop.play_window(policy)
    assert calls(first, "delist_product") == [{"items": [{"product_id": "P00001"}, {"product_id": "P00002"}]}]
    for _ in range(5):
        assert not calls(shop.play_window(policy), "list_product")
    shop.balance = 999.99
    for _ in range(2):
        assert not calls(shop.play_window(policy), "list_product")
    shop.balance = 1000
    assert calls(shop.play_window(policy), "list_product")


def test_cash_guard_keeps_its_state_without_data(shop: Any) -> None:
    policy = started(shop, cash_guard=True)
    shop.balance = 499.99
    shop.play_window(policy)
    shop.failing = {"query_balance"}
    shop.balance = 5000
    assert not calls(shop.play_window(policy), "list_product")


def test_cash_guard_is_off_unless_asked_for(shop: Any) -> None:
    shop.balance = 0
    shop.play_window(started(shop))
    assert len(shop.shelf) == 50


def test_a_window_ends_even_if_every_read_fails(shop: Any) -> None:
    shop.failing = {
        "query_balance",
        "query_my_listings",
        "query_supply_chain_anomalies",
        "review_my_listings",
        "search_products",
    }
    policy = started(shop)
    for _ in range(3):
        assert names(shop.play_window(policy))[-1] == ["end_of_step"]


def test_a_window_ends_even_if_its_writes_are_refused(shop: Any) -> None:
    policy = started(shop)
    shop.window = 0
    actions = []
    for _ in range(4):
        actions.append(policy.act(shop.observation(), shop.info()))
        shop.results = tuple(
            {"tool_call_id": c["id"], "name": c["name"], "content": json.dumps({"ok": False, "error": {}})}
            for c in actions[-1]
        )
    assert names(actions)[-1] == ["end_of_step"]


@pytest.mark.parametrize("turns", [1, 2, 3, 30])
def test_turn_limits(shop: Any, turns: int) -> None:
    shop.max_turns = turns
    policy = started(shop)
    for _ in range(3):
        actions = shop.play_window(policy)
        assert len(actions) <= min(turns, 3)
        assert names(actions)[-1][-1] == "end_of_step"
    assert len(shop.shelf) == 50
    withdrawn = sorted(shop.shelf)[0]
    shop.shelf[withdrawn]["supplier_available"] = False
    for _ in range(4):
        shop.play_window(policy)
    assert withdrawn not in shop.shelf
    assert len(shop.shelf) == 50


def test_two_turns_list_what_the_previous_window_found(shop: Any) -> None:
    shop.max_turns = 2
    policy = started(shop)
    first = shop.play_window(policy)
    assert not calls(first, "list_product")
    assert len(calls(first[1:], "search_products")) == 12
    assert len(calls(shop.play_window(policy), "list_product")[0]["items"]) == 50


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_restart_at_every_turn_changes_nothing(shop: Any, turns: int) -> None:
    def season(restart: bool) -> list[Actions]:
        shop.max_turns, shop.window, shop.results = turns, -1, ()
        shop.shelf.clear()
        policy = started(shop, cash_guard=True, stale=True)
        played = []
        for window in range(12):
            shop.balance = 300 if window in (5, 6) else 2000
            for product in sorted(shop.shelf)[: window % 3]:
                shop.shelf[product]["supplier_available"] = False
            played.append(shop.play_window(policy, restart))
            assert len(json.dumps(policy.state_dict())) <= 16 * 1024
        return played

    assert season(restart=True) == season(restart=False)


def test_state_of_the_largest_shelf_is_small(shop: Any) -> None:
    shop.max_listings = 1000
    policy = started(shop, shelf_target=MAX_TARGET)
    shop.play_window(policy)
    shop.window += 1
    for product in sorted(shop.shelf):
        shop.shelf[product]["sale_price"] = 1.0
        shop.shelf[product]["supplier_price"] = 12345.67
    shop.shelf.popitem()
    for _ in range(2):
        action = policy.act(shop.observation(), shop.info())
        shop.results = tuple(
            {"tool_call_id": c["id"], "name": c["name"], "content": json.dumps(shop._answer(c))}
            for c in action
        )
        assert len(json.dumps(policy.state_dict())) <= 16 * 1024


def test_observation_and_info_stay_as_they_are(shop: Any) -> None:
    shop.put("P00001", 10, sale=11)
    policy = started(shop)
    shop.window = 0
    observation, info = shop.observation(), shop.info()
    before = (json.dumps(observation["tool_results"]), observation["store"].tobytes(), dict(info))
    policy.act(observation, info)
    assert (json.dumps(observation["tool_results"]), observation["store"].tobytes(), info) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "oracle"},
        {"markup": 0},
        {"markup": float("nan")},
        {"shelf_target": 0},
        {"shelf_target": MAX_TARGET + 1},
        {"low_cash": 2, "high_cash": 1},
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        RuleBasedPolicy(**settings)
