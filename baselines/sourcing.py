"""Where the rule-based merchant finds new products: anywhere, or where the daily report points."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import sub
from typing import Any, Protocol, TypeVar

from merchantbench_gym.baselines.report_queries import queries
from merchantbench_gym.baselines.table_rows import RowReader, as_tuple

T = TypeVar("T")

PAGE = 50  # rows per page, the most a tool gives
PAGES_PER_SEARCH = 12

_SUCCESS = ('{"ok":true', '{"ok": true')

Action = list[dict[str, Any]]
Found = Iterable[Sequence[Any]]
"""Products found, the best first; id and supplier price are the last two entries of each."""
Chosen = list[Sequence[Any]]
"""Id and supplier price of products."""

# Price and least rating (of product and supplier) of each level, the best first.
LADDER = ((20.0, 4.5), (50.0, 4.2), (100.0, 4.0), (200.0, 3.5))
LEAST_STOCK = 20
CASH_SHARE = 20  # a product may cost up to this part of the balance
BROWSED_PAGES = 3
NEVER = -1  # before any day
ROWS_PER_QUERY = 20


class Results:
    """The successful results of the last turn by call id."""

    def __init__(self, results: Iterable[Mapping[str, str]]) -> None:
        self._texts = {
            result["tool_call_id"]: result["content"]
            for result in results
            if result["content"].startswith(_SUCCESS)
        }

    def __contains__(self, call_id: str) -> bool:
        """Whether there is a successful result with this id."""
        return call_id in self._texts

    def get(self, call_id: str) -> dict[str, Any] | None:
        """The result with this id, or None if there is none or it failed."""
        text = self._texts.get(call_id)
        return None if text is None else json.loads(text)

    def rows(self, prefix: str, reader: RowReader[T]) -> list[T]:
        """What a reader makes of the rows of all results whose id starts with a prefix."""
        return reader.values(self.texts(prefix))

    def texts(self, prefix: str) -> list[str]:
        """The results whose id starts with a prefix, as they came."""
        return [text for call_id, text in self._texts.items() if call_id.startswith(prefix)]


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """One tool call."""
    return {"id": call_id, "name": name, "arguments": arguments}


class Sourcing(Protocol):
    """A way to find new products."""

    def forget(self) -> None:
        """Start an episode."""

    def reads(self) -> Action:
        """Calls that must be read before searching."""

    def take_in(self, results: Results, shelf: Sequence[str] | None, day: int) -> None:
        """Learn from a reading turn; `shelf` is None where it could not be read."""

    def searches(self, wanted: bool, day: int, promise_hours: int) -> Action:
        """Searching calls; none if not wanted or nothing can be found."""

    def found(self, results: Results) -> Found | None:
        """What the searches found; None if nothing was searched."""

    def choose(self, found: Found, shelf: Sequence[str], need: int, day: int) -> Chosen:
        """As many new products as are needed, except those on the shelf."""

    def state(self) -> dict[str, Any]:
        """Everything that later turns depend on."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""


