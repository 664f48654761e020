"""The observation: packet, text, and what may change within a window."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from desk import Desk

from merchantbench_gym.market.calendar import stamp
from merchantbench_gym.market.orders import STATUSES
from merchantbench_gym.tools.observation import EVENT_TYPES, RISKS, render, risk_sets
from merchantbench_gym.tools.results import dumps

ENGLISH = """\
Day 13 of 365, 00:00 (2025-06-13) | window 25 of 730 | turn 1 of 30
Today's market report is ready: get_daily_report.

Orders since last window (D12H13-D13H00): 9 changed, 6 new | now ordered 4, shipped 2, delivered 1, \
stockout 1, settled_normal 1
Orders in all: 41 | ordered 7, late 1, shipped 9, delivered 6, cancelled 2, stockout 2, settled_normal 13, \
settled_refund 1

Shelf: 18 of 50 listed, 32 free
Supply events since last window: price_up 1, price_down 1, supplier_relisted 1, shipping_slowed 1, stockout 1
Risks now: supplier_delisted 1, timeout_risk 2, price_loss_risk 1 | new since last window: timeout_risk 1

Cash: balance 842.15, deposit 1000.00, in transit 1310.40, receivable 968.00 | net assets 4120.55 (+46.80 \
since last window) | fines so far 21.00
Result: sales 5617.10, cost of goods 3751.95, net profit of finished orders 819.85
Shop rating: 3.65 (3 stars), demand x0.80, 16 rated orders, published through day 12

Goal: maximise net assets at the end of the run."""

CHINESE = """\
第 13 天（共 365 天）00:00（2025-06-13）｜窗口 25/730｜回合 1/30
今日市场日报已生成：get_daily_report。

上一窗口以来的订单（D12H13-D13H00）：变动 9，新增 6｜\
现为 ordered 4、shipped 2、delivered 1、stockout 1、settled_normal 1
全部订单：41｜ordered 7、late 1、shipped 9、delivered 6、\
cancelled 2、stockout 2、settled_normal 13、settled_refund 1

货架：已上架 18/50，空位 32
上一窗口以来的供应事件：price_up 1、price_down 1、supplier_relisted 1、\
shipping_slowed 1、stockout 1
当前风险：supplier_delisted 1、timeout_risk 2、price_loss_risk 1｜\
上一窗口以来新增：timeout_risk 1

资金：余额 842.15，保证金 1000.00，在途 1310.40，应收 968.00｜\
净资产 4120.55（较上一窗口 +46.80）｜累计罚款 21.00
经营：销售额 5617.10，商品成本 3751.95，已完结订单净利润 819.85
店铺评分：3.65（3 星），需求系数 ×0.80，计分订单 16，公布至第 12 天

