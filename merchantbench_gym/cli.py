"""The command line: ``merchantbench COMMAND``.

Standard output carries the result alone, one JSON document with ``--json``; progress and messages go to
standard error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

import merchantbench_gym
from merchantbench_gym.scenario import (
    DEV_SEEDS,
    EVAL_SEEDS,
    PRESETS,
    Scenario,
    ScenarioError,
    deep_merge,
    load_scenario,
    parse_setting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_USAGE, EXIT_STOPPED, EXIT_RECORDING, EXIT_INVALID, EXIT_INTERRUPTED = 2, 3, 4, 5, 130
LARGEST_SEED, MOST_SEEDS = 2**63 - 1, 10_000
SEED_SETS = {"dev": DEV_SEEDS, "eval": EVAL_SEEDS}

app = typer.Typer(
    help="Run a simulated year of online dropshipping, look at its rules, measure its speed.",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
scenario_app = typer.Typer(help="List the scenarios, or show one in full.")
app.add_typer(scenario_app, name="scenario")

ScenarioOption = Annotated[
    str, typer.Option("--scenario", metavar="NAME|PATH", help="A preset or a TOML file.", show_default=True)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a scenario key, value as in TOML. Repeatable."),
]
DaysOption = Annotated[
    int | None, typer.Option("--days", metavar="N", help="Length of the run, same as run.horizon_days.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Model that --policy react asks, else MODEL_NAME is read."),
]
EnvFileOption = Annotated[
    str | None,
    typer.Option("--env-file", metavar="FILE", help="Settings of the model and its key, else ./.env."),
]
ReferenceOption = Annotated[
    bool, typer.Option("--reference", help="Handle the context as the published reference agent does.")
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices", metavar="IN,OUT[,READ[,WRITE]]", help="USD per million tokens, cache reads and writes."
    ),
]
PrivilegedOption = Annotated[
    bool, typer.Option("--allow-privileged", help="Let policies play that see hidden state, unranked.")
]


class UserError(Exception):
    """A mistake of the user; shown as a message without a traceback."""

    code = EXIT_USAGE


def main() -> None:
    """Entry point of the ``merchantbench`` script; ends the process with the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode is no reason to fail
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    Args:
        arguments: The words after ``merchantbench``.

    Returns:
        0, or the code for what went wrong; nothing is raised for mistakes of the user.
    """
    try:
        return app(arguments, prog_name="merchantbench", standalone_mode=False) or 0
    except (UserError, ScenarioError) as error:
        _complain(str(error))
        return error.code if isinstance(error, UserError) else EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; there is nobody to tell
        return 0
    except Exception as error:
        if not hasattr(error, "format_message"):  # what every usage error of typer has
            raise
        context = getattr(error, "ctx", None)
        hint = f"\nTry: {context.command_path} --help" if context is not None else ""
        return _complain(error.format_message() + hint)


def _complain(message: str) -> int:
    print(f"merchantbench: {message}", file=sys.stderr)
    return EXIT_USAGE


def _version(wanted: bool) -> None:
    if wanted:
        print(merchantbench_gym.__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
    _help_if_alone(context)


@scenario_app.callback(invoke_without_command=True)
def _scenario(context: typer.Context) -> None:
    _help_if_alone(context)


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


# -- run -----------------------------------------------------------------------------------------------


@app.command()
def run(
    scenario: ScenarioOption = "default",
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="Who plays: rule_based, random, passive, oracle, react.")
    ] = "rule_based",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the market.")] = 1,
    days: DaysOption = None,
    settings: SetOption = None,
    record_file: Annotated[
        str | None, typer.Option("--record", metavar="FILE", help="Record every turn into a new run file.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Go on with a recorded run: its scenario, seed and policy."),
    ] = None,
    model: ModelOption = None,
    env_file: EnvFileOption = None,
    reference: ReferenceOption = False,
    prices: PricesOption = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--budget-usd", metavar="USD", help="Stop the run, resumable, once it has cost so much."
        ),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Only tell what calls, tokens and cost a run will need.")
    ] = False,
    allow_privileged: PrivilegedOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Play one run and print what came out of it."""
    from merchantbench_gym import cli_model, cli_record
    from merchantbench_gym.baselines import run_episode
    from merchantbench_gym.cli_report import show_progress, show_record
    from merchantbench_gym.evaluation import result_record

    asked = cli_model.Asked(model, env_file, reference, prices, budget_usd)
    start, limits = None, asked.limits()
    if resume is not None:
        if record_file is not None or settings or days is not None or scenario != "default" or estimate:
            raise UserError("--resume takes everything from the file and goes on recording into it")
        env, player, seed, start = cli_record.resumed(
            resume, asked, allow_privileged=allow_privileged, quiet=quiet
        )
    else:
        cli_record.check_policy(policy, allow_privileged=allow_privileged)
        asked.check(policy, estimate=estimate)
        if not 0 <= seed <= LARGEST_SEED:
            raise UserError(f"--seed must be 0 to {LARGEST_SEED}, not {seed}")
        resolved = _load(scenario, settings, days)
        if estimate:
            cli_model.show_estimate(resolved, asked, seed, as_json=as_json)
            return 0
        env, player = cli_record.new_run(resolved, policy, record_file, asked, quiet=quiet)
    resolved = env.unwrapped.scenario
    with (
        cli_model.room_for_requests(),
        show_progress(resolved.run.horizon_days, enabled=not quiet) as on_turn,
    ):
        result = run_episode(
            env,
            player,
            seed=seed,
            start=start,
            on_turn=on_turn,
            limits=limits,
            allow_privileged=allow_privileged,
        )
    env.close()
    record = result_record(result)
    if as_json:
        _print_json(record)
    else:
        show_record(record, resolved)
    if cause := cli_model.why_stopped(result.reason, result.message, resume or record_file):
        _complain(cause)
    return exit_code(record)


