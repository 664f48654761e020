"""What the command line shows: tables and progress, drawn with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from merchantbench_gym.scenario import DEV_SEEDS, EVAL_SEEDS

if TYPE_CHECKING:
    from merchantbench_gym.baselines.runner import OnTurn
    from merchantbench_gym.evaluation.sweep import OnRun, Run, Sweep
    from merchantbench_gym.scenario import Scenario

UNKNOWN = "n/a"
WIDE = 110
GOOD, BAD, DIM = "green", "red", "dim"


# -- progress ------------------------------------------------------------------------------------------


@contextmanager
def show_progress(days: int, *, enabled: bool) -> Iterator[OnTurn | None]:
    """Show the simulated day and the net assets on standard error while a run goes on.

    Args:
        days: Length of the run in days.
        enabled: Whether to show anything; without a terminal nothing is shown either way.

    Yields:
        The callback for the run loop, None if nothing is shown.
    """
    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    progress = Progress(
        TextColumn("day {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(),
        TextColumn("net assets [bold]{task.fields[net]}[/]"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = progress.add_task("", total=days, net="")
    shown = 0

    def on_turn(observation: Any, reward: float, info: Mapping[str, Any]) -> None:
        nonlocal shown
        if info["day"] != shown:  # once a day is often enough to see it move
            shown = info["day"]
            progress.update(task, completed=min(shown, days), net=_money(info["net_assets"]))

    with progress:
        yield on_turn


@contextmanager
def show_runs(*, enabled: bool) -> Iterator[OnRun | None]:
    """Show on standard error how many runs of a sweep have ended, and the last one.

    Args:
        enabled: Whether to show anything; without a terminal nothing is shown either way.

    Yields:
        The callback for the sweep, None if nothing is shown.
    """
    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    progress = Progress(
        TextColumn("run {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(),
        TextColumn("{task.fields[last]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = progress.add_task("", total=None, last="")

    def on_run(run: Run, record: Mapping[str, Any], total: int) -> None:
        score = _money(record["score"]) if record["valid"] else record["reason"]
        progress.update(task, advance=1, total=total, last=f"{run}: {score}")

    with progress:
        yield on_run


@contextmanager
def show_status() -> Iterator[Callable[[str], None]]:
    """Show one line about the running step on standard error; yields the function that sets it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield status.update


# -- tables --------------------------------------------------------------------------------------------


def show_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def show_record(record: Mapping[str, Any], scenario: Scenario) -> None:
    """Print the report of one run: a page about one result record."""
    parts: list[RenderableType] = [_headline(record), _result(record), ""]
    if record["orders"] is not None:
        tables = [_orders(record)] if any(record["orders"].values()) else []
        if record["fines"]["total"]:
            tables.append(_fines(record))
        parts += [Columns(tables, padding=(0, 4)) if tables else "No orders, no fines.", ""]
    parts.append(_footer(record, scenario))
    Console(highlight=False).print(Group(*parts))


def _headline(record: Mapping[str, Any]) -> RenderableType:
    title = f"{record['policy']['name']} on {record['scenario']}, seed {record['seed']}"
    if not record["valid"]:
        verdict = Text(f"no valid result: {record['reason']}", style=f"bold {BAD}")
    elif record["survived"]:
        verdict = Text(f"survived {_days(record['days_survived'])}", style=GOOD)
    else:
        verdict = Text(f"shop closed on day {record['days_survived']}", style=BAD)
    return Panel(verdict, title=title, title_align="left", expand=False, padding=(0, 2))


def _result(record: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style=DIM)
    table.add_column(justify="right")
    table.add_column()
    if record["valid"]:
        profit, growth = record["net_profit"], record["growth"]
        table.add_row("Final net assets", Text(_money(record["final_net_assets"]), style="bold"), "")
        change = "" if growth is None else f"{growth:+.1%} on {_money(record['initial_net_assets'])}"
        table.add_row("Net profit", Text(_money(profit), style=BAD if profit < 0 else GOOD), change)
    else:
        table.add_row("Net assets when it ended", _money(record["last_net_assets"]), "not a score")
    windows = f"{record['windows_acted']} of {record['windows_offered']} windows"
    table.add_row("Acted in", windows, f"SWR {_ratio(record['swr'], '.3f')}")
    rating = "" if record["late_rate"] is None else f"{record['late_rate']:.1%} of bought orders shipped late"
    table.add_row("Shop rating", _ratio(record["rating"], ".2f"), rating)
    listings = record["mean_active_listings"]
    if listings is not None:
        table.add_row("Listings", f"{listings:.1f}", "mean over the days")
    return table


