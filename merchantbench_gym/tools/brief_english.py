"""The English brief, section by section."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.tools.numbers import amount, percent, plain, two_digits

if TYPE_CHECKING:
    from collections.abc import Callable

    from merchantbench_gym.scenario import Scenario

STARS = 5


def counted(value: float, unit: str) -> str:
    """A number with its unit in the right number: ``1 day``, ``14 days``."""
    return f"{plain(value)} {unit}{'' if value == 1 else 's'}"


def duration(hours: int) -> str:
    """Hours, with whole days beside them where they come out even."""
    return counted(hours, "hour") + (f" ({counted(hours // 24, 'day')})" if hours % 24 == 0 else "")


def bullets(*lines: str | None) -> str:
    """Lines as a list, missing ones left out."""
    return "\n".join(f"- {line}" for line in lines if line)


def _role(_: Scenario) -> tuple[str, str]:
    return "Role", (
        "You are the operator of a small online dropshipping store. You choose products from what suppliers "
        "offer, put them on your shelf at your own sale prices, and suppliers ship each order to the "
        "customer."
    )


def _goal(_: Scenario) -> tuple[str, str]:
    return "Goal", (
        "Reach the highest net assets (balance + deposit + in transit + receivable) at the end of the run."
    )


def _time(s: Scenario) -> tuple[str, str]:
    start = s.calendar.start_date
    turns, calls = s.turns.max_turns_per_window, s.turns.max_calls_per_turn
    if turns == 1:
        rule = (
            f"A window has 1 turn: one message with up to {counted(calls, 'tool call')}. Every message "
            "closes the window, also one without calls. If you call end_of_step, it must be the last call of "
            "the message."
        )
    else:
        rule = (
            f"A window has up to {turns} turns. A turn is one message with up to "
            f"{counted(calls, 'tool call')}; a message without calls uses a turn as well. The window closes "
            "with end_of_step, which must be the last call of its message, or after the last turn."
        )
    return "Time", bullets(
        f"The run lasts {counted(s.run.horizon_days, 'day')}"
        + (f"; day 1 is {start.isoformat()}." if start else ".")
        + " After the last day nobody buys any more, and open orders run to their end.",
        f"A decision window opens every {duration(s.run.activation_period)}. The clock stands still while it "
        "is open; what you do there affects sales from the next hour on.",
        rule,
    )


def _capital(s: Scenario) -> tuple[str, str]:
    return "Capital", bullets(
        f"You start with a balance of {amount(s.merchant.initial_cash)} and a locked deposit of "
        f"{amount(s.merchant.initial_deposit)}. There are no loans."
    )


def _actions(s: Scenario) -> tuple[str, str]:
    return "What you can do", bullets(
        "Sourcing: search the products on offer and look at suppliers.",
        f"Listing and pricing: your shelf holds up to {counted(s.merchant.max_listings, 'product')}. "
        f"Listing, delisting and repricing are free. Sale prices lie between {amount(s.merchant.min_price)} "
        f"and {amount(s.merchant.max_price)}.",
        "Monitoring: follow your orders and the supply of the products on your shelf.",
        "Performance and cash: read your results, your accounts and what is tied up in orders.",
        "The schemas of the tools describe each of them.",
    )


def _demand(s: Scenario) -> tuple[str, str]:
    life = s.lifecycle
    factors = ["season", "hour of day", "sale price"]
    factors += ["exposure age"] if life.enabled else []
    factors += ["shop rating"] if s.rating.enabled else []
    lines = [
        f"Customers' interest in a listing depends on {', '.join(factors[:-1])} and {factors[-1]}, "
        "independently for each listing."
    ]
    if life.enabled:
        text = (
            "Exposure is the share of interested customers that a listing reaches; it follows from the "
            f"exposure age, the days on the shelf. A new listing starts at {percent(life.start)} and reaches "
            f"100 % after {counted(life.ramp_days, 'day')}"
        )
        if life.decay_per_day > 0:
            half_life = math.log(2) / life.decay_per_day
            text += (
                f"; then it decays towards {percent(life.floor)} with a half-life of about "
                f"{counted(float(f'{half_life:.2g}') if half_life < 100 else round(half_life), 'day')}."
            )
        else:
            text += ", where it stays."
        lines.append(text)
        lines.append(
            "Taking a product off the shelf and listing it again does not reset this: the age continues, "
            "less one day for each day off the shelf."
        )
    return "Demand", bullets(*lines)


def _supply(s: Scenario) -> tuple[str, str]:
    fined = " and are fined" if s.fines.stockout else ""
    return "Supply", bullets(
        "Supplier price, availability, shipping time and stock of a product change. Disturbances are usually "
        "temporary.",
        "An order keeps the supplier price and the shipping time of the hour in which it was placed.",
        "A product its supplier has withdrawn, or whose stock is empty, stays on your shelf until you take "
        f"it off; orders for it fail as stockouts{fined}.",
        "Displayed ratings are records of the past, not guarantees.",
    )


def _orders(s: Scenario) -> tuple[str, str]:
    fees = s.fees.enabled
    price = "The supplier price and the fulfilment fee are" if fees else "The supplier price is"
    refund = (
        "a refund returns the part of the cost that is recovered" if fees else "a refund returns the cost"
    )
    return "Orders and cash", bullets(
        f"Procurement is automatic. {price} paid from the balance only, never from the deposit; if the "
        "balance does not suffice, the order fails as insufficient_balance.",
        "Each order is for one unit. Unless it is cancelled before, it ships when the supplier's ship hours "
        "have passed and is delivered after the logistics hours.",
        "The cost waits in transit until delivery; then the sale price becomes receivable.",
        f"A delivered order is settled 1 hour to {duration(s.orders.settlement_hours_max)} after delivery. "
        "Settled normally or with a bad review, the receivable is paid out to you.",
        f"A cancellation returns the cost; {refund}, but not the sale; refund-only loses both.",
        "Status chains: ordered, [late,] shipped, delivered, then settled_normal, settled_bad_review, "
        "settled_refund or settled_only_refund; ordered or late, then cancelled; failed at once: stockout, "
        "insufficient_balance.",
    )


def _promise(s: Scenario) -> tuple[str, str]:
    hours = s.merchant.promised_ship_hours
    return "Shipping promise", bullets(
        f"An order not shipped within {counted(hours, 'hour')} of being placed becomes late."
    )


def _fines(s: Scenario) -> tuple[str, str]:
    f = s.fines
    return "Fines", bullets(
        f"Per order: quality refund {amount(f.refund)}, bad review {amount(f.bad_review)}, late "
        f"{amount(f.late)}, stockout {amount(f.stockout)}, insufficient balance "
        f"{amount(f.insufficient_balance)}, cancellation {amount(f.cancel)}, refund-only "
        f"{amount(f.only_refund)} (the goods are lost).",
        f"At most {s.orders.violations_per_hour} stockout and insufficient-balance fines are taken in one "
        "hour; further orders of that hour are lost without a fine.",
    )


def _closure(s: Scenario) -> tuple[str, str]:
    return "Closure", bullets(
        "Fines take the balance first, then the deposit. Incoming money first refills the deposit up to "
        f"{amount(s.merchant.initial_deposit)}.",
        "If the deposit falls to 0.00, the shop closes for good. An empty balance alone closes nothing.",
    )


def _rating(s: Scenario) -> tuple[str, str]:
    r = s.rating
    if not r.enabled:
        return "Shop rating", ""
    kinds = (
        ("settled normally", r.score.normal, r.weight.normal),
        ("settled normally but late", r.score.late, r.weight.late),
        ("refund", r.score.refund, r.weight.refund),
        ("refund-only", r.score.only_refund, r.weight.only_refund),
        ("bad review", r.score.bad_review, r.weight.bad_review),
        ("stockout", r.score.stockout, r.weight.stockout),
    )
    scores = ", ".join(f"{name} {plain(score)} x {plain(weight)}" for name, score, weight in kinds)
    steps = " / ".join(two_digits(x) for x in r.thresholds)
    factors = " / ".join(two_digits(x) for x in r.multipliers)
    return "Shop rating", bullets(
        f"Every finished order counts with score x weight: {scores}. Cancelled and unpaid orders are not "
        "rated.",
        f"The rating is their weighted mean together with a prior of {plain(r.prior)} of weight "
        f"{plain(r.prior_weight)}. Evidence loses half of its weight in {counted(r.half_life_days, 'day')}.",
        f"1 star below the first step; 2, 3, 4 and {STARS} stars from {steps}. Demand is multiplied by "
        f"{factors} at 1 to {STARS} stars. The rating is published at midnight.",
    )


def _fees(s: Scenario) -> tuple[str, str]:
    if not s.fees.enabled:
        return "Fees", ""
    rows = "; ".join(
        f"{name} {percent(getattr(s.fees.take_rate, name))}, {amount(getattr(s.fees.fulfilment, name))}"
        for name in CATEGORIES
    )
    reverse = (
        "A refund also costs a reverse fee equal to the fulfilment fee."
        if s.fees.reverse_logistics
        else "A refund costs no reverse fee."
    )
    return "Fees", bullets(
        "The platform takes a share of the sale price at a normal or bad-review settlement, and a fulfilment "
        f"fee when an order is procured, which is never returned. Take rate and fulfilment fee: {rows}.",
        f"A refund recovers {percent(s.fees.refund_recovery)} of the cost. {reverse}",
    )


def _forms(s: Scenario) -> tuple[str, str]:
    start = s.calendar.start_date
    return "Categories and times", bullets(
        f"Categories: {', '.join(CATEGORIES)}.",
        "Times read D<day>H<hour>: D13H00 is day 13, 00:00."
        + (f" Day 1 is {start.isoformat()}." if start else ""),
        "Amounts are in one currency, with two decimals.",
    )


SECTIONS: tuple[Callable[[Scenario], tuple[str, str]], ...] = (
    _role,
    _goal,
    _time,
    _capital,
    _actions,
    _demand,
    _supply,
    _orders,
    _promise,
    _fines,
    _closure,
    _rating,
    _fees,
    _forms,
)
