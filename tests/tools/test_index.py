"""The index of tools for people."""

from __future__ import annotations

from typing import Any

import pytest

from merchantbench_gym import cli
from merchantbench_gym.tools import default_registry, tool
from merchantbench_gym.tools.index import markdown_table, purpose


@tool(kind="READ", examples=[{}])
def peek(ctx: Any) -> dict[str, Any]:
    """Show version 1.5 of it. And more."""
    return {}


def test_the_purpose_is_the_first_sentence() -> None:
    assert purpose(peek) == "Show version 1.5 of it"


def test_a_row_per_tool_and_marks_for_what_is_off() -> None:
    assert markdown_table([peek]).splitlines()[2:] == ["| `peek` | READ | Show version 1.5 of it |"]
    assert markdown_table([peek], {"peek"}).endswith("Show version 1.5 of it (off by default) |")


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["tools", "--markdown"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[:2] == ["| tool | kind | what it does |", "|---|---|---|"]
    assert [row.split("`")[1] for row in rows[2:]] == list(default_registry().names)
    assert sum("(off by default)" in row for row in rows) == 2
    assert all(row.count("|") == 4 for row in rows)
