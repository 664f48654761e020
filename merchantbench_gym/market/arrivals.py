"""Customers that may come to products: found ahead and kept, because no action of a merchant changes them."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import draws
from merchantbench_gym.market.cache import SHARED
from merchantbench_gym.market.catalog import DAYS_PER_YEAR, Catalog
from merchantbench_gym.market.rules import Rules

SLACK = 1.0 - 1e-9
_SPAN = 240  # hours found at once: whole days
_PART = 50  # products worked on at once: larger arrays are slow to get from the system
_MOST = 16_384  # candidates kept for a merchant, 4 MB
_LOWEST_BAND = 0
_GAMMA = np.uint64(draws.GAMMA)
_S30, _S27, _S31 = (np.uint64(n) for n in (30, 27, 31))
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Candidate = tuple[int, int, float, float, float, float]
"""Product, band, arrival uniform; demand of the curve day, share of the hour and weekly factor.

Expected orders are demand x price factor x share x exposure factor x weekly factor, multiplied in this order.
"""


def band(factor: float) -> int:
    """Band of a price factor: the smallest k with factor <= 2**k that is not below the lowest band."""
    return max(math.frexp(factor)[1], _LOWEST_BAND)


class Arrivals:
    """Hours in which the products of one merchant may have customers.

    A product has customers in an hour iff its arrival uniform u >= exp(-q) with q orders expected; as
    exp(-q) >= 1 - q, the test u + q >= 1 at an upper bound of q passes them all and few others. The bound
    takes the most that exposure and rating can do and the top of a band of price factors, so of all that a
    merchant does it depends on the band only.

    Attributes:
        by_hour: Candidates of an hour in no particular order; another dict once some were forgotten.
        peak: The most that exposure and rating multiply demand by.
        lifecycle: Exposure factor by age in hours.
    """

    def __init__(self, rules: Rules, catalog: Catalog, key: int) -> None:
        self.catalog = catalog
        self.lifecycle: list[float] = rules.lifecycle.tolist()
        self.peak = max(self.lifecycle) * rules.highest_multiplier
        self.by_hour: dict[int, list[Candidate]] = {}
        self._keys = draws.sm_array(key, np.arange(catalog.size))
        self._known: dict[tuple[int, int], int] = {}  # bits of spans by product and band
        self._size, self._most = 0, _MOST
        self._lock = threading.Lock()  # worlds of several threads may share them
        self._steps = np.arange(1, rules.horizon + 1, dtype=np.uint64) * _GAMMA
        days = np.arange(rules.horizon // 24) + rules.curve_offset_days
        self._of_year = days % DAYS_PER_YEAR
        self._week = catalog.week[days % 7]
        self._shares = catalog.hour_shares
        self._best = float(self._shares.max())

    def find(
        self, wanted: list[tuple[int, int]], first: int, stop: int
    ) -> tuple[int, dict[int, list[Candidate]]]:
        """Finds the candidates of products in hours first ... stop - 1.

        Args:
            wanted: Products and their bands.
            first: First hour.
            stop: Hour after the last one.

        Returns:
            Hour after the last one that is known now, at least ``stop``; and ``by_hour``, in which all that
            was wanted stays, whatever others ask for later.
        """
        spans = range(first // _SPAN, (stop - 1) // _SPAN + 1)
        with self._lock:
            try:
                if self._size > self._most:
                    self._forget_all_but(spans)
                for span in spans:
                    self._find_all(wanted, span)
            except BaseException:
                # Half of a span is worse than nothing: other worlds would take it for the whole.
                self._known, self.by_hour, self._size = {}, {}, 0
                raise
            return spans.stop * _SPAN, self.by_hour

    def _find_all(self, wanted: list[tuple[int, int]], span: int) -> None:
        """Finds the candidates of one span that are not known yet."""
        known, bit = self._known, 1 << span
        new = [entry for entry in wanted if not known.get(entry, 0) & bit]
        for entry in new:
            known[entry] = known.get(entry, 0) | bit
        for i in range(0, len(new), _PART):
            self._find(new[i : i + _PART], span * _SPAN)

    def _forget_all_but(self, spans: range) -> None:
        kept = sum(1 << span for span in spans)
        self._known = {entry: bits & kept for entry, bits in self._known.items() if bits & kept}
        self.by_hour = {t: found for t, found in self.by_hour.items() if t // _SPAN in spans}
        self._size = sum(map(len, self.by_hour.values()))
        # Where every hour has customers, even what is needed at once may be too much.
        self._most = max(_MOST, 2 * self._size)

    def _find(self, entries: list[tuple[int, int]], first: int) -> None:
        """One array expression over products and the hours from a midnight on."""
        products, bands = zip(*entries, strict=True)
        days = slice(first // 24, (first + _SPAN) // 24)
        week, shares = self._week[days], self._shares[[product % len(self._shares) for product in products]]
        demand: Floats = np.array([self.catalog.year_curve(product) for product in products])
        demand = demand.take(self._of_year[days], axis=1)
        most = demand * week * [[self.peak * 2.0**k] for k in bands]
        # Nearly all hours fall short even with the share of the best hour of a day.
        short = np.maximum((SLACK - most * self._best) * 2.0**64, 0.0).astype(np.uint64)
        words = self._words(products, first)
        # In flat order: numpy looks for the places of a matrix one by one.
        places = (words.reshape(*most.shape, 24) >= short[:, :, None]).ravel().nonzero()[0]
        cells = places // 24
        rows = cells // len(week)
        u = draws.uniform_array(words.take(places))
        share = shares.take(24 * rows + places % 24)
        kept = (most.take(cells) * share + u >= SLACK).nonzero()[0]
        cells, row = cells.take(kept), rows.take(kept).tolist()
        columns = (u.take(kept), demand.take(cells), share.take(kept), week.take(cells % len(week)))
        candidates = zip(
            [products[i] for i in row], [bands[i] for i in row], *(c.tolist() for c in columns), strict=True
        )
        by_hour, times = self.by_hour, (first + places.take(kept) % words.shape[1]).tolist()
        for t, candidate in zip(times, candidates, strict=True):
            if t in by_hour:
                by_hour[t].append(candidate)
            else:
                by_hour[t] = [candidate]
        self._size += len(times)

    def _words(self, products: tuple[int, ...], first: int) -> NDArray[np.uint64]:
        """Arrival words of products in the hours from one on, shape (k, hours)."""
        z = self._keys[list(products), None] + self._steps[first : first + _SPAN]
        shifted = z >> _S30
        z ^= shifted
        z *= _M1
        z ^= np.right_shift(z, _S27, out=shifted)
        z *= _M2
        z ^= np.right_shift(z, _S31, out=shifted)
        return z

    def expected(self, product: int, factor: float, origin: int, hour: int) -> float:
        """Orders expected of a listing in an hour at multiplier 1, before the hourly cap.

        Args:
            product: Product index.
            factor: Price factor, the scale of demand included.
            origin: Hour in which its exposure age was 0.
            hour: Hour below the horizon.
        """
        day = hour // 24
        demand = float(self.catalog.year_curve(product)[self._of_year[day]])
        share = float(self._shares[product % len(self._shares), hour % 24])
        exposure = self.lifecycle[max(0, hour - origin)]
        return demand * factor * share * exposure * float(self._week[day])


def load_arrivals(
    scenario: Any, rules: Rules, catalog: Catalog, seed: int, merchants: int
) -> dict[int, Arrivals]:
    """Arrivals of merchants 0 ... merchants - 1, shared by all worlds of the process."""
    key = (
        *("arrivals", catalog.hash, catalog.seed, seed, rules.horizon, rules.curve_offset_days),
        *(scenario.curve, scenario.lifecycle, rules.highest_multiplier),
    )
    arrivals: dict[int, Arrivals] = SHARED.get(key, dict, weight=catalog.size)
    for m in range(len(arrivals), merchants):
        arrivals[m] = Arrivals(rules, catalog, draws.draw(seed, draws.ARRIVAL, m))
    return arrivals
