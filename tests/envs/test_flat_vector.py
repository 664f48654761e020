"""Many numeric environments at once: what a ``SyncVectorEnv`` of them returns, bit for bit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import FlatEnv, FlatVectorEnv
from merchantbench_gym.market import World
from merchantbench_gym.session import Turn
from merchantbench_gym.tools.calls import normalise

ID = "merchantbench_gym:MerchantBenchFlatSmoke-v0"
MODES, FORMS = list(AutoresetMode), ("multi", "discrete")
TINY: dict[str, Any] = {
    "run": {"horizon_days": 2},
    "catalog": {"products": 60},
    "merchant": {"max_listings": 6},
    "demand": {"scale": 8.0},
}
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "busy": {"merchant": {"initial_cash": 50_000.0}, "demand": {"scale": 8.0}},
    "doomed": {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}},
    "few": {"catalog": {"products": 60}},
    "one catalog": {"seeds": {"catalog": 7, "supplier": 7}},
}


def pair(num_envs: int, overrides: Any, mode: AutoresetMode, **arguments: Any) -> tuple[Any, Any]:
    """The same environments, in a loop and together."""
    make = gymnasium.make_vec
    kind = {"overrides": overrides, **arguments}
    loop = make(ID, num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, **kind)
    return loop, make(ID, num_envs, "vector_entry_point", autoreset_mode=mode, **kind)


def assert_same(one: Any, other: Any) -> None:
    """Equal in types, shapes and bits."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), [other[key] for key in one]
    if isinstance(one, np.ndarray) and one.dtype != object:
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, list | tuple | np.ndarray):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


def drawn(rng: np.random.Generator, envs: Any, masks: Any) -> Any:
    """Actions of all environments: ones that do something, or wild ones with a number for every slot."""
    if isinstance(envs.single_action_space, gymnasium.spaces.Discrete):
        return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
    widths = envs.single_action_space.nvec
    shape = envs.num_envs, len(widths)
    return np.where(rng.random(shape) < 0.15, rng.integers(widths, size=shape), 0)


# Beside the loop, and beside lone environments


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_it_is_the_loop_bit_for_bit(world: str, mode: AutoresetMode, form: str) -> None:
    loop, envs = pair(4, WORLDS[world], mode, action=form)
    rng, ends = np.random.default_rng(1), 0
    assert_same(loop.reset(seed=3), envs.reset(seed=3))
    for _ in range(32):
        masks = envs.action_masks()
        assert_same(np.array(loop.call("action_masks")), masks)
        actions = drawn(rng, envs, masks)
        steps = loop.step(actions), envs.step(actions)
        assert_same(*steps)
        ends += steps[1][2].sum()
        if mode is AutoresetMode.DISABLED and steps[1][2].any():
            options = [{"reset_mask": steps[i][2]} for i in range(2)]
            assert_same(loop.reset(options=options[0]), envs.reset(options=options[1]))
    assert ends >= 8
    assert_same(loop.call("snapshot"), envs.call("snapshot"))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(MODES), st.sampled_from(FORMS))
def test_it_is_the_loop_whatever_is_done(data: st.DataObject, mode: AutoresetMode, form: str) -> None:
    loop, envs = pair(3, TINY, mode, action=form, candidates=4, markups=(1.1, 2.0))
    seeds = st.none() | st.integers(0, 99) | st.lists(st.none() | st.integers(0, 99), min_size=3, max_size=3)
    assert_same(loop.reset(seed=1), envs.reset(seed=1))
    ended = np.zeros(3, dtype=bool)
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(("step", "step", "step", "reset", "some")))
        if what == "step" and not (mode is AutoresetMode.DISABLED and ended.any()):
            actions = drawn(np.random.default_rng(data.draw(st.integers(0, 99))), envs, envs.action_masks())
            steps = loop.step(actions), envs.step(actions)
            assert_same(*steps)
            ended = steps[1][2]
            continue
        mask = ended.copy()
        mask[data.draw(st.integers(0, 2))] = True
        options: dict[str, Any] | None = None if what == "reset" else {"reset_mask": mask}
        if data.draw(st.booleans()):
            options = {**(options or {}), "overrides": {"run": {"horizon_days": 3}}}
        seed = data.draw(seeds)
        assert_same(loop.reset(seed=seed, options=copy.copy(options)), envs.reset(seed=seed, options=options))
        ended = np.zeros(3, dtype=bool)
    assert_same(loop.call("snapshot"), envs.call("snapshot"))


