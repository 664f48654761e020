"""The numeric summary of the store: 28 figures of an observation packet, each within [-4, 4].

=====  ==================================================================================================
Index  Figure
=====  ==================================================================================================
0-1    day / horizon days; hour / 24
2-5    sine and cosine of the place in the week, then in the year
6-12   L of balance, deposit pool, in transit, receivable, net assets; Ls of net assets change; L of fines
13-14  listings active / max; free slots / max
15-18  listings at risk / max: supplier_delisted, out_of_stock, timeout_risk, price_loss_risk
19-21  R of the shop rating; stars / 5; demand multiplier (zeros where ratings are off)
22-26  L of orders changed since the last window: new; failed at creation; late; lost or bad; normal
27     L of open orders
=====  ==================================================================================================

L(x) = ln(1 + max(x, 0)) / 8, Ls(x) = sign(x) L(abs(x)), R(x) = (x - 3) / 2. Amounts are currency units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import copysign, cos, log1p, pi, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.spaces import STORE_BOUND

# As arrays, which numpy need not convert every time.
_LOW, _HIGH = np.array(-STORE_BOUND, dtype=np.float32), np.array(STORE_BOUND, dtype=np.float32)


def store_features(packet: Mapping[str, Any]) -> NDArray[np.float32]:
    """Summarise a packet.

    Args:
        packet: The structured observation.

    Returns:
        A fresh float32 array of shape (28,).
    """
    return _bounded(np.array(_figures(packet), dtype=np.float32))


def store_rows(packets: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
    """Summaries of several packets, a fresh float32 array of shape (n, 28)."""
    return _bounded(np.array([_figures(packet) for packet in packets], dtype=np.float32))


def _bounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
    np.maximum(array, _LOW, out=array)
    return np.minimum(array, _HIGH, out=array)


def _figures(packet: Mapping[str, Any]) -> tuple[float, ...]:
    time, cash, supply = packet["time"], packet["cash"], packet["supply"]
    listings, risks = supply["listings"], supply["current_risks"]
    changes, totals = packet["orders"]["changes"], packet["orders"]["totals"]
    day, size, gain = time["day"], listings["max"], cash["net_assets_change"]
    failed = changes["stockout"] + changes["insufficient_balance"]
    soured = (
        changes["cancelled"]
        + changes["settled_refund"]
        + changes["settled_only_refund"]
        + changes["settled_bad_review"]
    )
    still_open = totals["ordered"] + totals["late"] + totals["shipped"] + totals["delivered"]
    amounts = (
        cash["balance"],
        cash["deposit_pool"],
        cash["in_transit"],
        cash["receivable"],
        cash["net_assets"],
        abs(gain),
        cash["cumulative_fine"],
        changes["new_orders"],
        failed,
        changes["late"],
        soured,
        changes["settled_normal"],
        still_open,
    )
    if min(amounts) < 0:
        amounts = tuple([max(x, 0) for x in amounts])
    logs = [log / 8 for log in map(log1p, amounts)]
    logs[5] = copysign(logs[5], gain)
    return (
        day / time["horizon_days"],
        time["hour"] / 24,
        *_season(day),
        *logs[:7],
        listings["active"] / size,
        listings["free_slots"] / size,
        risks["supplier_delisted"] / size,
        risks["out_of_stock"] / size,
        risks["timeout_risk"] / size,
        risks["price_loss_risk"] / size,
        *_standing(packet["shop"]),
        *logs[7:],
    )


@lru_cache(maxsize=1024)
def _season(day: int) -> tuple[float, float, float, float]:
    week, year = 2 * pi * day / 7, 2 * pi * day / 365
    return sin(week), cos(week), sin(year), cos(year)


def _standing(shop: Mapping[str, Any] | None) -> tuple[float, float, float]:
    if shop is None:
        return 0.0, 0.0, 0.0
    score = shop["score"]
    return 0.0 if score is None else (score - 3) / 2, shop["stars"] / 5, shop["demand_multiplier"]
