"""What single entries of an action do, told apart by clones, and what the actions of one number amount to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import FlatEnv

P = 6
WORLD: dict[str, Any] = {
    "merchant": {"max_listings": 9, "initial_cash": 50_000.0, "max_price": 120.0, "min_price": 30.0},
    "difficulty": {"delist": 5.0, "slow": 5.0, "price_change": 5.0},
}
Record = dict[str, Any]


def busy(seed: int, windows: int, full: bool = False, world: dict[str, Any] = WORLD) -> FlatEnv:
    """An environment in mid-run."""
    env = FlatEnv("month", world)
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    fill = np.concatenate([np.zeros(9, dtype=int), rng.integers(0, 1 + P, 20)])
    for window in range(windows):
        action = np.where(rng.random(29) < 0.2, rng.integers([2 + P] * 9 + [1 + P] * 20), 0)
        env.step(fill if window % 4 == 0 or (full and window == windows - 1) else action)
    return env


def tried(env: FlatEnv, action: Any) -> tuple[Record, Any, FlatEnv]:
    """Record, return and successor of an action on a clone."""
    records: list[Record] = []
    twin = env.clone()
    twin.add_listener(records.append)
    step = twin.step(action)
    (record,) = records
    return record, step, twin


def single(env: FlatEnv, dimension: int, number: int) -> np.ndarray[Any, Any]:
    action = np.zeros(len(env.action_space.nvec), dtype=int)  # type: ignore[attr-defined]
    action[dimension] = number
    return action


def as_discrete(env: FlatEnv) -> FlatEnv:
    """The same episode with actions of one number."""
    twin = FlatEnv("month", WORLD, action="discrete")
    twin.restore(env.snapshot())
    return twin


def shelf(env: FlatEnv) -> dict[int, int]:
    view = env.session.view(0).shelf()
    return dict(zip(view.product.tolist(), view.sale_price.tolist(), strict=True))


CASES = [(1, 3, False), (2, 11, False), (5, 17, True), (8, 30, False), (3, 0, False)]


@pytest.mark.parametrize(("seed", "windows", "full"), CASES)
def test_every_entry_does_something_or_is_counted(seed: int, windows: int, full: bool) -> None:
    env = busy(seed, windows, full)
    mask = env.action_masks()
    still, waited, _ = tried(env, np.zeros(29, dtype=int))
    assert [call["name"] for call in still["calls"]] == ["end_of_step"]
    on = off = place = 0
    for dimension, width in enumerate([2 + P] * 9 + [1 + P] * 20):
        for number in range(width):
            record, step, _ = tried(env, single(env, dimension, number))
            kinds = [call["name"] for call in record["calls"][:-1]]
            if number == 0:
                assert mask[place] and kinds == []
            elif mask[place]:
                on += 1
                (call,) = record["calls"][:-1]
                assert (call["applied"], call["rejected"]) == (1, 0)
                assert record["state_digest"] != still["state_digest"]
                assert step[4]["flat_invalid"] == 0
            else:
                off += 1
                assert kinds == []
                assert record["state_digest"] == still["state_digest"]
                assert step[4]["flat_invalid"] == 1
                np.testing.assert_array_equal(step[0], waited[0])
                assert {**step[4], "flat_invalid": 0, "action_mask": 0} == {**waited[4], "action_mask": 0}
            assert step[4]["flat_dropped"] == 0
            place += 1
    assert place == len(mask) == 9 * 8 + 20 * 7
    assert on > 20 and off > 20


@pytest.mark.parametrize(("seed", "windows", "full"), CASES)
def test_every_action_of_one_number_does_something_or_is_counted(seed: int, windows: int, full: bool) -> None:
    env = as_discrete(busy(seed, windows, full))
    mask = env.action_masks()
    assert mask.shape == (3 + 3 * P,) and mask[0]
    still, _, _ = tried(env, 0)
    for number in range(1, len(mask)):
        record, step, _ = tried(env, number)
        assert (record["state_digest"] != still["state_digest"]) is bool(mask[number])
        assert step[4]["flat_invalid"] == (not mask[number])
        assert (len(record["calls"]) > 1) is bool(mask[number])
        assert all(call["ok"] and not call["rejected"] for call in record["calls"])


@pytest.mark.parametrize(("seed", "windows", "full"), CASES)
def test_one_number_amounts_to_many(seed: int, windows: int, full: bool) -> None:
    """Each action of one number is one of many, and refilling is both delistings plus filling."""
    env = busy(seed, windows, full)
    small = as_discrete(env)
    mask = env.action_masks()
    slots, candidates = mask[:72].reshape(9, 2 + P), mask[72:].reshape(20, 1 + P)
    scene = env._look().scene
    put = env._look().options.put

    def many(numbers: list[int]) -> Any:
        return tried(env, np.array(numbers))[2].session.digest()

    def one(number: int) -> Any:
        return tried(small, number)[2].session.digest()

    keep = [0] * 9
    for j in range(P):
        assert one(1 + j) == many([(2 + j) * int(slots[i, 2 + j]) for i in range(9)] + [0] * 20)
        filling = [(1 + j) * int(candidates[i, 1 + j]) for i in range(20)]
        assert one(P + 3 + j) == many(keep + filling)
        dirty = [int(scene.risky[i] or scene.idle[i]) for i in range(9)]
        refilled = tried(small, 2 * P + 3 + j)[0]
        calls = {call["name"]: call["arguments"] for call in refilled["calls"]}
        assert len(calls.get("delist_product", {"items": []})["items"]) == sum(dirty)
        room = env._look().options.free + sum(dirty)
        assert len(calls.get("list_product", {"items": []})["items"]) == min(room, int(put[:, j].sum()))
        if env._look().options.free:
            wanted = [(1 + j) * int(put[i, j]) for i in range(20)]
            assert one(2 * P + 3 + j) == many(dirty + wanted)
    assert one(P + 1) == many([int(x) for x in scene.risky] + [0] * 20)
    assert one(P + 2) == many([int(x) for x in scene.idle] + [0] * 20)


def test_refilling_a_full_shelf_uses_the_slots_it_frees() -> None:
    for seed in range(30):
        env = busy(seed, 25, full=True)
        now = env._look()
        dirty = int((now.scene.risky | now.scene.idle).sum())
        if not now.options.free and 0 < dirty < 9 and now.options.put[:, 1].sum() >= dirty:
            break
    small = as_discrete(env)
    mask = small.action_masks()
    assert not mask[P + 3 : 2 * P + 3].any()
    assert mask[2 * P + 3 :].all()
    record, _, twin = tried(small, 2 * P + 4)
    assert [call["name"] for call in record["calls"]] == ["delist_product", "list_product", "end_of_step"]
    assert record["calls"][0]["applied"] == record["calls"][1]["applied"] == dirty
    before, after = now.scene.slots, twin._look().scene.slots
    stay = ~(now.scene.risky | now.scene.idle)
    np.testing.assert_array_equal(after[stay], before[stay])
    assert (after[~stay] != before[~stay]).all()
    # Listings by themselves are off on a full shelf, also beside a delisting.
    action = [*[int(x) for x in ~stay], *[2] * 20]
    record, step, _ = tried(env, action)
    assert [call["name"] for call in record["calls"]] == ["delist_product", "end_of_step"]
    assert (step[4]["flat_invalid"], step[4]["flat_dropped"]) == (20, 0)


def test_overflow_keeps_the_first_and_counts_the_rest() -> None:
    env = busy(1, 0, world={"merchant": {"max_listings": 9, "max_price": 250.0}})
    put = env._look().options.put[:, 2]
    assert 12 < put.sum() < 20
    record, step, twin = tried(env, [0] * 9 + [3] * 20)
    listed = np.flatnonzero(put)[:9]
    assert twin._look().scene.slots.tolist() == env._look().scene.candidates[listed].tolist()
    assert step[4]["flat_dropped"] == put.sum() - 9
    assert step[4]["flat_invalid"] == 20 - put.sum()
    # Slots freed in the same step count.
    env = tried(env, [0] * 9 + [3 * int(i in listed[:8]) for i in range(20)])[2]
    put = env._look().options.put[:, 2]
    record, step, _ = tried(env, [1, 0, 1, *[0] * 6, *[3] * 20])
    assert record["calls"][1]["applied"] == 3
    assert step[4]["flat_dropped"] == put.sum() - 3


@pytest.mark.parametrize("tool", ["delist_product", "adjust_price", "list_product"])
def test_what_the_scenario_denies_is_off(tool: str) -> None:
    free = FlatEnv("month", {**WORLD, "tools": {"denied": [tool]}})
    free.reset(seed=2)
    free.step([0] * 9 + [2] * 20)
    slots = free.action_masks()[:72].reshape(9, 8)
    candidates = free.action_masks()[72:].reshape(20, 7)
    listed = tool != "list_product"
    assert slots[:, 1].any() == (listed and tool != "delist_product")
    assert slots[:, 2:].any() == (listed and tool != "adjust_price")
    assert candidates[:, 1:].any() == listed
    record, _, _ = tried(free, [1, 3] * 4 + [1] + [4] * 20)
    assert all(call["ok"] for call in record["calls"])
    assert tool not in {call["name"] for call in record["calls"]}


@given(numbers=st.data(), seed=st.integers(0, 5))
@settings(max_examples=25)
def test_an_action_is_the_sum_of_its_entries(numbers: st.DataObject, seed: int) -> None:
    """Valid changes of different slots do not get in each other's way, whatever else is chosen."""
    env = busy(seed, 9)
    mask = env.action_masks()
    widths = [2 + P] * 9 + [1 + P] * 20
    action = [numbers.draw(st.integers(0, width - 1)) for width in widths]
    starts = np.cumsum([0, *widths[:-1]])
    valid = [bool(mask[start + number]) for start, number in zip(starts, action, strict=True)]
    record, step, _ = tried(env, action)
    room = env._look().options.free + sum(a == 1 for a, ok in zip(action[:9], valid, strict=False) if ok)
    listings = sum(a > 0 for a, ok in zip(action[9:], valid[9:], strict=True) if ok)
    applied = {call["name"]: call["applied"] for call in record["calls"]}
    assert applied.pop("end_of_step") == 0
    changes = {
        "delist_product": sum(a == 1 for a, ok in zip(action[:9], valid, strict=False) if ok),
        "adjust_price": sum(a > 1 for a, ok in zip(action[:9], valid, strict=False) if ok),
        "list_product": min(listings, room),
    }
    assert applied == {name: count for name, count in changes.items() if count}
    assert list(applied) == [name for name in changes if changes[name]]
    assert all(not call["rejected"] for call in record["calls"])
    assert step[4]["flat_invalid"] == valid.count(False)
    assert step[4]["flat_dropped"] == listings - min(listings, room)
    without = [number if ok else 0 for number, ok in zip(action, valid, strict=True)]
    assert tried(env, without)[0]["state_digest"] == record["state_digest"]
