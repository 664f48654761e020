"""Text search: terms, the index, ranking against a model of it, and page order."""

from __future__ import annotations

import gc
import math
import sqlite3
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.tools.search import (
    TextIndex,
    index_terms,
    kept_products,
    page_of,
    query_terms,
    text_index,
)
from merchantbench_gym.tools.view import public_catalog

ROWS = [
    ("P00000", "Wireless Earbuds Black", "office", "Supplier 0001"),
    ("P00001", "Earbud Case", "bags", "Supplier 0002"),
    ("P00002", "Café Chair 2-Pack", "home_decor", "Supplier 0003"),
    ("P00003", "LED 台灯 护眼", "office", "Supplier 0004"),
    ("P00004", "灯笼 Lantern", "toys", "Supplier 0005"),
    ("P00005", "ＵＳＢ Hub", "office", "Supplier 0001"),
    ("P00006", "ひらがな カタカナ", "toys", "Supplier 0006"),
]


def found(index: TextIndex, query: str) -> list[int]:
    products: list[int] = index.matches(query_terms(query)).tolist()
    return products


@pytest.fixture(scope="module")
def index() -> TextIndex:
    return TextIndex(ROWS)


def test_words_and_runs_are_cut() -> None:
    assert index_terms("Desk-Lamp 2-Pack") == ["desk", "lamp", "2", "pack"]
    assert index_terms("LED台灯护眼") == ["led", "台", "灯", "护", "眼", "台灯", "灯护", "护眼"]
    assert query_terms("LED台灯护眼") == ["led", "台灯", "灯护", "护眼"]
    assert query_terms("灯") == ["灯"]
    assert query_terms("Straße STRASSE") == ["strasse"]
    assert query_terms("ｱｲ") == ["アイ"]
    assert query_terms("a_b") == ["a", "b"]


def test_the_first_32_distinct_terms_count() -> None:
    words = [f"w{i}" for i in range(40)]
    assert query_terms(" ".join([*words[:5], *words])) == words[:32]


def test_inflected_and_accented_words_meet(index: TextIndex) -> None:
    assert set(found(index, "earbud")) == set(found(index, "earbuds")) == {0, 1}
    assert found(index, "cafe") == found(index, "CAFÉ") == [2]
    assert found(index, "usb") == [5]


def test_cjk_queries(index: TextIndex) -> None:
    assert set(found(index, "灯")) == {3, 4}
    assert found(index, "台灯") == [3]
    assert found(index, "灯笼") == [4]
    assert found(index, "笼灯") == []
    assert found(index, "カナ") == [6]


def test_ids_categories_and_suppliers_are_found(index: TextIndex) -> None:
    assert found(index, "P00004") == [4]
    assert found(index, "toys") == [4, 6]
    assert set(found(index, "0001")) == {0, 5}


@pytest.mark.parametrize("query", ["!?", "", "  ", "🎧", "——", '"', "*", "()"])
def test_a_query_without_terms_finds_nothing(index: TextIndex, query: str) -> None:
    assert found(index, query) == []


@pytest.mark.parametrize(
    "query",
    [
        "earbud*",
        "NEAR(earbud case)",
        "name:earbud",
        "earbud NOT case",
        '"earbud',
        "^earbud",
        "-earbud",
        "earbud AND hub",
    ],
)
def test_search_syntax_is_only_words(index: TextIndex, query: str) -> None:
    assert {0, 1} <= set(found(index, query))


@given(st.text(max_size=60))
def test_no_text_breaks_the_search(text: str) -> None:
    assert set(found(TextIndex(ROWS[:3]), text)) <= {0, 1, 2}


def bm25(rows: list[tuple[str, str, str, str]], terms: list[str]) -> dict[int, float]:
    """The ranking function written out, for terms that no stemming touches; higher is better."""
    columns = [[index_terms(text) for text in row] for row in rows]
    lengths = [sum(len(column) for column in row) for row in columns]
    mean = sum(lengths) / len(rows)
    scores: dict[int, float] = {}
    for term in terms:
        carriers = [i for i, row in enumerate(columns) if any(term in column for column in row)]
        idf = max(math.log((len(rows) - len(carriers) + 0.5) / (len(carriers) + 0.5)), 1e-6)
        for i in carriers:
            hits = sum(
                weight * Counter(column)[term]
                for weight, column in zip((1.0, 1.0, 0.5, 0.5), columns[i], strict=True)
            )
            scale = 1.2 * (1 - 0.75 + 0.75 * lengths[i] / mean)
            scores[i] = scores.get(i, 0.0) + idf * hits * 2.2 / (hits + scale)
    return scores


def test_ranking_follows_the_weighted_formula() -> None:
    nouns = ["box", "mug", "desk", "sofa", "toy"]
    rows = [
        (
            f"P{i:05d}",
            " ".join(nouns[(i * k) % 5] for k in range(1, 2 + i % 4)),
            nouns[i % 5],
            f"Supplier {i % 7:04d}",
        )
        for i in range(60)
    ]
    index = TextIndex(rows)
    for query in ("box", "mug desk", "sofa 0003", "toy box mug"):
        scores = bm25(rows, query_terms(query))
        assert found(index, query) == sorted(scores, key=lambda i: (-round(scores[i], 9), i))


def test_answers_are_the_same_from_memory(index: TextIndex) -> None:
    first = found(index, "supplier earbud")
    for number in range(50):
        found(index, f"word{number}")
    assert found(index, "supplier earbud") == first


def test_a_dropped_index_closes_its_database() -> None:
    index = TextIndex(ROWS)
    index.itself = index  # type: ignore[attr-defined]
    database = index._database
    del index
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_one_index_per_catalog_and_process() -> None:
    scenario = load_scenario("smoke")
    one, two = World(scenario, 5), World(scenario, 5)
    catalog = public_catalog(one.catalog)
    assert catalog is public_catalog(two.catalog)
    index = text_index(catalog)
    assert text_index(catalog) is index
    assert public_catalog(World(scenario, 6).catalog) is not catalog
    before = found(index, "box lamp")
    # What a forked process finds: an index of another process, which it must not use.
    index.process = -1
    other = text_index(catalog)
    assert other is not index
    assert found(other, "box lamp") == before


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 30), st.integers(1, 20))
def test_pages_are_slices_of_the_sorted_whole(keys: list[int], start: int, size: int) -> None:
    products = np.arange(len(keys), dtype=np.int64) * 3
    key = np.array(keys, dtype=np.int64)
    whole = products[np.lexsort((products, key))].tolist()
    assert page_of(products, key, start, start + size).tolist() == whole[start : start + size]


def test_a_large_catalog_keeps_as_many_answers_as_a_small_one() -> None:
    """An answer grows with the catalog, so a fixed bound would throw answers out before they are repeated."""
    for size in (1_000, 10_000, 100_000):
        assert kept_products(size) // max(1, size // 20) >= 600