目标：运行结束时净资产最大。"""


def counts(names: tuple[str, ...], **given: int) -> dict[str, int]:
    return dict.fromkeys(names, 0) | given


def example() -> dict[str, Any]:
    """The packet behind the two texts."""
    return {
        "time": {
            "state": "open",
            "day": 13,
            "hour": 0,
            "date": "2025-06-13",
            "horizon_days": 365,
            "window": 25,
            "windows_total": 730,
            "turn": 1,
            "turns_limit": 30,
            "turns_left": 30,
            "since": {"from": "D12H13", "to": "D13H00"},
        },
        "orders": {
            "changes": {"total": 9, "new_orders": 6}
            | counts(STATUSES, ordered=4, shipped=2, delivered=1, stockout=1, settled_normal=1),
            "totals": {"total": 41}
            | counts(
                STATUSES,
                ordered=7,
                late=1,
                shipped=9,
                delivered=6,
                cancelled=2,
                stockout=2,
                settled_normal=13,
                settled_refund=1,
            ),
        },
        "supply": {
            "listings": {"active": 18, "max": 50, "free_slots": 32},
            "events": counts(
                EVENT_TYPES, price_up=1, price_down=1, supplier_relisted=1, shipping_slowed=1, stockout=1
            ),
            "current_risks": counts(RISKS, supplier_delisted=1, timeout_risk=2, price_loss_risk=1),
            "new_risks": counts(RISKS, timeout_risk=1),
        },
        "cash": {
            "balance": 842.15,
            "deposit_pool": 1000.0,
            "in_transit": 1310.4,
            "receivable": 968.0,
            "net_assets": 4120.55,
            "net_assets_change": 46.8,
            "cumulative_fine": 21.0,
        },
        "pnl": {
            "gmv": 5617.1,
            "cogs": 3751.95,
            "platform_fees": 0.0,
            "fulfilment_fees": 0.0,
            "refund_loss": 0.0,
            "fines": 21.0,
            "net_profit": 819.85,
        },
        "shop": {
            "score": 3.65,
            "stars": 3,
            "demand_multiplier": 0.8,
            "rated_orders": 16,
            "published_day": 12,
        },
        "daily_report_available": True,
        "goal_reminder": "Goal: maximise net assets at the end of the run.",
    }


def chinese_example() -> dict[str, Any]:
    return example() | {"goal_reminder": "目标：运行结束时净资产最大。"}


# --- text ---------------------------------------------------------------------------------------------------


def test_the_two_texts_of_one_packet() -> None:
    assert render(example()) == ENGLISH
    assert render(chinese_example(), "zh") == CHINESE


def test_a_packet_of_the_market_has_the_same_keys_as_the_example() -> None:
    def shape(value: Any) -> Any:
        return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else type(value)

    packet = Desk().packet()
    assert shape(packet) == shape(example())
    assert dumps(packet).index('"time"') < dumps(packet).index('"orders"')
    assert list(packet) == list(example())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_states_without_a_turn(language: str) -> None:
    packet = example()
    waiting = copy.deepcopy(packet)
    waiting["time"] |= {"state": "waiting", "turns_left": 0}
    lines = render(waiting, language).split("\n")
    assert (
        lines[0] == render(packet, language).split("\n")[0].rsplit(" | " if language == "en" else "｜", 1)[0]
    )
    assert (
        lines[2]
        == {
            "en": "Your step has ended; waiting for the other merchants.",
            "zh": "本窗口操作已结束，等待其他商家。",
        }[language]
    )
    assert lines[-1] == packet["goal_reminder"]

    final = copy.deepcopy(packet)
    final["time"] |= {"state": "finished", "since": {"from": "D365H13", "to": "D368H05"}}
    blocks = render(final, language).split("\n\n")
    assert len(blocks) == 4
    assert (
        blocks[0]
        == {"en": "Run finished (horizon) at D368H05.", "zh": "运行结束（horizon），D368H05。"}[language]
    )
    closed = copy.deepcopy(final)
    closed["time"]["state"] = "closed"
    blocks = render(closed, language, closed="D41H05").split("\n\n")
    assert blocks[0] == {"en": "Shop closed at D41H05.", "zh": "店铺已关闭，D41H05。"}[language]


def test_optional_items() -> None:
    packet = example()
    packet["time"]["date"] = None
    packet["shop"] = None
    packet["pnl"] |= {"platform_fees": 1.0, "fulfilment_fees": 2.5, "refund_loss": 3.25}
    lines = render(packet, fees=True).split("\n")
    assert lines[0] == "Day 13 of 365, 00:00 | window 25 of 730 | turn 1 of 30"
    assert lines[-4] == (
        "Result: sales 5617.10, cost of goods 3751.95, platform fees 1.00, fulfilment fees 2.50, "
        "refund loss 3.25, net profit of finished orders 819.85"
    )
    assert lines[-3] == "Shop rating: n/a"
    lines = render(packet, "zh", fees=True).split("\n")
    assert lines[-4] == (
        "经营：销售额 5617.10，商品成本 3751.95，平台佣金 1.00，履约费 2.50，退款损失 3.25，"
        "已完结订单净利润 819.85"
    )
    assert lines[-3] == "店铺评分：无"
    packet["cash"]["net_assets_change"] = -0.5
    assert "(-0.50 since last window)" in render(packet)


@pytest.mark.parametrize(
    ("since", "day", "hour", "shown"),
    [
        ("D12H13", 13, 0, True),
        ("D13H01", 13, 12, False),
        ("D12H22", 13, 1, True),
        ("D13H00", 13, 2, True),
        ("D13H02", 13, 3, False),
    ],
)
def test_the_report_line_stands_in_the_first_window_of_a_day(
    since: str, day: int, hour: int, shown: bool
) -> None:
    packet = example()
    packet["time"] |= {"day": day, "hour": hour, "since": {"from": since, "to": f"D{day}H{hour:02d}"}}
    assert ("get_daily_report" in render(packet)) is shown
    packet["daily_report_available"] = False
    assert "get_daily_report" not in render(packet)


@pytest.mark.parametrize(("language", "limit"), [("en", 1700), ("zh", 1250)])
def test_the_text_is_short_with_every_counter_at_9999(language: str, limit: int) -> None:
    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        if isinstance(value, bool):
            return value
        return 9999 if isinstance(value, int) else 9_999_999.99 if isinstance(value, float) else value

    packet = fill(chinese_example() if language == "zh" else example())
    packet["time"]["hour"] = 23
    assert len(render(packet, language, fees=True)) <= limit


def test_languages_differ_only_in_fixed_words() -> None:
    desk = Desk("month")
    desk.list_first(50)
    desk.close(20)

    def values(text: str) -> list[str]:
        spaced = "".join(c if c.isascii() and (c.isalnum() or c in "._+") else " " for c in text)
        words = (word.strip(".") for word in spaced.split())
        return sorted(word for word in words if word[0].isdigit() or "_" in word)

    english, chinese = desk.text(), desk.text("zh")
    assert values(english.replace("x0", " 0").replace("x1", " 1")) == values(chinese)


# --- packet -------------------------------------------------------------------------------------------------


def test_the_first_window() -> None:
    packet = Desk().packet()
    assert packet["time"] == {
        "state": "open",
        "day": 1,
        "hour": 0,
        "date": "2025-06-01",
        "horizon_days": 365,
        "window": 1,
        "windows_total": 730,
        "turn": 1,
        "turns_limit": 30,
        "turns_left": 30,
        "since": {"from": "D1H00", "to": "D1H00"},
    }
    assert set(packet["orders"]["changes"].values()) == set(packet["orders"]["totals"].values()) == {0}
    assert set(packet["supply"]["events"].values()) == set(packet["supply"]["new_risks"].values()) == {0}
    assert packet["supply"]["listings"] == {"active": 0, "max": 50, "free_slots": 50}
    assert packet["cash"]["net_assets_change"] == 0.0
    assert packet["cash"]["net_assets"] == 3000.0
    assert packet["shop"] == {
        "score": 4.0,
        "stars": 4,
        "demand_multiplier": 1.0,
        "rated_orders": 0,
        "published_day": 0,
    }
    assert packet["daily_report_available"] is False


def test_windows_are_counted_whatever_the_period() -> None:
    desk = Desk("smoke", run={"activation_period": 5})
    desk.close(33)
    time = desk.packet()["time"]
    assert (time["windows_total"], time["window"], time["day"], time["hour"]) == (34, 34, 7, 21)
    assert time["since"] == {"from": "D7H17", "to": "D7H21"}
    desk.close()
    assert desk.packet()["time"]["state"] == "finished"


def test_the_packet_agrees_with_orders_and_accounts_at_every_window() -> None:
    desk = Desk("month")
    desk.list_first(50)
    last: dict[int, str] = {}
    net = desk.view.net_assets()
    new_risks = 0
    while desk.state == "open":
        before = risk_sets(desk.view)
        desk.close()
        view, packet = desk.view, desk.packet()
        orders = {n: view.order(n) for n in range(1, view.order_count() + 1)}
        now = {n: o.status for n, o in orders.items() if o is not None}
        changed = [status for n, status in now.items() if last.get(n) != status]
        # An order that turned late and shipped in one window, or came and shipped in it, counts once.
        changes = packet["orders"]["changes"]
        assert changes["total"] == len(changed)
        assert changes["new_orders"] == len(now) - len(last)
        assert [changes[s] for s in STATUSES] == [changed.count(s) for s in STATUSES]
        totals = packet["orders"]["totals"]
        assert totals["total"] == len(now)
        assert [totals[s] for s in STATUSES] == [list(now.values()).count(s) for s in STATUSES]
        bought = [o for o in orders.values() if o and o.status not in ("stockout", "insufficient_balance")]
        assert packet["pnl"] == {
            "gmv": sum(o.sale for o in bought) / 100,
            "cogs": sum(o.cost for o in bought) / 100,
            "platform_fees": 0.0,
            "fulfilment_fees": 0.0,
            "refund_loss": 0.0,
            "fines": sum(o.penalty for o in orders.values() if o) / 100,
            "net_profit": sum(o.profit for o in orders.values() if o and o.end_t is not None) / 100,
        }
        balance = desk.call("query_balance")
        cash = dict(packet["cash"])
        assert cash.pop("net_assets_change") == (view.net_assets() - net) / 100
        assert cash == {key: value for key, value in balance.items() if key != "ok"}
        after = risk_sets(view)
        supply = packet["supply"]
        assert supply["current_risks"] == {name: len(after[name]) for name in RISKS}
        assert supply["new_risks"] == {name: len(after[name] - before[name]) for name in RISKS}
        new_risks += sum(supply["new_risks"].values())
        if desk.state == "open":
            assert packet["daily_report_available"] is (desk.world.t >= 24)
            assert packet["shop"]["published_day"] == desk.world.t // 24
        last, net = now, view.net_assets()
    assert len(last) > 50
    assert new_risks > 20


def test_only_shelf_counts_and_current_risks_are_live() -> None:
    desk = Desk("month")
    desk.list_first(40)
    desk.close(20)
    before = desk.packet()
    others = [row["product_id"] for row in desk.rows("search_products", sort_by="price_desc")][:3]
    desk.call("list_product", items=[{"product_id": p, "sale_price": 9999} for p in others])
    desk.call("delist_product", items=[{"product_id": "P00003"}])
    desk.call("adjust_price", items=[{"product_id": "P00004", "new_price": 0.01}])
    after = desk.packet()
    assert after["supply"]["listings"] == {"active": 42, "max": 50, "free_slots": 8}
    risk = "price_loss_risk"
    assert after["supply"]["current_risks"][risk] == before["supply"]["current_risks"][risk] + 1
    for packet in (before, after):
        del packet["supply"]["listings"], packet["supply"]["current_risks"]
    assert before == after


def test_new_risks_ignore_what_the_merchant_did_in_the_window() -> None:
    desk = Desk(
        "smoke",
        supplier={name: [0.0, 0.0] for name in ("price_change_hazard", "delist_hazard", "slow_hazard")},
    )
    desk.list_first(5)
    desk.close()
    desk.call("adjust_price", items=[{"product_id": "P00004", "new_price": 0.01}])
    assert desk.packet()["supply"]["current_risks"]["price_loss_risk"] == 1
    desk.close()
    packet = desk.packet()
    assert packet["supply"]["current_risks"]["price_loss_risk"] == 1
    assert packet["supply"]["new_risks"]["price_loss_risk"] == 0


def test_the_end_of_the_run() -> None:
    desk = Desk("smoke")
    desk.list_first(50)
    desk.close(13)
    assert desk.state == "open"
    desk.close()
    packet, text = desk.packet(), desk.text()
    final = desk.view.final_hour
    assert final is not None
    assert final > desk.world.horizon
    time = packet["time"]
    assert (time["state"], time["window"], time["turns_left"]) == ("finished", 14, 0)
    assert (time["day"], time["hour"]) == (final // 24 + 1, final % 24)
    assert time["since"] == {"from": "D7H13", "to": stamp(final)}
    assert text.startswith(
        f"Run finished (horizon) at {stamp(final)}.\n\nOrders since last window (D7H13-{stamp(final)})"
    )
    assert "Goal" not in text
    assert packet["orders"]["totals"]["ordered"] == packet["orders"]["totals"]["shipped"] == 0
    assert packet["orders"]["changes"]["total"] > 5


def test_a_closed_shop() -> None:
    desk = Desk("month", merchant={"initial_deposit": 5.0, "initial_cash": 1.0})
    desk.list_first(50, markup=0.01)
    desk.finish()
    assert desk.state == "closed"
    closed = desk.view.closed_t
    assert closed is not None
    text, packet = desk.text(), desk.packet()
    assert text.startswith(f"Shop closed at {stamp(closed)}.\n\n")
    assert "Goal" not in text
    assert packet["time"]["state"] == "closed"
    assert packet["supply"]["listings"]["active"] == 0
    assert "Risks now: none | new since last window: none" in text


def test_rendering_is_pure() -> None:
    desk = Desk("month")
    desk.list_first(50)
    desk.close(20)
    digest = desk.world.digest()
    assert desk.text() == desk.text()
    assert dumps(desk.packet()) == dumps(desk.packet())
    assert desk.packet() is not desk.packet()
    assert desk.world.digest() == digest
    packet = desk.packet()
    packet["supply"]["current_risks"]["timeout_risk"] = -1
    assert desk.packet()["supply"]["current_risks"]["timeout_risk"] >= 0


def test_presets_add_and_drop_items() -> None:
    fees = Desk("fees", run={"horizon_days": 30})
    fees.list_first(50)
    fees.close(40)
    pnl = fees.packet()["pnl"]
    assert pnl["fulfilment_fees"] > 0
    assert pnl["platform_fees"] > 0
    assert f"platform fees {pnl['platform_fees']:.2f}, fulfilment fees" in fees.text()
    counters = fees.world.counters(0)
    assert pnl["refund_loss"] == (counters["reverse_fees"] + counters["recovery_loss"]) / 100
    unrated = Desk("smoke", rating={"enabled": False})
    assert unrated.packet()["shop"] is None
    assert "Shop rating: n/a" in unrated.text()
    timeless = Desk("smoke", calendar={"start_date": ""})
    assert timeless.packet()["time"]["date"] is None
    silent = Desk("smoke", reports={"enabled": False})
    silent.close(4)
    assert silent.packet()["daily_report_available"] is False
    own = Desk("smoke", brief={"goals": "Sell as many units as possible."})
    assert own.text().endswith("\n\nGoal: as stated in the brief.")
    assert own.text("zh").endswith("\n\n目标：见规则说明。")
    assert "maximise" not in own.text()


def test_no_payload_shows_the_raw_hour_or_the_seed() -> None:
    desk = Desk("month", seed=987654321)
    desk.list_first(20)
    desk.close(37)
    texts = [desk.text(), dumps(desk.packet())]
    for name in ("query_my_listings", "review_my_listings", "query_supply_chain_anomalies", "query_balance"):
        texts.append(dumps(desk.call(name)))
    for text in texts:
        assert "987654321" not in text
        assert f'"{desk.world.t}"' not in text
        assert f":{desk.world.t}," not in text
