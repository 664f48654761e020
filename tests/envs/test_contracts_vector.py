"""Contracts of vector environments; each test is named after the bug it would find."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from merchantbench_gym.envs import MerchantEnv

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
SHORT: dict[str, Any] = {"run": {"horizon_days": 2}}
ITEMS = [{"product_id": f"P{i:05d}", "sale_price": 60.0 + i} for i in range(50)]
LISTING = ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": ITEMS})},)
ASYNC = {"shared_memory": False}
MODES = list(AutoresetMode)


@contextmanager
def vector(kind: str = "sync", num_envs: int = 3, overrides: Any = SHORT, **arguments: Any) -> Iterator[Any]:
    """A vector environment of the smoke scenario."""
    if kind == "async":
        arguments |= ASYNC
    envs = gymnasium.make_vec(
        "merchantbench_gym:MerchantBenchSmoke-v0",
        num_envs,
        kind,
        vector_kwargs=arguments,
        overrides=overrides,
    )
    try:
        yield envs
    finally:
        envs.close()


def singles(num_envs: int = 3, overrides: Any = SHORT) -> list[MerchantEnv]:
    return [MerchantEnv("smoke", overrides) for _ in range(num_envs)]


def batched(returns: list[Any]) -> dict[str, Any]:
    """Single observations as a vector environment shows them."""
    return {
        "text": tuple(one["text"] for one in returns),
        "tool_results": tuple(one["tool_results"] for one in returns),
        "store": np.stack([one["store"] for one in returns]),
    }


def assert_same(observations: Any, expected: list[Any]) -> None:
    for key, value in batched(expected).items():
        np.testing.assert_equal(observations[key], value)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_environments_that_play_otherwise_than_single_ones(kind: str) -> None:
    with vector(kind, autoreset_mode=AutoresetMode.SAME_STEP) as envs:
        alone = singles()
        observations, infos = envs.reset(seed=7)
        assert_same(observations, [env.reset(seed=7 + i)[0] for i, env in enumerate(alone)])
        assert len(set(observations["text"])) == 1  # an empty shelf tells nothing of the seed
        for action in (LISTING, *[END] * 9):
            observations, rewards, terminations, truncations, infos = envs.step((action,) * 3)
            assert observations in envs.observation_space
            steps = [env.step(action) for env in alone]
            assert rewards.tolist() == [step[1] for step in steps]
            assert terminations.tolist() == [step[2] for step in steps]
            assert not truncations.any()
            expected = [
                env.reset()[0] if step[2] else step[0] for env, step in zip(alone, steps, strict=True)
            ]
            assert_same(observations, expected)
        assert "_final_obs" not in infos


def seeds_of(envs: Any) -> list[Any]:
    return [env.unwrapped.session.world.seed for env in envs.envs]


@pytest.mark.parametrize("mode", MODES)
def test_same_world_in_all_sub_envs(mode: AutoresetMode) -> None:
    with vector(autoreset_mode=mode) as envs:
        for seed in (3, 11):
            envs.reset(seed=seed)
            assert seeds_of(envs) == [seed, seed + 1, seed + 2]
        envs.reset(seed=[5, 2, 9])
        assert seeds_of(envs) == [5, 2, 9]
        alone = singles()
        for env, seed in zip(alone, (5, 2, 9), strict=True):
            env.reset(seed=seed)
            env.reset()
        if mode is AutoresetMode.DISABLED:
            envs.reset()
        else:
            for _ in range(4 + (mode is AutoresetMode.NEXT_STEP)):
                envs.step((END,) * 3)
        assert seeds_of(envs) == [env.session.world.seed for env in alone]
    with vector() as envs:
        envs.reset()
        assert len(set(seeds_of(envs))) == 3


def test_final_observation_lost_under_same_step_autoreset() -> None:
    with vector(autoreset_mode=AutoresetMode.SAME_STEP) as envs:
        alone = singles()
        envs.reset(seed=1)
        for i, env in enumerate(alone):
            env.reset(seed=1 + i)
        for action in (LISTING, END, END, END, END):
            observations, _, terminations, _, infos = envs.step((action,) * 3)
            steps = [env.step(action) for env in alone]
        assert terminations.all()
        assert infos["_final_obs"].all()
        for final, step in zip(infos["final_obs"], steps, strict=True):
            np.testing.assert_equal(final, step[0])
        assert infos["final_info"]["net_assets"].tolist() == [step[4]["net_assets"] for step in steps]
        assert infos["final_info"]["end_reason"].tolist() == ["horizon"] * 3
        assert infos["t"].tolist() == [0, 0, 0]
        assert_same(observations, [env.reset()[0] for env in alone])


def test_final_observation_lost_under_next_step_autoreset() -> None:
    with vector(autoreset_mode=AutoresetMode.NEXT_STEP) as envs:
        alone = singles()
        envs.reset(seed=1)
        for i, env in enumerate(alone):
            env.reset(seed=1 + i)
        for action in (LISTING, END, END, END, END):
            observations, rewards, terminations, _, infos = envs.step((action,) * 3)
            steps = [env.step(action) for env in alone]
        assert terminations.all()
        assert_same(observations, [step[0] for step in steps])
        assert infos["end_reason"].tolist() == ["horizon"] * 3
        observations, rewards, terminations, _, infos = envs.step((LISTING,) * 3)
        assert_same(observations, [env.reset()[0] for env in alone])
        assert (rewards.tolist(), terminations.tolist()) == ([0.0] * 3, [False] * 3)
        assert infos["turns_left"].tolist() == [30] * 3  # that action was not played
        assert_same(envs.step((LISTING,) * 3)[0], [env.step(LISTING)[0] for env in alone])


def test_final_observation_lost_without_autoreset() -> None:
    with vector(autoreset_mode=AutoresetMode.DISABLED) as envs:
        envs.reset(seed=1)
        for action in (LISTING, END, END, END, END):
            observations, _, terminations, _, _ = envs.step((action,) * 3)
        assert terminations.all()
        assert all("Run finished (horizon)" in text for text in observations["text"])
        with pytest.raises(Exception, match="reset"):
            envs.step((END,) * 3)
        mask = np.array([True, False, True])
        observations, _ = envs.reset(seed=[4, None, 6], options={"reset_mask": mask})
        assert ["Run finished" in text for text in observations["text"]] == [False, True, False]
        assert seeds_of(envs) == [4, 2, 6]


@pytest.mark.parametrize("mode", MODES)
def test_ragged_infos_under_vectorisation(mode: AutoresetMode) -> None:
    keys = list(MerchantEnv("smoke").reset(seed=1)[1])
    with vector(autoreset_mode=mode) as envs:
        _, infos = envs.reset(seed=1)
        envs.action_space.seed(1)
        told = np.ones(3, dtype=bool)
        for _ in range(20):
            assert [key for key in infos if key in keys] == keys
            for key in keys:
                assert infos[key].shape == infos["_" + key].shape == (3,)
                np.testing.assert_equal(infos["_" + key], told)
                expected = {"window_closed_by": object, "end_reason": object}.get(key)
                assert infos[key].dtype == expected if expected else infos[key].dtype.kind in "if"
            _, _, terminations, _, infos = envs.step(envs.action_space.sample())
            told = np.ones(3, dtype=bool)
            if mode is AutoresetMode.DISABLED and terminations.any():
                _, infos = envs.reset(options={"reset_mask": terminations})
                told = terminations


def test_shared_memory_with_texts_is_refused_with_advice() -> None:
    make = partial(gymnasium.make_vec, "merchantbench_gym:MerchantBenchSmoke-v0", 2, "async")
    with pytest.raises(ValueError, match="shared_memory=False"):
        make()


def test_env_id_not_found_in_spawned_workers() -> None:
    """A worker is told the environment as it was looked up here, so it need not know the id."""
    make = partial(gymnasium.make_vec, "MerchantBenchSmoke-v0", 2, "async")
    envs = make(vector_kwargs={"context": "spawn", **ASYNC}, overrides=SHORT)
    try:
        envs.reset(seed=[4, 5])
        envs.step((LISTING,) * 2)
        rewards = [envs.step((END,) * 2)[1].tolist() for _ in range(4)]
        assert envs.call("hashes")[0]["scenario_hash"] == MerchantEnv("smoke", SHORT).hashes["scenario_hash"]
    finally:
        envs.close()
    alone = singles(2)
    for env, seed in zip(alone, (4, 5), strict=True):
        env.reset(seed=seed)
        env.step(LISTING)
    assert rewards == [[env.step(END)[1] for env in alone] for _ in range(4)]


def test_one_catalog_many_luck_seeds() -> None:
    """With the seed of the catalog fixed, seeds differ in luck alone: suppliers' moves, customers, fates."""
    fixed = {"run": {"horizon_days": 7}, "seeds": {"catalog": 77}}
    with vector(num_envs=4, overrides=fixed, autoreset_mode=AutoresetMode.SAME_STEP) as envs:
        finals = []
        envs.reset(seed=1)
        assert len({hashes["catalog_hash"] for hashes in envs.call("hashes")}) == 1
        worlds = [env.unwrapped.session.world for env in envs.envs]
        assert all(world.catalog is worlds[0].catalog for world in worlds)  # one copy in memory
        query = ({"id": "q", "name": "search_products", "arguments": '{"query":"lamp","page_size":50}'},)
        ids = []
        for results in envs.step((query,) * 4)[0]["tool_results"]:
            items = json.loads(results[0]["content"])["items"]
            ids.append([row[items["columns"].index("product_id")] for row in items["rows"]])
        assert ids[0]
        envs.step((LISTING,) * 4)
        for _ in range(14):
            finals.append(envs.step((END,) * 4))
        assets = finals[-1][4]["final_info"]["net_assets"].tolist()
        assert len(set(assets)) == 4
        # The next episodes of the same environments keep the catalog too.
        assert len({hashes["catalog_hash"] for hashes in envs.call("hashes")}) == 1
    free = singles(2)
    for seed, env in enumerate(free):
        env.reset(seed=seed)
    assert free[0].hashes["catalog_hash"] != free[1].hashes["catalog_hash"]
    single = MerchantEnv("smoke", fixed)
    single.reset(seed=1)
    single.step(query)
    single.step(LISTING)
    for _ in range(14):
        step = single.step(END)
    assert step[4]["net_assets"] == assets[0]
