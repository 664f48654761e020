"""Sections of the page: each takes the seats and gives a card per seat, or one figure for all."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

from merchantbench_gym.evaluation.report.charts import Line, chart, spark
from merchantbench_gym.evaluation.report.facts import SeatFacts
from merchantbench_gym.evaluation.report.markup import (
    Html,
    change,
    cut,
    fold,
    join,
    money,
    number,
    table,
    tag,
)

PARTS: Final = (
    ("balance", "balance"),
    ("deposit", "deposit"),
    ("in_transit", "in transit"),
    ("receivable", "receivable"),
)
MOST_PRODUCTS: Final = 10
NOTE_BYTES: Final = 600_000
"""Characters that all notes of the page take at most."""


def line_of(seat: SeatFacts, key: str, name: str) -> Line:
    """A figure of a seat over the days."""
    return Line(name, [(row["day"], row[key]) for row in seat.figures if key in row])


def overview(seats: Sequence[SeatFacts]) -> Html:
    """Identity and outcome, one column per seat."""

    def policy(seat: SeatFacts) -> str:
        words = [seat.policy.get(key, "") for key in ("name", "version", "model")]
        return " ".join(str(word) for word in words if word) or "unknown"

    def windows(seat: SeatFacts) -> str:
        closed = sum(bool(turn["closed_by"]) for turn in seat.turns)
        return f"{closed:,} of {seat.scenario['run']['horizon_days'] * 24 // _period(seat):,}"

    facts: list[tuple[str, Callable[[SeatFacts], object]]] = [
        ("Status", lambda s: tag("b", s.run["status"])),
        ("Reason", lambda s: s.reason or "–"),
        ("Net assets at the end", lambda s: tag("b", money(s.final))),
        ("Change from the start", lambda s: change(s.final - s.initial)),
        ("Policy", policy),
        ("Scenario", lambda s: s.scenario.get("name", "")),
        ("Seed", lambda s: s.run["seed"]),
        ("Days", lambda s: s.scenario["run"]["horizon_days"]),
        ("Windows closed", windows),
        ("Turns", lambda s: number(len(s.turns))),
        ("Tool calls", lambda s: number(sum(1 for _ in s.calls()))),
        ("Label", lambda s: s.run["label"] or "–"),
        ("Seat", lambda s: f"{s.merchant + 1} of {s.run['merchants']}"),
        ("Environment", lambda s: s.run["env_id"]),
        ("Package", lambda s: s.run["package_version"]),
        ("Scenario hash", lambda s: tag("code", s.run["scenario_hash"][:16], title=s.run["scenario_hash"])),
        ("Recorded", lambda s: f"{s.run['started']} to {s.run['ended'] or '?'}"),
        ("Executed again", lambda s: s.again.told),
        ("File", lambda s: s.file),
    ]
    rows = [[name, *(show(seat) for seat in seats)] for name, show in facts]
    return table("Identity and outcome", ["run", *(seat.name for seat in seats)], rows, words=len(seats) + 1)


def _period(seat: SeatFacts) -> int:
    return int(seat.scenario["run"]["activation_period"]) or 1


def cards(seats: Sequence[SeatFacts], make: Callable[[SeatFacts], object]) -> Html:
    """A card per seat, side by side where there is room."""
    parts = [tag("article", tag("h3", seat.name), make(seat)) for seat in seats]
    return tag("div", *parts, class_="cards")


def net_assets(seats: Sequence[SeatFacts]) -> Html:
    """Net assets of all seats, and their parts per seat."""

    def course(seat: SeatFacts) -> Line:
        points = [(0.0, float(seat.initial)), *line_of(seat, "net_assets", "").points]
        if seat.run["status"] == "finished":
            points.append((max(points[-1][0], _end(seat)), float(seat.final)))
        return Line(seat.name, points)

    def parts(seat: SeatFacts) -> Html:
        lines = [line_of(seat, key, name) for key, name in PARTS]
        return chart("Parts of net assets, at the end of each window", lines, money, zero=True)

    together = chart("Net assets", [course(seat) for seat in seats], money)
    return join([tag("div", together, class_="wide"), cards(seats, parts)])


def _end(seat: SeatFacts) -> float:
    """Days after which the clock of a finished run stood still."""
    last = seat.turns[-1]["day"] if seat.turns else 0.0
    closed = seat.finish.get("end_reason") == "shop_closed"
    return float(last) if closed else float(seat.scenario["run"]["horizon_days"])


def orders(seats: Sequence[SeatFacts]) -> Html:
    """Orders by status."""

    def make(seat: SeatFacts) -> Html:
        counts = seat.statuses
        total = sum(counts.values())
        when = "at the end of the run" if seat.finish else "at the end of the last window"
        rows = [
            [name.replace("_", " "), number(count), f"{100 * count / total:.1f} %", _bar(count / total)]
            for name, count in counts.items()
            if count
        ]
        rows.append(["total", number(total), "", ""])
        return table(f"Orders by outcome {when}", ["outcome", "orders", "share", "of all"], rows)

    return cards(seats, make)


def _bar(share: float) -> Html:
    bar = tag("rect", width=f"{100 * share:.1f}", height=10)
    return tag("svg", bar, viewBox="0 0 100 10", class_="bar", aria_hidden="true")


def reputation(seats: Sequence[SeatFacts]) -> Html:
    """Rating and number of listings of all seats."""
    figures = [
        chart(
            "Shop rating, 1 to 5",
            [line_of(seat, "rating", seat.name) for seat in seats],
            lambda v: f"{v:.2f}",
        ),
        chart(
            "Listings on the shelf",
            [line_of(seat, "listings", seat.name) for seat in seats],
            lambda v: f"{v:g}",
            zero=True,
        ),
    ]
    return tag("div", *figures, class_="cards")


def shelf(seats: Sequence[SeatFacts]) -> Html:
    """Prices on the shelf, and what was listed, repriced and delisted when."""

    def make(seat: SeatFacts) -> Html:
        changes = sorted(
            ((day, product, price) for product, row in seat.prices.items() for day, price in row),
            key=lambda change: change[0],
        )
        now: dict[str, float] = {}
        low: list[tuple[float, float]] = []
        middle: list[tuple[float, float]] = []
        high: list[tuple[float, float]] = []
        for i, (day, product, price) in enumerate(changes):
            if price is None:
                now.pop(product, None)
            else:
                now[product] = price
            if now and (i + 1 == len(changes) or changes[i + 1][0] != day):
                ordered = sorted(now.values())
                for line, place in ((low, 0), (middle, len(ordered) // 2), (high, len(ordered) - 1)):
                    line.append((day, 100 * ordered[place]))
        lines = [Line("lowest", low), Line("median", middle), Line("highest", high)]
        return join([chart("Sale prices on the shelf", lines, money, zero=True), _price_table(seat)])

    return cards(seats, make)


def _price_table(seat: SeatFacts) -> Html | None:
    if not seat.prices:
        return None
    end = max(1.0, seat.turns[-1]["day"])
    rows: list[list[object]] = []
    for product, changes in sorted(seat.prices.items()):
        known = [(day, price) for day, price in changes if price is not None]
        if not known:
            continue
        gone = "–" if changes[-1][1] is not None else f"{changes[-1][0]:g}"
        ends = [f"{price:,.2f}" for _, price in (known[0], known[-1])]
        rows.append([product, f"{known[0][0]:g}", gone, len(known), *ends, spark(changes, end)])
    rows.sort(key=lambda row: -int(str(row[3])))
    shown = rows[:60]
    head = ["product", "on, day", "off, day", "prices", "first", "last", "course"]
    note = f", the {len(shown)} changed most often of {len(rows):,}" if len(shown) < len(rows) else ""
    return fold(f"Price history of products{note}", table("Price history", head, shown))


def fines(seats: Sequence[SeatFacts]) -> Html:
    """Fines over time, and by kind."""

    def course(seat: SeatFacts) -> Line:
        points = line_of(seat, "fines", "").points
        if seat.finish and seat.run["status"] == "finished":
            points = [*points, (_end(seat), float(sum(seat.finish["fines"].values())))]
        return Line(seat.name, points)

    together = chart("Fines since the start", [course(seat) for seat in seats], money, zero=True)

    def make(seat: SeatFacts) -> Html:
        if not seat.finish:
            return tag("p", "By kind: not known. ", seat.again.told)
        rows: list[list[object]] = [
            [kind.replace("_", " "), money(cents)] for kind, cents in seat.finish["fines"].items() if cents
        ]
        rows.append(["total", money(sum(seat.finish["fines"].values()))])
        return table("Fines by kind", ["kind", "amount"], rows)

    return join([tag("div", together, class_="wide"), cards(seats, make)])


def products(seats: Sequence[SeatFacts]) -> Html:
    """Best and worst products."""
    head = ["product", "title", "bought", "gross profit", "fines", "net profit"]

    def rows(found: Sequence[dict[str, Any]]) -> list[list[object]]:
        return [
            [
                row["id"],
                join([row["title"], tag("small", f" ({row['category']})")]),
                number(row["procured"]),
                money(row["gross_profit"]),
                money(row["fines"]),
                change(row["net_profit"]),
            ]
            for row in found
        ]

    def make(seat: SeatFacts) -> Html:
        if not seat.finish:
            return tag("p", "Not known. ", seat.again.told)
        ranked = sorted(seat.finish["products"], key=lambda row: (-row["net_profit"], row["id"]))
        top = ranked[:MOST_PRODUCTS]
        bottom = ranked[len(top) :][-MOST_PRODUCTS:][::-1]
        losing = sum(row["net_profit"] < 0 for row in ranked)
        said = (
            f"{len(ranked):,} products had orders, {losing:,} of them lost money. "
            "Net profit is that of finished orders, after fines."
        )
        return join(
            [
                tag("p", said),
                table("Most profitable products", head, rows(top), words=2),
                table("Least profitable products", head, rows(bottom), words=2) if bottom else None,
            ]
        )

    return cards(seats, make)


def tools(seats: Sequence[SeatFacts]) -> Html:
    """Calls by tool and errors by code."""

    def make(seat: SeatFacts) -> Html:
        used: dict[str, Counter[str]] = {}
        errors: Counter[str] = Counter()
        for call in seat.calls():
            counts = used.setdefault(call["name"], Counter())
            counts.update(calls=1, failed=not call["ok"], applied=call["applied"], rejected=call["rejected"])
            counts["size"] += call["size"]
            if not call["ok"]:
                errors[call["code"]] += 1
        columns = ("calls", "failed", "applied", "rejected", "size")
        ranked = sorted(used.items(), key=lambda item: (-item[1]["calls"], item[0]))[:60]
        rows = [[cut(name, 80), *(number(counts[key]) for key in columns)] for name, counts in ranked]
        head = ["tool", "calls", "failed", "items applied", "items rejected", "characters"]
        parts = [table("Calls by tool", head, rows)]
        if errors:
            parts.append(table("Failed calls by code", ["code", "calls"], errors.most_common(40)))
        refused = Counter(turn["rejected"] for turn in seat.turns if turn["rejected"])
        if refused:
            parts.append(table("Rejected turns by reason", ["reason", "turns"], refused.most_common()))
        happened = Counter(event["kind"] for turn in seat.turns for event in turn["events"])
        if happened:
            parts.append(table("Events", ["event", "times"], happened.most_common(40)))
        return join(parts)

    return cards(seats, make)


def notes(seats: Sequence[SeatFacts]) -> Html:
    """Versions of the notes, each as its difference to the one before."""
    share = NOTE_BYTES // len(seats)

    def make(seat: SeatFacts) -> Html:
        if not seat.notes:
            return tag("p", "No notes.")
        parts: list[object] = []
        before, left = "", share
        for row in seat.notes:
            place = "given at the start" if row["window"] is None else f"window {row['window']}"
            title = f"Version {row['version']}, {place}, {row['bytes']:,} bytes"
            most = min(left, 12_000)
            shown = (
                difference(before, row["content"], most) if most > 200 else tag("p", "Left out for its size.")
            )
            parts.append(fold(title, shown))
            left -= len(shown)
            before = row["content"]
        parts.append(fold("Notes at the end in full", tag("pre", cut(before, max(2_000, min(left, 50_000))))))
        return join(parts)

    return cards(seats, make)


def difference(before: str, after: str, most: int) -> Html:
    """What changed from one text to the next, line by line, in at most about so many characters."""
    # difflib takes quadratic time; beyond a few thousand lines nobody reads the difference.
    old, new = before.splitlines()[:3_000], after.splitlines()[:3_000]
    lines: list[Html] = []
    left = most
    for entry in list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]:
        if left <= 0:
            lines.append(tag("i", "… cut"))
            break
        name = {"+": "ins", "-": "del"}.get(entry[:1], "span")
        lines.append(tag(name, cut(entry, max(40, left))))
        left -= len(entry) + 12
    return tag("pre", join(lines, "\n") if lines else "unchanged")


def cost(seats: Sequence[SeatFacts]) -> Html:
    """What the model took."""

    def make(seat: SeatFacts) -> Html:
        if not has_cost(seat):
            return tag("p", "No model calls and no cost in this record.")
        parts: list[object] = [_spent(seat)]
        if seat.model_calls:
            parts.append(_model_table(seat))
        return join(parts)

    return cards(seats, make)


def has_cost(seat: SeatFacts) -> bool:
    """Whether the record tells of a model."""
    return bool(seat.model_calls) or any(
        row.get("tokens") or row.get("cost_micro_usd") for row in seat.figures
    )


def _spent(seat: SeatFacts) -> Html:
    days = [row["day"] for row in seat.figures]
    tokens = list(accumulate(row.get("tokens", 0.0) for row in seat.figures))
    usd = list(accumulate(row.get("cost_micro_usd", 0.0) for row in seat.figures))
    lines = [Line("US dollars", [(day, value / 1e6) for day, value in zip(days, usd, strict=True)])]
    said = f"{tokens[-1]:,.0f} tokens and {usd[-1] / 1e6:,.4f} US dollars told by turns." if tokens else ""
    shown = chart("Cost since the start", lines, lambda v: f"{v:,.4f}", zero=True) if any(usd) else None
    return join([tag("p", said), shown])


def _model_table(seat: SeatFacts) -> Html:
    sums: dict[tuple[str, str], Counter[str]] = {}
    for call in seat.model_calls:
        counts = sums.setdefault((call["model"], call["class"]), Counter())
        counts["calls"] += 1
        counts["unknown"] += call["cost_micro_usd"] is None
        counts["usd"] += call["cost_micro_usd"] or 0
        counts["ms"] += round(1000 * call["duration_s"])
        counts.update(_tokens(call["usage"]) if isinstance(call["usage"], dict) else {})
    rows = [
        [
            model,
            kind,
            number(counts["calls"]),
            number(counts["in"]),
            number(counts["out"]),
            f"{counts['usd'] / 1e6:,.4f}",
            number(counts["unknown"]),
            f"{counts['ms'] / 1000:,.1f}",
        ]
        for (model, kind), counts in sorted(sums.items())
    ]
    head = ["model", "outcome", "calls", "tokens in", "tokens out", "US dollars", "cost unknown", "seconds"]
    return table("Calls of the model", head, rows, words=2)


def _tokens(usage: dict[str, Any]) -> dict[str, int]:
    """Tokens in and out, by our names or those of a provider."""
    known = {key: value for key, value in usage.items() if type(value) is int}
    parts = [known.get(key, 0) for key in ("input", "cache_read", "cache_write")]
    return {
        "in": known.get("prompt_tokens", sum(parts)),
        "out": known.get("completion_tokens", known.get("output", 0)),
    }
