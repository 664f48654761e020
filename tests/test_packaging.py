"""What gets installed: folders, files, version and command."""

from __future__ import annotations

import configparser
import importlib
import importlib.metadata
import importlib.resources
import re
from pathlib import Path

import merchantbench_gym
from merchantbench_gym.scenario import PRESETS

ROOT = Path(__file__).resolve().parent.parent


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_mapped_folders_are_subpackages() -> None:
    for part in ("wrappers", "baselines"):
        module = importlib.import_module(f"merchantbench_gym.{part}")
        assert Path(str(module.__file__)).parent.name == part
    mapping = dict(line.split(" = ") for line in settings()["options"]["package_dir"].strip().splitlines())
    assert mapping == {
        "merchantbench_gym": "merchantbench_gym",
        "merchantbench_gym.wrappers": "wrappers",
        "merchantbench_gym.baselines": "baselines",
    }


def test_every_folder_with_modules_is_a_package() -> None:
    """Packages are found by their __init__.py; a folder without one would be missing from the wheel."""
    for top in ("merchantbench_gym", "wrappers", "baselines"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").is_file(), module


def test_data_files_are_installed() -> None:
    files = importlib.resources.files("merchantbench_gym")
    assert files.joinpath("py.typed").is_file()
    for preset in PRESETS:
        assert files.joinpath("scenarios", f"{preset}.toml").is_file()
    patterns = settings()["options.package_data"]["merchantbench_gym"].split()
    assert patterns == ["py.typed", "scenarios/*.toml"]


def test_one_version_everywhere() -> None:
    version = merchantbench_gym.__version__
    assert importlib.metadata.version("merchantbench-gym") == version
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [version]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_command() -> None:
    [command] = importlib.metadata.entry_points(group="console_scripts", name="merchantbench")
    assert command.value == "merchantbench_gym.__main__:main"
