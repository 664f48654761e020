"""``merchantbench play``: a person runs the store in the terminal.

The player is a policy like any other, so that a person plays by exactly the rules of an agent: each line is
a turn of tool calls, and what comes back is the observation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from merchantbench_gym import cli_play_tables as tables
from merchantbench_gym.baselines import BasePolicy, PolicyStop, run_episode
from merchantbench_gym.cli_play_lines import (
    END,
    LOCAL,
    SHORT,
    Call,
    Desk,
    Mistake,
    calls_of,
    candidates,
)
from merchantbench_gym.tools import default_registry

if TYPE_CHECKING:
    from merchantbench_gym.scenario import Scenario
    from merchantbench_gym.wrappers import Seat

Read = Callable[[str], str]

WIDE = 110
MOST_ENDS = 2000
PLACES = 28


# -- reading -------------------------------------------------------------------------------------------


def reader(console: Console) -> tuple[Read, Callable[[Desk], None]]:
    """The function that reads a line, and the one that sets up completion for it.

    Without a terminal lines are read from standard input and repeated, so that the output can be followed.
    """
    if sys.stdin.isatty():
        return input, _complete

    def read(prompt: str) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        console.print(Text(prompt + line.rstrip("\n")))
        return line

    return read, lambda desk: None


def _complete(desk: Desk) -> None:
    """Complete words by the tabulator key, where the system has readline."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, number: int) -> str | None:
        before = readline.get_line_buffer()[: readline.get_begidx()]
        found = candidates(before, text, desk)
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n;=,")
    # The two libraries behind the module bind keys in different words.
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")


# -- the player ----------------------------------------------------------------------------------------


class Player(BasePolicy):
    """A person at a keyboard.

    Args:
        console: Where to show things.
        read: Reads a line after showing a prompt; raises EOFError at the end of input.
        complete: Sets up completion.
    """

    name = "you"

    def __init__(self, console: Console, read: Read, complete: Callable[[Desk], None]) -> None:
        self.console = console
        self.read = read
        self.complete = complete
        self.desk = Desk({})
        self.ends = 0
        self.window = -1
        self.sent: list[Call] = []
        self.contents: list[str] = []

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Sit down."""
        super().reset(seat, seed=seed)
        self.desk = Desk.of(seat.tools)
        self.complete(self.desk)

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Show what came of the last turn and ask for the next one."""
        self.desk.day = info["day"]
        self.receive(observation)
        opened, self.window = info["window"] != self.window, info["window"]
        if self.ends > 0:
            self.ends -= 1
            self.console.print(Text(_line(info), style=tables.DIM))
            return _action([Call(END, {})])
        if opened:
            if info["window_closed_by"] == "quota":
                self.console.print(
                    Text("That was the last turn of the window; the clock ran.", style="yellow")
                )
            self.console.print()
            self.console.print(tables.state(observation["text"]))
            self.console.print()
        self.sent = self.ask(observation, info)
        return _action(self.sent)

    def receive(self, observation: Any) -> None:
        """Show the results of the last turn."""
        answers = observation["tool_results"] if self.sent else ()
        if answers:
            self.contents = [answer["content"] for answer in answers]
        for call, answer in zip(self.sent, answers, strict=True):
            body = json.loads(answer["content"])
            self._remember(call, body)
            if call.name != END or not body["ok"]:
                self.console.print(tables.result(call.name, body, self.console.width))
        self.sent = []

    def _remember(self, call: Call, body: Mapping[str, Any]) -> None:
        if "has_next" in body:
            self.desk.last = call if body["has_next"] else None
        for part in body.values():
            if isinstance(part, Mapping) and "columns" in part:
                places = [i for i, name in enumerate(part["columns"]) if name.endswith("_id")]
                self.desk.seen |= dict.fromkeys(row[i] for row in part["rows"] for i in places)

    def ask(self, observation: Any, info: Mapping[str, Any]) -> list[Call]:
        """Read lines until one is a turn.

        Raises:
            PolicyStop: The player leaves.
        """
        turns = info["turns_left"]
        left = f"{turns} turn{'' if turns == 1 else 's'} left"
        while True:
            try:
                line = self.read(f"day {info['day']}, {info['hour']:02d}:00, {left} > ").strip()
            except (EOFError, KeyboardInterrupt):
                self.console.print()
                raise PolicyStop("quit") from None
            try:
                if line and not self.local(line, observation):
                    return self.turn(line)
            except Mistake as mistake:
                self.console.print(Text(f"{mistake}", style=tables.BAD))

    def local(self, line: str, observation: Any) -> bool:
        """Do what needs no turn; returns whether the line asked for such a thing."""
        word, _, rest = line.partition(" ")
        if word in ("quit", "exit"):
            raise PolicyStop("quit")
        if word in ("help", "?"):
            self.help(rest.strip())
        elif line == "look":
            self.console.print(tables.state(observation["text"]))
        elif line == "raw":
            if not self.contents:
                raise Mistake("there are no results yet")
            self.console.print(Text(tables.raw(self.contents)))
        else:
            return False
        return True

    def turn(self, line: str) -> list[Call]:
        """The calls of a line."""
        word, _, rest = line.partition(" ")
        if word == "end" and rest.strip().isdecimal():
            times = int(rest)
            if not 1 <= times <= MOST_ENDS:
                raise Mistake(f"end takes a number from 1 to {MOST_ENDS}")
            self.ends = times - 1
            line = "end"
        return calls_of(line, self.desk)

    # -- help --

    def help(self, topic: str) -> None:
        """Show the overview, the rules, or a tool."""
        if not topic:
            self.console.print(overview(self.desk, self.seat.max_turns_per_window))
        elif topic == "rules":
            self.console.print(Padding(Markdown(self.seat.system_prompt), (0, 2)))
        else:
            self.console.print(about(topic, self.desk))


