"""Speed and memory on this machine.

Times are compared with a yardstick, Y: 8,760 draws of 50 Poisson numbers. The speed of a machine drifts while
one measures, so slices of the yardstick are taken between slices of the measured work, and medians over
several repetitions are reported. What lay in memory before a repetition is kept out of garbage collection
while it runs (``gc.freeze``); what the measured work allocates itself is collected as ever.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from merchantbench_gym import bench_tools
from merchantbench_gym.baselines import RuleBasedPolicy, run_episode
from merchantbench_gym.market import World, clear_caches
from merchantbench_gym.scenario import Scenario, load_scenario
from merchantbench_gym.wrappers import RecordRun

SEED = 42
SLICES = 10
CALLS, SIZE = 8760, 50
LOOK_AHEAD = 64  # products looked at in one go while the shelf is filled
QUERIES = (
    "ceramic",
    "steel bottle",
    "lamp",
    "cotton dress",
    "wireless",
    "dog toy",
    "garden",
    "notebook",
    "kids",
    "",
)

EVERY = 730 // SLICES  # windows between two slices
END = [{"id": "end", "name": "end_of_step", "arguments": {}}]

Pause = Callable[[], None]
Work = Callable[[Pause], None]
Say = Callable[[str], None]


class Laps(NamedTuple):
    """One repetition of some work, cut where it paused.

    Attributes:
        seconds: Time of each stretch of work.
        slices: Time of each slice of the yardstick: one before every stretch and one after the last.
    """

    seconds: list[float]
    slices: list[float]

    @property
    def ratio(self) -> float:
        """Time of the whole work in yardsticks."""
        # The mean, because whatever slows the machine down slows the long work down on average, too.
        return sum(self.seconds) / (statistics.fmean(self.slices) * SLICES)


class Ratio(NamedTuple):
    """What some work costs in relation to other work, and in yardsticks."""

    relative: float
    yardsticks: float


class Yardstick:
    """Runs slices of the yardstick on request and remembers how long they took.

    Args:
        clock: Tells seconds, for the yardstick and for what is compared with it.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._generator = np.random.Generator(np.random.PCG64(0))
        self._rates = np.full(SIZE, 0.02)
        self.slices: list[float] = []

    def slice(self) -> float:
        """Run one slice; returns the seconds it took."""
        draw, rates = self._generator.poisson, self._rates
        started = self._clock()
        for _ in range(CALLS // SLICES):
            draw(rates)
        self.slices.append(self._clock() - started)
        return self.slices[-1]

    @property
    def seconds(self) -> float:
        """Seconds of a whole yardstick: the median slice, scaled up."""
        return statistics.median(self.slices) * SLICES

    def compare(self, work: Work, repeats: int) -> float:
        """Median over repetitions of the time of some work, in yardsticks.

        Args:
            work: Does one repetition and calls its argument now and then, where a slice may be taken.
            repeats: Number of repetitions.
        """
        return statistics.median(self.run(work).ratio for _ in range(repeats))

    def run(self, work: Work) -> Laps:
        """Do one repetition of some work, with slices of the yardstick where it pauses."""
        gc.collect()
        gc.freeze()
        slices, seconds = [self.slice()], []
        resumed = self._clock()

        def pause() -> None:
            nonlocal resumed
            seconds.append(self._clock() - resumed)
            slices.append(self.slice())
            resumed = self._clock()

        work(pause)
        pause()
        gc.unfreeze()
        return Laps(seconds, slices)


# -- the measured work ---------------------------------------------------------------------------------


# Each work leaves behind the number of orders so far: at every pause, and last of all at the end.


def refill(
    scenario: Scenario, orders: list[int], pause: Pause, *, cold: bool = False, merchants: int = 1
) -> None:
    """A bare year: in each window delist what suppliers withdrew, list by index until the shelf is full."""
    if cold:
        clear_caches()
    orders.clear()
    world = World(scenario, SEED, merchants)
    windows = range(0, scenario.horizon_hours, scenario.run.activation_period)
    for window, t in enumerate(windows):
        if t:
            world.advance(t)
        for merchant in range(merchants):
            if world.alive(merchant):
                _refill_shelf(world, merchant)
        if window and window % EVERY == 0:
            orders.append(count_orders(world))
            pause()
    world.advance()
    orders.append(count_orders(world))


def _refill_shelf(world: World, merchant: int = 0) -> None:
    shelf = world.shelf_columns(merchant)
    for product in shelf.product[~shelf.listed].tolist():
        world.delist(merchant, product)
    free = world.scenario.merchant.max_listings - world.shelf_size(merchant)
    first, size, taken = 0, world.catalog.size, set(world.shelf_products(merchant))
    while free and first < size:
        block = [p for p in range(first, min(first + LOOK_AHEAD, size)) if p not in taken]
        view = world.products_at(block, world.t)
        new = view.listed.nonzero()[0][:free]
        for product, price in zip(view.product[new].tolist(), view.price[new].tolist(), strict=True):
            world.list(merchant, product, round(1.5 * price))
        free -= len(new)
        first += LOOK_AHEAD


def end_only(env: Any, orders: list[int], pause: Pause) -> None:
    """A year of lone ``end_of_step`` after 50 listings in the first window."""
    env.reset(seed=SEED)
    orders.clear()
    _, _, done, _, info = env.step([first_listing(env.unwrapped.session.world)])
    while not done:
        _, _, done, _, info = env.step(END)
        if info["window"] % EVERY == 0:
            orders.append(count_orders(env.unwrapped.session.world))
            pause()
    orders.append(count_orders(env.unwrapped.session.world))


def first_listing(world: World) -> dict[str, Any]:
    """The call that lists the first 50 products on offer."""
    view = world.catalog_view()
    items = [
        {"product_id": f"P{product:05d}", "sale_price": round(1.5 * int(view.price[product])) / 100}
        for product in np.flatnonzero(view.listed)[:50].tolist()
    ]
    return {"id": "list", "name": "list_product", "arguments": {"items": items}}


def rule_based(env: Any, orders: list[int], pause: Pause) -> None:
    """A year of the rule-based policy through the tools, with JSON results and texts."""

    def on_turn(observation: Any, reward: float, info: Any) -> None:
        if info["window_closed_by"] and info["window"] % EVERY == 0:
            orders.append(count_orders(env.unwrapped.session.world))
            pause()

    orders.clear()
    run_episode(env, RuleBasedPolicy(), seed=SEED, on_turn=on_turn)
    orders.append(count_orders(env.unwrapped.session.world))


def recorded(env: Any, orders: list[int], pause: Pause) -> None:
    """The same year written into a run file, up to its closing."""
    with tempfile.TemporaryDirectory() as folder:
        recording = RecordRun(env, Path(folder) / "year.run")
        rule_based(recording, orders, pause)
        recording.recorder.close()


def recording_ratio(yard: Yardstick, scenario: Scenario, orders: list[int], repeats: int) -> Ratio:
    """Cost of recording a rule-based year; recorded and other years take turns.

    Returns:
        Time of a recorded year in that of one that is not, and in yardsticks: medians over the repetitions.
    """
    env, pairs = make(scenario), []
    for _ in range(repeats):
        plain = yard.run(partial(rule_based, env, orders)).ratio
        # A recorder stays with its environment, so each has one of its own.
        year = yard.run(partial(recorded, make(scenario), orders)).ratio
        pairs.append(Ratio(year / plain, year))
    return Ratio(*map(statistics.median, zip(*pairs, strict=True)))


def count_orders(world: World) -> int:
    """Orders of all merchants so far."""
    return sum(int(world.order_count(m)) for m in range(world.merchants))


def clone_microseconds(env: Any) -> float:
    """Median time of a clone of an environment in mid-year."""
    play_half(env)
    times = []
    for _ in range(300):
        started = perf_counter()
        env.unwrapped.clone()
        times.append(perf_counter() - started)
    return statistics.median(times) * 1e6


def play_half(env: Any) -> None:
    """Play the first half of a run with the rule-based policy."""
    windows = env.unwrapped.scenario.run.horizon_days * 12 // env.unwrapped.scenario.run.activation_period
    run_episode(env, RuleBasedPolicy(), seed=SEED, limits={"windows": windows})


def start_milliseconds(env: Any) -> float:
    """Median time of reset, first search and first window on a market not seen before."""
    env.reset(seed=SEED)
    times = []
    for number in range(5):
        started = perf_counter()
        env.reset(seed=1000 + number)
        env.step([_search("ceramic")])
        env.step(END)
        times.append(perf_counter() - started)
    return statistics.median(times) * 1e3


def _search(query: str, page: int = 1) -> dict[str, Any]:
    return {"id": "search", "name": "search_products", "arguments": {"query": query, "page": page}}


def first_reset_seconds(scenario: Scenario) -> float:
    """Time of making an environment and its first reset, nothing cached."""
    clear_caches()
    started = perf_counter()
    make(scenario).reset(seed=SEED)
    return perf_counter() - started


def search_milliseconds(scenario: Scenario) -> float:
    """Time below which 95 % of the searches lie, the first one, which builds the index, included."""
    env = make(scenario, max_turns_per_window=1000)
    env.reset(seed=SEED)
    times = []
    for number in range(200):
        action = [_search(QUERIES[number % len(QUERIES)], 1 + number // len(QUERIES))]
        started = perf_counter()
        env.step(action)
        times.append(perf_counter() - started)
    return float(np.percentile(times, 95)) * 1e3


def resident_megabytes(scenario: str) -> float | None:
    """Memory of a fresh process after a rule-based year; None where the system does not tell."""
    code = f"from merchantbench_gym.bench import print_resident; print_resident({scenario!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout) if done.stdout.strip() else None


def print_resident(scenario: str) -> None:
    """Play a rule-based year and print the largest resident memory of this process in megabytes."""
    env = make(load_scenario(scenario))
    run_episode(env, RuleBasedPolicy(), seed=SEED)
    env.reset(seed=SEED)
    env.step([_search("ceramic")])
    peak = peak_bytes()
    if peak is not None:
        print(peak / 2**20)


def peak_bytes() -> int | None:
    """Largest resident memory of this process so far."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with suppress(ImportError):
        import resource

        # Not the first choice: on Linux it starts from the size of the parent process.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return None


def make(scenario: Scenario, **settings: Any) -> Any:
    """Make an environment."""
    return gymnasium.make("MerchantBench-v0", scenario=scenario, disable_env_checker=True, **settings)


# -- all of it -----------------------------------------------------------------------------------------


def measure(say: Say = lambda text: None, *, quick: bool = False) -> dict[str, Any]:
    """Take all measurements.

    Args:
        say: Called with a word about what is being measured.
        quick: Whether to leave out the large preset.

    Returns:
        ``yardstick_s``, ``rows``, and ``tokens`` and ``tools`` (see :mod:`bench_tools`); a row has ``name,
        value, unit, must, goal, ratio, orders``. ``ratio`` is the time in yardsticks, None for memory;
        ``orders`` is the number of orders behind the row, or None.
    """
    yard, rows = Yardstick(), []

    def add(name: str, unit: str, must: float, goal: float, value: float | None, **more: Any) -> None:
        row = {
            "name": name,
            "value": value,
            "unit": unit,
            "must": must,
            "goal": goal,
            "ratio": None,
            "orders": None,
        }
        rows.append(row | more)

    def timed(
        name: str, must: float, goal: float, work: Callable[[list[int], Pause], None], repeats: int
    ) -> float:
        say(name)
        orders: list[int] = []
        value = yard.compare(lambda pause: work(orders, pause), repeats)
        add(name, "Y", must, goal, value, ratio=value, orders=orders[-1])
        return value

    def single(
        name: str, unit: str, must: float, goal: float, seconds: float, work: Callable[[], float]
    ) -> None:
        say(name)
        value = work()
        yard.slice()
        add(name, unit, must, goal, value, ratio=value * seconds / yard.seconds)

    names = ("default",) if quick else ("default", "large")
    scenarios = {name: load_scenario(name) for name in names}
    default = scenarios["default"]
    env = make(default)
    timed("bare year, refill, cold caches", 2.5, 1.5, lambda o, p: refill(default, o, p, cold=True), 7)
    warm = timed("bare year, refill, warm caches", 2, 1, lambda o, p: refill(default, o, p), 7)
    timed("end-only year, gym step with text", 2, 1.2, lambda o, p: end_only(env, o, p), 7)
    # The first year of a market finds out what the next ones know: its reports and its customers.
    rule_based(env, [], lambda: None)
    timed("rule-based year, warm caches", 18, 8, lambda o, p: rule_based(env, o, p), 5)
    say("recording, rule-based year")
    written: list[int] = []
    cost = recording_ratio(yard, default, written, 5)
    more = {"ratio": cost.yardsticks, "orders": written[-1]}
    add("recording, rule-based year", "x unrecorded", 1.5, 1.2, cost.relative, **more)
    single("clone in mid-year", "µs", 300, 100, 1e-6, lambda: clone_microseconds(env))
    single("second reset, search, window", "ms", 100, 40, 1e-3, lambda: start_milliseconds(env))
    if not quick:
        large = scenarios["large"]
        single("large: first reset", "s", 4, 2, 1, lambda: first_reset_seconds(large))
        say("large: bare year, refill")
        orders: list[int] = []
        year = yard.compare(lambda pause: refill(large, orders, pause), 3)
        add("large: bare year, refill", "x default", 4, 2, year / warm, ratio=year, orders=orders[-1])
        single("large: search, 95th percentile", "ms", 50, 5, 1e-3, lambda: search_milliseconds(large))
    clear_caches()
    for name, (must, goal) in zip(names, ((150, 100), (900, 500)), strict=False):
        say(f"{name}: resident memory")
        add(f"{name}: resident memory", "MB", must, goal, resident_megabytes(name))
    reading = bench_tools.measure(say, scenarios)
    return {"yardstick_s": yard.seconds, "rows": rows, **reading}
