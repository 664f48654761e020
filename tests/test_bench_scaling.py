"""The measurements of growth: that they measure what they say. How fast anything is, is no matter here."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from merchantbench_gym import bench, bench_scaling, cli
from merchantbench_gym.bench_scaling import AXES, COURSES
from merchantbench_gym.envs import MarketplaceEnv
from merchantbench_gym.market import World
from merchantbench_gym.scenario import load_scenario

KEYS = {"along", "size", "played", "ms", "ratio", "orders", "build_ms", "resident_mb"}
TIMES = ("ms", "ratio", "build_ms")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs in this process, on five days, the first number of each axis, with a short yardstick."""
    monkeypatch.setattr(bench, "CALLS", 100)
    monkeypatch.setattr(bench, "EVERY", 1)
    monkeypatch.setattr(bench_scaling, "DAYS", 5)
    monkeypatch.setattr(bench_scaling, "VECTOR_DAYS", 3)
    monkeypatch.setattr(bench_scaling, "AXES", [axis._replace(sizes=axis.sizes[:1]) for axis in AXES])
    monkeypatch.setattr(bench_scaling, "COURSES", [course._replace(years=1) for course in COURSES])
    monkeypatch.setattr(bench_scaling, "fresh", bench_scaling.job)
    monkeypatch.setattr(bench_scaling, "idle_megabytes", lambda: 50.0)


def test_every_axis_and_course_has_its_rows(small: None) -> None:
    said: list[str] = []
    outcome = bench_scaling.measure(said.append)
    rows = outcome["rows"]
    assert outcome["idle_mb"] == 50.0
    assert all(set(row) == KEYS and all(row[time] > 0 for time in TIMES) for row in rows)
    assert [(row["along"], row["played"], row["size"]) for row in rows] == [
        *((axis.name, axis.played, axis.sizes[0]) for axis in AXES),
        *((course.name, course.played, piece) for course in COURSES for piece in bench_scaling.SHOWN),
    ]
    assert all(row["orders"] > 0 for row in rows[: len(AXES)])
    assert len(said) == len(AXES) + len(COURSES)
    json.dumps(outcome)


def test_a_quick_measurement_leaves_out_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[tuple[str, int, int]] = []
    monkeypatch.setattr(bench_scaling, "fresh", lambda *job: jobs.append(job) or [])
    monkeypatch.setattr(bench_scaling, "idle_megabytes", lambda: None)
    bench_scaling.measure(quick=True)
    few = set(jobs)
    bench_scaling.measure()
    assert few < set(jobs)
    for index, axis in enumerate(AXES):
        assert {size for kind, i, size in few if (kind, i) == ("axis", index)} == {
            size for size in axis.sizes if size <= axis.quick
        }
    assert {COURSES[i].years for kind, i, _ in few if kind == "course"} == {1}


