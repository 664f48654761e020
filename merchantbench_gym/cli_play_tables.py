"""Results of tools and the state of a store, drawn for a player with rich."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GOOD, BAD, DIM = "green", "red", "dim"

HEADINGS = {
    "product_id": "product",
    "supplier_id": "supplier",
    "order_id": "order",
    "quantity": "stock",
    "supplier_stock": "stock",
    "price": "buy at",
    "supplier_price": "buy at",
    "purchase_price": "buy at",
    "sale_price": "sell at",
    "supplier_ship_hours": "ship h",
    "logistics_hours": "travel h",
    "supplier_logistics_hours": "travel h",
    "historical_avg_rating": "rating",
    "shop_rating": "supplier rating",
    "supplier_available": "on offer",
    "listing_age_days": "age d",
    "procured_orders": "orders",
    "cum_gross_profit": "gross profit",
    "cum_net_profit": "net profit",
    "cum_fine": "fines",
    "current_status": "status",
    "previous_status": "before",
    "status_age_hours": "for h",
    "expected_delivery_time": "expected",
    "total_penalty": "fines",
    "profit_finalized": "final",
    "current_sale_price": "sell at",
    "current_supplier_price": "buy at",
    "current_gross_margin_rate": "margin",
    "late_count": "late",
    "stockout_count": "stockout",
    "insufficient_balance_count": "unpaid",
    "refund_count": "refund",
    "only_refund_count": "refund only",
    "bad_review_count": "bad review",
}
# Dropped from the left until a table fits the screen.
DROPPED = (
    *("supplier_name", "product_name", "supplier_age_years", "realized_cost", "realized_revenue"),
    *("listing_rating", "supplier_id", "day_from", "day_to", "logistics_hours", "supplier_logistics_hours"),
    *("category", "delivered_time", "profit_finalized", "status_age_hours", "cum_gross_profit"),
    *("listing_age_days", "fees"),
    *("supplier_ship_hours", "insufficient_balance_count", "only_refund_count", "bad_review_count"),
    *("refund_count", "stockout_count", "late_count", "gross_profit", "failed_orders", "net_assets"),
    *("previous_status", "supplier_available", "expected_delivery_time", "order_time", "cost"),
)
# Not shown beside a table: what was asked for, and paging, which has a line of its own.
ASKED = ("query", "sort_by", "mode", "window_days", "supplier_id", "level", "day_from", "day_to")
PAGING = ("page", "page_size", "total_count", "has_next")
NAMES = ("name", "product_name", "supplier_name")
NAME_WIDTH, NARROWEST_NAME = 24, 12


# -- the state of the store ----------------------------------------------------------------------------


def state(text: str) -> RenderableType:
    """The observation text with its labels set apart; the first block as it is."""
    head, *blocks = text.split("\n\n")
    title, *notes = head.split("\n")
    parts: list[RenderableType] = [Text(title, style="bold"), *(Text(note, style="yellow") for note in notes)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM)
    grid.add_column()
    for block in blocks:
        for line in block.split("\n"):
            mark = "：" if "：" in line else ": "
            label, _, rest = line.partition(mark)
            label, bracket, hours = label.partition(" (")
            grid.add_row(label, Text(f"{hours.rstrip(')')}: {rest}" if bracket else rest))
    return Group(*parts, Padding(grid, (1, 0, 0, 2)))


# -- results -------------------------------------------------------------------------------------------


def result(name: str, body: Mapping[str, Any], width: int) -> RenderableType:
    """The result of a call.

    Args:
        name: Name of the tool.
        body: The parsed result.
        width: Columns of the screen.
    """
    if not body["ok"]:
        return Text(f"{name}: {body['error']['message']}", style=BAD)
    if "applied" in body:
        return _items(name, body)
    if name in ("get_daily_report", "read_memory_doc"):
        return Padding(Markdown(body["content"]), (0, 2))
    if name == "get_observation":
        return state(body["text"])
    if name == "query_platform_rules":
        return Padding(Markdown(body["system_prompt"]), (0, 2))
    if name == "list_tools":
        return Text(", ".join(tool["function"]["name"] for tool in body["tools"]))
    tables = {key: part for key, part in body.items() if _is_table(part)}
    hidden = (*tables, "ok", *(ASKED + PAGING if tables else ()))
    facts = {key: part for key, part in body.items() if key not in hidden}
    parts: list[RenderableType] = []
    if facts:
        parts.append(_facts(facts))
    full = {key: part for key, part in tables.items() if part["rows"]}
    for part in full.values():
        parts += _table(part, width, body)
    if tables and not full:
        parts.append(Text("  nothing", style=DIM))
    return Group(*parts)


def _is_table(part: Any) -> bool:
    return isinstance(part, Mapping) and "columns" in part and "rows" in part


def _items(name: str, body: Mapping[str, Any]) -> RenderableType:
    """What became of the items of a change of the shelf, a sentence each."""
    lines = Text()
    for row in _rows(body["items"]):
        if row["ok"]:
            lines.append(f"{row['product_id']} {_done(name, row)}", style=GOOD)
            loss = name == "list_product" and row["sale_price"] < row["supplier_price"]
            lines.append(" – less than you pay\n" if loss else "\n", style="yellow")
        else:
            detail = (row["detail"] or row["error"]).rstrip(".")
            lines.append(f"{row['product_id']} not done: {detail} ({row['error']})\n", style=BAD)
    lines.append(f"Shelf: {body['active_listings']} of {body['max_listings']}", style=DIM)
    return lines


def _done(name: str, row: Mapping[str, Any]) -> str:
    if name == "delist_product":
        return "taken off the shelf"
    if name == "adjust_price":
        return f"now sells at {row['new_price']:,.2f} (before: {row['old_price']:,.2f})"
    bought = f"you buy it at {row['supplier_price']:,.2f}, shipped within {row['supplier_ship_hours']} h"
    return f"{row['action']} at {row['sale_price']:,.2f}; {bought}"


def _facts(facts: Mapping[str, Any]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column()
    for key, part in facts.items():
        if isinstance(part, Mapping):
            for label, inner in _flat(key, part):
                grid.add_row(_heading(label), inner)
        elif part not in ("", None, []):
            grid.add_row(_heading(key), _cell(key, part))
    return Padding(grid, (0, 2))


def _flat(label: str, part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Nested objects as lines: the scalars of one in a line, zero counts left out."""
    plain = {key: inner for key, inner in part.items() if not isinstance(inner, Mapping)}
    shown = [
        f"{_heading(key)} {_cell(key, inner)}" for key, inner in plain.items() if inner != 0 or key == "total"
    ]
    if plain:
        yield label, ", ".join(shown) or "none"
    for key, inner in part.items():
        if isinstance(inner, Mapping):
            yield from _flat(f"{label} {key}", inner)