def _action(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{place}", "name": call.name, "arguments": call.arguments}
        for place, call in enumerate(calls)
    ]


def _line(info: Mapping[str, Any]) -> str:
    return f"day {info['day']}, {info['hour']:02d}:00  net assets {info['net_assets']:,.2f}"


# -- texts ---------------------------------------------------------------------------------------------


def welcome(scenario: Scenario, seed: int) -> Panel:
    """What a newcomer must know."""
    days, hours = scenario.run.horizon_days, scenario.run.activation_period
    merchant = scenario.merchant
    start = (merchant.initial_cash + merchant.initial_deposit) / 100
    own_goal = scenario.brief.own_text("goals", scenario.brief.language)
    goal = "what the rules say" if own_goal else "the highest net assets at the end"
    text = Text.assemble(
        "You run a small online store. Suppliers offer products; you put some of them on your\n"
        "shelf, at your own prices. When a customer orders, the goods are bought from your balance\n"
        "at the supplier's price; what the customer pays reaches you days after delivery. Late and\n"
        "failed orders cost fines and your good rating, and a good rating brings customers.\n\n",
        "The clock stands still while you act. ",
        ("end", "bold"),
        f" lets it run {hours} hours to the next window.\n",
        f"Your goal: {goal}. You start with {start:,.2f}.\n\n",
        ("search lamp         ", "bold"),
        "  what suppliers offer, and at what price\n",
        ("list P00017 24.90   ", "bold"),
        "  put a product on your shelf, at your price\n",
        ("shelf               ", "bold"),
        "  what you sell; then end, and see what happens\n",
        ("help, help rules    ", "bold"),
        "  all commands, all rules; quit or Ctrl-D to stop",
    )
    title = f"merchantbench, {days} days on {scenario.name}, seed {seed}"
    return Panel(text, title=title, title_align="left", expand=False, padding=(1, 2))


def overview(desk: Desk, turns: int) -> Table:
    """All commands and tools, and how lines are made."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True, min_width=PLACES)
    grid.add_column()
    for short in SHORT.values():
        if all(tool in desk.tools for tool in short.tools):
            grid.add_row(short.usage, short.purpose)
    for usage, purpose in LOCAL.values():
        grid.add_row(usage, purpose)
    grid.add_row("", "")
    grid.add_row("TOOL key=value …", f"any tool: {', '.join(desk.tools)}")
    grid.add_row("", 'for example search_products query="desk lamp" price_max=20 sort_by=rating')
    grid.add_row("", "")
    grid.add_row("one line, one turn", f"a window has {turns}; with ; a line holds several calls:")
    grid.add_row("", "list P00017 24.90 P00020 31; shelf; end")
    grid.add_row("short ids", "p17 is P00017, s17 is sup_0017, o12 is O00012")
    return grid


def about(topic: str, desk: Desk) -> Table:
    """A tool or short form in full.

    Raises:
        Mistake: There is none of that name.
    """
    short = SHORT.get(topic)
    names = [name for name in (short.tools if short else (topic,)) if name in desk.tools]
    if not names:
        if topic in LOCAL:
            raise Mistake(f"{LOCAL[topic][0]}: {LOCAL[topic][1]}")
        raise Mistake(f"there is no help about {topic[:40]!r}; help shows what there is")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    if short:
        grid.add_row(short.usage, short.purpose)
    for name in names:
        tool = default_registry().get(name)
        grid.add_row("", "")
        grid.add_row(name, "" if tool is None else tool.description)
        required = desk.tools[name]["required"]
        for key, schema in desk.parameters(name).items():
            grid.add_row(f"  {key}=", _parameter(schema, needed=key in required))
        if tool is not None and desk.parameters(name):
            grid.add_row("  for example", Text(_typed(name, tool.examples[-1]), style=tables.DIM))
    return grid


def _parameter(schema: Mapping[str, Any], *, needed: bool) -> str:
    notes = ["needed"] if needed else []
    notes += [" | ".join(map(str, schema["enum"]))] if "enum" in schema else []
    notes += (
        [f"{json.dumps(schema['default'])} if left out"] if schema.get("default") not in (None, "") else []
    )
    return str(schema["description"]) + (f" ({'; '.join(notes)})" if notes else "")


def _typed(name: str, arguments: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={json.dumps(part)}" for key, part in arguments.items())])


# -- the command ---------------------------------------------------------------------------------------


def play(scenario: Scenario, seed: int) -> None:
    """Let a person play a run in the terminal.

    Args:
        scenario: The scenario.
        seed: Seed of the market.
    """
    import gymnasium

    from merchantbench_gym.cli_report import show_record
    from merchantbench_gym.evaluation import result_record

    # Names of products and "end [N]" are no markup.
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    env: Any = gymnasium.make("MerchantBench-v0", scenario=scenario, disable_env_checker=True)
    console.print(welcome(scenario, seed))
    player = Player(console, *reader(console))
    result = run_episode(env, player, seed=seed, on_error="raise")
    if result.reason:
        console.print(farewell(*env.unwrapped.observe()))
        return
    observation, _ = env.unwrapped.observe()
    player.receive(observation)
    console.print(tables.state(observation["text"]))
    console.print()
    show_record(result_record(result), scenario)


def farewell(observation: Any, info: Mapping[str, Any]) -> Table:
    """What was reached by a player who leaves early."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=tables.DIM)
    grid.add_column()
    grid.add_row("You stopped at", observation["text"].split("\n")[0])
    grid.add_row("Net assets", Text(f"{info['net_assets']:,.2f}", style="bold"))
    return grid
