"""The document about agents: its tables are what runs give, and its Python runs as it stands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from merchantbench_gym.baselines.react.config import SETTINGS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "agents.md").read_text(encoding="utf-8")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part(mark: str) -> str:
    """What stands between two comments."""
    (found,) = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", TEXT, re.DOTALL)
    return str(found)


def test_the_table_of_failures_is_what_happens() -> None:
    assert part("failures") == example("provider_failures").table()


def test_every_setting_is_there() -> None:
    rows = ["| variable | argument | default | form |", "|---|---|---|---|"]
    for name, setting in SETTINGS.items():
        if setting.variable:
            default = "–" if setting.default is None else setting.default
            shown = f"{default:,}" if isinstance(default, int) else default
            rows.append(f"| `{setting.variable}` | `{name}` | {shown} | {setting.form} |")
        else:
            assert f"`{name}`" in TEXT
    assert part("settings") == "\n".join(rows)


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
def test_python_runs_as_it_stands(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "agents.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "2 3\n"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (DOCS / target).exists(), target


@pytest.mark.slow
def test_the_scripted_month_is_the_one_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    played: Any = example("scripted_month").main(["--out", str(tmp_path / "plot.png")])
    assert len(played.cuts) == played.expected.compactions == 2
    (shown,) = re.findall(r"<!-- scripted month -->\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert capsys.readouterr().out.startswith(shown)
