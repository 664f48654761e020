"""Append-only histories that clones share until one of them writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class History(Generic[T]):
    """Append-only sequence; a clone costs O(1), its first append after a divergence copies once."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def append(self, item: T) -> None:
        """Adds an item at the end."""
        items = self._items
        if len(items) != self._length:
            # Another holder of the list has gone on from here: leave it its future.
            items = self._items = items[: self._length]
        items.append(item)
        self._length += 1

    def clone(self) -> History[T]:
        """A history of the same content with a future of its own."""
        other: History[T] = History.__new__(History)
        other._items, other._length = self._items, self._length
        return other

    def go_back(self, length: int) -> None:
        """Returns to an earlier length."""
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> T:
        """Item at an index of 0 ... len - 1."""
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[: self._length])

    def between(self, low: Any, high: Any) -> list[T]:
        """Items of an ascending history from the first not below one value to the last below another."""
        items = self._items
        first = bisect_left(items, low, 0, self._length)
        return items[first : bisect_left(items, high, first, self._length)]

    def since(self, index: int) -> list[T]:
        """Items from an index on, as a fresh list."""
        return self._items[index : self._length]
