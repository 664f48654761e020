"""Pictures of a store: text for terminals, and an image with its money, orders, rating, shelf and suppliers.

They show what the merchant may know and nothing else, and drawing one changes nothing. The image is drawn
with numpy alone, so that a frame needs no plotting package and is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.rendering_pixels import Colour, Image, Mask, fill, star, width, write, write_right

if TYPE_CHECKING:
    from merchantbench_gym.tools.view import MerchantView

Floats = NDArray[np.float64]
Shorts = NDArray[np.int16]

WIDTH = 96
NAME_WIDTH = 34
HEAD = f"{'product':8} {'name':{NAME_WIDTH}} {'buy':>10} {'sell':>10} {'margin':>7} {'days':>5} {'stock':>6}"

# --- text -----------------------------------------------------------------------------------------------


def ansi(text: str, view: MerchantView, results: Iterable[tuple[str, str, str]] = ()) -> str:
    """The store as plain text.

    Args:
        text: The observation text.
        view: The merchant's view, for the shelf.
        results: Id, name and content of each result of the last turn.

    Returns:
        Observation, shelf and last turn between rules, without a newline at the end.
    """
    rule = "─" * WIDTH
    parts = [rule, text, *_shelf_table(view)]
    calls = [_call(name, content) for _, name, content in results]
    if calls:
        parts += ["", f"Last turn: {', '.join(calls)}"]
    return "\n".join([*parts, rule])


def _shelf_table(view: MerchantView) -> list[str]:
    if not view.shelf_size():
        return []
    shelf = view.shelf()
    columns = (shelf.product, shelf.price, shelf.sale_price, shelf.listed, shelf.age, shelf.stock)
    rows = ["", HEAD]
    for product, buy, sell, listed, age, stock in zip(*(c.tolist() for c in columns), strict=True):
        name = view.catalog.name(product)
        short = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
        supply = f"{stock:6d}" if listed else "  gone"
        rows.append(
            f"{view.catalog.product_id(product):8} {short:{NAME_WIDTH}} {buy / 100:10.2f} {sell / 100:10.2f} "
            f"{(sell - buy) / sell:7.1%} {age / 24:5.1f} {supply}"
        )
    return rows


def _call(name: str, content: str) -> str:
    outcome = "ok" if content.startswith('{"ok":true') else "failed"
    return f"{name or '?'} {outcome}"


# --- image ----------------------------------------------------------------------------------------------

SIZE = (540, 960)
PLOT = (112, 334, 84, 632)  # top, bottom, left, right
SPARK = (158, 186, 670, 934)
PAPER: Colour = (236, 234, 228)
CARD: Colour = (255, 254, 251)
EDGE: Colour = (214, 211, 203)
GRID: Colour = (231, 229, 223)
INK: Colour = (40, 44, 54)
FAINT: Colour = (134, 135, 140)
PALE: Colour = (178, 183, 194)
WHITE: Colour = (255, 255, 255)
GOOD: Colour = (58, 140, 96)
BAD: Colour = (196, 70, 60)
GOLD: Colour = (232, 172, 48)
LIGHT: Colour = (250, 231, 186)
BANDS: dict[str, Colour] = {
    "deposit": (69, 96, 128),
    "balance": (64, 145, 131),
    "in transit": (231, 155, 92),
    "receivable": (240, 205, 120),
}
"""Parts of the net assets from the bottom of the chart to its top."""
PALETTE = np.array([CARD, *reversed(BANDS.values()), INK, GRID], dtype=np.uint8)
"""Pixels of the chart: nothing, the parts by how many stacks reach there, the line, the grid."""
OPEN: dict[str, tuple[str, Colour]] = {
    "ordered": ("ordered", (104, 132, 176)),
    "late": ("late", BAD),
    "shipped": ("shipped", (231, 155, 92)),
    "delivered": ("delivered", (64, 145, 131)),
}
ENDED: dict[str, tuple[str, Colour]] = {
    "settled_normal": ("settled", GOOD),
    "settled_bad_review": ("bad review", GOLD),
    "settled_refund": ("refund", (222, 126, 76)),
    "settled_only_refund": ("refund only", (222, 126, 76)),
    "cancelled": ("cancelled", BAD),
    "stockout": ("stockout", BAD),
    "insufficient_balance": ("no cash", BAD),
}
RESULTS = {"sales": "gmv", "fines": "fines", "net profit": "net_profit"}
RISKS = {
    "supplier_delisted": "supplier gone",
    "out_of_stock": "out of stock",
    "timeout_risk": "ships too late",
    "price_loss_risk": "sells at a loss",
}
EVENTS: dict[str, tuple[str, Colour]] = {
    "price_up": ("price up", BAD),
    "price_down": ("price down", GOOD),
    "price_recovered": ("price recovered", FAINT),
    "supplier_delisted": ("product withdrawn", BAD),
    "supplier_relisted": ("product back", GOOD),
    "shipping_slowed": ("shipping slowed", BAD),
    "shipping_recovered": ("shipping recovered", GOOD),
    "stockout": ("order out of stock", BAD),
}


class Past(NamedTuple):
    """A store over time: its start, the ends of its days, and now.

    Attributes:
        days: Days since the start, ascending, shape (n,) with n at least 1.
        parts: Currency units of each of :data:`BANDS`, shape (n, 4).
        rating: Published rating, shape (n,).
    """

    days: Floats
    parts: Floats
    rating: Floats


def frame(packet: Mapping[str, Any], past: Past, name: str = "") -> Image:
    """The store as an image: money over time, orders, rating, shelf and what suppliers did.

    Args:
        packet: The observation as data.
        past: The way there.
        name: Whose store it is; nothing if there is but one.

    Returns:
        RGB image, uint8, shape (540, 960, 3); a fresh array.
    """
    rated = packet["shop"] is not None
    image = _still(rated).copy()
    last_day = _reach(packet["time"]["horizon_days"], float(past.days[-1]))
    _header(image, packet, name)
    _money(image, past, last_day)
    _orders(image, packet)
    if rated:
        _rating(image, packet["shop"], past, last_day)
    _shelf(image, packet["supply"])
    _events(image, packet)
    return image


def grid(images: Sequence[Image]) -> Image:
    """Images of one shape side by side, in as many rows as columns or one fewer; a lone image as it is."""
    if len(images) == 1:
        return images[0]
    columns = math.isqrt(len(images) - 1) + 1
    rows = -(-len(images) // columns)
    height, width = images[0].shape[:2]
    whole = np.empty((rows * height, columns * width, 3), dtype=np.uint8)
    whole[:] = PAPER
    for i, image in enumerate(images):
        top, left = i // columns * height, i % columns * width
        whole[top : top + height, left : left + width] = image
    return whole


@lru_cache(maxsize=2)
def _still(rated: bool) -> Image:
    """What is the same in all frames."""
    image = np.empty((*SIZE, 3), dtype=np.uint8)
    image[:] = PAPER
    fill(image, 0, 72, 0, SIZE[1], INK)
    for top, bottom, left, right in (
        (82, 364, 12, 646),
        (374, 530, 12, 646),
        (82, 196, 656, 948),
        (206, 342, 656, 948),
        (352, 530, 656, 948),
    ):
        fill(image, top, bottom, left, right, EDGE)
        fill(image, top + 1, bottom - 1, left + 1, right - 1, CARD)
    x = PLOT[2]
    for label, colour in reversed(BANDS.items()):
        fill(image, 91, 101, x, x + 10, colour)
        write(image, label, 89, x + 16, INK)
        x += 36 + width(label, 2)
    write(image, "day", 343, 24, FAINT)
    for left, heading, names in ((26, "Open orders", OPEN), (334, "Ended orders", ENDED)):
        write(image, heading, 380, left, INK)
        for row, (label, _) in enumerate(names.values()):
            write(image, label, 402 + 18 * row, left, FAINT)
    fill(image, 471, 472, 26, 316, EDGE)
    for row, label in enumerate(RESULTS, len(OPEN)):
        write(image, label, 402 + 18 * row, 26, FAINT)
    if not rated:
        write(image, "no shop rating", 92, 670, FAINT)
    write(image, "Shelf", 214, 670, INK)
    image.flags.writeable = False
    return image


def _header(image: Image, packet: Mapping[str, Any], name: str) -> None:
    time, cash = packet["time"], packet["cash"]
    # The last orders are settled after the horizon, on days that do not count any more.
    title = f"Day {min(time['day'], time['horizon_days'])} of {time['horizon_days']}"
    write(image, f"{name}   {title}" if name else title, 13, 24, WHITE, 3)
    date = "" if time["date"] is None else f"{time['date']}   "
    place = f"{date}hour {time['hour']}   window {time['window']} of {time['windows_total']}"
    write(image, place, 45, 24, PALE)
    amount, change = f"{cash['net_assets']:,.2f}", cash["net_assets_change"]
    write_right(image, amount, 13, 936, WHITE, 3)
    write_right(image, "net assets", 20, 924 - width(amount, 3), PALE)
    colour = PALE if not change else (120, 206, 150) if change > 0 else (255, 138, 124)
    write_right(image, f"{change:+,.2f} since the last window", 45, 936, colour)
    badge = {"closed": ("SHOP CLOSED", BAD), "finished": ("RUN FINISHED", GOOD)}.get(time["state"])
    if badge is not None:
        label, colour = badge
        left = 24 + width(place, 2) + 20
        fill(image, 41, 64, left, left + width(label, 2) + 20, colour)
        write(image, label, 46, left + 10, WHITE)


# --- money over time


def _reach(horizon_days: int, day: float) -> float:
    """Days that the axis of time covers: fortnights doubled until now fits in, and never less than that."""
    days = 14
    while days < day:
        days *= 2
    return max(float(min(days, horizon_days)), day)


def _money(image: Image, past: Past, last_day: float) -> None:
    stacks = np.maximum(past.parts, 0.0).cumsum(axis=1).T
    ticks = _ticks(float(stacks.max(initial=1.0)), 5)
    _areas(image, past.days, stacks, ticks, last_day)
    top, bottom, left, right = PLOT
    unit, letter = (1e6, "M") if ticks[-1] >= 1e7 else (1e3, "k") if ticks[-1] >= 1e4 else (1.0, "")
    for tick in ticks:
        label = f"{tick / unit:,.10g}{letter if tick else ''}"
        y = bottom - round((bottom - top) * tick / ticks[-1])
        write_right(image, label, y - 7, left - 8, FAINT)
    for tick in _ticks(last_day, 8):
        if tick <= last_day:
            x = left + round((right - 1 - left) * tick / last_day)
            image[bottom : bottom + 5, x] = FAINT
            label = f"{tick:.10g}"
            write(image, label, bottom + 9, x - width(label, 2) // 2, FAINT)
    # What the store started with.
    y = bottom - 1 - round((bottom - 1 - top) * float(stacks[-1, 0]) / ticks[-1])
    image[y, left:right].reshape(-1, 4, 3)[::2] = FAINT


def _ticks(reach: float, most: int) -> list[float]:
    """Round values from 0 up to the first one that is not below ``reach``, ``most`` steps or fewer."""
    magnitude = 10.0 ** np.floor(np.log10(reach / most))
    step = next(float(magnitude * n) for n in (1, 2, 5, 10) if magnitude * n * most >= reach)
    return [step * i for i in range(int(np.ceil(reach / step)) + 1)]


def _areas(image: Image, days: Floats, stacks: Floats, ticks: Sequence[float], last_day: float) -> None:
    top, bottom, left, right = PLOT
    height = bottom - top
    share = _over(days, stacks, right - left, last_day) / ticks[-1]
    edges = (height - np.rint(share * height)).astype(np.int16)
    rows = np.arange(height, dtype=np.int16)[:, None]
    # How many stacks reach a pixel tells which part it belongs to.
    reached = np.zeros((height, right - left), dtype=np.uint8)
    within = reached[:, : edges.shape[1]]
    for edge in edges:
        within += rows >= edge
    within[_line(rows, edges[-1])] = len(BANDS) + 1
    for tick in ticks:
        line = reached[height - 1 - round((height - 1) * tick / ticks[-1])]
        line[line == 0] = len(BANDS) + 2
    # By channel, because gathering triples of bytes takes three times as long.
    for channel in range(3):
        image[top:bottom, left:right, channel] = PALETTE[:, channel][reached]


def _over(days: Floats, values: Floats, columns: int, last_day: float) -> Floats:
    """Values of several lines, shape (k, n), in the columns of an image up to now."""
    place = np.linspace(0.0, last_day, columns)
    place = place[: np.searchsorted(place, days[-1], side="right")]
    return np.array([np.interp(place, days, line) for line in values])


def _line(rows: Shorts, height: Shorts) -> Mask:
    """Pixels of a line two rows thick through the heights of all columns, steps joined."""
    before = np.concatenate([height[:1], height[:-1]])
    pixels: Mask = (rows >= np.minimum(height, before) - 1) & (rows <= np.maximum(height, before))
    return pixels


# --- the panels


def _orders(image: Image, packet: Mapping[str, Any]) -> None:
    for names, left, right in ((OPEN, 26, 316), (ENDED, 334, 632)):
        counts = [packet["orders"]["totals"][name] for name in names]
        write_right(image, f"{sum(counts):,}", 380, right, INK)
        start, end = left + 132, right - 66
        for row, (count, (_, colour)) in enumerate(zip(counts, names.values(), strict=True)):
            y = 402 + 18 * row
            fill(image, y + 2, y + 12, start, end, GRID)
            if count:
                # Shares of the group: a bar of some length for anything that is there at all.
                length = max(2, round((end - start) * count / max(counts)))
                fill(image, y + 2, y + 12, start, start + length, colour)
            write_right(image, f"{count:,}", y, right, INK if count else PALE)
    for row, figure in enumerate(RESULTS.values(), len(OPEN)):
        write_right(image, f"{packet['pnl'][figure]:,.2f}", 402 + 18 * row, 316, INK)


def _rating(image: Image, shop: Mapping[str, Any], past: Past, last_day: float) -> None:
    shape = star(26)
    for i in range(5):
        region = image[91:117, 670 + 30 * i : 696 + 30 * i]
        region[shape] = GOLD if i < shop["stars"] else EDGE
    write_right(image, f"{shop['score']:.2f}", 94, 934, INK, 3)
    write(image, f"demand ×{shop['demand_multiplier']:.2f}", 130, 670, FAINT)
    write_right(image, f"{shop['rated_orders']:,} rated", 130, 934, FAINT)
    top, bottom, left, right = SPARK
    fill(image, top, bottom, left, right, GRID)
    share = (_over(past.days, past.rating[None], right - left, last_day)[0] - 1.0) / 4.0
    height = (bottom - 1 - np.rint(share * (bottom - top - 2))).astype(np.int16)
    rows = np.arange(top, bottom, dtype=np.int16)[:, None]
    region = image[top:bottom, left : left + len(height)]
    region[rows > height] = LIGHT
    region[_line(rows, height)] = GOLD


def _shelf(image: Image, supply: Mapping[str, Any]) -> None:
    active, most = supply["listings"]["active"], supply["listings"]["max"]
    write_right(image, f"{active:,} of {most:,}", 214, 934, INK)
    fill(image, 236, 246, 670, 934, GRID)
    fill(image, 236, 246, 670, 670 + round(264 * active / most), BANDS["balance"])
    for row, (name, label) in enumerate(RISKS.items()):
        count, new, y = supply["current_risks"][name], supply["new_risks"][name], 256 + 20 * row
        _count(image, f"{label} (+{new})" if new else label, count, y, BAD)


def _events(image: Image, packet: Mapping[str, Any]) -> None:
    write(image, f"Events since {packet['time']['since']['from']}", 360, 670, INK)
    for row, (name, (label, colour)) in enumerate(EVENTS.items()):
        _count(image, label, packet["supply"]["events"][name], 383 + 18 * row, colour)


def _count(image: Image, label: str, count: int, y: int, colour: Colour) -> None:
    """A row of the right-hand panels: a mark, a label and a number, pale if there is none."""
    fill(image, y + 3, y + 11, 670, 678, colour if count else GRID)
    write(image, label, y, 688, INK if count else PALE)
    write_right(image, f"{count:,}", y, 934, INK if count else PALE)