@pytest.mark.parametrize("form", FORMS)
def test_each_row_is_a_lone_environment(form: str) -> None:
    envs, alone = FlatVectorEnv(3, "smoke", action=form), [FlatEnv("smoke", action=form) for _ in range(3)]
    observations, infos = envs.reset(seed=7)
    rng = np.random.default_rng(2)
    singles: list[Any] = [env.reset(seed=7 + i) for i, env in enumerate(alone)]
    for _ in range(14):
        for i, single in enumerate(singles):
            np.testing.assert_array_equal(observations[i], single[0])
            assert {key: infos[key][i] for key in single[-1] if key != "action_mask"} == {
                key: value for key, value in single[-1].items() if key != "action_mask"
            }
            np.testing.assert_array_equal(infos["action_mask"][i], single[-1]["action_mask"])
        actions = drawn(rng, envs, envs.action_masks())
        observations, rewards, terminations, _, infos = envs.step(actions)
        singles = [env.step(action) for env, action in zip(alone, actions, strict=True)]
        assert rewards.tolist() == [single[1] for single in singles]
        assert terminations.tolist() == [single[2] for single in singles]
    assert terminations.all()


def test_worlds_of_different_rules_at_different_times() -> None:
    """Windows, horizons, catalogs, promises, grants and bounds of prices of one batch may all differ."""
    loop, envs = pair(4, {}, AutoresetMode.DISABLED)
    both = (loop, envs)
    changes: list[dict[str, Any]] = [
        {"merchant": {"promised_ship_hours": 20, "min_price": 30.0, "max_price": 60.0}},
        {"tools": {"denied": ["adjust_price"]}, "run": {"activation_period": 24}},
        {"catalog": {"products": 40}, "rating": {"enabled": False}},
    ]
    assert_same(*[each.reset(seed=1) for each in both])
    rng = np.random.default_rng(5)
    for number, overrides in enumerate(changes):
        mask = np.arange(4) == number
        assert_same(
            *[each.reset(seed=9, options={"reset_mask": mask, "overrides": overrides}) for each in both]
        )
        for _ in range(2):
            actions = drawn(rng, envs, None)
            assert_same(*[each.step(actions) for each in both])
    assert [session.world.t for session in envs.call("session")] == [72, 96, 24, 72]


def test_named_turns_and_turns_of_another_driver() -> None:
    loop, envs = pair(2, {}, AutoresetMode.NEXT_STEP, action="discrete")
    both = (loop, envs)
    calls = [{"name": "list_product", "arguments": {"items": [{"product_id": "P00900", "sale_price": 9}]}}]
    for each in both:
        each.reset(seed=1)
    for name in ("a", "b", "b"):
        actions = [{"action": 9, "turn_id": name}, {"action": 10}]
        assert_same(*[each.step(actions) for each in both])
        for each in both:
            each.call("session")[1].submit(0, Turn(batch=normalise(calls)))
        assert_same(loop.call("observe"), envs.call("observe"))
    snapshots = envs.call("snapshot")
    for each in both:
        each.step(np.array([0, 17]))
        for env, snapshot in zip(each.envs, snapshots, strict=True):
            env.unwrapped.restore(snapshot)
    assert_same(*[each.step(np.array([17, 0])) for each in both])


def test_an_interrupted_clock_runs_on_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, envs = pair(3, {}, AutoresetMode.NEXT_STEP, action="discrete")
    run, stopped = World.advance, set[int]()

    def advance(world: World, until: int | None = None) -> int:
        if world.seed in stopped:
            raise KeyboardInterrupt
        return run(world, until)

    monkeypatch.setattr(World, "advance", advance)
    for each in (loop, envs):
        each.reset(seed=0)
        each.step(np.array([9, 9, 9]))
        stopped.add(1)
        with pytest.raises(KeyboardInterrupt):
            each.step(np.array([17, 17, 17]))
        stopped.clear()
    assert_same(*[each.step(np.array([9, 0, 9])) for each in (loop, envs)])
    assert_same(loop.call("snapshot"), envs.call("snapshot"))


# Arguments, and what is refused


@pytest.mark.parametrize("mode", MODES)
def test_spaces_and_metadata_are_those_of_the_loop(mode: AutoresetMode) -> None:
    loop, envs = pair(3, TINY, mode)
    for name in ("single_action_space", "action_space", "single_observation_space", "observation_space"):
        assert getattr(envs, name) == getattr(loop, name)
    assert (envs.metadata, envs.render_mode) == (loop.metadata, None)
    assert isinstance(envs.metadata["autoreset_mode"], AutoresetMode)
    observations, infos = envs.reset(seed=1)
    assert observations in envs.observation_space
    envs.action_space.seed(1)
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space
    assert infos["action_mask"].shape == (3, *envs.envs[0].action_masks().shape)


