"""The rule-based merchant that reads the daily report, on hand-made windows and in the market."""

from __future__ import annotations

import json
import random
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import RuleBasedPolicy, run_episode
from merchantbench_gym.baselines.report_queries import queries
from merchantbench_gym.baselines.rule_based import MAX_TARGET
from merchantbench_gym.baselines.sourcing import ReportSourcing
from merchantbench_gym.wrappers import Seat

Actions = list[list[dict[str, Any]]]

REPORT = "# Report\n\n| keyword | offers |\n| --- | --- |\n| storage box | 5 |\n| lamp | 7 |\n"


def started(shop: Any, **settings: Any) -> RuleBasedPolicy:
    policy = RuleBasedPolicy("daily_report", **settings)
    policy.reset(shop.seat(), seed=1)
    return policy


def names(actions: Actions) -> list[list[str]]:
    return [[call["name"] for call in action] for action in actions]


def calls(actions: Actions, name: str) -> list[dict[str, Any]]:
    return [call["arguments"] for action in actions for call in action if call["name"] == name]


def listed(actions: Actions) -> list[str]:
    return [item["product_id"] for batch in calls(actions, "list_product") for item in batch["items"]]


# --- the report ---


def test_queries_from_tables_in_both_languages() -> None:
    text = """
# Market report

| rank | **Keyword** | offers |
|:---|:---:|---:|
| 1 | **storage box** | 5 |
| 2 | 2. wall clock | 7 |
| 3 | <b>desk lamp</b> | 7 |
| 4 | `yoga mat`! | 7 |

| category | units |
| --- | --- |
| toys | 12 |

关键词 | 类目
--- | ---
台灯 | office
#3 跳绳 | sports
"""
    assert queries(text) == ["storage box", "wall clock", "desk lamp", "yoga mat", "台灯", "跳绳"]


def test_queries_from_quotes_and_bold_text_come_after_those_of_tables() -> None:
    text = 'Buy **air fryer** or "kite", “台灯” and 「跳绳」.\n\n| keyword |\n| --- |\n| rug |\n'
    assert queries(text) == ["rug", "kite", "台灯", "跳绳", "air fryer"]


def test_quotes_and_bold_text_have_2_to_18_characters() -> None:
    assert queries('"x" "ab" "abcdefghijklmnopqr" "abcdefghijklmnopqrs" **y** **cd**') == [
        "ab",
        "abcdefghijklmnopqr",
        "cd",
    ]


def test_section_titles_and_figures_are_no_queries() -> None:
    text = """
## Fresh ideas

**Fresh ideas** "Overview" **关键词机会** "12.5 %" "48h" **3 天** "20 L" "$40"
"-3.5 %" "2,000 units" "3d printer"
"""
    assert queries(text) == ["3d printer"]


def test_queries_are_distinct_and_at_most_12() -> None:
    rows = "\n".join(f"| Word{chr(97 + i)} |" for i in range(20))
    assert queries(f"| keyword |\n| --- |\n{rows}\n| worda |\n") == [f"Word{chr(97 + i)}" for i in range(12)]
    assert queries('"Lamp" "lamp" **LAMP**') == ["Lamp"]


def test_separators_are_told_from_words_with_hyphens() -> None:
    text = "| keyword | note |\n| --- | |\n| anti-slip mat | --- |\n| -- | :-: |\n| | --- |\n| - | x |\n"
    assert queries(text) == ["anti-slip mat", "-"]


@pytest.mark.parametrize("text", ["__lamp__", "<b>lamp</b>", "<strong>lamp</strong>", "**lamp**"])
def test_every_kind_of_bold_text_is_found(text: str) -> None:
    assert queries(f"Buy a {text}") == ["lamp"]


@pytest.mark.parametrize(
    "text", ["", "No table, no phrase.", "| a | b |\n| --- | --- |\n| c | d |", "|", "| |"]
)
def test_nothing_to_find(text: str) -> None:
    assert queries(text) == []


