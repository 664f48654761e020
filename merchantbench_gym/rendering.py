"""Pictures of a store: text for terminals, and a chart of its money.

They show what the merchant may know and nothing else, and drawing one changes nothing. The chart is drawn
with numpy alone, so that a frame needs no plotting package and is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from merchantbench_gym.tools.view import MerchantView

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]

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


# --- chart ----------------------------------------------------------------------------------------------

SIZE = (400, 720)
PLOT = (56, 352, 72, 704)  # top, bottom, left, right
PAPER: Colour = (250, 249, 246)
GRID: Colour = (222, 220, 214)
INK: Colour = (45, 48, 56)
FAINT: Colour = (128, 130, 136)
BANDS: dict[str, Colour] = {
    "deposit": (69, 96, 128),
    "balance": (64, 145, 131),
    "in_transit": (231, 155, 92),
    "receivable": (240, 205, 120),
}
FIGURES = tuple(BANDS)
"""Figures of a point of the history besides ``t``, from the bottom of the chart to its top."""

# Glyphs three pixels wide and five high: an octal digit per row, a bit per pixel.
GLYPHS = {
    "0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71717, "4": 0o55711, "5": 0o74717, "6": 0o74757,
    "7": 0o71122, "8": 0o75757, "9": 0o75717, "A": 0o25755, "B": 0o65656, "C": 0o34443, "D": 0o65556,
    "E": 0o74647, "F": 0o74644, "G": 0o34553, "H": 0o55755, "I": 0o72227, "J": 0o11152, "K": 0o55655,
    "L": 0o44447, "M": 0o57755, "N": 0o65555, "O": 0o25552, "P": 0o65644, "Q": 0o25573, "R": 0o65655,
    "S": 0o34216, "T": 0o72222, "U": 0o55557, "V": 0o55552, "W": 0o55775, "X": 0o55255, "Y": 0o55222,
    "Z": 0o71247, ".": 0o00002, ",": 0o00024, "-": 0o00700, "+": 0o02720, "/": 0o11244, ":": 0o02020,
}  # fmt: skip


def chart(history: Sequence[Mapping[str, float]], horizon_days: int, title: str) -> Image:
    """What the store owned over the run, as areas stacked to its net assets.

    Args:
        history: Points in time order, at least one: ``t`` (hours) and :data:`FIGURES` (currency units).
        horizon_days: Days of the run.
        title: Headline; shown in capitals.

    Returns:
        RGB image, uint8, shape (400, 720, 3).
    """
    image = np.empty((*SIZE, 3), dtype=np.uint8)
    image[:] = PAPER
    days = np.array([point["t"] for point in history]) / 24
    stacks = np.cumsum([[point[name] for point in history] for name in FIGURES], axis=0)
    last_day = max(float(horizon_days), float(days[-1]))
    money_ticks, day_ticks = _ticks(float(stacks.max(initial=1.0)), 5), _ticks(last_day, 8)
    _axes(image, money_ticks, [tick for tick in day_ticks if tick <= last_day], last_day)
    _areas(image, days, stacks, money_ticks[-1], last_day)
    _write(image, title, 14, 16, INK, 3)
    _legend(image)
    return image


def _ticks(reach: float, most: int) -> list[float]:
    """Round values from 0 up to the first one that is not below ``reach``, ``most`` steps or fewer."""
    magnitude = 10.0 ** np.floor(np.log10(reach / most))
    step = next(float(magnitude * n) for n in (1, 2, 5, 10) if magnitude * n * most >= reach)
    return [step * i for i in range(int(np.ceil(reach / step)) + 1)]


def _axes(image: Image, money_ticks: Sequence[float], day_ticks: Sequence[float], last_day: float) -> None:
    top, bottom, left, right = PLOT
    for tick in money_ticks:
        y = bottom - round((bottom - top) * tick / money_ticks[-1])
        image[y, left:right] = GRID
        label = f"{tick:,.0f}"
        _write(image, label, y - 5, left - 8 - _width(label, 2), FAINT, 2)
    for tick in day_ticks:
        x = left + round((right - 1 - left) * tick / last_day)
        image[bottom : bottom + 4, x] = FAINT
        label = f"{tick:.0f}"
        _write(image, label, bottom + 8, x - _width(label, 2) // 2, FAINT, 2)


def _areas(
    image: Image, days: NDArray[np.float64], stacks: NDArray[np.float64], reach: float, last_day: float
) -> None:
    top, bottom, left, right = PLOT
    place = np.linspace(0.0, last_day, right - left)
    width = int(np.searchsorted(place, days[-1], side="right"))
    rows = np.arange(top, bottom)[:, None]
    plot = image[top:bottom, left : left + width]
    below = np.full(width, bottom)
    for stack, colour in zip(stacks, BANDS.values(), strict=True):
        share = np.interp(place[:width], days, stack) / reach
        edge = bottom - np.rint(share * (bottom - top)).astype(np.int64)
        plot[(rows >= edge) & (rows < below)] = colour
        below = edge
    before = np.concatenate([below[:1], below[:-1]])
    plot[(rows >= np.minimum(below, before) - 1) & (rows <= np.maximum(below, before))] = INK


def _legend(image: Image) -> None:
    x, y = PLOT[2], SIZE[0] - 18
    for name, colour in BANDS.items():
        label = name.replace("_", " ")
        image[y : y + 10, x : x + 10] = colour
        _write(image, label, y, x + 16, INK, 2)
        x += 16 + _width(label, 2) + 24
    label = "day"
    _write(image, label, y, PLOT[3] - _width(label, 2), FAINT, 2)


def _width(text: str, scale: int) -> int:
    return (4 * len(text) - 1) * scale


def _write(image: Image, text: str, top: int, left: int, colour: Colour, scale: int) -> None:
    """Draw a text; characters without a glyph are blank, what lies outside the image is cut."""
    canvas = np.zeros((5, 4 * len(text)), dtype=bool)
    for place, character in enumerate(text.upper()):
        glyph = GLYPHS.get(character, 0)
        for row in range(5):
            for column in range(3):
                canvas[row, 4 * place + column] = glyph >> (14 - 3 * row - column) & 1
    large = canvas.repeat(scale, axis=0).repeat(scale, axis=1)
    region = image[top : top + large.shape[0], left : left + large.shape[1]]
    region[large[: region.shape[0], : region.shape[1]]] = colour
