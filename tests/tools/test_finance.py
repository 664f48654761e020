"""Balance, snapshot and rules."""

from __future__ import annotations

import hashlib

from desk import Desk

from merchantbench_gym.tools.brief import brief


def test_balance_is_the_ledger_at_every_window() -> None:
    desk = Desk("month")
    desk.list_first(50)
    for _ in range(50):
        desk.close()
        result = desk.call("query_balance")
        assert list(result) == [
            "ok",
            "balance",
            "deposit_pool",
            "in_transit",
            "receivable",
            "net_assets",
            "cumulative_fine",
        ]
        accounts = desk.world.accounts(0)
        assert round(100 * result["net_assets"]) == desk.world.net_assets(0)
        assert [
            round(100 * result[name]) for name in ("balance", "deposit_pool", "in_transit", "receivable")
        ] == [
            accounts.balance,
            accounts.deposit,
            accounts.in_transit,
            accounts.receivable,
        ]
        assert round(100 * result["cumulative_fine"]) == desk.world.fines_collected(0)
        snapshot = desk.call("get_store_snapshot")
        assert snapshot["cash"]["net_assets"] == result["net_assets"]
        assert f"net assets {result['net_assets']:.2f} (" in desk.text()


def test_the_snapshot_is_the_packet() -> None:
    desk = Desk("smoke")
    desk.list_first(10)
    desk.close(3)
    assert desk.call("get_store_snapshot") == {"ok": True, **desk.packet()}


def test_the_rules_are_the_brief() -> None:
    desk = Desk("smoke")
    text = brief(desk.scenario, "en")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    rules = {"ok": True, "language": "en", "brief_hash": digest, "system_prompt": text}
    assert desk.call("query_platform_rules") == rules


def test_other_merchants_leave_no_trace() -> None:
    alone = Desk("month")
    crowd = Desk("month", merchants=3, seat=0)
    for desk in (alone, crowd):
        desk.list_first(30)
    # The others list products that the first one does not have, so that no stock is shared.
    for m in (1, 2):
        for product in range(500, 530):
            crowd.world.list(m, product, 5000)
    for _ in range(30):
        alone.close()
        crowd.close()
        for name in ("query_balance", "get_store_snapshot", "query_my_listings", "review_my_listings"):
            assert alone.call(name) == crowd.call(name)
        assert alone.text() == crowd.text()
