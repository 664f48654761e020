"""A merchant that follows a handful of fixed rules: fill the shelf, mark up, drop what went bad.

Per window it takes at most three turns: it reads, it looks for new products if places are free, and it
writes and ends the window. Environments that grant fewer turns per window get the same rules with older
data: with two turns new products come from searches made in the previous window, with one turn everything
it knows does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from merchantbench_gym.baselines.policy import END, BasePolicy, marked_up
from merchantbench_gym.baselines.sourcing import (
    PAGE,
    Action,
    Chosen,
    Found,
    RandomSourcing,
    ReportSourcing,
    Results,
    Sourcing,
    call,
)
from merchantbench_gym.baselines.table_rows import RowReader, as_tuple

ITEMS_PER_CALL = 100
MAX_TARGET = 400  # keeps a reading turn below 64 calls and the state below 16 KiB

# Places of shelf figures in the observation's ``store``, each as a share of ``max_listings``.
ACTIVE, WITHDRAWN, SLOW = 13, 15, 17

# Columns of the shelf tables that are used; in that of the whole shelf, nothing but numbers follows.
LISTING = ("product_id", "sale_price", "supplier_price", "supplier_ship_hours", "supplier_available")

Plan = dict[str, Any]
Listing = tuple[str, bool, float | None]
"""A listing: its id, whether it is to go, and its new price if that is not the present one."""


class RuleBasedPolicy(BasePolicy):
    """Fixed rules, no model.

    In order: guard the cash, delist what is withdrawn or ships too late, delist what does not sell, keep
    every price at supplier price times markup, fill the shelf once a day, end the window.

    Args:
        mode: Where new products come from; ``"random"`` draws them from the whole catalogue,
            ``"daily_report"`` looks for what the market report suggests and for the best rated.
        selection_seed: Seed of the draw, which depends on it and on the day only.
        markup: Sale price = supplier price × markup.
        shelf_target: Listings to aim for, 1 to 400; the shelf's own limit applies too.
        low_cash: With the cash guard, a balance below it empties the shelf …
        high_cash: … until the balance has reached this amount. Currency units.
        cash_guard: Whether the cash guard is on; None is the mode's default (off in ``"random"``, else on).
        stale_days: Whole days without a sale after which a listing is stale. Three weeks, because a
            listing needs two of them to reach its full exposure.
        stale: Whether stale listings are delisted; None is the mode's default (off in ``"random"``, else on).
        relist_after_days: With the report, days after which a product that left the shelf may come back;
            None for never. After longer bans the well rated products run out.
        limits: With the report, ``"ladder"`` takes cheap and well rated products first and spends up to a
            twentieth of the balance on one; ``"strict"`` takes nothing but the cheapest and best rated,
            whatever the balance, and none of them twice.

    Raises:
        ValueError: An argument is out of range; the message names it.
    """

    name = "rule_based"

    def __init__(
        self,
        mode: str = "daily_report",
        *,
        selection_seed: int = 42,
        markup: float = 2.0,
        shelf_target: int = 50,
        low_cash: float = 500.0,
        high_cash: float = 1000.0,
        cash_guard: bool | None = None,
        stale_days: int = 21,
        stale: bool | None = None,
        relist_after_days: int | None = 30,
        limits: str = "ladder",
    ) -> None:
        if mode not in ("random", "daily_report"):
            raise ValueError(f"mode must be 'random' or 'daily_report', not {mode!r}")
        if not markup > 0:
            raise ValueError(f"markup must be positive, not {markup!r}")
        if not 1 <= shelf_target <= MAX_TARGET:
            raise ValueError(f"shelf_target must be 1 to {MAX_TARGET}, not {shelf_target!r}")
        if low_cash > high_cash:
            raise ValueError(f"low_cash ({low_cash}) must not exceed high_cash ({high_cash})")
        if relist_after_days is not None and relist_after_days < 0:
            raise ValueError(f"relist_after_days must not be negative, not {relist_after_days!r}")
        if limits not in ("ladder", "strict"):
            raise ValueError(f"limits must be 'ladder' or 'strict', not {limits!r}")
        self.mode = mode
        self.markup = markup
        self.shelf_target = shelf_target
        self.low_cash = low_cash
        self.high_cash = high_cash
        by_report = mode == "daily_report"
        self.cash_guard = by_report if cash_guard is None else cash_guard
        self.stale_days = stale_days
        self.stale = by_report if stale is None else stale
        self._sourcing: Sourcing = RandomSourcing(selection_seed)
        if by_report:
            # The larger the shelf, the less room its figures leave in a state of 16 KiB.
            self._sourcing = ReportSourcing(
                strict=limits == "strict",
                relist_after_days=relist_after_days,
                memory=3000 - 6 * shelf_target,
            )
        self._forget()

    def _forget(self) -> None:
        self._halted = False
        self._day = 0  # last day on which a window was seen
        self._window = -1
        self._first = False  # the current window is the first one of its day
        self._stage = ""  # what the last turn of the current window did: reads, sourcing, writes
        self._plan: Plan | None = None  # between sourcing and writes
        self._found: Chosen | None = None  # what searches found, where it is used a window later
        self._shelf_rows = RowReader("items", LISTING, self._listing, flag_last=True)
        self._risk_rows = RowReader("listings", LISTING, self._listing)
        self._review_rows = RowReader("items", ("product_id", "days_without_sales"), as_tuple)
        self._sourcing.forget()

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        """Start an episode. ``seed`` plays no part: the selection seed governs the draws."""
        super().reset(seat, seed=seed)
        self._forget()

    # -- one turn ------------------------------------------------------------------------------------

    def act(self, observation: Any, info: Mapping[str, Any]) -> Action:
        """Play the next turn of the current window."""
        results = Results(observation["tool_results"])
        active, at_risk = self._shelf_figures(observation["store"])
        day, tomorrow = int(info["day"]), int(info["hour"]) + self.seat.window_hours >= 24
        turns = self.seat.max_turns_per_window
        if info["window"] != self._window:
            self._window = int(info["window"])
            self._first = day != self._day
            self._day = day
            if turns == 1:
                return self._whole_window(results, active, tomorrow)
            self._stage = "reads"
            if turns == 2:
                found = self._sourcing.found(results)
                self._found = None if found is None else list(found)
                return self._reads(active, review=self._first, sourcing=tomorrow or active <= at_risk)
            full = not self.stale and active - at_risk >= self._target
            sourcing = (self._first or active <= at_risk) and not full
            return self._reads(active, review=self._first, sourcing=sourcing)
        if self._stage == "reads":
            plan = self._make_plan(results)
            if turns == 2:
                self._stage = "writes"
                writes = self._writes(plan, self._found)
                return [*writes, *self._searches(tomorrow or not plan["left"]), dict(END)]
            searches = self._searches(plan["need"] > 0)
            if searches:
                self._stage, self._plan = "sourcing", plan
                return searches
            self._stage = "writes"
            return [*self._writes(plan, None), dict(END)]
        if self._stage == "sourcing" and self._plan is not None:
            plan, self._plan, self._stage = self._plan, None, "writes"
            return [*self._writes(plan, self._sourcing.found(results)), dict(END)]
        # The writes did not end the window: they were refused as a whole.
        return [dict(END)]

    def _whole_window(self, results: Results, active: int, tomorrow: bool) -> Action:
        """One batch for a window of one turn: act on the previous window's data, read for the next."""
        self._stage = "writes"
        found = self._sourcing.found(results)
        plan = self._make_plan(results)
        writes = self._writes(plan, found)
        searches = self._searches(tomorrow or not plan["left"])
        reads = self._reads(max(active, self._target), review=tomorrow, sourcing=True)
        return [*writes, *reads, *searches, dict(END)]

    def _searches(self, wanted: bool) -> Action:
        return self._sourcing.searches(wanted, self._day, self.seat.promise_hours)

    @property
    def _target(self) -> int:
        return min(self.shelf_target, self.seat.max_listings)

    def _shelf_figures(self, store: Any) -> tuple[int, int]:
        """Listings now, and how many of them may be withdrawn or slow (counted twice if both)."""
        share = self.seat.max_listings
        return round(float(store[ACTIVE]) * share), round(
            (float(store[WITHDRAWN]) + float(store[SLOW])) * share
        )

    # -- reading -------------------------------------------------------------------------------------

    def _reads(self, active: int, *, review: bool, sourcing: bool) -> Action:
        """The reading calls: as many pages of each shelf table as the shelf needs."""
        pages = range(1, max(1, -(-active // PAGE)) + 1)
        calls = [call("balance", "query_balance")]
        calls += [call(f"shelf-{page}", "query_my_listings", page=page, page_size=PAGE) for page in pages]
        calls += [
            call(f"risks-{page}", "query_supply_chain_anomalies", mode="now", page=page, page_size=PAGE)
            for page in pages
        ]
        if review:
            sort = {"sort_by": "days_without_sales", "window_days": 7}
            calls += [
                call(f"review-{page}", "review_my_listings", **sort, page=page, page_size=PAGE)
                for page in pages
            ]
        if sourcing:
            calls += self._sourcing.reads()
        return calls

    def _make_plan(self, results: Results) -> Plan:
        """Apply rules 2 to 6 to what was read; a read that failed leaves its rule without data."""
        rows = {row[0]: row for row in results.rows("shelf-", self._shelf_rows)}
        shelf = list(rows)
        known = "shelf-1" in results
        self._sourcing.take_in(results, shelf if known else None, self._day)
        rows.update((row[0], row) for row in results.rows("risks-", self._risk_rows))
        if self._is_halted(results.get("balance")):
            return {"delist": sorted(rows), "adjust": [], "need": 0, "left": 0, "shelf": shelf}
        leaving = {product for product, bad, _ in rows.values() if bad}
        if self.stale and self._first:
            # The review puts what has not sold for longest first.
            for text in results.texts("review-"):
                leaving.update(p for p, _ in takewhile(self._is_stale, self._review_rows.each(text)))
        adjust = [
            [product, price]
            for product, _, price in rows.values()
            if price is not None and product not in leaving
        ]
        left = len(shelf) - len(leaving.intersection(shelf))
        sourcing = known and left < self._target and (self._first or left == 0)
        need = self._target - left if sourcing else 0
        return {"delist": sorted(leaving), "adjust": adjust, "need": need, "left": left, "shelf": shelf}

    def _listing(self, product: str, sale: float, price: float, ship_hours: int, available: bool) -> Listing:
        """What rules 3 and 5 say about a listing."""
        right = marked_up(price, self.markup) if price > 0 else sale
        leaves = not available or ship_hours > self.seat.promise_hours
        return product, leaves, right if right != sale else None

    def _is_stale(self, row: tuple[Any, ...]) -> bool:
        return bool(row[1] >= self.stale_days)

    def _is_halted(self, balance: Mapping[str, Any] | None) -> bool:
        """The cash guard: halted below the low mark, until the high mark is reached."""
        if self.cash_guard and balance is not None:
            mark = self.high_cash if self._halted else self.low_cash
            self._halted = balance["balance"] < mark
        return self._halted

    # -- writing -------------------------------------------------------------------------------------

    def _writes(self, plan: Plan, found: Found | None) -> Action:
        """The writing calls of a plan, new listings drawn from what was found."""
        new = self._sourcing.choose(found or [], plan["shelf"], plan["need"], self._day)
        calls = _batches("delist_product", ({"product_id": product} for product in plan["delist"]))
        calls += _batches(
            "adjust_price", ({"product_id": product, "new_price": price} for product, price in plan["adjust"])
        )
        calls += _batches(
            "list_product",
            ({"product_id": product, "sale_price": marked_up(cost, self.markup)} for product, cost in new),
        )
        return calls

    # -- state ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that later turns depend on."""
        return {
            "halted": self._halted,
            "day": self._day,
            "window": self._window,
            "first": self._first,
            "stage": self._stage,
            "plan": self._plan,
            "found": None if self._found is None else [list(row[-2:]) for row in self._found],
            "sourcing": self._sourcing.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state made by :meth:`state_dict`."""
        state = json.loads(json.dumps(dict(state)))  # own copy
        self._halted = state["halted"]
        self._day = state["day"]
        self._window = state["window"]
        self._first = state["first"]
        self._stage = state["stage"]
        self._plan = state["plan"]
        self._found = state["found"]
        self._sourcing.load(state["sourcing"])


def _batches(name: str, items: Iterable[dict[str, Any]]) -> Action:
    """Calls of a writing tool for any number of items."""
    rows = list(items)
    starts = range(0, len(rows), ITEMS_PER_CALL)
    return [call(f"{name}-{i}", name, items=rows[i : i + ITEMS_PER_CALL]) for i in starts]