def test_queries_of_the_market_report() -> None:
    env = gymnasium.make("MerchantBenchSmoke-v0")
    env.reset(seed=1)
    for _ in range(4):
        env.step([{"id": "end", "name": "end_of_step", "arguments": {}}])
    observation, *_ = env.step([{"id": "r", "name": "get_daily_report", "arguments": {}}])
    content = json.loads(observation["tool_results"][0]["content"])["content"]
    section = content.split("## Keyword opportunities")[1].split("##")[0]
    words = [line.split("|")[1].strip() for line in section.strip().splitlines()[2:]]
    assert queries(content) == list(dict.fromkeys(words)) != []


# --- sourcing ---


def test_reads_of_a_day(shop: Any) -> None:
    shop.report = REPORT
    policy = started(shop)
    reads = ["query_balance", "query_my_listings", "query_supply_chain_anomalies"]
    for product in range(50):
        shop.put(f"P{product:05d}", 10)
    first, second, third = (names(shop.play_window(policy)) for _ in range(3))
    assert first == third == [[*reads, "review_my_listings", "get_daily_report"], ["end_of_step"]]
    assert second == [reads, ["end_of_step"]]


def test_one_sourcing_turn_searches_for_every_query_and_browses(shop: Any) -> None:
    shop.report = REPORT
    shop.balance = 1500
    limits = {
        "price_max": 75.0,
        "supplier_rating_min": 3.5,
        "historical_rating_min": 3.5,
        "supplier_ship_hours_max": 48,
        "quantity_min": 20,
    }
    _, searches, _ = shop.play_window(started(shop))
    assert calls([searches], "search_products") == [
        {"query": "storage box", "page": 1, "page_size": 20, **limits},
        {"query": "lamp", "page": 1, "page_size": 20, **limits},
        *(
            {"query": "", "sort_by": "rating", "page": page, "page_size": 50, **limits}
            for page in (1, 2, 3)
        ),
    ]  # fmt: skip


def test_a_rich_merchant_looks_no_higher_than_the_ladder(shop: Any) -> None:
    shop.balance = 50_000
    actions = shop.play_window(started(shop))
    assert {search["price_max"] for search in calls(actions, "search_products")} == {200.0}


def test_ladder(shop: Any) -> None:
    shop.report = REPORT
    shop.balance = 10_000
    shop.offer("P00001", 200.0, 3.5)  # level 4
    shop.offer("P00002", 100.0, 4.0)  # level 3
    shop.offer("P00003", 50.0, 4.2)  # level 2
    shop.offer("P00004", 20.0, 4.5)  # level 1
    shop.offer("P00005", 20.01, 4.9)  # level 2: a cent too dear
    shop.offer("P00006", 20.0, 4.9, shop_rating=4.49)  # level 2: by the supplier
    shop.offer("P00007", 15.0, 4.5, name="lamp")  # level 1, a hit of the report
    shop.offer("P00008", 200.01, 5.0)
    shop.offer("P00009", 10.0, 3.49)
    shop.offer("P00010", 10.0, 5.0, ship_hours=49)
    shop.offer("P00011", 10.0, 5.0, quantity=19)
    shop.offer("P00012", 40.0, 4.9, shop_rating=4.3)  # level 2, below P00006 by the supplier
    shop.offer("P00013", 90.0, 4.0, name="storage box")  # level 3, a hit
    assert listed(shop.play_window(started(shop))) == [
        "P00007", "P00004", "P00005", "P00006", "P00012", "P00003", "P00013", "P00002", "P00001",
    ]  # fmt: skip


def test_ties_go_by_id_and_no_more_than_needed(shop: Any) -> None:
    for number in (100_000, 3, 20_000, 7):
        shop.offer(f"P{number:05d}", 10.0, 4.8)
    assert listed(shop.play_window(started(shop, shelf_target=3))) == ["P00003", "P00007", "P20000"]


def test_a_product_may_cost_a_twentieth_of_the_balance(shop: Any) -> None:
    shop.offer("P00001", 100.0, 5.0)
    shop.offer("P00002", 100.01, 5.0)
    assert listed(shop.play_window(started(shop))) == ["P00001"]


def test_without_a_known_balance_price_is_limited_by_the_ladder_alone(shop: Any) -> None:
    shop.failing = {"query_balance"}
    shop.offer("P00001", 200.0, 5.0)
    assert listed(shop.play_window(started(shop))) == ["P00001"]


