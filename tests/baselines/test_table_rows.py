"""Rows read by their text are those that parsing the whole table gives."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.baselines.table_rows import RowReader, as_tuple

COLUMNS = ("product_id", "name", "price", "available", "risks", "age", "orders")
CELLS = st.tuples(
    st.integers(0, 200_000).map("P{:05d}".format),
    # Names that look like the structure around them.
    st.lists(st.sampled_from(['"', "],", "[", '],["P', "\\", ",", ']],"count":', "瓶", "a"])).map("".join),
    st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False)),
    st.booleans(),
    st.lists(st.sampled_from(["timeout_risk", "P"]), max_size=3),
    st.floats(0, 1e4),
    st.integers(0, 99),
).map(list)
TABLES = st.lists(CELLS, max_size=6)


def text_of(rows: list[list[Any]], columns: tuple[str, ...] = COLUMNS, separators: Any = (",", ":")) -> str:
    table = {"columns": list(columns), "rows": rows, "count": len(rows)}
    body = {"ok": True, "query": '"items":{"columns":["x"]', "items": table}
    return json.dumps(body, ensure_ascii=False, separators=separators)


@given(st.lists(TABLES, min_size=1, max_size=4), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_values_are_those_of_the_parsed_table(tables: list[list[list[Any]]], separators: Any) -> None:
    whole = RowReader("items", ("orders", "product_id", "risks", "name"), as_tuple)
    cut = RowReader("items", ("product_id", "available", "price"), as_tuple, ignored=2)
    for rows in tables:
        text = text_of(rows, separators=separators)
        assert whole.values(text) == [(row[6], row[0], row[4], row[1]) for row in rows]
        assert cut.values(text) == [(row[0], row[3], row[2]) for row in rows]


def test_a_row_is_parsed_once_whatever_its_ignored_figures_are() -> None:
    read: list[tuple[Any, ...]] = []

    def note(*cells: Any) -> int:
        read.append(cells)
        return len(read)

    reader = RowReader("items", ("product_id", "price"), note, ignored=2)
    for age in range(3):
        reader.values(text_of([["P00001", "a, b", 1.5, True, [], age, 7]]))
    assert read == [("P00001", 1.5)]


def test_other_columns_are_found_where_they_stand() -> None:
    reader = RowReader("items", ("product_id", "price"), as_tuple)
    assert reader.values(text_of([["P00001", 3, 4]], ("product_id", "age", "price"))) == [("P00001", 4)]
    assert reader.values(text_of([["P00001", 3, 4]], ("product_id", "price", "age"))) == [("P00001", 3)]
