"""HTML built from parts: whatever is not markup made here is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# Controls that no page may hold, lone surrogates that UTF-8 cannot hold, and marks that would turn the
# direction of the text after them.
_UNFIT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_VOID = frozenset({"meta", "br", "path", "line", "polyline", "rect", "col"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as text of a page; markup stays as it is."""
    if isinstance(value, Html):
        return value
    # Quotes end nothing outside of attributes, and JSON is full of them.
    return Html(html.escape(_fit(value), quote=False))


def _fit(value: object) -> str:
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", str(value))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element.

    Args:
        name: Its name.
        *children: Its content; None is left out, what is not markup is escaped.
        **attributes: Its attributes; underscores at the end go, others become hyphens, None is left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{html.escape(_fit(value))}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID and not children:
        return Html(opening if name in ("meta", "br", "col") else f"{opening[:-1]}/>")
    return Html(f"{opening}{join(children)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other; None is left out."""
    return Html(between.join(text(part) for part in parts if part is not None))


def table(caption: str, head: Sequence[object], rows: Iterable[Sequence[object]], *, words: int = 1) -> Html:
    """A table whose first row and first column are headers, in a box that scrolls on its own.

    Args:
        caption: What it shows.
        head: Heads of the columns.
        rows: Rows; the first cell of each is its header.
        words: Number of columns from the left that hold words; the others hold figures.
    """

    def kind(column: int) -> str | None:
        return None if column < words else "n"

    top = tag("tr", *(tag("th", cell, scope="col", class_=kind(i)) for i, cell in enumerate(head)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind(i)) for i, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def fold(summary: object, *content: object, **attributes: object) -> Html:
    """Content that opens on demand."""
    return tag("details", tag("summary", summary), *content, **attributes)


def cut(value: str, most: int) -> Html:
    """A text, cut with a note if it is longer than that many characters."""
    if len(value) <= most:
        return text(value)
    return join([value[:most], tag("i", f" … {len(value) - most:,} more characters")])


def money(cents: float | None) -> str:
    """An amount for reading."""
    return "–" if cents is None else f"{cents / 100:,.2f}"


def change(cents: float | None) -> str:
    """A change of an amount for reading."""
    return "–" if cents is None else f"{cents / 100:+,.2f}"


def number(value: float | None, digits: int = 0) -> str:
    """A number for reading."""
    return "–" if value is None else f"{value:,.{digits}f}"
