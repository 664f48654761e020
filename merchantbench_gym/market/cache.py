"""The one bounded cache of what worlds of a process share: catalogs, supplier timelines and arrivals."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

CAPACITY = 300_000
"""Largest total weight kept; the weight of an entry is its number of products. It holds catalog, timelines
and arrivals of 100 markets of the default size or of one with 100,000 products: about 180 MB, and up to 4 MB
more for each merchant of a market who was played."""


class SharedCache:
    """Least-recently-used cache bounded by the total weight of its entries."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, build: Callable[[], Any], weight: int) -> Any:
        """Returns the entry of a key, building it if it is absent.

        Args:
            key: Everything the entry depends on.
            build: Makes the entry.
            weight: Its weight; the entry just asked for is kept however heavy it is.

        Returns:
            The entry.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        # Built outside the lock: an entry may need others.
        value = build()
        with self._lock:
            if key in self._entries:  # another thread was faster
                return self._entries[key][0]
            self._entries[key] = (value, weight)
            self._weight += weight
            while self._weight > self.capacity and len(self._entries) > 1:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._weight -= dropped
        return value

    def clear(self) -> None:
        """Drops every entry; worlds keep what they hold."""
        with self._lock:
            self._entries.clear()
            self._weight = 0


SHARED = SharedCache(CAPACITY)


def clear_caches() -> None:
    """Drops what worlds of this process share, so that the next world is built from nothing."""
    SHARED.clear()
