"""A small cache of values that cost more to make than to keep."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class Recent:
    """The values used last, by key: a cache that never grows beyond its capacity."""

    def __init__(self, capacity: int, weigh: Callable[[Any], int] = lambda value: 1) -> None:
        """Make an empty cache.

        Args:
            capacity: Greatest weight of all values together; the value used last is kept whatever it weighs.
            weigh: Gives the weight of a value; without it, values are counted.
        """
        self._capacity = capacity
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of values kept."""
        return len(self._values)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The value of a key, built if it is not there.

        Args:
            key: Everything the value depends on.
            build: Makes the value.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                found: T = self._values[key]
                return found
        # Built outside the lock: a value may need others of the same cache.
        value = build()
        with self._lock:
            if key not in self._values:  # nobody else was faster
                self._values[key] = value
                self._weight += self._weigh(value)
            while self._weight > self._capacity and len(self._values) > 1:
                self._weight -= self._weigh(self._values.popitem(last=False)[1])
        return value
