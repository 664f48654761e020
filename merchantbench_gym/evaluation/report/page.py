"""The page as a whole: one file, nothing from outside, readable without scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from merchantbench_gym.evaluation.report import sections
from merchantbench_gym.evaluation.report.facts import SeatFacts, read_seats
from merchantbench_gym.evaluation.report.markup import Html, tag
from merchantbench_gym.evaluation.report.style import STYLE
from merchantbench_gym.evaluation.report.turns import turns
from merchantbench_gym.recording.schema import Pathish

MOST_BYTES: Final = 5_000_000
SPARE: Final = 300_000
"""Bytes kept free of the turns, so that the page stays below :data:`MOST_BYTES`."""
SQLITE: Final = b"SQLite format 3\0"

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may load: nothing."""


def write_report(paths: Sequence[Pathish], out: Pathish) -> list[SeatFacts]:
    """Write a page about recorded runs.

    Args:
        paths: The run files; none is changed.
        out: File to write; an older page in it is replaced.

    Returns:
        The seats the page is about, in its order.

    Raises:
        FileExistsError: The file to write is a run file or another database.
        FileNotFoundError: There is no run file.
        JournalMismatch: A file holds no run of this format, or is damaged.
        OSError: The page cannot be written.
    """
    target = Path(out)
    if target.is_file():
        with target.open("rb") as file:
            if file.read(len(SQLITE)) == SQLITE:
                raise FileExistsError(f"{os.fspath(out)} is a database, which a page does not replace")
    seats = [seat for path in paths for seat in read_seats(path)]
    target.write_text(page(seats), encoding="utf-8", newline="\n")
    return seats


def page(seats: Sequence[SeatFacts]) -> str:
    """The page about some seats, as text."""
    _give_names(seats)
    parts = [
        _section("overview", "Overview", sections.overview(seats)),
        _section("assets", "Net assets", sections.net_assets(seats)),
        _section("orders", "Orders by outcome", sections.orders(seats)),
        _section("rating", "Rating and shelf size", sections.reputation(seats)),
        _section("shelf", "Shelf and prices", sections.shelf(seats)),
        _section("fines", "Fines", sections.fines(seats)),
        _section("products", "Profit by product", sections.products(seats)),
        _section("tools", "Tool use", sections.tools(seats)),
    ]
    if any(seat.notes for seat in seats):
        parts.append(_section("notes", "Notes", sections.notes(seats)))
    if any(sections.has_cost(seat) for seat in seats):
        parts.append(_section("model", "Model cost", sections.cost(seats)))
    used = sum(len(body.encode()) for _, _, body in parts)
    share = max(0, MOST_BYTES - SPARE - used) // len(seats)
    parts.append(_section("turns", "Turns", sections.cards(seats, lambda seat: turns(seat, share))))
    return _frame(_title(seats), parts)


def _section(name: str, title: str, body: Html) -> tuple[str, str, Html]:
    return name, title, tag("section", tag("h2", title, id=f"{name}-title"), body, id=name)


def _give_names(seats: Sequence[SeatFacts]) -> None:
    """Name the seats by what tells them apart in a few words."""
    for index, seat in enumerate(seats):
        player = seat.run["label"] or seat.policy.get("name") or "unknown policy"
        words = f"{player}, {seat.scenario.get('name', '')}, seed {seat.run['seed']}"
        place = f", seat {seat.merchant + 1}" if seat.run["merchants"] > 1 else ""
        seat.name = (f"{index + 1}: " if len(seats) > 1 else "") + words[:100] + place


def _title(seats: Sequence[SeatFacts]) -> str:
    return seats[0].name if len(seats) == 1 else f"{len(seats)} recorded runs"


def _frame(title: str, parts: Sequence[tuple[str, str, Html]]) -> str:
    links = tag("ul", *(tag("li", tag("a", name, href=f"#{place}")) for place, name, _ in parts))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – merchantbench report"),
        tag("style", Html(STYLE)),
    )
    amounts = (
        "Amounts are in the market's currency. "
        "Days count from 0 at the start in charts, from 1 in times such as D1H12."
    )
    body = tag(
        "body",
        tag("a", "Skip to the overview", href="#overview", class_="skip"),
        tag("header", tag("h1", title), tag("p", amounts)),
        tag("nav", links, aria_label="Sections"),
        tag("main", *(section for _, _, section in parts)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