def _orders(record: Mapping[str, Any]) -> Table:
    orders = record["orders"]
    total = sum(orders.values())
    table = _small_table("Orders", "outcome", "number", "share")
    for status, number in orders.items():
        if number:
            table.add_row(status, f"{number:,}", f"{number / total:.1%}")
    table.add_section()
    table.add_row("total", f"{total:,}", "", style="bold")
    return table


def _fines(record: Mapping[str, Any]) -> Table:
    table = _small_table("Fines", "kind", "amount")
    for kind, amount in record["fines"].items():
        if amount and kind != "total":
            table.add_row(kind, _money(amount))
    table.add_section()
    table.add_row("total", _money(record["fines"]["total"]), style="bold")
    return table


def _footer(record: Mapping[str, Any], scenario: Scenario) -> Text:
    calls = sum(record["calls"]["by_tool"].values())
    lines = [f"{calls:,} tool calls in {record['wall_s']:.1f} s of wall time"]
    if record["model"]["calls"] is not None:
        lines.insert(0, _model(record))
    return Text("\n".join([*lines, f"scenario hash {scenario.hash}"]), style=DIM)


def _model(record: Mapping[str, Any]) -> str:
    model, name = record["model"], record["policy"]["model"]
    tokens = model["tokens"]
    read = tokens["input"] + tokens["cache_read"] + tokens["cache_write"]
    cost = model["cost_micro_usd"]
    spent = "cost unknown" if cost is None else f"{cost / 1e6:,.2f} USD"
    if model["missing_usage"]:
        spent += f", {model['missing_usage']} answers without usage"
    cached = f" ({tokens['cache_read'] / read:.0%} from the cache)" if tokens["cache_read"] else ""
    return (
        f"{name}: {model['calls']:,} calls, {read:,} tokens read{cached}, "
        f"{tokens['output']:,} written, {spent}"
    )


def show_sweep(sweep: Sweep, scenario: Scenario) -> None:
    """Print the table of a sweep, the differences to the rule-based merchant, and what to make of them."""
    from merchantbench_gym.evaluation.published import NOT_COMPARABLE, PUBLISHED, PUBLISHED_DAYS

    console = Console(highlight=False)
    # Beyond a terminal there is room for everything.
    wide = not console.is_terminal or console.width >= WIDE
    if not console.is_terminal:
        console.width = WIDE
    rows = sweep.table
    seeds = [record["seed"] for record in sweep.records]
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        heading = f"Final net assets on {scenario.name}, {_days(scenario.run.horizon_days)}"
        console.print(Text(heading, style="bold"))
        console.print(_sweep_table(own, wide))
        console.print(Text(f"{_seeds(seeds)}; group {group}", style=DIM), "")
    apart = sweep.differences()
    if apart:
        # As the title of so narrow a table it would be broken into lines.
        console.print(Text(f"Difference to {apart[0]['against']} on the same seeds", style="bold"))
        console.print(_difference_table(apart), "")
    notes = []
    if any(row["low"] is not None for row in rows):
        notes.append("Intervals: 95 %, bootstrap over seeds.")
    if any(not row["ranked"] for row in rows):
        notes.append("* not ranked: it saw hidden state, or not all of its runs are valid.")
    for record in sweep.records:
        if not record["valid"]:
            name = record["label"] or record["policy"]["name"]
            notes.append(f"No valid result: {name}, seed {record['seed']}: {record['reason']}")
    if scenario.run.horizon_days == PUBLISHED_DAYS:
        figures = ", ".join(f"{name} {value}" for name, value in PUBLISHED.items())
        notes.append(f"Published for the original benchmark, thousand RMB: {figures}. {NOT_COMPARABLE}")
    for note in [*notes, f"scenario hash {scenario.hash}"]:
        console.print(Text(note, style=DIM))


def _seeds(seeds: Sequence[int]) -> str:
    """Which seeds were played, and whether they are the reserved ones."""
    distinct = sorted(set(seeds))
    run = len(distinct) > 2 and distinct == list(range(distinct[0], distinct[-1] + 1))
    text = f"{distinct[0]}–{distinct[-1]}" if run else ", ".join(map(str, distinct))
    splits = [name for name, own in (("dev", DEV_SEEDS), ("eval", EVAL_SEEDS)) if set(distinct) & set(own)]
    return f"seeds {text}" + (f" (split: {', '.join(splits)})" if splits else "")


