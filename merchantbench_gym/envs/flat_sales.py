"""Orders and fines by product, kept up as the clock runs instead of counted anew in every window."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from merchantbench_gym.tools.shelf import fine_of_status

if TYPE_CHECKING:
    import numpy.typing as npt

    from merchantbench_gym.scenario import Scenario
    from merchantbench_gym.tools.view import MerchantView

PROCURED, FINES, OPEN, LAST = range(4)

ENDS = frozenset(
    ("cancelled", "settled_normal", "settled_refund", "settled_only_refund", "settled_bad_review")
)
"""Statuses in which a procured order ends."""


class Sales:
    """Figures of a merchant's own orders, as the shelf tools count them.

    Attributes:
        figures: Shape (4, products): procured orders and fines in cents of the last hours, open orders, hour
            of the last procured order (-1 before the first).
    """

    def __init__(self, view: MerchantView, scenario: Scenario, hours: int) -> None:
        """Count from the start of the run.

        Args:
            view: The merchant's view.
            scenario: The scenario.
            hours: Hours that orders and fines cover, the current one included.
        """
        self.figures: npt.NDArray[np.int64] = np.zeros((4, view.catalog.size), dtype=np.int64)
        self.figures[LAST] = -1
        self._fine_of = fine_of_status(scenario)
        self._hours = hours
        self._now = -1
        # What is to be taken back once it is too old: hour, figure, product, amount.
        self._recent: deque[tuple[int, int, int, int]] = deque()
        self._shared = False
        self.follow(view)

    def copy(self) -> Sales:
        """An independent copy; large arrays are shared until one of both goes on."""
        twin = object.__new__(Sales)
        self._shared = True
        twin.__dict__.update(self.__dict__)
        twin._recent = self._recent.copy()
        return twin

    def follow(self, view: MerchantView) -> None:
        """Take in what has happened since the last time.

        Args:
            view: View of the same merchant in the same run, at this hour or a later one.
        """
        if view.now == self._now:
            return
        if self._shared:
            self.figures, self._shared = self.figures.copy(), False
        figures, recent, fine_of = self.figures, self._recent, self._fine_of
        steps = view.transitions(self._now, view.now)
        products = view.order_products([number for _, number, _ in steps])
        for product, (t, _, status) in zip(products, steps, strict=True):
            if status == "ordered":
                figures[PROCURED, product] += 1
                figures[OPEN, product] += 1
                figures[LAST, product] = t
                recent.append((t, PROCURED, product, 1))
            elif status in ENDS:
                figures[OPEN, product] -= 1
            if status in fine_of:
                figures[FINES, product] += fine_of[status]
                recent.append((t, FINES, product, fine_of[status]))
        oldest = view.now - self._hours
        while recent and recent[0][0] <= oldest:
            _, figure, product, amount = recent.popleft()
            figures[figure, product] -= amount
        self._now = view.now
