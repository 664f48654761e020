"""Line charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from merchantbench_gym.evaluation.report.markup import Html, fold, join, table, tag

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 10, 40
MOST_POINTS, MOST_ROWS = 400, 13
STYLES = 6
"""Lines of one chart that differ by colour and dashes; further ones begin anew."""


class Line(NamedTuple):
    """A line of a chart: its name and its points, x in days, rising."""

    name: str
    points: Sequence[tuple[float, float]]


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round values from at most ``low`` to at least ``high``."""
    if not high > low:
        pad = abs(high) / 10 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(raw))
    step = unit * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many of the points, evenly, with the first and the last."""
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def chart(title: str, lines: Sequence[Line], show: Callable[[float], str], *, zero: bool = False) -> Html:
    """A chart with its legend and its figures as a table.

    Args:
        title: What it shows.
        lines: Its lines; those without points are left out.
        show: Writes a value for reading.
        zero: Let the axis hold zero.
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return tag("p", f"{title}: no figures in this record.")
    values = [y for line in lines for _, y in line.points] + ([0.0] if zero else [])
    days = [x for line in lines for x, _ in line.points]
    up, across = ticks(min(values), max(values)), ticks(min(0.0, *days), max(1.0, *days), 6)
    summary = "; ".join(f"{line.name} ends at {show(line.points[-1][1])}" for line in lines)
    picture = tag(
        "svg",
        _axes(up, across, show),
        *(_path(line, i, up, across) for i, line in enumerate(lines)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title} over the days. {summary}",
    )
    legend = tag("ul", *(_entry(line, i, show) for i, line in enumerate(lines)), class_="legend")
    return tag("figure", tag("figcaption", title), picture, legend, _figures(title, lines, show))


def _place(value: float, marks: Sequence[float], start: float, end: float) -> float:
    return start + (end - start) * (value - marks[0]) / (marks[-1] - marks[0])


def _axes(up: Sequence[float], across: Sequence[float], show: Callable[[float], str]) -> Html:
    parts = []
    for value in up:
        y = f"{_place(value, up, HEIGHT - BOTTOM, TOP):.1f}"
        kind = "zero" if value == 0 else "grid"
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_=kind))
        parts.append(tag("text", show(value), x=LEFT - 6, y=y, dy="0.35em", text_anchor="end"))
    for value in across:
        x = f"{_place(value, across, LEFT, WIDTH - RIGHT):.1f}"
        parts.append(tag("text", f"{value:g}", x=x, y=HEIGHT - BOTTOM + 16, text_anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", "days since the start", x=middle, y=HEIGHT - 4, text_anchor="middle"))
    return join(parts)


def _path(line: Line, index: int, up: Sequence[float], across: Sequence[float]) -> Html:
    places = [
        f"{_place(x, across, LEFT, WIDTH - RIGHT):.1f},{_place(y, up, HEIGHT - BOTTOM, TOP):.1f}"
        for x, y in thin(line.points, MOST_POINTS)
    ]
    if len(places) == 1:
        places *= 2  # a line of one point shows as a dot
    return tag("polyline", tag("title", line.name), points=" ".join(places), class_=f"s{index % STYLES}")


def _entry(line: Line, index: int, show: Callable[[float], str]) -> Html:
    sample = tag("line", x1=0, x2=28, y1=5, y2=5, class_=f"s{index % STYLES}")
    swatch = tag("svg", sample, viewBox="0 0 28 10", class_="swatch", aria_hidden="true")
    return tag("li", swatch, f"{line.name}: ", tag("b", show(line.points[-1][1])))


def _figures(title: str, lines: Sequence[Line], show: Callable[[float], str]) -> Html:
    longest = max((line.points for line in lines), key=lambda points: points[-1][0])
    rows = []
    for x, _ in thin(longest, MOST_ROWS):
        cells = [max((p for p in line.points if p[0] <= x), default=None) for line in lines]
        rows.append([f"{x:g}", *("–" if cell is None else show(cell[1]) for cell in cells)])
    head = ["day", *(line.name for line in lines)]
    return fold("Figures", table(title, head, rows), class_="figures")


def spark(points: Sequence[tuple[float, float | None]], end: float) -> Html:
    """A small stepped line without axes, for a cell of a table.

    Args:
        points: Points, x in days, rising; each value holds until the next, None is a gap.
        end: Days the cell stands for, from 0 on.
    """
    known = [y for _, y in points if y is not None]
    low, high = min(known), max(known)
    steps: list[str] = []
    joined = False
    for (x, y), (until, _) in pairwise([*points, (end, None)]):
        if y is not None:
            height = 12.0 if high == low else 22 - 20 * (y - low) / (high - low)
            start, stop = (f"{1 + 118 * min(day / end, 1):.1f}" for day in (x, until))
            # A step to the next value is drawn upright from where this one ends.
            steps.append(f"{'L' if steps and joined else 'M'}{start} {height:.1f}H{stop}")
        joined = y is not None
    line = tag("path", d="".join(steps), class_="s0")
    return tag("svg", line, viewBox="0 0 120 24", class_="spark", aria_hidden="true")