def test_it_is_made_for_the_ids_of_the_numeric_environment_alone() -> None:
    entry_points = {
        spec.id: spec.vector_entry_point is not None
        for spec in gymnasium.registry.values()
        if spec.id.startswith("MerchantBench")
    }
    assert entry_points and all(made == ("Flat" in name) for name, made in entry_points.items())
    envs = gymnasium.make_vec(ID, 2, action="discrete", autoreset_mode="SameStep")
    assert isinstance(envs, FlatVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert repr(envs) == "FlatVectorEnv(MerchantBenchFlatSmoke-v0, num_envs=2)"
    assert envs.spec is not None and gymnasium.make_vec(envs.spec).num_envs == 2
    assert isinstance(gymnasium.make_vec(ID, 2, "sync"), SyncVectorEnv)


def test_what_a_loop_refuses_it_refuses() -> None:
    for envs in pair(3, TINY, AutoresetMode.DISABLED, action="discrete"):
        with pytest.raises(ResetNeeded):
            envs.step(np.zeros(3, dtype=int))
        with pytest.raises(ValueError, match="3"):
            envs.reset(seed=[1, 2])
        for mask in ([True] * 3, np.ones(3)):
            with pytest.raises(TypeError):
                envs.reset(options={"reset_mask": mask})
        for mask in (np.ones(2, dtype=bool), np.zeros(3, dtype=bool)):
            with pytest.raises(ValueError, match="mask"):
                envs.reset(options={"reset_mask": mask})
        envs.reset(seed=[5, 2, 9])
        assert [session.world.seed for session in envs.call("session")] == [5, 2, 9]
        # Those before the one that is refused have played.
        with pytest.raises(ValueError, match="must be"):
            envs.step(np.array([9, 99, 9]))
        with pytest.raises(ValueError, match="zip"):
            envs.step(np.array([0, 0]))
        assert [session.window for session in envs.call("session")] == [2, 1, 0]
        envs.reset(seed=1)
        terminations = np.zeros(3, dtype=bool)
        while not terminations.any():
            terminations = envs.step(np.zeros(3, dtype=int))[2]
        with pytest.raises((AssertionError, ResetNeeded)):
            envs.step(np.zeros(3, dtype=int))
        with pytest.raises(ValueError, match="value"):
            envs.set_attr("name", [1, 2])


def test_reset_options_are_left_as_they_are() -> None:
    envs = FlatVectorEnv(2, "smoke", TINY)
    envs.reset(seed=1)
    options = {"reset_mask": np.array([True, False])}
    envs.reset(options=options)
    assert list(options) == ["reset_mask"]


# Everything else


def test_attributes_and_methods_of_the_environments() -> None:
    loop, envs = pair(3, TINY, AutoresetMode.NEXT_STEP)
    for each in (loop, envs):
        each.reset(seed=4)
        each.set_attr("colour", ["red", "green", "blue"])
        each.set_attr("size", 7)
    for name in ("colour", "size", "hashes", "arguments", "np_random_seed", "render_mode"):
        assert envs.get_attr(name) == loop.get_attr(name)
    assert envs.np_random_seed == loop.np_random_seed == (4, 5, 6)
    assert [rng.integers(99) for rng in envs.np_random] == [rng.integers(99) for rng in loop.np_random]
    assert_same(loop.call("observe"), envs.call("observe"))


@pytest.mark.parametrize("mode", ["rgb_array", "ansi", "human"])
def test_pictures_are_those_of_the_loop(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for envs in pair(2, TINY, AutoresetMode.NEXT_STEP, render_mode=mode):
        envs.reset(seed=1)
        envs.step(np.array([[0] * 6 + [1] * 20] * 2))
        shown.append((envs.render(), capsys.readouterr().out))
        envs.close()
        envs.close()
        assert envs.closed
    assert_same(*shown)


def test_what_is_handed_out_is_fresh() -> None:
    loop, envs = pair(2, TINY, AutoresetMode.SAME_STEP)
    assert_same(loop.reset(seed=1), envs.reset(seed=1))
    for _ in range(9):
        actions = np.array([[0] * 6 + [1] * 20] * 2)
        steps = loop.step(actions), envs.step(actions)
        assert_same(*steps)
        observations, rewards, terminations, truncations, infos = steps[1]
        observations[:], rewards[:], truncations[:] = 9, 9, True
        if terminations.any():
            infos["final_obs"][0][:] = 9
        terminations[:] = ~terminations
        assert not np.shares_memory(infos["_day"], infos["_hour"])
        for array in infos.values():
            if isinstance(array, np.ndarray) and array.dtype != object:
                array[...] = 1
        envs.action_masks()[:] = False


def test_wrappers_of_gymnasium() -> None:
    returns = []
    for envs in pair(2, TINY, AutoresetMode.NEXT_STEP, action="discrete"):
        wrapped = DictInfoToList(RecordEpisodeStatistics(envs))
        wrapped.reset(seed=1)
        while True:
            *_, terminations, _, infos = wrapped.step(np.full(2, 17))
            if terminations.any():
                break
        returns.append([(float(info["episode"]["r"]), int(info["episode"]["l"])) for info in infos])
    assert returns[0] == returns[1]
    assert [length for _, length in returns[0]] == [4, 4]


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
def test_copies_go_on_alike(twin_of: Any) -> None:
    envs = FlatVectorEnv(2, "smoke", TINY, action="discrete")
    envs.reset(seed=1)
    envs.step(np.full(2, 17))
    twin = twin_of(envs)
    for _ in range(8):
        assert_same(envs.step(np.full(2, 17)), twin.step(np.full(2, 17)))
