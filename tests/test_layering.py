"""Who may import whom, read from the import statements of every module."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "merchantbench_gym"
FOLDERS = {
    ROOT / PACKAGE: PACKAGE,
    ROOT / "wrappers": f"{PACKAGE}.wrappers",
    ROOT / "baselines": f"{PACKAGE}.baselines",
}

# The floors from the top down; in one line a room may import the rooms to its right.
FLOORS = (
    ("cli", "evaluation", "baselines"),
    ("wrappers", "recording"),
    ("envs", "rendering"),
    ("session",),
    ("tools",),
    ("spaces",),
    ("scenario", "market"),
)
# Neighbours on the ground floor without an arrow between them.
STRANGERS = {("spaces", "scenario"), ("spaces", "market")}
# Modules at the top of the package whose first word is not the name of their room.
ROOM_OF = {"bench": "cli", "main": "cli"}

HEAVY = {"pettingzoo", "openai", "matplotlib", "typer", "rich"}
THIRD_PARTY = {
    "market": {"numpy"},
    "scenario": {"numpy", "pydantic", "pydantic_core"},
    "spaces": {"numpy", "gymnasium"},
    # annotated_types: the constraint classes that pydantic builds on and brings along.
    "tools": {"numpy", "pydantic", "pydantic_core", "annotated_types"},
    "session": {"numpy", "pydantic", "pydantic_core"},
    "rendering": {"numpy", "gymnasium", "matplotlib"},
    "envs": {"numpy", "gymnasium", "pettingzoo"},
    "recording": {"numpy", "gymnasium", "pettingzoo"},
    "wrappers": {"numpy", "gymnasium", "pettingzoo", "pydantic"},
    "baselines": {"numpy", "gymnasium", "pettingzoo", "pydantic", "openai"},
    "evaluation": {"numpy", "gymnasium", "pettingzoo", "pydantic", "matplotlib"},
    "cli": {"numpy", "gymnasium", "pettingzoo", "pydantic", "matplotlib", "typer", "rich"},
}
# Where a heavy package may be imported by the module itself rather than in a function.
HOME = {"typer": "cli", "rich": "cli", "pettingzoo": "envs.marketplace"}
# The market does no input or output, knows no wall clock and draws by key alone.
BARRED_FROM_MARKET = {"sqlite3", "json", "random", "secrets", "uuid", "time", "socket", "subprocess"}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    deferred: bool  # in a function, or for type checkers only


def modules() -> dict[str, Path]:
    found = {}
    for folder, name in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((name, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    """The room of a module of the package, "" for the package itself."""
    first = module.removeprefix(PACKAGE).lstrip(".").partition(".")[0]
    word = first.lstrip("_").partition("_")[0]
    return ROOM_OF.get(word, word)


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                base = ".".join([*kept, base] if base else kept)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield Import(whole if whole in MODULES else base, node.lineno, deferred)
        is_guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = deferred or is_guard or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(source), False)


def may_import(importer: str, imported: str) -> bool:
    if importer == imported or not importer:
        return True
    if (importer, imported) in STRANGERS:
        return False
    order = [name for floor in FLOORS for name in floor]
    return order.index(importer) < order.index(imported)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    own = room(module)
    found = []
    for item in imports(source, module, is_package):
        top = item.module.partition(".")[0]
        where = f"{module}:{item.line} imports {item.module}"
        if top == PACKAGE:
            other = room(item.module)
            if other and not may_import(own, other):
                found.append(f"{where}: {own} must not import {other}")
            if not other and own in ("market", "scenario", "tools", "session"):
                found.append(f"{where}: the package itself stands on {own}")
            if not own and not item.deferred:
                found.append(f"{where}: the package loads its parts on first use")
        elif top in sys.stdlib_module_names:
            if own == "market" and top in BARRED_FROM_MARKET:
                found.append(f"{where}: not in the market")
        elif top not in (THIRD_PARTY[own] if own else {"gymnasium"}):
            found.append(f"{where}: not a dependency of {own or 'the package itself'}")
        elif top in HEAVY and not item.deferred and not is_home(module, top):
            found.append(f"{where}: heavy, import it where it is used")
    return found


def is_home(module: str, heavy: str) -> bool:
    home = HOME.get(heavy, "nowhere")
    return home in (room(module), module.removeprefix(f"{PACKAGE}."))


def test_every_module_has_a_room() -> None:
    rooms = {name for floor in FLOORS for name in floor}
    assert {module for module in MODULES if room(module) not in rooms} == {PACKAGE}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downward(module: str) -> None:
    path = MODULES[module]
    assert violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("market.world", "import json"),
        ("market.world", "def f():\n    import sqlite3.dbapi2"),
        ("market.world", "import pydantic"),
        ("market.world", "from merchantbench_gym.scenario import Scenario"),
        ("market.world", "from merchantbench_gym import scenario"),
        ("market.world", "from .. import scenario"),
        ("market.world", "from ..scenario import Scenario"),
        ("market.world", "from merchantbench_gym import __version__"),
        ("scenario", "import gymnasium"),
        ("scenario_rules", "from merchantbench_gym.tools import Registry"),
        ("spaces", "from merchantbench_gym.market import World"),
        ("tools.calls", "def f():\n    from gymnasium import spaces"),
        ("session", "if TYPE_CHECKING:\n    import gymnasium"),
        ("session", "from merchantbench_gym.envs import MerchantEnv"),
        ("rendering", "from merchantbench_gym.envs import MerchantEnv"),
        ("rendering", "import matplotlib"),
        ("envs.merchant", "import pettingzoo"),
        ("recording.file", "from merchantbench_gym.wrappers import Seat"),
        ("wrappers.seat", "from merchantbench_gym.baselines import Policy"),
        ("envs.merchant", "from merchantbench_gym.baselines import Policy"),
        ("baselines.runner", "from merchantbench_gym.evaluation import evaluate"),
        ("baselines.react", "import openai"),
        ("evaluation.score", "from merchantbench_gym.cli import main"),
        ("evaluation.score", "import rich"),
        ("baselines.runner", "import requests"),
    ],
)
def test_the_check_finds(module: str, source: str) -> None:
    assert violations(f"{PACKAGE}.{module}", source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("market.world", "import numpy as np\nimport hashlib\nfrom . import draws"),
        ("tools.calls", "from merchantbench_gym import scenario\nimport pydantic"),
        ("cli", "import typer\nfrom merchantbench_gym.baselines import POLICIES"),
        ("bench", "import rich\nfrom merchantbench_gym.evaluation import evaluate"),
        ("evaluation.plots", "def f():\n    import matplotlib.pyplot"),
        ("envs.marketplace", "import pettingzoo\nfrom merchantbench_gym import rendering"),
        ("baselines.react.server", "def f():\n    import openai"),
        ("baselines.policy", "from merchantbench_gym.wrappers.seat import Seat"),
    ],
)
def test_the_check_lets_pass(module: str, source: str) -> None:
    assert violations(f"{PACKAGE}.{module}", source) == []


IMPORT_EACH_ALONE = """
import importlib, json, sys, traceback
import gymnasium, numpy, pydantic

names, heavy = json.loads(sys.argv[1])
report = {}
for name in names:
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in {"merchantbench_gym", *heavy}:
            del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except BaseException:
        report[name] = traceback.format_exc()
    else:
        report[name] = [top for top in heavy if top in sys.modules]
print(json.dumps(report))
"""


def test_each_module_imports_alone_and_light(tmp_path: Path) -> None:
    argument = json.dumps([list(MODULES), sorted(HEAVY)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_EACH_ALONE, argument],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    broken = {name: error for name, error in report.items() if isinstance(error, str)}
    assert not broken, "\n".join(broken.values())
    for name, heavy in report.items():
        assert [top for top in heavy if not is_home(name, top)] == [], name
