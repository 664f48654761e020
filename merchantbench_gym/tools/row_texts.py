"""Rows of tables as text that is written once for as long as the figures in it stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEPT_ROWS = 16_384


class RowTexts:
    """JSON text by product, made of figures and kept with them.

    A text is good for as long as its figures are the same, whatever happened to the market in between: it
    may be shared by worlds and never has to be dropped when one of them changes.
    """

    __slots__ = ("_kept", "_write")

    def __init__(self, write: Callable[..., str]) -> None:
        """Make an empty memory.

        Args:
            write: Makes the text from a product and its figures, of which it must be a pure function. A
                figure must always be of the same type, for 1, 1.0 and true are the same figure.
        """
        self._write = write
        self._kept: dict[int, tuple[tuple[Any, ...], str]] = {}

    def texts(self, products: Sequence[int], figures: Iterable[tuple[Any, ...]]) -> list[str]:
        """Texts of products.

        Args:
            products: Product indices.
            figures: Figures of each of them now.
        """
        kept = self._kept
        if len(kept) > KEPT_ROWS:
            kept.clear()
        texts = []
        for product, now in zip(products, figures, strict=True):
            found = kept.get(product)
            if found is None or found[0] != now:
                found = kept[product] = now, self._write(product, *now)
            texts.append(found[1])
        return texts