def _table(part: Mapping[str, Any], width: int, body: Mapping[str, Any]) -> list[RenderableType]:
    columns, dropped, name_width = _fitting(part, width)
    table = Table(box=None, header_style="bold", pad_edge=True)
    for column in columns:
        number = any(type(row[column]) in (int, float) for row in _rows(part))
        table.add_column(
            _heading(column),
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=name_width if column in NAMES else None,
        )
    for row in _rows(part):
        table.add_row(*(_cell(column, row[column]) for column in columns))
    notes = [_where(body, len(part["rows"]))] if "total_count" in body else []
    notes += [f"not shown: {', '.join(map(_heading, dropped))} (raw shows all)"] if dropped else []
    parts: list[RenderableType] = [table]
    return parts + ([Text("  " + "; ".join(notes), style=DIM)] if notes else [])


def _where(body: Mapping[str, Any], shown: int) -> str:
    first = (body["page"] - 1) * body["page_size"] + 1
    more = ", more: the next page" if body["has_next"] else ""
    return f"{first}–{first + shown - 1} of {body['total_count']:,}{more}"


def _fitting(part: Mapping[str, Any], width: int) -> tuple[list[str], list[str], int]:
    """The columns that fit the screen, those that do not, and the room for each name."""
    columns: list[str] = list(part["columns"])
    needed = {}
    for place, column in enumerate(columns):
        size = max(len(_heading(column)), *(len(_cell(column, row[place])) for row in part["rows"]))
        needed[column] = 2 + (min(size, NAME_WIDTH) if column in NAMES else size)
    dropped = []
    for column in DROPPED:
        if sum(needed[name] for name in columns) <= width:
            break
        if column in columns:
            columns.remove(column)
            dropped.append(column)
    spare = width - sum(needed[name] for name in columns)
    names = max(1, sum(name in NAMES for name in columns))
    return columns, dropped, max(NARROWEST_NAME, NAME_WIDTH + spare // names)


def _rows(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    columns: Sequence[str] = table["columns"]
    for row in table["rows"]:
        yield dict(zip(columns, row, strict=True))


def _heading(name: str) -> str:
    return HEADINGS.get(name, name.replace("_", " "))


def _cell(column: str, content: Any) -> str:
    if content is None:
        return "–"
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, list):
        return ", ".join(map(str, content)) or "–"
    if isinstance(content, (int, float)):
        return _number(column, content)
    return str(content)


def _number(column: str, content: float) -> str:
    if isinstance(content, int):
        return f"{content:,}"
    plain = column.rpartition("_")[2] in ("rating", "score", "multiplier", "rate", "years", "pct", "days")
    return f"{content:g}" if plain else f"{content:,.2f}"


def raw(contents: Sequence[str]) -> str:
    """Results as indented JSON."""
    return "\n".join(json.dumps(json.loads(content), ensure_ascii=False, indent=2) for content in contents)