def test_strict_limits(shop: Any) -> None:
    shop.balance = 600
    shop.low_cash = 0
    for number, price, rating in ((1, 20.0, 4.5), (2, 20.01, 5.0), (3, 10.0, 4.49)):
        shop.offer(f"P{number:05d}", price, rating)
    shop.offer("P00004", 20.0, 4.6)
    actions = shop.play_window(started(shop, limits="strict", low_cash=0))
    assert listed(actions) == ["P00004", "P00001"]
    search = calls(actions, "search_products")[0]
    assert (search["price_max"], search["supplier_rating_min"], search["historical_rating_min"]) == (
        20.0, 4.5, 4.5,
    )  # fmt: skip
    shop.balance, shop.window = 100, -1
    shop.shelf.clear()
    again = shop.play_window(started(shop, limits="strict", low_cash=0))
    assert calls(again, "search_products")[0]["price_max"] == 20.0


def days_until_back(shop: Any, **settings: Any) -> int | None:
    """Days from the last window on the shelf to the relisting of a product; None for never."""
    shop.offer("P00001", 10.0, 4.8)
    policy = started(shop, **settings)
    shop.play_window(policy)
    assert "P00001" in shop.shelf
    shop.shelf["P00001"]["supplier_available"] = False
    assert calls(shop.play_window(policy), "delist_product")
    left = shop.info()["day"]
    for _ in range(200):
        if listed(shop.play_window(policy)):
            return int(shop.info()["day"]) - left
    return None


@pytest.mark.parametrize(
    ("settings", "days"),
    [
        ({}, 30),
        ({"relist_after_days": 3}, 3),
        ({"relist_after_days": 0}, 1),
        ({"relist_after_days": None}, None),
        ({"limits": "strict"}, None),
        ({"limits": "strict", "relist_after_days": 3}, None),
    ],
)
def test_products_that_left_come_back_after_a_while(
    shop: Any, settings: dict[str, Any], days: int | None
) -> None:
    # A second product keeps the shelf from being empty, so that sourcing waits for the next day.
    shop.put("P00099", 10)
    assert days_until_back(shop, **settings) == days


def test_no_report_no_queries(shop: Any) -> None:
    shop.offer("P00001", 10.0, 4.8)
    actions = shop.play_window(started(shop))
    assert calls(actions, "get_daily_report") == [{}]
    assert [search["query"] for search in calls(actions, "search_products")] == ["", "", ""]
    assert listed(actions) == ["P00001"]


# --- the other rules in this mode ---


def test_stale_rule_is_on(shop: Any) -> None:
    shop.put("P00001", 10)
    shop.put("P00002", 10)
    shop.idle_days.update({"P00001": 20, "P00002": 21})
    actions = shop.play_window(started(shop))
    assert calls(actions, "delist_product") == [{"items": [{"product_id": "P00002"}]}]
    shop.put("P00002", 10)
    shop.window = -1
    assert not calls(shop.play_window(started(shop, stale=False)), "delist_product")


def test_cash_guard_is_on(shop: Any) -> None:
    shop.offer("P00001", 10.0, 4.8)
    shop.offer("P00002", 10.0, 4.8)
    shop.put("P00001", 10)
    policy = started(shop)
    shop.balance = 400
    windows = [shop.play_window(policy) for _ in range(6)]
    assert calls(windows[0], "delist_product") == [{"items": [{"product_id": "P00001"}]}]
    shop.balance = 999.99
    windows += [shop.play_window(policy) for _ in range(2)]
    assert not any(listed(actions) for actions in windows)
    shop.balance = 1000
    assert listed(shop.play_window(policy)) == ["P00002"]
    assert not shop.play_window(started(shop, cash_guard=False))[-1][0]["name"].startswith("delist")


def test_prices_and_anomalies(shop: Any) -> None:
    shop.put("P00001", 12.35, sale=20.0)
    shop.put("P00002", 10, ship=49)
    shop.put("P00003", 10, on=False)
    actions = shop.play_window(started(shop, markup=1.5))
    assert calls(actions, "adjust_price") == [{"items": [{"product_id": "P00001", "new_price": 18.52}]}]
    assert calls(actions, "delist_product") == [
        {"items": [{"product_id": "P00002"}, {"product_id": "P00003"}]}
    ]


