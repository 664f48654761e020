"""Reading tables of tool results row by row, each distinct row once.

Most rows of a table are, letter by letter, those of the window before: suppliers change few figures in half a
day. So a row is looked up by its text, and only a text not met before is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_decode = json.JSONDecoder().raw_decode

REMEMBERED = 8192  # rows

# Within a text JSON escapes quotation marks, so these can only be structure. Rows begin with a product id.
_NEXT, _END = '],["P', ']],"count":'


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
        table: Key of the table in its result; no other table may follow it there.
        columns: Names of the columns that are used, at least two; the first one of the table is the product
            id.
        read: Makes the value of a row from its cells in these columns and nothing else.
        flag_last: Whether the last of these columns is a boolean and only plain numbers follow it. They are
            cut off, so that a row counts as known although they have changed.
    """

    def __init__(
        self, table: str, columns: tuple[str, ...], read: Callable[..., T], *, flag_last: bool = False
    ) -> None:
        self._table = table
        self._start = f'"{table}":{{'
        self._columns = columns
        self._read = read
        self._flag_last = flag_last
        self._known = _Known(self._value)
        self._follow([])

    def values(self, texts: Iterable[str]) -> list[T]:
        """Values of the rows of tables, in their order.

        Args:
            texts: Successful results that have the table.
        """
        found: list[T] = []
        for text in texts:
            found += self.each(text)
        return found

    def each(self, text: str) -> Iterator[T]:
        """As `values` of a single table, but a row is read only when it is asked for."""
        rows = self._rows(text)
        return self._parsed(text) if rows is None else map(self._known.__getitem__, rows)

    def _rows(self, text: str) -> list[str] | None:
        """Texts of the rows as they are remembered; None if the table has another form than the last one."""
        rows = text.split(_NEXT)
        start = rows[0].find(self._start)
        if start < 0 or not rows[0].startswith(self._opening, start):
            return [] if text.endswith(self._empty) else None
        rows[0] = rows[0][start + len(self._opening) :]
        rows[-1], _, rest = rows[-1].partition(_END)
        if rest != f"{len(rows)}}}}}":
            return None
        # Of "true," and "false," the last two characters will do: no number ends like that.
        return [row.rpartition("e,")[0] for row in rows] if self._flag_last else rows

    def _value(self, row: str) -> T:
        return self._read(*self._cells(_decode(f'["P{row}e]' if self._flag_last else f'["P{row}]')[0]))

    def _parsed(self, text: str) -> Iterator[T]:
        table = json.loads(text)[self._table]
        if table["columns"] != self._layout:
            self._follow(table["columns"])
        for row in table["rows"]:
            yield self._read(*self._cells(row))

    def _follow(self, layout: list[str]) -> None:
        """Note which columns the tables have; what was read of other ones is forgotten."""
        self._layout = layout
        self._cells = itemgetter(*map(layout.index, self._columns)) if layout else tuple
        self._known.clear()
        columns = json.dumps(layout, ensure_ascii=False, separators=(",", ":"))
        self._opening = f'{self._start}"columns":{columns},"rows":[["P'
        self._empty = f'{self._start}"columns":{columns},"rows":[],"count":0}}}}'
