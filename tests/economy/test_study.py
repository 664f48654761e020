"""The study of the economy: its figures by hand, and that the whole of it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

# The study is a script; its two modules lie beside it.
sys.path.insert(0, str(Path(__file__).parent))

import study
from heuristics import HABITS, MARKUPS, PREFERENCES, Heuristic, heuristics

from merchantbench_gym.market import World
from merchantbench_gym.scenario import load_scenario


@pytest.fixture
def world() -> World:
    return World(load_scenario("smoke"), 1)


def test_every_preference_at_every_markup_and_every_habit() -> None:
    found = heuristics()
    assert len(found) == (len(PREFERENCES) + 1) * len(MARKUPS) + len(HABITS) == 46
    assert all(markup > 1 for markup in MARKUPS)


@pytest.mark.parametrize("preference", [*PREFERENCES, "random"])
def test_a_shelf_is_filled_with_what_is_preferred(world: World, preference: str) -> None:
    Heuristic(preference, 1.5).act(world)
    shelf, view = world.shelf_products(0), world.catalog_view()
    assert len(shelf) == world.rules.max_listings
    for product in shelf:
        assert view.listed[product]
        assert view.price[product] <= world.accounts(0).balance
        assert world.sale_price(0, product) == int(np.rint(view.price[product] * 1.5))
    if preference != "random":
        score = PREFERENCES[preference](world)
        possible = view.listed & (view.ship_hours <= 48) & (view.price <= world.accounts(0).balance)
        possible[shelf] = False
        assert score[shelf].min() >= score[possible].max()


def test_withdrawn_products_leave_unless_the_habit_keeps_them() -> None:
    scenario = load_scenario("month", {"difficulty": {"delist": 30}})
    kept = {}
    for habit in ("", "keep what is withdrawn"):
        world, merchant = World(scenario, 1), Heuristic("trust", 1.8, habit)
        merchant.act(world)
        world.advance(240)
        merchant.act(world)
        view = world.catalog_view()
        kept[habit] = sum(not view.listed[product] for product in world.shelf_products(0))
    assert kept[""] == 0 < kept["keep what is withdrawn"]


def test_what_was_ordered_is_dropped_by_habit() -> None:
    world, merchant = (
        World(load_scenario("month"), 1),
        Heuristic("trust", 1.5, "only what nobody ordered yet"),
    )
    for t in range(12, 360, 12):
        merchant.act(world)
        world.advance(t)
    merchant.act(world)
    ordered = {order.product for order in world.orders(0)}
    assert ordered
    assert not ordered & set(world.shelf_products(0))


def test_variance_is_split_between_seeds_and_policies() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [11.0, 12.0, 13.0]])  # the policies differ by 10 on every seed
    parts = study.decomposition(rows)
    assert parts["between_seeds"] == pytest.approx((2 / 3) / (25 + 2 / 3))
    assert parts["policy"] == pytest.approx(25 / (25 + 2 / 3))
    assert parts["interaction"] == pytest.approx(0)
    assert parts["within_seeds"] == pytest.approx(1 - parts["between_seeds"])


def test_pairing_removes_what_seeds_have_in_common() -> None:
    seeds = np.arange(10.0)
    apart, paired = study.widths(seeds + 1, seeds)
    assert apart > 1
    assert paired == 0


def test_the_whole_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = study.main(["--scenario", "smoke", "--seeds", "1-3", "--workers", "1", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    for heading in ("Ladder", "Heuristics", "variance", "Interval of a difference", "of oracle's profit"):
        assert heading in out
    written = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    assert set(written["scores"]) == {*study.LADDER, *heuristics()}
    assert written["share_of_oracle"]["oracle"] == 1
    assert done.scores["passive"].tolist() == [3000.0] * 3


@pytest.mark.slow
def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    study.main(["--scenario", "smoke", "--seeds", "1-3", "--workers", "1", "--out", str(tmp_path), "--plots"])
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [
        "money.png",
        "net_assets.png",
        "profit_by_rating.png",
        "season.png",
    ]


@pytest.mark.slow
def test_skill_pays_and_bad_habits_cost() -> None:
    scenario = load_scenario("month")

    def mean(name: str) -> float:
        return float(np.mean([heuristics()[name].play(World(scenario, seed)) for seed in range(1, 6)]))

    good = mean("trust @ 1.8")
    assert good > mean("random @ 1.8") > mean("distrust @ 1.8")
    for habit in HABITS:
        if habit != "start anew every window":  # which neither helps nor hurts: a listing keeps its age
            assert mean(f"habit: {habit}") < good
