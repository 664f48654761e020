"""How time and memory grow: along listings, products, merchants, orders, environments and elapsed time.

Every job is a process of its own. It builds its market, takes slices of the yardstick between slices of its
work (see :mod:`bench`) and tells its largest resident memory, interpreter and libraries included. Times and
orders are per simulated year. Times are those of the processor, which do not grow with what else the machine
does; only environments are timed by the clock on the wall, since some of them work in other processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from multiprocessing import active_children
from time import perf_counter, process_time
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from merchantbench_gym import bench
from merchantbench_gym.bench import SEED, SLICES, Laps, Pause, Say, Yardstick
from merchantbench_gym.market import World, clear_caches
from merchantbench_gym.scenario import Scenario, load_scenario

DAYS = 365
REPEATS = 3
ENOUGH = 2.0  # seconds of work after which it is not repeated
VECTOR_DAYS = 30
BATCH = "vector_entry_point"

Row = dict[str, Any]
Settings = dict[str, Any]
Work = Callable[[list[int], Pause], None]

RICH: Settings = {"initial_cash": 10_000_000.0, "initial_deposit": 10_000_000.0}
# Scales of demand by the orders a day that come of them.
BARE_SCALES = {5: 2.4, 20: 11.7, 50: 31.5, 100: 65.0}
TEXT_SCALES = {5: 13.0, 20: 59.0, 50: 152.0, 100: 320.0}


# -- what is played ------------------------------------------------------------------------------------


def _bare(scenario: Scenario, size: int) -> Work:
    return partial(bench.refill, scenario)


def _bare_seats(scenario: Scenario, size: int) -> Work:
    return partial(bench.refill, scenario, merchants=size)


def _text(scenario: Scenario, size: int) -> Work:
    return partial(bench.end_only, bench.make(scenario))


def _rules(scenario: Scenario, size: int) -> Work:
    return partial(bench.rule_based, bench.make(scenario))


def _text_seats(scenario: Scenario, size: int) -> Work:
    from merchantbench_gym.envs import MarketplaceEnv

    return partial(end_only_seats, MarketplaceEnv(scenario, merchants=size))


def end_only_seats(market: Any, orders: list[int], pause: Pause) -> None:
    """A year of lone ``end_of_step`` of every seat after 50 listings in the first window."""
    orders.clear()
    market.reset(seed=SEED)
    world = market.session.world
    calls = [bench.first_listing(world)]
    while market.agents:
        market.step(dict.fromkeys(market.agents, calls))
        calls = bench.END
        if market.session.window % bench.EVERY == 0 and market.session.window:
            orders.append(bench.count_orders(world))
            pause()
    orders.append(bench.count_orders(world))


class CountOrders(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells the orders of an environment, in whatever process it runs."""

    def orders(self) -> int:
        """Orders so far."""
        return bench.count_orders(self.get_wrapper_attr("session").world)


def _vector(mode: str, scenario: Scenario, size: int) -> Work:
    envs = gymnasium.make_vec(
        "merchantbench_gym:MerchantBenchFlat-v0",
        num_envs=size,
        vectorization_mode=mode,
        wrappers=[] if mode == BATCH else [CountOrders],
        scenario=scenario,
        action="discrete",
    )
    envs.reset(seed=SEED)  # builds the markets
    return partial(play_vector, envs)


def play_vector(envs: Any, orders: list[int], pause: Pause) -> None:
    """The first days of environments whose markets differ; each draws what its action mask allows."""
    orders.clear()
    rng, (_, infos) = np.random.default_rng(SEED), envs.reset(seed=SEED)
    for window in range(2 * VECTOR_DAYS):
        masks = infos["action_mask"]
        *_, infos = envs.step((rng.random(masks.shape) * masks).argmax(axis=1))
        if window % 6 == 5:
            pause()
    if envs.spec.kwargs["vectorization_mode"] == BATCH:
        orders.append(sum(bench.count_orders(session.world) for session in envs.call("session")))
    else:
        orders.append(sum(envs.call("orders")))


