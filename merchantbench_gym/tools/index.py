"""The index of tools as people read it: one line per tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from merchantbench_gym.tools.registry import Tool


def purpose(tool: Tool) -> str:
    """What a tool is for: the first sentence of its description, without the full stop."""
    return re.split(r"\.(?:\s|$)", tool.description)[0]


def markdown_table(tools: Iterable[Tool], denied: Collection[str] = ()) -> str:
    """The tools as a Markdown table of name, kind and purpose.

    Args:
        tools: The tools, in the order of the rows.
        denied: Names of tools that are marked as off.

    Returns:
        The table without a newline at its end.
    """
    rows = ["| tool | kind | what it does |", "|---|---|---|"]
    for tool in tools:
        off = " (off by default)" if tool.name in denied else ""
        rows.append(f"| `{tool.name}` | {tool.kind} | {purpose(tool)}{off} |")
    return "\n".join(rows)
