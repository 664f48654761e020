"""What an import of the package loads and registers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import pytest

import merchantbench_gym
from merchantbench_gym import scenario

LAZY = {"pettingzoo", "openai", "matplotlib", "typer", "rich", "pydantic", "sqlite3", "httpx", "pygame"}
FACES = {
    "MerchantBench": "merchantbench_gym.envs.merchant:MerchantEnv",
    "MerchantBenchFlat": "merchantbench_gym.envs.flat:FlatEnv",
}


def run(code: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, json, merchantbench_gym; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(code, tmp_path)))
    assert {"numpy", "gymnasium"} <= loaded
    assert LAZY & loaded == set()
    assert {name for name in loaded if name.startswith("merchantbench_gym")} == {"merchantbench_gym"}


def test_public_names_are_loaded_on_first_use() -> None:
    assert merchantbench_gym.Scenario is scenario.Scenario
    assert merchantbench_gym.ScenarioError is scenario.ScenarioError
    assert merchantbench_gym.load_scenario is scenario.load_scenario
    assert isinstance(merchantbench_gym.__version__, str)
    assert set(merchantbench_gym.__all__) == {"Scenario", "ScenarioError", "__version__", "load_scenario"}
    assert set(merchantbench_gym.__all__) <= set(dir(merchantbench_gym))
    with pytest.raises(AttributeError, match="no attribute 'Senario'"):
        merchantbench_gym.Senario  # noqa: B018


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("preset", scenario.PRESETS)
def test_one_id_per_preset(face: str, preset: str) -> None:
    suffix = "" if preset == "default" else preset.title().replace("-", "")
    spec = gymnasium.spec(f"{face}{suffix}-v0")
    assert spec.entry_point == FACES[face]
    assert spec.kwargs == {"scenario": preset}
    assert spec.max_episode_steps is None, "a configured horizon must not be cut"
    assert spec.additional_wrappers == ()


def test_no_other_ids() -> None:
    ids = [name for name in gymnasium.registry if name.startswith("MerchantBench")]
    assert len(ids) == len(FACES) * len(scenario.PRESETS)


def test_a_second_import_registers_nothing_twice() -> None:
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(merchantbench_gym)
    assert gymnasium.registry == before
