"""The observation: one packet of figures per window and its rendering as text.

Both are pure functions of the merchant's state and the window's bookkeeping. What a window fixes is not found
out again at every reading (`Observer`).
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from merchantbench_gym.market.calendar import date_of, day_of, hour_of, stamp
from merchantbench_gym.market.orders import STATUSES
from merchantbench_gym.tools.numbers import hundredths
from merchantbench_gym.tools.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from merchantbench_gym.market.ledger import Accounts
    from merchantbench_gym.market.reputation import Rating
    from merchantbench_gym.scenario import Scenario
    from merchantbench_gym.tools.context import WindowBook, WindowInfo
    from merchantbench_gym.tools.view import MerchantView

EVENT_TYPES = (
    "price_up",
    "price_down",
    "price_recovered",
    "supplier_delisted",
    "supplier_relisted",
    "shipping_slowed",
    "shipping_recovered",
    "stockout",
)
"""Supply events in the order of the packet."""

RISKS = ("supplier_delisted", "out_of_stock", "timeout_risk", "price_loss_risk")
"""Risks of a listing in the order of the packet."""

FIRST_STATUSES = frozenset({"ordered", "stockout", "insufficient_balance"})
"""Statuses in which an order is created; none of them is ever entered later."""

_NAMES = {"statuses": STATUSES, "events": EVENT_TYPES, "risks": RISKS}
_PICK = {kind: itemgetter(*names) for kind, names in _NAMES.items()}
_NO_RISK: dict[str, frozenset[int]] = dict.fromkeys(RISKS, frozenset())
_NO_CHANGES = dict.fromkeys(("total", "new_orders", *STATUSES), 0)
_NO_EVENTS = dict.fromkeys(EVENT_TYPES, 0)


def risk_sets(view: MerchantView) -> dict[str, frozenset[int]]:
    """Products of the shelf that are at risk now; all comparisons are strict.

    Args:
        view: The merchant's view.

    Returns:
        Product indices by risk, in the order of `RISKS`.
    """
    if not view.shelf_size():
        return _NO_RISK.copy()
    shelf = view.shelf_risks()
    return {
        "supplier_delisted": shelf.withdrawn,
        "out_of_stock": frozenset(view.out_of_stock()),
        "timeout_risk": shelf.slow,
        "price_loss_risk": shelf.dear,
    }


class Fixed(NamedTuple):
    """The blocks of a packet that stay as they are while a window is open, whatever the merchant does."""

    time: dict[str, Any]
    since: dict[str, str]
    changes: dict[str, int]
    totals: dict[str, int]
    events: dict[str, int]
    new_risks: dict[str, int]
    cash: dict[str, float]
    pnl: dict[str, float]
    shop: dict[str, Any] | None


def fixed_blocks(view: MerchantView, scenario: Scenario, window: WindowInfo, book: WindowBook) -> Fixed:
    """What a window fixes; arguments as for `packet`."""
    changes = _changes(view.transitions(window.from_t - 1, window.to_t))
    standing = view.standing()
    totals = standing.statuses
    opened, closed = book.risks_at_open, book.risks_at_close
    cash, pnl = _money(standing.accounts, standing.figures, book)
    return Fixed(
        _time(scenario, window),
        {"from": stamp(window.from_t), "to": stamp(window.to_t)},
        changes,
        {"total": sum(totals), **dict(zip(STATUSES, totals, strict=True))},
        _events(view, window, book, changes["stockout"]),
        {name: len(opened[name] - closed[name]) for name in RISKS},
        cash,
        pnl,
        _shop(standing.rating) if scenario.rating.enabled else None,
    )


def packet(
    view: MerchantView,
    scenario: Scenario,
    window: WindowInfo,
    book: WindowBook,
    *,
    report_tool: bool,
    language: str = "en",
    risks: Mapping[str, frozenset[int]] | None = None,
    fixed: Fixed | None = None,
) -> dict[str, Any]:
    """The observation as data.

    Args:
        view: The merchant's view.
        scenario: The scenario.
        window: The window, its hours, turn counters and state.
        book: What was kept of the last and the current window.
        report_tool: Whether the merchant may call the report tool.
        language: Language of the goal reminder.
        risks: The risk sets as of now, where the caller has them already.
        fixed: What the window fixes, where the caller has it already.

    Returns:
        A fresh packet; money in currency units, times as ``D13H00``.
    """
    blocks = fixed_blocks(view, scenario, window, book) if fixed is None else fixed
    active, most = view.shelf_size(), scenario.merchant.max_listings
    current = risk_sets(view) if risks is None else risks
    words = WORDS[language]
    return {
        "time": {
            "state": window.state,
            **blocks.time,
            "turn": window.turn,
            "turns_limit": window.turns_limit,
            "turns_left": window.turns_left,
            "since": blocks.since.copy(),
        },
        "orders": {"changes": blocks.changes.copy(), "totals": blocks.totals.copy()},
        "supply": {
            "listings": {"active": active, "max": most, "free_slots": most - active},
            "events": blocks.events.copy(),
            "current_risks": dict(zip(current, map(len, current.values()), strict=True)),
            "new_risks": blocks.new_risks.copy(),
        },
        "cash": blocks.cash.copy(),
        "pnl": blocks.pnl.copy(),
        "shop": None if blocks.shop is None else blocks.shop.copy(),
        "daily_report_available": report_tool and scenario.reports.enabled and window.to_t >= 24,
        "goal_reminder": words.goal if scenario.brief.goals is None else words.custom_goals,
    }


def _time(scenario: Scenario, window: WindowInfo) -> dict[str, Any]:
    now, days = window.to_t, scenario.run.horizon_days
    date = date_of(scenario.calendar.start_date, now)
    return {
        "day": day_of(now),
        "hour": hour_of(now),
        "date": None if date is None else date.isoformat(),
        "horizon_days": days,
        "window": window.index + 1,
        "windows_total": -(-24 * days // scenario.run.activation_period),
    }


def _changes(changed: Iterable[tuple[int, int, str]]) -> dict[str, int]:
    counts = _NO_CHANGES.copy()
    current: dict[int, str] = {}
    new = 0
    for _, number, status in changed:
        # Rows come in time order, so the last one of an order is its current status.
        current[number] = status
        if status in FIRST_STATUSES:
            new += 1
    for status in current.values():
        counts[status] += 1
    counts["total"], counts["new_orders"] = len(current), new
    return counts


def _events(view: MerchantView, window: WindowInfo, book: WindowBook, stockouts: int) -> dict[str, int]:
    events = _NO_EVENTS.copy()
    if book.shelf:
        for kind in view.supplier_event_kinds(book.shelf, window.from_t - 1, window.to_t):
            events[kind] += 1
    events["stockout"] = stockouts
    return events


def _money(
    accounts: Accounts, figures: Mapping[str, int], book: WindowBook
) -> tuple[dict[str, float], dict[str, float]]:
    net, fines = accounts.net_assets, accounts.fines / 100
    cash = {
        "balance": accounts.balance / 100,
        "deposit_pool": accounts.deposit / 100,
        "in_transit": accounts.in_transit / 100,
        "receivable": accounts.receivable / 100,
        "net_assets": net / 100,
        "net_assets_change": (net - book.net_assets_at_close) / 100,
        "cumulative_fine": fines,
    }
    pnl = {
        "gmv": figures["gmv"] / 100,
        "cogs": figures["procured_cost"] / 100,
        "platform_fees": figures["commission"] / 100,
        "fulfilment_fees": figures["fulfilment"] / 100,
        "refund_loss": (figures["reverse_fees"] + figures["recovery_loss"]) / 100,
        "fines": fines,
        "net_profit": figures["closed_profit"] / 100,
    }
    return cash, pnl


def _shop(rating: Rating) -> dict[str, Any]:
    return {
        "score": hundredths(rating.rating),
        "stars": rating.stars,
        "demand_multiplier": hundredths(rating.multiplier),
        "rated_orders": rating.rated_orders,
        "published_day": rating.published_day,
    }


class Lines(NamedTuple):
    """Text of what a window fixes."""

    orders: str
    events: str
    new_risks: str
    money: str


def fixed_lines(packet: Mapping[str, Any], language: str = "en", *, fees: bool = False) -> Lines:
    """Text of what a window fixes; arguments as for `render`."""
    words = WORDS[language]
    orders, supply, cash, pnl = packet["orders"], packet["supply"], packet["cash"], packet["pnl"]
    since, changes, totals, shop = (
        packet["time"]["since"],
        orders["changes"],
        orders["totals"],
        packet["shop"],
    )
    fee_items = ""
    if fees:
        fee_items = words.fees % (pnl["platform_fees"], pnl["fulfilment_fees"], pnl["refund_loss"])
    numbers = (since["from"], since["to"], changes["total"], changes["new_orders"])
    return Lines(
        words.changes % (*numbers, _some(changes, "statuses", language))
        + "\n"
        + words.totals % (totals["total"], _some(totals, "statuses", language)),
        words.events % _some(supply["events"], "events", language),
        _some(supply["new_risks"], "risks", language),
        words.cash % tuple(cash.values())
        + "\n"
        + words.result % (pnl["gmv"], pnl["cogs"], fee_items, pnl["net_profit"])
        + "\n"
        + (words.no_rating if shop is None else words.rating % tuple(shop.values())),
    )


def render(
    packet: Mapping[str, Any],
    language: str = "en",
    *,
    fees: bool = False,
    closed: str | None = None,
    fixed: Lines | None = None,
) -> str:
    """The observation as text.

    Args:
        packet: A packet.
        language: Language of the fixed words.
        fees: Whether the scenario has fees.
        closed: The hour in which the shop closed, as a time string, for a packet in state ``closed``.
        fixed: Text of what the window fixes, where the caller has it already.

    Returns:
        Blocks separated by one empty line, the goal in the last one (left out after the end).
    """
    words = WORDS[language]
    lines = fixed_lines(packet, language, fees=fees) if fixed is None else fixed
    listings = packet["supply"]["listings"]
    shelf = words.shelf % (listings["active"], listings["max"], listings["free_slots"])
    risks = words.risks % (_some(packet["supply"]["current_risks"], "risks", language), lines.new_risks)
    blocks = [
        _head(packet, words, closed),
        lines.orders,
        f"{shelf}\n{lines.events}\n{risks}",
        lines.money,
    ]
    if packet["time"]["state"] in ("open", "waiting"):
        blocks.append(packet["goal_reminder"])
    return "\n\n".join(blocks)


def _some(counts: Mapping[str, int], kind: str, language: str) -> str:
    """Those of some counts that are not zero, by name."""
    return _some_of(_PICK[kind](counts), kind, language)


@lru_cache(maxsize=4096)
def _some_of(counts: tuple[int, ...], kind: str, language: str) -> str:
    words = WORDS[language]
    named = [f"{name} {count}" for name, count in zip(_NAMES[kind], counts, strict=True) if count]
    return words.separator.join(named) or words.none


class Observer:
    """Packets and texts of one merchant; what a window fixes is found out once, at its first reading.

    A window is known by its book, which stays the same object for as long as the window is open.
    """

    __slots__ = ("_book", "_fees", "_fixed", "_language", "_lines", "_scenario", "_view")

    def __init__(self, view: MerchantView, scenario: Scenario) -> None:
        """Observe for the merchant of a view."""
        self._view = view
        self._scenario = scenario
        self._language: str = scenario.brief.language
        self._fees: bool = scenario.fees.enabled
        self._book: WindowBook | None = None
        self._fixed: Fixed | None = None
        self._lines: Lines | None = None

    def packet(
        self,
        window: WindowInfo,
        book: WindowBook,
        *,
        report_tool: bool,
        risks: Mapping[str, frozenset[int]] | None,
    ) -> dict[str, Any]:
        """A fresh packet as of now; arguments as for the function `packet`."""
        if self._book is not book or self._fixed is None:
            self._fixed = fixed_blocks(self._view, self._scenario, window, book)
            self._book, self._lines = book, None
        return packet(
            self._view,
            self._scenario,
            window,
            book,
            report_tool=report_tool,
            language=self._language,
            risks=risks,
            fixed=self._fixed,
        )

    def text(self, packet: Mapping[str, Any], book: WindowBook) -> str:
        """The text of the packet as of now."""
        lines = self._lines if self._book is book else None
        if lines is None:
            lines = fixed_lines(packet, self._language, fees=self._fees)
            if self._book is book:
                self._lines = lines
        closed_t = self._view.closed_t
        closed = None if closed_t is None else stamp(closed_t)
        return render(packet, self._language, fees=self._fees, closed=closed, fixed=lines)


def _head(packet: Mapping[str, Any], words: Any, closed: str | None) -> str:
    time = packet["time"]
    state, day = time["state"], time["day"]
    if state == "finished":
        return str(words.finished % time["since"]["to"])
    if state == "closed":
        return str(words.closed % (closed or time["since"]["to"]))
    date = "" if time["date"] is None else words.date % time["date"]
    turn = words.turn % (time["turn"], time["turns_limit"]) if state == "open" else ""
    place = (day, time["horizon_days"], time["hour"], date, time["window"], time["windows_total"], turn)
    head = words.header % place
    if packet["daily_report_available"] and _day_before(time["since"]["from"]) < day:
        head += "\n" + words.report
    return f"{head}\n{words.waiting}" if state == "waiting" else head


def _day_before(time: str) -> int:
    """Day of the hour before a time string: the day of the last window when given the first hour after it."""
    return int(time[1:-3]) - time.endswith("H00")