class RandomSourcing:
    """Draws products from the whole catalogue; a draw depends on a seed and the day only."""

    def __init__(self, selection_seed: int) -> None:
        self._seed = selection_seed
        self.forget()

    def forget(self) -> None:
        """Start an episode."""
        self._reader: RowReader[Sequence[Any]] = RowReader("items", ("product_id", "price"), as_tuple)
        self._searched: dict[str, int] | None = None  # day and page count behind the latest searches
        self._total = 0  # products on offer at the latest probe

    def reads(self) -> Action:
        """The call that tells how many products are on offer."""
        return [call("probe", "search_products", query="", page=1, page_size=PAGE)]

    def take_in(self, results: Results, shelf: Sequence[str] | None, day: int) -> None:
        """Learn how many products are on offer."""
        probe = results.get("probe")
        if probe is not None:
            self._total = int(probe["total_count"])

    def searches(self, wanted: bool, day: int, promise_hours: int) -> Action:
        """Calls for the pages drawn for today; none if not wanted or nothing is on offer."""
        self._searched = None
        count = -(-self._total // PAGE)
        if not wanted or count == 0:
            return []
        self._searched = {"day": day, "pages": count}
        _, pages = self._draw()
        return [
            call(f"page-{page}.", "search_products", query="", page=page, page_size=PAGE) for page in pages
        ]

    def _draw(self) -> tuple[random.Random, list[int]]:
        """The day's generator after it has drawn the pages to look at, and these in ascending order."""
        assert self._searched is not None
        day, count = self._searched["day"], self._searched["pages"]
        generator = random.Random(self._seed * 1_000_003 + day)
        return generator, sorted(generator.sample(range(1, count + 1), min(PAGES_PER_SEARCH, count)))

    def found(self, results: Results) -> Found | None:
        """Products and prices on the pages searched last; None if nothing was searched."""
        if self._searched is None:
            return None
        found: list[Sequence[Any]] = []
        for page in self._draw()[1]:
            found += results.rows(f"page-{page}.", self._reader)
        return found

    def choose(self, found: Found, shelf: Sequence[str], need: int, day: int) -> Chosen:
        """Draw as many products as are needed from those found, except what was on the shelf."""
        if not need or self._searched is None:
            return []
        taken = set(shelf)
        candidates = [row for row in found if row[0] not in taken]
        generator, _ = self._draw()
        generator.shuffle(candidates)
        return candidates[:need]

    def state(self) -> dict[str, Any]:
        """Everything that later turns depend on."""
        return {"searched": self._searched, "total": self._total}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._searched, self._total = state["searched"], state["total"]


class ReportSourcing:
    """Looks where the daily report points and among the best rated, and takes cheap, well rated products.

    Args:
        strict: Take products of the ladder's first level only, whatever the balance, and none twice.
        relist_after_days: Days off the shelf after which a product may come back; None for never.
        memory: Most products remembered as having been on the shelf; the oldest are forgotten first.
    """

    def __init__(self, *, strict: bool, relist_after_days: int | None, memory: int) -> None:
        self._ladder = LADDER[:1] if strict else LADDER
        self._strict = strict
        self._relist_after_days = None if strict else relist_after_days
        self._memory = memory
        self.forget()

    def forget(self) -> None:
        """Start an episode."""
        self._seen: dict[str, int] = {}  # last day on which a product was seen on the shelf
        self._days: dict[int, set[str]] = {}  # the same by day
        self._packed: dict[str, str] = {}  # the same as text, as it was when the state was last asked for
        self._changed: set[int] = set()  # days for which that no longer holds
        self._searched = False
        columns = ("product_id", "price", "historical_avg_rating", "shop_rating")
        self._reader = RowReader("items", columns, self._rank)
        # What the latest reading turn told, for the searches of the same turn.
        self._queries: list[str] = []
        self._balance: float | None = None

    def reads(self) -> Action:
        """The call for today's report."""
        return [call("report", "get_daily_report")]

    def take_in(self, results: Results, shelf: Sequence[str] | None, day: int) -> None:
        """Learn what the report suggests, what there is to spend and what is on the shelf."""
        report, balance = results.get("report"), results.get("balance")
        self._queries = [] if report is None else queries(str(report["content"]))
        self._balance = None if balance is None else float(balance["balance"])
        if shelf is not None:
            self._remember(shelf, day)

    def _remember(self, shelf: Sequence[str], day: int) -> None:
        """Note what is on the shelf today, and drop what has been off it for long enough."""
        # What was seen today stays until tomorrow even if it may come back at once.
        free = min(self._free_since(day), day - 1)
        for last in [last for last in self._days if last <= free]:
            for product in self._days[last]:
                del self._seen[product]
            self._regroup(last, set())
        # Where only the fact counts, days are kept coarsely, so that the state stays small.
        today = day - day % 30 if self._relist_after_days is None else day
        known = self._days.get(today, set())
        new = set(shelf) - known
        if new:
            for last in {self._seen[product] for product in new if product in self._seen}:
                self._regroup(last, self._days[last] - new)
            self._regroup(today, known | new)
            self._seen.update(dict.fromkeys(new, today))
        while len(self._seen) > self._memory:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget products of the oldest day, those with the highest numbers first."""
        oldest = min(self._days)
        products = sorted(self._days[oldest], key=_number)
        kept = max(0, len(products) - (len(self._seen) - self._memory))
        for product in products[kept:]:
            del self._seen[product]
        self._regroup(oldest, set(products[:kept]))

    def _regroup(self, day: int, products: set[str]) -> None:
        """Note which products were seen last on a day."""
        self._days[day] = products
        if not products:
            del self._days[day]
        self._changed.add(day)

    def _free_since(self, day: int) -> int:
        """Last day on which a product may have been seen on the shelf if it may come back today."""
        return NEVER if self._relist_after_days is None else day - self._relist_after_days

    def searches(self, wanted: bool, day: int, promise_hours: int) -> Action:
        """A search for each query of the report, and the best rated products, within the loosest limits."""
        self._searched = wanted
        if not wanted:
            return []
        most, least_rating = self._ladder[-1]
        if self._balance is not None and not self._strict:
            most = max(0.0, min(most, self._balance / CASH_SHARE))
        limits = {
            "price_max": most,
            "supplier_rating_min": least_rating,
            "historical_rating_min": least_rating,
            "supplier_ship_hours_max": promise_hours,
            "quantity_min": LEAST_STOCK,
        }
        calls = [
            call(f"query-{i}", "search_products", query=query, page=1, page_size=ROWS_PER_QUERY, **limits)
            for i, query in enumerate(self._queries)
        ]
        browse = {"query": "", "sort_by": "rating", "page_size": PAGE}
        pages = range(1, BROWSED_PAGES + 1)
        return calls + [
            call(f"browse-{page}", "search_products", **browse, page=page, **limits) for page in pages
        ]

    def found(self, results: Results) -> Found | None:
        """Products and prices found, the best first; None if nothing was searched."""
        if not self._searched:
            return None
        return self._best_first(results.rows("query-", self._reader), results.rows("browse-", self._reader))

    def _best_first(self, *sources: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Rows by level, then by source. Few are asked for, so none is sorted before it is."""
        levels: list[list[list[tuple[Any, ...]]]] = [[[] for _ in sources] for _ in self._ladder]
        for place, rows in enumerate(sources):
            for row in rows:
                if row:
                    levels[row[0]][place].append(row)
        for level in levels:
            for rows in level:
                yield from sorted(rows)

    def _rank(self, product: str, price: float, history: float, shop: float) -> tuple[Any, ...]:
        """Level and place in it of a product, its id and price; empty if it is not to be taken."""
        for level, (most, least) in enumerate(self._ladder):
            if price <= most and history >= least and shop >= least:
                return level, -history, -shop, _number(product), product, price
        return ()

    def choose(self, found: Found, shelf: Sequence[str], need: int, day: int) -> Chosen:
        """The best products that are neither on the shelf nor have left it lately."""
        chosen: Chosen = []
        taken, seen, free = set(shelf), self._seen, self._free_since(day)
        for row in found:
            if len(chosen) == need:
                break
            product = row[-2]
            if product not in taken and seen.get(product, free) <= free:
                chosen.append([product, row[-1]])
                taken.add(product)
        return chosen

    def state(self) -> dict[str, Any]:
        """Everything that later turns depend on."""
        if self._changed:
            packed = self._packed.copy()  # states that were handed out stay as they are
            for day in sorted(self._changed):
                if day in self._days:
                    packed[str(day)] = _packed(self._days[day])  # a new day is the latest one
                else:
                    packed.pop(str(day), None)
            self._packed, self._changed = packed, set()
        return {"searched": self._searched, "seen": self._packed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._searched, self._days = state["searched"], _unpacked(state["seen"])
        self._seen = {product: day for day, products in self._days.items() for product in products}
        self._packed, self._changed = {}, set(self._days)


@lru_cache(maxsize=65_536)
def _number(product: str) -> int:
    return int(product[1:])


def _packed(products: Iterable[str]) -> str:
    """Gaps between the numbers of products, in groups of seven bits, as base64 text."""
    numbers, data = sorted(map(_number, products)), bytearray()
    for gap in map(sub, numbers, [0, *numbers]):
        while gap >= 128:
            data.append(gap & 127 | 128)
            gap >>= 7
        data.append(gap)
    return base64.b64encode(data).decode()


def _unpacked(packed: Mapping[str, str]) -> dict[int, set[str]]:
    days: dict[int, set[str]] = {}
    for day, text in packed.items():
        products = days[int(day)] = set()
        number = gap = shift = 0
        for byte in base64.b64decode(text):
            gap |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                number += gap
                products.add(f"P{number:05d}")
                gap = shift = 0
    return days
