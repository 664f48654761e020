"""Contracts towards the process and the registry; each test is named after the bug it would find.

Held elsewhere: imports that pull in heavy modules and double registration in tests/test_import.py.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv, marketplace
from merchantbench_gym.wrappers import Reward, SeedGuard

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
MAKERS: dict[str, Callable[[], Any]] = {
    "gym.make": lambda: gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0"),
    "one seat": lambda: MerchantEnv("smoke"),
    "several seats": lambda: MarketplaceEnv("smoke", merchants=2),
    "agent by agent": lambda: marketplace.env("smoke", merchants=2),
}


@pytest.mark.parametrize("maker", list(MAKERS))
def test_close_twice(maker: str) -> None:
    env = MAKERS[maker]()
    env.close()
    env.close()
    env = MAKERS[maker]()
    env.reset(seed=1)
    env.close()
    env.close()
    del env
    gc.collect()


def cycle(maker: str) -> None:
    env = MAKERS[maker]()
    env.reset(seed=1)
    if maker == "several seats":
        env.step(dict.fromkeys(env.agents, END))
    else:
        env.step(END)
    env.close()


def growth(maker: str, cycles: int) -> Counter[str]:
    """Types of which more objects are alive after some more cycles."""
    for _ in range(10):  # what is made once per process is made now
        cycle(maker)
    gc.collect()
    before = Counter(type(thing).__qualname__ for thing in gc.get_objects())
    for _ in range(cycles):
        cycle(maker)
    gc.collect()
    after = Counter(type(thing).__qualname__ for thing in gc.get_objects())
    after.subtract(before)
    return Counter({name: number for name, number in after.items() if number >= cycles // 2})


@pytest.mark.parametrize("maker", list(MAKERS))
def test_make_and_close_cycles_that_grow(maker: str) -> None:
    assert growth(maker, 40) == Counter()


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["gym.make", "several seats"])
def test_1000_make_and_close_cycles_that_grow(maker: str) -> None:
    code = (
        "import resource\n"
        "from tests.envs.test_contracts_process import cycle\n"
        "sizes = []\n"
        "for _ in range(2):\n"
        f"    for _ in range(500): cycle({maker!r})\n"
        "    sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "print(sizes[1] - sizes[0])\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert int(done.stdout) < 4_000  # KiB over 500 cycles


@pytest.mark.parametrize("maker", list(MAKERS))
def test_an_environment_kept_alive_by_the_package(maker: str) -> None:
    env = MAKERS[maker]()
    env.reset(seed=1)
    alive = weakref.ref(env.unwrapped)
    env.close()
    del env
    gc.collect()
    assert alive() is None


def test_spec_not_rebuildable_through_wrappers() -> None:
    overrides = {"run": {"horizon_days": 3}, "merchant": {"max_listings": 9}}
    stack: Any = gymnasium.make(
        "merchantbench_gym:MerchantBenchSmoke-v0", overrides=overrides, max_turns_per_window=4
    )
    stack = SeedGuard(Reward(stack, "terms", weights={"gross": 0.5, "fines": 2.0}))
    stack = gymnasium.wrappers.RecordEpisodeStatistics(stack)
    text = stack.spec.to_json()
    assert json.loads(text)
    for spec in (stack.spec, EnvSpec.from_json(text)):
        rebuilt = gymnasium.make(spec)
        assert str(rebuilt) == str(stack)
        assert rebuilt.spec == stack.spec
        assert rebuilt.unwrapped.scenario == stack.unwrapped.scenario
        for env in (rebuilt, stack):
            env.reset(seed=3)
        for _ in range(6):
            assert rebuilt.step(END)[1:4] == stack.step(END)[1:4]


def test_importing_environments_pulls_in_heavy_modules(tmp_path: Any) -> None:
    """PettingZoo is loaded for the market only, and nothing of the agents' side at all."""
    code = (
        "import json, sys\n"
        "import merchantbench_gym.envs, merchantbench_gym.wrappers, merchantbench_gym.baselines\n"
        "from merchantbench_gym.envs import MerchantEnv\n"
        "env = MerchantEnv('smoke'); env.reset(seed=1)\n"
        "from merchantbench_gym.wrappers import FocalSeat, Reward, SeedGuard\n"
        "from merchantbench_gym.baselines import run_parallel, run_episode\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert {"pettingzoo", "openai", "matplotlib", "typer", "rich", "pygame", "httpx"} & loaded == set()
