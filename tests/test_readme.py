"""The README: its table of tools is generated, and every piece of Python in it runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import load_scenario
from merchantbench_gym.cli import run_command
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.index import markdown_table

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^(<!-- slow -->\n+)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<!-- tools -->\n(.*?)\n?<!-- /tools -->", re.DOTALL)


def blocks() -> list[Any]:
    """Blocks of Python by the line they begin in; those behind ``<!-- slow -->`` in the slow tier."""
    text = README.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        marks = [pytest.mark.slow] if match[1] else []
        # Lines in front keep the line numbers of errors those of the README.
        found.append(pytest.param("\n" * (line - 1) + match[2], id=f"line {line}", marks=marks))
    return found


def test_the_table_of_tools_is_the_generated_one() -> None:
    found = TABLE.findall(README.read_text(encoding="utf-8"))
    expected = markdown_table(default_registry(), load_scenario("default").tools.denied)
    assert [part.strip() for part in found] == [expected], "run: merchantbench tools --markdown"


def test_there_is_python_in_it() -> None:
    assert len(blocks()) >= 3


@pytest.mark.parametrize("code", blocks())
def test_python_runs_as_it_stands(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {"__name__": "__main__"})


def test_no_place_is_left_to_fill_in() -> None:
    assert re.findall(r"\{\{.*?\}\}|TODO|FIXME", README.read_text(encoding="utf-8")) == []


def test_the_estimate_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CONTEXT_WINDOW_TOKENS", "COMPACT_TRIGGER_TOKENS", "COMPACT_KEEP_TOKENS"):
        monkeypatch.delenv(name, raising=False)
    found = re.findall(
        r"^```console\n\$ merchantbench (.*?)\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S
    )
    ((words, shown),) = found
    assert run_command(words.split()) == 0
    assert capsys.readouterr().out == shown, "print it anew"
