"""The dynamics are frozen: a change of any figure here changes the dynamics and needs new environment ids."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import POLICIES, run_episode
from merchantbench_gym.market import DYNAMICS_VERSION
from merchantbench_gym.scenario import load_scenario

HASHES = {
    "default": "8ee1a3f4471c19b9c6afeada0ddab1e8d1ee229cd1e3204df2351ebeae838591",
    "month": "d1bc3b5bdcfd86bb16f4ff5f112424f693fae8411519ab671a84923949fc36c3",
    "lite": "d02693478f5640c2b8ff54b0d8fea6409d71314ff1cf2d5dd84302af1507c61e",
    "market-1": "57cbfe290b49dd7201df5fef1a452e1394d3bc913923052582f4eacb84ee6c38",
}
# Final net assets in cents on seeds 1-5.
MONTH = {
    "random": (328058, 412023, 384273, 298094, 249016),
    "rule_based": (760492, 747086, 666962, 810469, 610473),
    "oracle": (1392124, 1247777, 1172059, 1358081, 1285647),
}
LITE = {
    "random": (366405, 329833, 436555, 352662, 423631),
    "rule_based": (1145000, 1143413, 1148934, 1279833, 1025126),
    "oracle": (2462744, 2361730, 2083574, 2293018, 2197461),
}
YEAR = {
    "random": (806246, 943726, 799830, 939308, 676300),
    "rule_based": (4959517, 5722449, 6445236, 5128268, 4851844),
    "oracle": (13386437, 13108689, 11624697, 12066123, 11585899),
}


def final_net_assets(scenario: str, policy: str, seed: int) -> int | None:
    env: Any = gymnasium.make("merchantbench_gym:MerchantBench-v0", scenario=scenario)
    env.reset(seed=seed)  # the oracle looks at the market it is made for
    player = POLICIES[policy].for_env(env)
    return run_episode(env, player, seed=seed, allow_privileged=True).last_net_assets


def test_dynamics_version() -> None:
    assert DYNAMICS_VERSION == "market-1"


@pytest.mark.parametrize("name", HASHES)
def test_scenario_hashes(name: str) -> None:
    assert load_scenario(name).hash == HASHES[name]


@pytest.mark.parametrize("policy", MONTH)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_months(policy: str, seed: int) -> None:
    assert final_net_assets("month", policy, seed) == MONTH[policy][seed - 1]


@pytest.mark.parametrize("policy", LITE)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_thirty_windows(policy: str, seed: int) -> None:
    assert final_net_assets("lite", policy, seed) == LITE[policy][seed - 1]


@pytest.mark.slow
@pytest.mark.parametrize("policy", YEAR)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_years(policy: str, seed: int) -> None:
    assert final_net_assets("default", policy, seed) == YEAR[policy][seed - 1]
