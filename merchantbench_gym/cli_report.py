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

if TYPE_CHECKING:
    from merchantbench_gym.baselines.runner import OnTurn
    from merchantbench_gym.scenario import Scenario

UNKNOWN = "n/a"
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
    lines = f"{calls:,} tool calls in {record['wall_s']:.1f} s of wall time\nscenario hash {scenario.hash}"
    return Text(lines, style=DIM)


def show_bench(outcome: Mapping[str, Any]) -> None:
    """Print the table of the speed measurements."""
    table = Table(title=f"One yardstick Y = {outcome['yardstick_s'] * 1000:.1f} ms", title_justify="left")
    table.add_column("what")
    for heading in ("measured", "must", "goal", "orders"):
        table.add_column(heading, justify="right")
    for row in outcome["rows"]:
        orders = "" if row["orders"] is None else f"{row['orders']:,}"
        table.add_row(row["name"], _measured(row), f"{row['must']:g}", f"{row['goal']:g}", orders)
    Console(highlight=False).print(table)


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