def exit_code(record: Mapping[str, Any]) -> int:
    """The exit code of ``run`` for a result record."""
    kind = record["reason"].partition(":")[0]
    if record["valid"]:
        return 0
    if kind == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_STOPPED if kind in ("policy_stopped", "policy_error", "budget") else EXIT_INVALID


def _load(source: str, settings: list[str] | None, days: int | None) -> Scenario:
    """The scenario that the scenario options describe; later settings win."""
    overrides: dict[str, Any] = {}
    for setting in settings or []:
        overrides = deep_merge(overrides, parse_setting(setting))
    if days is not None:
        overrides = deep_merge(overrides, {"run": {"horizon_days": days}})
    return load_scenario(source, overrides)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


# -- play ----------------------------------------------------------------------------------------------


@app.command()
def play(
    scenario: ScenarioOption = "default",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the market.")] = 1,
    days: DaysOption = None,
    settings: SetOption = None,
) -> None:
    """Run the store yourself, in the terminal."""
    from merchantbench_gym.cli_play import play as play_run

    play_run(_load(scenario, settings, days), seed)


@app.command()
def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A run file.")],
    salvage: Annotated[
        str | None, typer.Option(metavar="OUT", help="Copy the turns that are whole and true into OUT.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Execute a recorded run again and compare every result."""
    from merchantbench_gym import cli_record

    outcome = cli_record.replayed(file, salvage, quiet=quiet)
    if as_json:
        _print_json(outcome.as_json())
    else:
        print(f"{outcome}, {outcome.turns} turns" if outcome.identical else f"first difference: {outcome}")
    return 0 if outcome.identical else EXIT_RECORDING


@app.command()
def report(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Run files, shown side by side.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The page to write.")] = "report.html",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a page about recorded runs that any browser opens, also offline."""
    from merchantbench_gym import cli_record

    runs = cli_record.reported(files, out, quiet=quiet)
    if as_json:
        _print_json({"path": out, "runs": runs})
    else:
        print(out)


# -- evaluate ------------------------------------------------------------------------------------------


@app.command()
def evaluate(
    policies: Annotated[
        str, typer.Option(metavar="A,B", help="Who plays: rule_based, random, passive, oracle, react.")
    ] = "rule_based",
    scenario: ScenarioOption = "default",
    seeds: Annotated[
        str, typer.Option(metavar="dev|eval|1-6|1,5,9", help="Seeds of the market; eval is for reports.")
    ] = "dev",
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Processes to use.")] = 1,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the records as JSON and the table as CSV.")
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Play these policies alone, without passive and rule_based.")
    ] = False,
    days: DaysOption = None,
    settings: SetOption = None,
    model: ModelOption = None,
    env_file: EnvFileOption = None,
    reference: ReferenceOption = False,
    prices: PricesOption = None,
    allow_privileged: PrivilegedOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Play policies on several seeds and compare them."""
    from merchantbench_gym import cli_model, evaluation
    from merchantbench_gym.cli_report import show_runs, show_sweep

    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    chosen = parse_seeds(seeds)
    resolved = _load(scenario, settings, days)
    players = cli_model.contenders(names, cli_model.Asked(model, env_file, reference, prices))
    try:
        with show_runs(enabled=not quiet) as on_run:
            sweep = evaluation.evaluate(
                players,
                resolved,
                chosen,
                workers=workers,
                out=out,
                bare=bare,
                allow_privileged=allow_privileged,
                on_run=on_run,
            )
    except (ValueError, OSError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise UserError(str(error).replace("allow_privileged", "--allow-privileged")) from None
    if as_json:
        _print_json(sweep.as_json())
    else:
        show_sweep(sweep, resolved)
    for lost in sweep.lost:
        print(f"merchantbench: lost: {lost}", file=sys.stderr)
    if sweep.interrupted:
        return EXIT_INTERRUPTED
    return 0 if sweep.valid else EXIT_INVALID


def parse_seeds(text: str) -> list[int]:
    """Seeds named on the command line.

    Args:
        text: ``dev``, ``eval``, or numbers and ranges separated by commas, such as ``1-6`` or ``1,5,9``.

    Returns:
        The seeds in the order given.

    Raises:
        UserError: The text names no seeds.
    """
    if text in SEED_SETS:
        return list(SEED_SETS[text])
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part, re.ASCII)
        if found is None:
            raise UserError(f"--seeds must be dev, eval, a range like 1-6 or a list like 1,5,9, not {text!r}")
        low, high = int(found[1]), int(found[2] or found[1])
        if not low <= high <= LARGEST_SEED or high - low >= MOST_SEEDS:
            raise UserError(
                f"--seeds: {part.strip()} must rise, hold at most {MOST_SEEDS} seeds, up to {LARGEST_SEED}"
            )
        seeds += range(low, high + 1)
    return seeds


# -- scenario ------------------------------------------------------------------------------------------


@scenario_app.command("list")
def scenario_list(as_json: JsonOption = False) -> None:
    """List the presets."""
    if as_json:
        _print_json(list(PRESETS))
        return
    from merchantbench_gym.cli_report import show_rows

    show_rows(("scenario", "what it is"), [(name, load_scenario(name).description) for name in PRESETS])


@scenario_app.command("show")
def scenario_show(
    scenario: ScenarioOption = "default",
    days: DaysOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every setting of a scenario, as TOML that can be saved and changed."""
    resolved = _load(scenario, settings, days)
    if as_json:
        _print_json({"scenario": resolved.resolved(), "hash": resolved.hash})
    else:
        print(f"# scenario hash {resolved.hash}")
        print("\n".join(_toml_lines(resolved.resolved())))


def _toml_lines(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Lines of a TOML document for plain data: numbers, texts, lists of them, and tables."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner}
    if path and plain:
        yield f"\n[{path}]"
    for key, value in plain.items():
        # JSON and TOML write these values alike.
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in inner.items():
        yield from _toml_lines(value, f"{path}.{key}" if path else key)


# -- tools, bench --------------------------------------------------------------------------------------


@app.command()
def tools(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Show the schema of this tool.")] = "",
    scenario: ScenarioOption = "default",
    days: DaysOption = None,
    settings: SetOption = None,
    openai: Annotated[
        bool, typer.Option("--openai", help="Print the granted tools as a list for the model's tools=.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the index as Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the tools an agent can call, or show one in full."""
    from merchantbench_gym.tools import default_registry
    from merchantbench_gym.tools.index import markdown_table, purpose

    registry, denied = default_registry(), _load(scenario, settings, days).tools.denied
    if name:
        tool = registry.get(name)
        if tool is None:
            near = get_close_matches(name, [tool.name for tool in registry], n=1, cutoff=0)
            raise UserError(f"unknown tool {name!r}, the nearest is {near[0]}")
        _print_json(tool.schema())
    elif openai:
        _print_json(registry.schemas(denied))
    elif markdown:
        print(markdown_table(registry, denied))
    elif as_json:
        keys = ("name", "kind", "description")
        _print_json([{k: getattr(t, k) for k in keys} | {"granted": t.name not in denied} for t in registry])
    else:
        from merchantbench_gym.cli_report import show_rows

        rows = [
            (tool.name, "denied" if tool.name in denied else tool.kind, purpose(tool)) for tool in registry
        ]
        show_rows(("tool", "kind", "what it does"), rows)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what is large.")] = False,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Measure how time and memory grow instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the speed on this machine, as ratios to a yardstick measured along the way."""
    from merchantbench_gym import bench as speed
    from merchantbench_gym import bench_scaling
    from merchantbench_gym.cli_report import show_bench, show_scaling, show_status

    with show_status() as say:
        outcome = (bench_scaling if scaling else speed).measure(say, quick=quick)
    if as_json:
        _print_json(outcome)
    elif scaling:
        show_scaling(outcome)
    else:
        show_bench(outcome)