# -- along what ----------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """Settings that differ in one number.

    Attributes:
        name: What the number is.
        played: What is played.
        sizes: The numbers.
        quick: The largest one of a quick measurement.
        settings: Scenario settings for a number.
        work: Makes the work for scenario and number.
        vector: Whether the number is one of environments that play `VECTOR_DAYS` each.
    """

    name: str
    played: str
    sizes: tuple[int, ...]
    quick: int
    settings: Callable[[int], Settings]
    work: Callable[[Scenario, int], Work]
    vector: bool = False


class Course(NamedTuple):
    """A run that is cut into pieces: a year into tenths, ten years into years.

    Attributes:
        name: What a piece is.
        played: What is played.
        years: Length of the run.
        work: Makes the work for scenario and length.
    """

    name: str
    played: str
    years: int
    work: Callable[[Scenario, int], Work]


BARE, TEXT, RULES = "bare, refill", "end-only, text", "rule-based, tools"
SHOWN = (1, 4, 7, 10)  # pieces of a course
PRODUCTS, SEATS, ENVS = (1_000, 10_000, 30_000, 100_000), (1, 2, 4, 8, 16, 32), (1, 8, 64)


def _products(size: int) -> Settings:
    return {"catalog": {"products": size}}


def _listings(size: int) -> Settings:
    return {"merchant": {"max_listings": size}}


def _orders(scales: dict[int, float], size: int) -> Settings:
    return {"merchant": RICH, "demand": {"scale": scales[size]}}


def _default(size: int) -> Settings:
    return {}


AXES = (
    Axis("listings", BARE, (10, 20, 30, 40, 50), 50, _listings, _bare),
    Axis("products", BARE, PRODUCTS, 10_000, _products, _bare),
    Axis("products", RULES, PRODUCTS, 10_000, _products, _rules),
    Axis("merchants", BARE, SEATS, 4, _default, _bare_seats),
    Axis("merchants", TEXT, SEATS, 4, _default, _text_seats),
    Axis("orders a day", BARE, tuple(BARE_SCALES), 20, partial(_orders, BARE_SCALES), _bare),
    Axis("orders a day", TEXT, tuple(TEXT_SCALES), 20, partial(_orders, TEXT_SCALES), _text),
    Axis("environments", "flat, sync", ENVS, 8, _default, partial(_vector, "sync"), vector=True),
    Axis("environments", "flat, batch", ENVS, 8, _default, partial(_vector, BATCH), vector=True),
    Axis("environments", "flat, async", ENVS, 8, _default, partial(_vector, "async"), vector=True),
)
COURSES = (
    Course("tenth of a year", BARE, 1, _bare),
    Course("tenth of a year", TEXT, 1, _text),
    Course("tenth of a year", RULES, 1, _rules),
    Course("year of ten", BARE, 10, _bare),
    Course("year of ten", TEXT, 10, _text),
)


# -- one job -------------------------------------------------------------------------------------------


def axis_rows(axis: Axis, size: int) -> list[Row]:
    """The row of an axis and a number."""
    scenario, build_ms = _build({"run": {"horizon_days": DAYS}, **axis.settings(size)})
    work, orders = axis.work(scenario, size), list[int]()
    runs, resident = _repeat(work, orders, perf_counter if axis.vector else process_time)
    years = size * VECTOR_DAYS / DAYS if axis.vector else 1
    return [
        _row(
            axis,
            size,
            ms=statistics.median(sum(run.seconds) for run in runs) * 1e3 / years,
            ratio=statistics.median(run.ratio for run in runs) / years,
            orders=round(orders[-1] / years),
            build_ms=build_ms,
            resident_mb=resident,
        )
    ]


def course_rows(course: Course) -> list[Row]:
    """Rows of some pieces of a course: what a year costs at the pace of the piece, and its orders."""
    settings = {"run": {"horizon_days": course.years * DAYS}, "merchant": RICH}
    scenario, build_ms = _build(settings)
    work, orders = course.work(scenario, course.years), list[int]()
    runs, resident = _repeat(work, orders)
    new = [after - before for before, after in pairwise([0, *orders])]
    laps, rows = course.years, []
    for piece in SHOWN:
        cut = slice((piece - 1) * laps, piece * laps)
        per_year = SLICES / laps
        rows.append(
            _row(
                course,
                piece,
                ms=statistics.median(sum(run.seconds[cut]) for run in runs) * 1e3 * per_year,
                ratio=statistics.median(_ratio(run, cut) for run in runs) * per_year,
                orders=round(sum(new[cut]) * per_year),
                build_ms=build_ms,
                resident_mb=resident if piece == SHOWN[-1] else None,
            )
        )
    return rows


def _ratio(run: Laps, cut: slice) -> float:
    """Time of some stretches in yardsticks, by the slices around them."""
    return Laps(run.seconds[cut], run.slices[cut.start : cut.stop + 1]).ratio


def _row(along: Axis | Course, size: int, **figures: Any) -> Row:
    return {"along": along.name, "size": size, "played": along.played, **figures}


def _build(settings: Settings) -> tuple[Scenario, float]:
    """Scenario, and milliseconds it takes to build its market from nothing."""
    scenario = load_scenario("default", settings)
    clear_caches()
    started = process_time()
    World(scenario, SEED).timelines.ensure(scenario.horizon_hours)
    return scenario, (process_time() - started) * 1e3


def _repeat(
    work: Work, orders: list[int], clock: Callable[[], float] = process_time
) -> tuple[list[Laps], float | None]:
    """Repetitions of some work, and the memory after the first one."""
    yard = Yardstick(clock)
    runs = [yard.run(partial(work, orders))]
    resident = resident_megabytes()
    while len(runs) < REPEATS and sum(sum(run.seconds) for run in runs) < ENOUGH:
        runs.append(yard.run(partial(work, orders)))
    return runs, resident


def resident_megabytes() -> float | None:
    """Largest resident memory so far, and what worker processes hold now, shared pages in equal parts."""
    own = bench.peak_bytes()
    if own is None:
        return None
    shares = 0
    for child in active_children():
        with suppress(OSError), open(f"/proc/{child.pid}/smaps_rollup", encoding="ascii") as rollup:
            shares += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    return (own + shares) / 2**20


# -- all of them ---------------------------------------------------------------------------------------


def job(along: str, index: int, size: int) -> list[Row]:
    """Rows of one job.

    Args:
        along: "axis" or "course".
        index: Which of them.
        size: The number of an axis.
    """
    return axis_rows(AXES[index], size) if along == "axis" else course_rows(COURSES[index])


def fresh(along: str, index: int, size: int) -> list[Row]:
    """Run a job in a process of its own; arguments as :func:`job`."""
    code = f"from merchantbench_gym import bench_scaling as b; b.print_job({along!r}, {index}, {size})"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    rows: list[Row] = json.loads(done.stdout)
    return rows


def print_job(along: str, index: int, size: int) -> None:
    """Run a job and print its rows as JSON."""
    print(json.dumps(job(along, index, size)))


def measure(say: Say = lambda text: None, *, quick: bool = False) -> dict[str, Any]:
    """Measure along every axis and course.

    Args:
        say: Called with a word about what is being measured.
        quick: Whether to leave out what takes long.

    Returns:
        ``idle_mb``, the memory of a process that has loaded the library and nothing more, and ``rows``; a row
        has ``along, size, played, ms, ratio, orders, build_ms, resident_mb``. ``ms`` and ``orders`` are per
        simulated year, of all merchants, of one environment; ``ratio`` is the time in yardsticks; memory is
        that of everything and None where the system or the row does not tell.
    """
    idle, rows = idle_megabytes(), []
    for index, axis in enumerate(AXES):
        for size in axis.sizes:
            if not quick or size <= axis.quick:
                say(f"{axis.name}: {size:,} ({axis.played})")
                rows += fresh("axis", index, size)
    for index, course in enumerate(COURSES):
        if not quick or course.years == 1:
            say(f"{course.name} ({course.played})")
            rows += fresh("course", index, 0)
    return {"idle_mb": idle, "rows": rows}


def idle_megabytes() -> float | None:
    """Memory of a fresh process that has loaded this module."""
    code = "from merchantbench_gym import bench_scaling as b; print(b.resident_megabytes() or '')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout) if done.stdout.strip() else None