def test_a_window_ends_even_if_every_read_fails(shop: Any) -> None:
    shop.report = REPORT
    shop.failing = {
        "query_balance",
        "query_my_listings",
        "query_supply_chain_anomalies",
        "review_my_listings",
        "get_daily_report",
        "search_products",
    }
    policy = started(shop)
    for _ in range(4):
        assert names(shop.play_window(policy))[-1] == ["end_of_step"]


@pytest.mark.parametrize("turns", [1, 2, 3, 30])
def test_turn_limits(shop: Any, turns: int) -> None:
    shop.report = REPORT
    shop.max_turns = turns
    for number in range(60):
        shop.offer(f"P{number:05d}", 10.0, 4.8, name="lamp" if number >= 50 else "")
    policy = started(shop)
    for _ in range(5):
        actions = shop.play_window(policy)
        assert len(actions) <= min(turns, 3)
        assert names(actions)[-1][-1] == "end_of_step"
        assert all(len(action) <= 64 for action in actions)
    assert len(shop.shelf) == 50
    withdrawn = sorted(shop.shelf)[0]
    shop.shelf[withdrawn]["supplier_available"] = False
    for _ in range(4):
        played = shop.play_window(policy)
    assert withdrawn not in shop.shelf and len(shop.shelf) == 50
    assert played


@pytest.mark.parametrize("turns", [1, 2])
def test_few_turns_still_follow_the_report(shop: Any, turns: int) -> None:
    shop.report = REPORT
    shop.max_turns = turns
    for number in range(200):
        shop.offer(f"P{number:05d}", 10.0, 4.9)
    shop.offer("P00500", 10.0, 4.5, name="storage box")
    policy = started(shop, shelf_target=2)
    actions: Actions = []
    for _ in range(5):
        actions += shop.play_window(policy)
    assert "storage box" in [search["query"] for search in calls(actions, "search_products")]
    if turns == 2:
        assert listed(actions)[0] == "P00500"
    shop.shelf.pop(min(shop.shelf))
    for _ in range(4):
        shop.play_window(policy)
    assert "P00500" in shop.shelf


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("limits", ["ladder", "strict"])
def test_restart_at_every_turn_changes_nothing(shop: Any, turns: int, limits: str) -> None:
    for number in range(200):
        shop.offer(f"P{number:05d}", 10.0 + number % 7, 4.5 + number % 5 / 10, name=f"lamp {number}")
    shop.report = REPORT

    def season(restart: bool) -> list[Actions]:
        shop.max_turns, shop.window, shop.results = turns, -1, ()
        shop.shelf.clear()
        policy = started(shop, relist_after_days=4, limits=limits)
        played = []
        for window in range(24):
            shop.balance = 300 if window in (5, 6) else 2000
            for product in sorted(shop.shelf)[: window % 3]:
                shop.shelf[product]["supplier_available"] = False
            played.append(shop.play_window(policy, restart))
        return played

    assert season(restart=True) == season(restart=False)


# --- state ---


def test_memory_of_the_shelf_survives_and_forgets_the_oldest_first() -> None:
    sourcing = ReportSourcing(strict=False, relist_after_days=60, memory=5)

    class Nothing:
        def get(self, call_id: str) -> None:
            return None

    nothing: Any = Nothing()
    sourcing.take_in(nothing, ["P00009", "P98842", "P00300"], 3)
    sourcing.take_in(nothing, ["P00001", "P00009"], 4)
    sourcing.take_in(nothing, None, 5)
    state = json.loads(json.dumps(sourcing.state()))
    other = ReportSourcing(strict=False, relist_after_days=60, memory=5)
    other.load(state)
    found = [[product, 1.0] for product in ("P00001", "P00009", "P00300", "P98842", "P00002")]
    for one in (sourcing, other):
        assert one.choose(found, [], 9, 5) == [["P00002", 1.0]]
        assert [row[0] for row in one.choose(found, [], 9, 63)] == ["P00300", "P98842", "P00002"]
    other.take_in(nothing, ["P00010", "P00011", "P00012"], 6)
    assert list(other.state()["seen"]) == ["4", "6"]
    assert [row[0] for row in other.choose(found, [], 9, 6)] == ["P00300", "P98842", "P00002"]


