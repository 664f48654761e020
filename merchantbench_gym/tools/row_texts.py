"""Rows of tables as text that is written once for as long as the figures in it stay."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

IntArray = npt.NDArray[np.int64]

KEPT_ROWS = 16_384
_NEVER = -1  # no figure has this value


class Figures(NamedTuple):
    """Figures of some products as of one hour; never changed once used.

    Attributes:
        products: Product indices, each once.
        columns: An array per figure with one value per product.
    """

    products: IntArray
    columns: tuple[IntArray, ...]


class RowTexts:
    """JSON text by product, made of figures and kept with them.

    A text is good for as long as its figures are the same, whatever happened to the market in between: it
    may be shared by worlds and never has to be dropped when one of them changes.
    """

    def __init__(self, size: int, figures: int, write: Callable[..., str]) -> None:
        """Make an empty memory.

        Args:
            size: Number of products.
            figures: Number of figures.
            write: Makes the text from a product and its figures, of which it must be a pure function.
        """
        self._write = write
        self._figures: IntArray = np.full((figures, size), _NEVER)
        self._texts: npt.NDArray[Any] = np.full(size, None)
        self._written = 0
        self._followed: Figures | None = None
        self._lock = threading.Lock()

    def texts(self, chosen: IntArray, now: Figures) -> list[str]:
        """Texts of products.

        Args:
            chosen: Product indices.
            now: Figures now of these products, and of any others. The searches of an hour find their rows
                among the same products, so figures are compared only if they are not those used last.
        """
        with self._lock:
            if now is not self._followed:
                self._follow(now)
            texts: list[str] = self._texts[chosen].tolist()
            if None in texts:
                for place, product in enumerate(chosen.tolist()):
                    if texts[place] is None:
                        texts[place] = self._texts[product] = self._write(
                            product, *self._figures[:, product].tolist()
                        )
                        self._written += 1
            return texts

    def _follow(self, now: Figures) -> None:
        """Take in figures, and forget the texts of products that have others now."""
        figures = np.array(now.columns)
        changed = (self._figures.take(now.products, axis=1) != figures).any(axis=0).nonzero()[0]
        products = now.products[changed]
        self._texts[products] = None
        self._figures[:, products] = figures[:, changed]
        if self._written > KEPT_ROWS:
            self._texts[:], self._written = None, 0
        self._followed = now
