"""Text search and ordering over the products of a catalog.

Text is cut into words and CJK runs, and those terms are ranked by SQLite's FTS5. The index covers the whole
catalog whatever is on offer, so a score depends neither on time nor on merchants. It is built at the first
query with words, kept with the catalog, shared by all worlds of the process and never copied.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import unicodedata
import weakref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merchantbench_gym.tools.view import PublicCatalog

IntArray = npt.NDArray[np.int64]

MAX_QUERY_TERMS = 32
SCORE_DIGITS = 9
KEPT_PRODUCTS = 500_000
"""Products that kept answers of one catalog may hold together, 8 bytes each; a large catalog keeps more."""
# Han (with extensions and compatibility forms), Hiragana, Katakana.
_CJK = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUNS = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")
_ASCII_WORDS = re.compile(r"[a-z0-9]+")


def runs(text: str) -> list[tuple[str, bool]]:
    """Cut a text into its runs.

    Args:
        text: Any text.

    Returns:
        The runs in order, normalised (NFKC) and case-folded, each with whether it is a CJK run.
    """
    # Folding can undo the normal form (and the other way round), so normalise on both sides.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return [(match.group(), match.group(1) is not None) for match in _RUNS.finditer(folded)]


def index_terms(text: str) -> list[str]:
    """Terms of an indexed text: each word; each character and each adjacent pair of a CJK run."""
    if text.isascii():
        return _ASCII_WORDS.findall(text.lower())
    terms: list[str] = []
    for run, cjk in runs(text):
        if cjk:
            terms.extend(run)
            terms.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            terms.append(run)
    return terms


def query_terms(text: str) -> list[str]:
    """The first 32 distinct terms of a query: each word; the pairs of a CJK run, or its only character."""
    terms: dict[str, None] = {}
    for run, cjk in runs(text):
        parts = [run[i : i + 2] for i in range(len(run) - 1)] if cjk and len(run) > 1 else [run]
        for part in parts:
            terms.setdefault(part)
    return list(terms)[:MAX_QUERY_TERMS]


def kept_products(size: int) -> int:
    """Most products that kept answers about a catalog of a size hold together.

    An agent repeats some hundreds of queries over a year, and an answer grows with the catalog.
    """
    return max(KEPT_PRODUCTS, 32 * size)


def weight(answer: IntArray) -> int:
    """Weight of a kept answer: its products, and about as much as the rest of the entry takes."""
    return 64 + len(answer)


class TextIndex:
    """Full-text index over rows of texts."""

    def __init__(self, rows: Sequence[tuple[str, str, str, str]]) -> None:
        """Build the index.

        Args:
            rows: Product id, name, category and supplier name of each product, by index.
        """
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._answers = Recent(kept_products(len(rows)), weight)
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        # From Python 3.13 on a database that is dropped open warns. An index may die inside a cycle, where
        # only a reference from outside still finds its database whole.
        weakref.finalize(self, self._database.close)
        self._database.execute(
            "CREATE VIRTUAL TABLE texts USING fts5(product_id, name, category, supplier_name, content='', "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO texts(rowid, product_id, name, category, supplier_name) VALUES (?, ?, ?, ?, ?)",
            ((number, *(" ".join(index_terms(text)) for text in row)) for number, row in enumerate(rows)),
        )
        self._database.execute("COMMIT")

    def matches(self, terms: Sequence[str]) -> IntArray:
        """Products that carry at least one of the terms.

        Args:
            terms: Terms of a query; they never reach the syntax of the search engine.

        Returns:
            Product indices, best score first, equal scores by index; read-only.
        """
        key = tuple(terms)
        return self._answers.get(key, lambda: self._ask(key))

    def _ask(self, terms: tuple[str, ...]) -> IntArray:
        if not terms:
            return np.empty(0, np.int64)
        # Terms hold letters and digits only, so quoting is all they need.
        expression = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            found = self._database.execute(
                "SELECT rowid, bm25(texts, 1.0, 1.0, 0.5, 0.5) FROM texts WHERE texts MATCH ? ORDER BY rowid",
                (expression,),
            ).fetchall()
        products = np.fromiter((row[0] for row in found), np.int64, len(found))
        # FTS5 scores are negative, the best one lowest.
        scores = np.round(np.fromiter((row[1] for row in found), np.float64, len(found)), SCORE_DIGITS)
        best_first: IntArray = products[np.argsort(scores, kind="stable")]
        best_first.flags.writeable = False
        return best_first


def text_index(catalog: PublicCatalog) -> TextIndex:
    """The index of a catalog, built at the first call in a process: a database does not survive a fork."""
    kept = catalog.kept.get("text_index")
    if isinstance(kept, TextIndex) and kept.process == os.getpid():
        return kept
    rows = [
        (catalog.product_id(i), name, catalog.categories[c], catalog.supplier_name(s))
        for i, (name, c, s) in enumerate(
            zip(catalog.names, catalog.category.tolist(), catalog.supplier.tolist(), strict=True)
        )
    ]
    index = TextIndex(rows)
    catalog.kept["text_index"] = index
    return index


def page_of(products: IntArray, key: IntArray, start: int, stop: int) -> IntArray:
    """One page of products in ascending order of a key.

    Args:
        products: Product indices, distinct.
        key: Sort key of each product, a non-negative integer; ties are broken by index.
        start: First place of the page.
        stop: Place after its last.

    Returns:
        The indices at places ``start`` to ``stop - 1``, fewer at the end.
    """
    if start >= len(products):
        return products[:0]
    # Key and product in one integer, whose last digits are the product.
    base = int(products.max()) + 1
    combined = key * base + products
    if stop < len(products):
        # Only the head of the order is wanted: cut it off before sorting it.
        combined = np.partition(combined, stop - 1)[:stop]
    combined.sort()
    page: IntArray = combined[start:stop] % base
    return page