def test_the_command_prints_tables_or_json(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"along": "products", "size": 30_000, "played": "bare", "ms": 1234.4, "ratio": 9.0, "orders": 7}
    outcome = {"idle_mb": 50.0, "rows": [row | {"build_ms": 3.0, "resident_mb": None}]}
    asked: list[bool] = []
    monkeypatch.setattr(bench_scaling, "measure", lambda say, quick: asked.append(quick) or outcome)
    assert cli.run_command(["bench", "--scaling", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == outcome
    assert cli.run_command(["bench", "--scaling"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("products", "30,000", "1,234", "9.00", "50 MB"))
    assert asked == [True, False]


def test_an_axis_changes_its_number_and_nothing_else() -> None:
    plain = load_scenario("default").resolved()
    for axis in AXES:
        for size in axis.sizes:
            resolved = load_scenario("default", axis.settings(size)).resolved()
            changed = {key for key in plain if resolved[key] != plain[key]}
            assert changed <= {
                "listings": {"merchant"},
                "products": {"catalog"},
                "orders a day": {"demand", "merchant"},
            }.get(axis.name, set())
    assert load_scenario("default", AXES[0].settings(20)).merchant.max_listings == 20
    assert load_scenario("default", AXES[1].settings(10_000)).catalog.products == 10_000


def test_a_course_divides_the_run_into_its_pieces(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten days of one window each stand for the year; two orders come in each."""

    def work(orders: list[int], pause: bench.Pause) -> None:
        orders.clear()
        for day in range(20):
            orders.append(2 * (day + 1))
            if day < 19:
                pause()

    clock = iter(range(100_000))
    monkeypatch.setattr(bench_scaling, "Yardstick", lambda given: bench.Yardstick(lambda: float(next(clock))))
    monkeypatch.setattr(bench.Yardstick, "slice", lambda self: self.slices.append(0.5) or 0.5)
    course = bench_scaling.Course("year of two", "nothing", 2, lambda scenario, size: work)
    rows = bench_scaling.course_rows(course)
    # Each stretch takes a tick of a second; a piece of two stretches is a fifth of a year here.
    assert [row["ms"] for row in rows] == pytest.approx([10_000.0] * 4)
    assert [row["ratio"] for row in rows] == pytest.approx([10 / 5.0] * 4)
    assert [row["orders"] for row in rows] == [20] * 4
    assert [row["size"] for row in rows] == list(bench_scaling.SHOWN)


def test_every_seat_of_a_bare_year_refills_its_shelf() -> None:
    scenario = load_scenario("smoke")
    orders: list[int] = []
    alone = World(scenario, bench.SEED)
    bench.refill(scenario, orders, lambda: None, merchants=3)
    three = orders[-1]
    bench.refill(scenario, orders, lambda: None)
    assert alone.merchants == 1
    assert three > 2 * orders[-1] > 0


def test_every_seat_lists_fifty_and_then_only_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "EVERY", 2)
    market = MarketplaceEnv("smoke", merchants=2)
    step, names = market.step, []

    def spy(actions: Any) -> Any:
        names.append({agent: [call["name"] for call in calls] for agent, calls in actions.items()})
        return step(actions)

    monkeypatch.setattr(market, "step", spy)
    orders: list[int] = []
    pauses: list[int] = []
    bench_scaling.end_only_seats(market, orders, lambda: pauses.append(orders[-1]))
    both = ("merchant_0", "merchant_1")
    assert names[0] == {agent: ["list_product"] for agent in both}
    assert names[1:15] == [{agent: ["end_of_step"] for agent in both}] * 14
    assert [market.session.world.shelf_size(m) for m in range(2)] == [50, 50]
    assert len(pauses) >= 6 and [*pauses, orders[-1]] == orders == sorted(orders)


def test_environments_play_the_same_in_every_way_to_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_scaling, "VECTOR_DAYS", 6)
    told = []
    for axis in AXES:
        if axis.name == "environments":
            work = axis.work(load_scenario("smoke"), 2)
            assert isinstance(work, partial)
            envs = work.args[0]
            orders: list[int] = []
            pauses: list[None] = []
            work(orders, lambda pauses=pauses: pauses.append(None))
            assert len(pauses) == 2
            told.append((orders, envs.call("action_masks")[1].tolist(), envs.call("observe")[0][1]["t"]))
            assert not any(info["flat_invalid"] for _, info in envs.call("observe"))
            envs.close()
    assert [len(told), told[0][2]] == [3, 144]
    assert told[0] == told[1] == told[2]
    assert told[0][0][-1] > 0


def test_a_job_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    class Done:
        stdout = '[{"along": "listings"}]'

    def run(command: list[str], **options: Any) -> Done:
        ran.append(command)
        return Done()

    monkeypatch.setattr(bench_scaling.subprocess, "run", run)
    assert bench_scaling.fresh("axis", 0, 10) == [{"along": "listings"}]
    printed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(bench_scaling, "print_job", lambda *job: printed.append(job))
    exec(ran[0][-1], {})
    assert printed == [("axis", 0, 10)]


def test_memory_of_this_process_is_told() -> None:
    resident = bench_scaling.resident_megabytes()
    assert resident is None or resident > 1
