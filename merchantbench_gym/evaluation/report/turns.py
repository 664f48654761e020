"""The turns of a run, folded per window, in as many bytes as there are."""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

from merchantbench_gym.evaluation.report.facts import SeatFacts
from merchantbench_gym.evaluation.report.markup import Html, change, cut, fold, join, money, tag
from merchantbench_gym.recording.schema import Row


class Cuts(NamedTuple):
    """Characters shown at most of a text, of arguments, of the result of a write, of any other result."""

    text: int
    arguments: int
    write: int
    read: int


LEVELS: Final = (
    Cuts(20_000, 20_000, 20_000, 20_000),
    Cuts(8_000, 4_000, 6_000, 4_000),
    Cuts(6_000, 2_000, 4_000, 1_500),
    Cuts(4_000, 1_000, 2_000, 800),
    Cuts(3_000, 600, 1_200, 450),
    Cuts(2_000, 400, 800, 300),
    Cuts(1_500, 300, 600, 200),
    Cuts(1_000, 200, 400, 140),
    Cuts(600, 150, 250, 90),
    Cuts(300, 80, 120, 50),
    Cuts(120, 40, 40, 20),
)
MONTH: Final = 30


def turns(seat: SeatFacts, most: int) -> Html:
    """All turns of a seat, contents cut as far as needed.

    Args:
        seat: The seat.
        most: Bytes the whole may take; if even short contents take more, windows in the middle are left out.
    """
    windows = [(key, list(group)) for key, group in groupby(seat.turns, key=lambda turn: int(turn["window"]))]
    if not windows:
        return tag("p", "No turns.")
    low, high = 0, len(LEVELS) - 1
    while low < high:  # the first level that fits
        middle = (low + high) // 2
        if sum(_size(_window(key, group, LEVELS[middle])) for key, group in windows) <= most:
            high = middle
        else:
            low = middle + 1
    cuts = LEVELS[low]
    parts = [(group[0]["day"], _window(key, group, cuts)) for key, group in windows]
    kept, left_out = _fitting(parts, most)
    said = (
        f"Results are cut after {cuts.read:,} characters ({cuts.write:,} for changes of the shelf), "
        f"arguments after {cuts.arguments:,}, texts after {cuts.text:,}. The run file has them in full."
    )
    note = f" {left_out:,} windows in the middle are left out to keep this page small." if left_out else ""
    return join([tag("p", said, note, class_="note"), _by_month(kept)])


def _fitting(parts: list[tuple[float, Html]], most: int) -> tuple[list[tuple[float, Html]], int]:
    """As many windows from the start and the end as fit, and the number of the others."""
    sizes = [_size(part) for _, part in parts]
    first, last, used = 0, len(parts), 0
    while first < last:
        place = first if first <= len(parts) - last else last - 1
        if used + sizes[place] > most:
            break
        used += sizes[place]
        first, last = (first + 1, last) if place == first else (first, place)
    return parts[:first] + parts[last:], last - first


def _size(part: Html) -> int:
    return len(part.encode())


def _by_month(parts: list[tuple[float, Html]]) -> Html:
    if len(parts) <= 2 * MONTH:
        return join(part for _, part in parts)
    folds = []
    for month, group in groupby(parts, key=lambda part: int(part[0]) // MONTH):
        inner = [part for _, part in group]
        days = f"Days {month * MONTH + 1} to {(month + 1) * MONTH}"
        folds.append(fold(f"{days}: {len(inner)} windows", *inner, class_="month"))
    return join(folds)


def _window(index: int, group: list[Row], cuts: Cuts) -> Html:
    calls = [call for turn in group for call in turn["calls"]]
    failed = sum(not call["ok"] for call in calls)
    applied = sum(call["applied"] for call in calls)
    words = [f"{group[0]['time']}, window {index}: {_many(len(group), 'turn')}, {_many(len(calls), 'call')}"]
    words += [f"{applied} applied"] if applied else []
    words += [f"{failed} failed"] if failed else []
    words.append(f"net assets {money(group[-1]['net_assets'])}")
    if group[-1]["reward"]:
        words.append(f"then {change(group[-1]['reward'])}")
    return fold(", ".join(words), *(_turn(turn, cuts) for turn in group))


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _turn(turn: Row, cuts: Cuts) -> Html:
    words = [f"Turn {turn['turn']}"]
    words += [f"rejected: {turn['rejected']}"] if turn["rejected"] else []
    words += [f"window closed by {turn['closed_by']}"] if turn["closed_by"] else []
    said = tag("blockquote", cut(turn["text"], cuts.text)) if turn["text"] else None
    events = [
        tag("p", f"Event {event['kind']}: ", tag("code", cut(event["body"], cuts.arguments)))
        for event in turn["events"]
    ]
    return join([tag("h4", ", ".join(words)), said, *events, *(_call(call, cuts) for call in turn["calls"])])


def _call(call: Row, cuts: Cuts) -> Html:
    kind = call["kind"]
    outcome = Html("ok") if call["ok"] else tag("b", f"failed: {call['code']}")
    counts = f", {call['applied']} applied, {call['rejected']} rejected" if kind == "WRITE" else ""
    content = cut(call["content"], cuts.write if kind == "WRITE" or not call["ok"] else cuts.read)
    if call["size"] > len(call["content"]):
        content = join([content, tag("i", f" ({call['size']:,} characters in all)")])
    title = join([tag("code", cut(call["name"], 80)), " ", outcome, counts])
    return fold(title, tag("pre", cut(call["arguments"], cuts.arguments), "\n→ ", content))
