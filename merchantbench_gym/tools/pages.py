"""Paging: the parameters and the leading keys of every paged result."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

Page = Annotated[int, Field(ge=1, le=1_000_000)]
PageSize = Annotated[int, Field(ge=1, le=50)]

#: Page size of the tables of the own shelf, where a page usually holds all of it.
SHELF_PAGE = 50


def bounds(page: int, page_size: int) -> tuple[int, int]:
    """First row of a page and the row after its last, counted from 0."""
    return (page - 1) * page_size, page * page_size


def page_fields(page: int, page_size: int, total: int) -> dict[str, Any]:
    """The keys that stand before the table of a paged result."""
    return {"page": page, "page_size": page_size, "total_count": total, "has_next": page * page_size < total}
