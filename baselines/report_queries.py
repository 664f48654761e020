"""Search queries from a market report, by whoever it was written: tables first, then quotes and bold text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

MOST = 12
QUOTED_LENGTHS = range(2, 19)
LONGEST = 64

HEADINGS = ("keyword", "关键词")
SECTION_TITLES = frozenset(
    {
        *HEADINGS, "overview", "summary", "categories", "keywords", "keyword opportunities", "hot keywords",
        "supplier events", "notes", "market report", "daily report",
        "概览", "摘要", "类目", "关键词机会", "热门关键词", "供应事件", "说明", "市场日报", "日报",
    }
)  # fmt: skip

_SEPARATOR = re.compile(r":?-+:?")
_QUOTED = re.compile(r'"([^"\n]+)"|“([^”\n]+)”|「([^」\n]+)」|『([^』\n]+)』')
_QUOTES = ('"', "“", "「", "『")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*|__([^_\n]+)__|<b>([^<\n]+)</b>|<strong>([^<\n]+)</strong>")
_BOLD_MARKS = ("*", "__", "<")  # one of them is in every match; a single character is found at once
_TAG = re.compile(r"<[^<>]*>")
_RANK = re.compile(r"^\s*(?:#\s*\d+[.)、:：]?|[(（]?\d+[.)）、:：])\s*(?!\d)")
_FIGURE = re.compile(
    r"[-+±<>≤≥~]?\s*[$€£¥￥]?\s*\d[\d.,]*\s*"
    r"(?:%|‰|[$€£¥￥]|[a-z]{1,3}|days?|hours?|units?|weeks?|items?|天|日|小时|周|件|个|元|倍|万|亿)?\.?"
)
_PUNCTUATION = " \t.,;:!?·…*_~`'\"“”‘’「」『』《》()[]{}（）【】、，。；：！？|#>"


def queries(report: str) -> list[str]:
    """Find what a report suggests to search for.

    Args:
        report: Markdown text.

    Returns:
        Distinct queries in order of appearance, at most 12: cells of keyword columns, then quoted phrases,
        then bold ones. Section titles and mere figures are left out.
    """
    lines = report.splitlines()
    titles = {_clean(line.lstrip("# ")).casefold() for line in lines if line.startswith("#")}
    found: dict[str, str] = {}
    for text in (
        *_keyword_cells(lines),
        *_marked(_QUOTED, _QUOTES, report),
        *_marked(_BOLD, _BOLD_MARKS, report),
    ):
        query = _clean(text)
        key = query.casefold()
        if not 0 < len(query) <= LONGEST or key in titles or key in SECTION_TITLES:
            continue
        if not _FIGURE.fullmatch(key):
            found.setdefault(key, query)
    return list(found.values())[:MOST]


def _keyword_cells(lines: Iterable[str]) -> Iterator[str]:
    """Cells of the keyword columns of all tables."""
    column: int | None = None
    inside = False
    for line in lines:
        if "|" not in line:
            inside = False
        elif not inside:
            inside = True
            head = _headings(line)
            column = next((i for i, cell in enumerate(head) if cell in HEADINGS), None)
        elif column is not None:
            cells = _cells(line)
            if column < len(cells):
                cell = cells[column].strip()
                # An empty cell of a separator does no harm; it is no query either.
                if "-" not in cell or not _is_separator(cells):
                    yield cell


def _cells(line: str) -> list[str]:
    return line.strip().removeprefix("|").removesuffix("|").split("|")


def _is_separator(cells: Iterable[str]) -> bool:
    plain = (cell.replace(" ", "").strip() for cell in cells)
    return all(_SEPARATOR.fullmatch(cell) for cell in plain if cell)


@lru_cache(maxsize=64)
def _headings(line: str) -> tuple[str, ...]:
    """Headings of a table in plain form; every report has the same tables."""
    return tuple(_clean(cell.strip()).casefold() for cell in _cells(line))


def _marked(pattern: re.Pattern[str], marks: Iterable[str], report: str) -> Iterator[str]:
    """Texts that a pattern marks, of a fitting length; a report without any of the marks has none."""
    if not any(mark in report for mark in marks):
        return
    for match in pattern.finditer(report):
        text = next(group for group in match.groups() if group is not None)
        if len(_clean(text)) in QUOTED_LENGTHS:
            yield text


@lru_cache(maxsize=512)
def _clean(text: str) -> str:
    """Text without tags, emphasis, punctuation around it and a leading rank number."""
    text = _TAG.sub("", text).strip(" \t*_~`|")
    return _RANK.sub("", text).strip(_PUNCTUATION)