def _sweep_table(rows: Sequence[Mapping[str, Any]], wide: bool) -> Table:
    table = Table(box=None)
    table.add_column("policy", style="bold")
    columns = ["runs", "mean", "95 % interval", "median", "min", "max", "std", "survived", "SWR"]
    costs = any(row["mean_cost_micro_usd"] is not None for row in rows)
    columns = [name for name in columns if wide or name not in ("median", "min", "max", "std")]
    for name in [*columns, *(["cost, USD"] if costs else [])]:
        table.add_column(name, justify="right", header_style=DIM, no_wrap=True)
    for row in rows:
        cells = {
            "runs": f"{row['n_valid']}/{row['n']}" if row["n_valid"] < row["n"] else str(row["n"]),
            "mean": _whole(row["mean"]),
            "95 % interval": _interval(row),
            "median": _whole(row["median"]),
            "min": _whole(row["min"]),
            "max": _whole(row["max"]),
            "std": _whole(row["std"]),
            "survived": _ratio(row["survival_rate"], ".0%"),
            "SWR": _ratio(row["mean_swr"], ".3f"),
        }
        cost = row["mean_cost_micro_usd"]
        more = [UNKNOWN if cost is None else f"{cost / 1e6:.2f}"] if costs else []
        mark = "" if row["ranked"] else " *"
        table.add_row(row["policy"] + mark, *(cells[name] for name in columns), *more)
    return table


def _difference_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None)
    table.add_column("policy", style="bold")
    for name in ("pairs", "mean", "95 % interval"):
        table.add_column(name, justify="right", header_style=DIM, no_wrap=True)
    for row in rows:
        table.add_row(row["policy"], str(row["n"]), _whole(row["mean"], "+"), _interval(row, "+"))
    return table


def _whole(amount: float | None, sign: str = "") -> str:
    return UNKNOWN if amount is None else f"{amount:{sign},.0f}"


def _interval(row: Mapping[str, Any], sign: str = "") -> str:
    return UNKNOWN if row["low"] is None else f"{_whole(row['low'], sign)} … {_whole(row['high'], sign)}"


def show_bench(outcome: Mapping[str, Any]) -> None:
    """Print the table of the speed measurements."""
    table = Table(title=f"One yardstick Y = {outcome['yardstick_s'] * 1000:.1f} ms", title_justify="left")
    table.add_column("what")
    for heading in ("measured", "must", "goal", "orders"):
        table.add_column(heading, justify="right")
    for row in outcome["rows"]:
        orders = "" if row["orders"] is None else f"{row['orders']:,}"
        table.add_row(row["name"], _measured(row), f"{row['must']:g}", f"{row['goal']:g}", orders)
    console = Console(highlight=False)
    console.print(table, "", _tokens(outcome["tokens"]), "", _tool_times(outcome["tools"]))


def show_scaling(outcome: Mapping[str, Any]) -> None:
    """Print the tables of how time and memory grow, one for each axis."""
    tables: dict[tuple[str, str], Table] = {}
    for row in outcome["rows"]:
        key = row["along"], row["played"]
        if key not in tables:
            headings = ("ms", "Y", "orders", "build ms", "MB")
            tables[key] = _small_table(f"{row['along']} ({row['played']})", row["along"], *headings)
        memory = "" if row["resident_mb"] is None else f"{row['resident_mb']:,.0f}"
        figures = (
            f"{row['ms']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['orders']:,}",
            f"{row['build_ms']:,.0f}",
        )
        tables[key].add_row(f"{row['size']:,}", *figures, memory)
    console = Console(highlight=False)
    console.print("Times and orders are per simulated year; memory is the whole process.")
    if outcome["idle_mb"] is not None:
        console.print(f"A process that has only loaded the library takes {outcome['idle_mb']:.0f} MB.")
    for table in tables.values():
        console.print("", table)


def _tokens(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _small_table("Estimated tokens in mid-year", "what is read", "median", "most")
    for row in rows:
        table.add_row(row["name"], f"{row['tokens']:,}", f"{row['most']:,}")
    return table


def _tool_times(rows: Sequence[Mapping[str, Any]]) -> Table:
    markets = list(dict.fromkeys(row["scenario"] for row in rows))
    headings = [f"{market} {share}" for market in markets for share in ("p50", "p95")]
    table = _small_table("Time of a step with one call in mid-year, ms", "tool", *headings)
    times: dict[str, list[str]] = {}
    for row in rows:
        times.setdefault(row["name"], []).extend(f"{row[key] / 1000:.2f}" for key in ("p50_us", "p95_us"))
    for name, cells in times.items():
        table.add_row(name, *cells)
    return table


def _measured(row: Mapping[str, Any]) -> Text:
    value, unit = row["value"], row["unit"]
    if value is None:
        return Text(UNKNOWN)
    style = GOOD if value <= row["goal"] else "yellow" if value <= row["must"] else BAD
    return Text(f"{value:.{2 if value < 10 else 1}f} {unit}", style=style)


def _small_table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style=DIM)
    table.add_column(first)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _days(number: int) -> str:
    return "1 day" if number == 1 else f"{number:,} days"


def _money(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:,.2f}"


def _ratio(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)
