"""Reading tables of tool results row by row, each distinct row once.

Most rows of a table are, letter by letter, those of the window before: suppliers change few figures in half a
day. So a row is looked up by its text, and only a text not met before is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_decode = json.JSONDecoder().raw_decode

REMEMBERED = 8192  # rows

# Within a text JSON escapes quotation marks, so these can only be structure. Rows begin with a product id.
_ROWS, _NEXT, _END = '],"rows":[["P', '],["P', ']],"count":'


def as_tuple(*cells: Any) -> tuple[Any, ...]:
    """The cells as they are."""
    return cells


class _Known(dict[str, T]):
    """Values by the text of their row; one that is not known is made."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make

    def __missing__(self, row: str) -> T:
        if len(self) >= REMEMBERED:
            self.clear()
        value = self[row] = self._make(row)
        return value


class RowReader(Generic[T]):
    """Makes values of the rows of one kind of table and remembers them by the text of the row.

    Args:
        table: Key of the table in its result.
        columns: Names of the columns that are used, at least two; the first one of the table is the product
            id.
        read: Makes the value of a row from its cells in these columns and nothing else.
        ignored: Number of columns at the end of a row that hold unused plain numbers. They are cut off, so
            that a row counts as known although they have changed.
    """

    def __init__(
        self, table: str, columns: tuple[str, ...], read: Callable[..., T], *, ignored: int = 0
    ) -> None:
        self._table = table
        self._start = f'"{table}":{{"columns":['
        self._columns = columns
        self._read = read
        self._ignored = ignored
        self._layout = ""
        self._cells: Callable[[Any], tuple[Any, ...]] = tuple
        self._known = _Known(self._value)

    def values(self, text: str) -> list[T]:
        """Values of the rows of a table, in their order.

        Args:
            text: A successful result that has the table.
        """
        return list(self.each(text))

    def each(self, text: str) -> Iterator[T]:
        """As `values`, but a row is read only when it is asked for."""
        rows = self._rows(text)
        return self._parsed(text) if rows is None else map(self._known.__getitem__, rows)

    def _rows(self, text: str) -> list[str] | None:
        """Texts of the rows as they are remembered; None if the table is empty or in an unusual form."""
        head = text.find(self._start)
        first = text.find(_ROWS, head)
        if head < 0 or first < 0:
            return None
        self._follow(text[head + len(self._start) - 1 : first + 1])
        rows = text[first + len(_ROWS) : text.find(_END, first)].split(_NEXT)
        return [row.rsplit(",", self._ignored)[0] for row in rows] if self._ignored else rows

    def _value(self, row: str) -> T:
        return self._read(*self._cells(_decode(f'["P{row}]')[0]))

    def _follow(self, layout: str) -> None:
        """Note which columns the table has; what was read of other ones is forgotten."""
        if layout != self._layout:
            self._layout = layout
            self._cells = itemgetter(*map(json.loads(layout).index, self._columns))
            self._known.clear()

    def _parsed(self, text: str) -> Iterator[T]:
        table = json.loads(text)[self._table]
        cells = itemgetter(*map(table["columns"].index, self._columns))
        for row in table["rows"]:
            yield self._read(*cells(row))