@pytest.mark.parametrize(
    ("relist_after_days", "memory"), [(60, 5), (3, 60), (0, 60), (20, 500), (None, 500), (None, 7)]
)
def test_state_is_that_of_the_memory_however_it_grew(relist_after_days: int | None, memory: int) -> None:
    class Nothing:
        def get(self, call_id: str) -> None:
            return None

    def fresh() -> ReportSourcing:
        return ReportSourcing(strict=False, relist_after_days=relist_after_days, memory=memory)

    nothing: Any = Nothing()
    rng, day = random.Random(memory), 0
    seen: dict[str, int] = {}
    steady, resumed = fresh(), fresh()
    states: list[tuple[dict[str, Any], str]] = []
    for _ in range(300):
        step = rng.choice((0, 0, 1, 1, 2, 7))
        day += step
        shelf = [f"P{rng.randrange(300):05d}" for _ in range(rng.randrange(8))]
        for one in (steady, resumed):
            one.take_in(nothing, shelf, day)
        if relist_after_days is not None and step:
            seen = {product: last for product, last in seen.items() if last > day - relist_after_days}
        seen.update(dict.fromkeys(shelf, day - day % 30 if relist_after_days is None else day))
        seen = dict(sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:memory])
        assert steady._seen == seen
        if rng.random() < 0.7:
            state = steady.state()
            assert list(state["seen"]) == [str(last) for last in sorted(set(seen.values()))]
            states.append((state, json.dumps(state)))
            resumed = fresh()
            resumed.load(json.loads(states[-1][1]))
            assert resumed._seen == seen
        assert json.dumps(resumed.state()) == json.dumps(steady.state())
    assert all(json.dumps(state) == text for state, text in states)


@pytest.mark.parametrize("limits", ["ladder", "strict"])
@pytest.mark.parametrize("target", [1, 50, MAX_TARGET])
def test_state_stays_small(shop: Any, target: int, limits: str) -> None:
    """A whole shelf of new products every day, from a catalogue with the longest ids in use."""
    shop.max_listings = 1000
    policy = started(shop, shelf_target=target, limits=limits, stale=False)
    step = 997_001
    for day in range(0, 366, 5 if target > 50 else 1):
        shop.window = 2 * day - 1
        shop.shelf.clear()
        for i in range(target - 1):
            shop.put(f"P{(day * 400 + i) * step % 98_843:05d}", 12345.67, sale=1.0)
        shop.window += 1
        for _ in range(2):
            action = policy.act(shop.observation(), shop.info())
            assert len(json.dumps(policy.state_dict())) <= 16 * 1024
            shop.results = tuple(
                {"tool_call_id": c["id"], "name": c["name"], "content": json.dumps(shop._answer(c))}
                for c in action
            )


@pytest.mark.parametrize(
    "settings", [{"mode": "weekly"}, {"limits": "loose"}, {"relist_after_days": -1}], ids=str
)
def test_bad_settings_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        RuleBasedPolicy(**settings)


# --- in the market ---


def test_month_in_the_market() -> None:
    env = gymnasium.make("MerchantBenchMonth-v0")
    result = run_episode(env, RuleBasedPolicy("daily_report"), seed=2)
    assert result.ledger_holds and result.last_net_assets is not None
    assert result.last_net_assets > 300_000
    counters = result.counters
    assert counters["turns"] <= 3 * 60
    assert counters["invalid"] == counters["rejected_turns"] == 0
    assert counters["business_errors"] == 1  # there is no report on day 1
    assert counters["by_tool"]["get_daily_report"] == 30
    assert counters["by_tool"]["end_of_step"] == 60


@pytest.mark.parametrize("turns", [1, 2, 30])
def test_a_restart_at_any_turn_continues_as_the_control(turns: int) -> None:
    env = gymnasium.make("MerchantBenchSmoke-v0", max_turns_per_window=turns)
    control = run_episode(env, RuleBasedPolicy("daily_report"), seed=5).last_net_assets
    for stop in (1, 5, 6, 7):
        first = RuleBasedPolicy("daily_report")
        run_episode(env, first, seed=5, limits={"turns": stop})
        second = RuleBasedPolicy("daily_report")
        second.reset(Seat.from_env(env), seed=5)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        result = run_episode(env, second, seed=5, start=env.unwrapped.observe())
        assert result.last_net_assets == control
