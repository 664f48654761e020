"""Rows read by their text are those that parsing the whole table gives."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.baselines.table_rows import RowReader, as_tuple

COLUMNS = ("product_id", "name", "price", "risks", "available", "age", "orders")
CELLS = st.tuples(
    st.integers(0, 200_000).map("P{:05d}".format),
    # Names that look like the structure around them.
    st.lists(
        st.sampled_from(['"', "],", "[", '],["P', "\\", ",", ']],"count":', "true,", "瓶", "a", "e"])
    ).map("".join),
    st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False)),
    st.lists(st.sampled_from(["timeout_risk", "P", "true,"]), max_size=3),
    st.booleans(),
    st.floats(0, 1e4),
    st.integers(0, 99),
).map(list)
TABLES = st.lists(CELLS, max_size=6)
COMPACT = (",", ":")


def text_of(rows: list[list[Any]], columns: tuple[str, ...] = COLUMNS, separators: Any = COMPACT) -> str:
    table = {"columns": list(columns), "rows": rows, "count": len(rows)}
    body = {"ok": True, "query": '"items":{"columns":["x"]', "items": table}
    return json.dumps(body, ensure_ascii=False, separators=separators)


@given(st.lists(TABLES, min_size=1, max_size=5), st.sampled_from([COMPACT, (", ", ": ")]))
def test_values_are_those_of_the_parsed_table(tables: list[list[list[Any]]], separators: Any) -> None:
    whole = RowReader("items", ("orders", "product_id", "risks", "name"), as_tuple)
    cut = RowReader("items", ("product_id", "price", "available"), as_tuple, flag_last=True)
    texts = [text_of(rows, separators=separators) for rows in tables]
    rows = [row for table in tables for row in table]
    for _ in range(2):
        assert whole.values(texts) == [(row[6], row[0], row[3], row[1]) for row in rows]
        assert cut.values(texts) == [(row[0], row[2], row[4]) for row in rows]


@given(TABLES, TABLES)
def test_what_stands_around_the_table_is_not_read(before: list[list[Any]], rows: list[list[Any]]) -> None:
    reader = RowReader("items", ("product_id", "name"), as_tuple)
    expected = [(row[0], row[1]) for row in rows]
    other = {"columns": list(COLUMNS), "rows": before, "count": len(before)}
    table = {"columns": list(COLUMNS), "rows": rows, "count": len(rows)}
    for body in ({"items": table}, {"other": other, "items": table}, {"items": table, "note": "a"}):
        text = json.dumps(body, ensure_ascii=False, separators=COMPACT)
        assert reader.values([text]) == list(reader.each(text)) == expected


def test_a_row_is_parsed_once_whatever_the_figures_behind_the_flag_are() -> None:
    read: list[tuple[Any, ...]] = []

    def note(*cells: Any) -> int:
        read.append(cells)
        return len(read)

    reader = RowReader("items", ("product_id", "available"), note, flag_last=True)
    reader.values([text_of([["P00002", "", 1.5, [], False, 0, 7]])])  # tells the columns
    for age in range(3):
        reader.values([text_of([["P00001", "a, b", 1.5, [], True, age, 7]])])
    assert read == [("P00002", False), ("P00001", True)]


def test_other_columns_are_found_where_they_stand() -> None:
    reader = RowReader("items", ("product_id", "price"), as_tuple)
    row = ["P00001", 3, 4]
    for _ in range(2):
        assert reader.values([text_of([row], ("product_id", "age", "price"))] * 2) == [("P00001", 4)] * 2
        assert reader.values([text_of([row], ("product_id", "price", "age"))] * 2) == [("P00001", 3)] * 2
