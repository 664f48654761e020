"""The measurements: that they measure what they say. How fast anything is, is no matter here."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest

from merchantbench_gym import bench, bench_tools, cli
from merchantbench_gym.market import World
from merchantbench_gym.scenario import load_scenario


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All measurements on a week, with a short yardstick."""
    monkeypatch.setattr(bench, "load_scenario", lambda name: load_scenario("smoke"))
    monkeypatch.setattr(bench, "CALLS", 100)
    monkeypatch.setattr(bench_tools, "ROUNDS", 2)
    monkeypatch.setattr(bench, "resident_megabytes", lambda name: None if name == "large" else 64.0)


def test_every_row_is_there(small: None) -> None:
    said: list[str] = []
    outcome = bench.measure(said.append)
    assert outcome["yardstick_s"] > 0
    rows = outcome["rows"]
    assert all(set(row) == {"name", "value", "unit", "must", "goal", "ratio", "orders"} for row in rows)
    assert [row["name"] for row in rows] + [f"{n}: reading in mid-year" for n in ("default", "large")] == said
    assert len(rows) == 12
    assert [row["unit"] for row in rows] == [
        *(["Y"] * 4 + ["x unrecorded", "µs", "ms"]),
        *["s", "x default", "ms", "MB", "MB"],
    ]
    assert all(row["must"] > row["goal"] for row in rows)
    assert all(row["orders"] > 0 for row in rows if row["unit"] == "Y" or row["unit"][0] == "x")
    assert [row["value"] for row in rows[-2:]] == [64.0, None]


def test_the_command_prints_a_table_or_json(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["bench", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(bench, "measure", lambda say, quick: outcome)
    assert cli.run_command(["bench"]) == 0
    out = capsys.readouterr().out
    assert all(row["name"] in out for table in ("rows", "tokens", "tools") for row in outcome[table])
    assert "n/a" in out


def test_the_quick_measurement_leaves_out_the_large_market(
    small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["bench", "--quick", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in outcome["rows"] if "large" in row["name"]] == []
    assert len(outcome["rows"]) == 8
    assert {row["scenario"] for row in outcome["tools"]} == {"default"}


def test_reading_is_measured_for_every_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, Any]] = []
    clock = iter(range(10_000))
    monkeypatch.setattr(bench_tools, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(
        bench_tools,
        "estimate",
        lambda value: answers.append(json.loads(value)) or 7 if value[0] == "{" else 5,
    )
    measured = bench_tools.measure_tools(load_scenario("smoke"), rounds=4)
    tools = bench_tools.read_tools()
    assert {"market_brief", "get_observation", "query_order_detail"} <= set(tools)
    assert measured["seconds"] == {name: [1.0] * 4 for name in tools}
    assert measured["tokens"] == {**{name: [7] * 4 for name in tools}, "observation": [5] * 4}
    assert len(answers) == 4 * len(tools) and all(answer["ok"] for answer in answers)
    rows = bench_tools.time_rows({"smoke": measured, "twice": measured})
    assert len(rows) == 2 * len(tools)
    assert rows[0] == {"name": tools[0], "scenario": "smoke", "p50_us": 1e6, "p95_us": 1e6}


def test_tokens_of_what_is_read_once_are_those_of_the_scenario() -> None:
    scenario = load_scenario("smoke")
    measured = {"tokens": {name: [3, 1, 9] for name in ("observation", *bench_tools.read_tools())}}
    rows = {row["name"]: row for row in bench_tools.token_rows(scenario, measured)}
    assert rows["observation"] == {"name": "observation", "tokens": 3, "most": 9}
    env: Any = gymnasium.make("MerchantBenchSmoke-v0").unwrapped
    assert rows["brief"]["tokens"] == bench_tools.estimate(env.system_prompt)
    assert rows["schemas"]["tokens"] == bench_tools.estimate(env.tool_schemas)


def test_slices_of_the_yardstick_stand_between_slices_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    clock = iter(range(1000))
    yard = bench.Yardstick(lambda: float(next(clock)))

    def stretch() -> float:
        log.append("slice")
        yard.slices.append(0.1)
        return 0.1

    monkeypatch.setattr(yard, "slice", stretch)

    def work(pause: bench.Pause) -> None:
        for _ in range(2):
            log.append("work")
            pause()

    # Each of the three stretches of work takes one tick of this clock; a yardstick takes 10 × 0.1.
    assert yard.compare(work, 1) == pytest.approx(3.0)
    assert log == ["slice", "work", "slice", "work", "slice", "slice"]
    assert yard.run(work) == ([1.0] * 3, [0.1] * 4)
    assert yard.seconds == pytest.approx(1.0)


def test_refill_keeps_the_shelf_full_of_what_is_on_offer() -> None:
    scenario = load_scenario("smoke")
    world = World(scenario, bench.SEED)
    for t in range(0, scenario.horizon_hours, 12):
        if t:
            world.advance(t)
        bench._refill_shelf(world)
        shelf = world.shelf(0)
        assert len(shelf.product) == 50
        assert shelf.listed.all()


def test_refill_lists_by_index_at_one_and_a_half_times_the_price() -> None:
    world = World(load_scenario("smoke"), bench.SEED)
    bench._refill_shelf(world)
    view = world.products()
    first = view.product[view.listed][:50].tolist()
    shelf = world.shelf(0)
    assert shelf.product.tolist() == first
    assert shelf.sale_price.tolist() == [round(1.5 * price) for price in view.price[first].tolist()]


def test_cold_and_warm_caches_give_the_same_market() -> None:
    scenario = load_scenario("month")
    orders: list[int] = []
    seen = []
    for cold in (True, False, True):
        bench.refill(scenario, orders, lambda: None, cold=cold)
        seen.append(orders[-1])
    assert seen[0] == seen[1] == seen[2] > 0


def test_end_only_lists_fifty_and_then_only_ends() -> None:
    env: Any = gymnasium.make("MerchantBenchSmoke-v0")
    step, names = env.unwrapped.step, []

    def spy(action: Any) -> Any:
        names.append([call["name"] for call in action])
        return step(action)

    env.unwrapped.step = spy
    orders: list[int] = []
    bench.end_only(env, orders, lambda: None)
    assert names == [["list_product"], *[["end_of_step"]] * 14]
    assert env.unwrapped.session.world.shelf_size(0) == 50
    assert orders[-1] > 0


def test_memory_is_read() -> None:
    peak = bench.peak_bytes()
    assert peak is None or peak > 2**20
