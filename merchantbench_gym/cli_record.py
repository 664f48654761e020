"""Run files on the command line: recording, resuming, replaying, reporting."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from merchantbench_gym.cli import EXIT_RECORDING, UserError
from merchantbench_gym.cli_model import REACT

if TYPE_CHECKING:
    from merchantbench_gym.cli_model import Asked
    from merchantbench_gym.recording.rerun import Replay
    from merchantbench_gym.scenario import Scenario


class RecordingError(UserError):
    """A run file is damaged or does not fit."""

    code = EXIT_RECORDING


@contextmanager
def told() -> Iterator[None]:
    """Turn what run files raise into messages for the user."""
    from merchantbench_gym.recording import JournalMismatch

    try:
        yield
    except JournalMismatch as error:
        raise RecordingError(str(error)) from None
    except FileExistsError as error:
        message = str(error).replace("recording.resume continues", "--resume continues")
        raise UserError(message) from None
    except (OSError, sqlite3.OperationalError) as error:
        raise UserError(str(error)) from None


def check_policy(name: str, *, allow_privileged: bool) -> None:
    """Raise unless a policy of this name may play."""
    from merchantbench_gym.baselines import POLICIES

    if name not in POLICIES:
        raise UserError(f"unknown policy {name!r}; known are {', '.join(sorted(POLICIES))}")
    if POLICIES[name].privileged and not allow_privileged:
        raise UserError(f"policy {name!r} sees hidden state; --allow-privileged lets it play")


def new_run(
    scenario: Scenario, policy: str, path: str | None, asked: Asked, *, quiet: bool = False
) -> tuple[Any, Any]:
    """Environment and player of a new run, recorded into a new file if there is a path."""
    import gymnasium

    from merchantbench_gym.baselines import POLICIES, make_agent_env
    from merchantbench_gym.wrappers import RecordRun

    with told():
        if policy == REACT:
            player = asked.player(quiet=quiet)
            config = player.config
            try:
                env = make_agent_env(scenario, config=config, reference=config.reference, record=path)
            except ValueError as error:
                raise UserError(str(error)) from None
            return env, player
        env = gymnasium.make("MerchantBench-v0", scenario=scenario, disable_env_checker=True)
        if path is not None:
            env = RecordRun(env, path)
        return env, POLICIES[policy].for_env(env)


def resumed(
    path: str, asked: Asked, *, allow_privileged: bool, quiet: bool = False
) -> tuple[Any, Any, int, tuple[Any, Any]]:
    """Bring a recorded run back.

    Returns:
        Environment, player, seed of the market, and what the run continues from.
    """
    from merchantbench_gym.baselines import POLICIES
    from merchantbench_gym.recording import resume
    from merchantbench_gym.recording.resuming import load_policies

    with told():
        env, observation, info = resume(path)
        try:
            if not hasattr(env, "get_wrapper_attr"):
                raise UserError("this run is of a market of several seats, which recording.resume continues")
            identity, _ = env.recorder.player(0)
            name = identity.get("name", "")
            check_policy(name, allow_privileged=allow_privileged)
            asked.check(name)
            is_model = name == REACT
            player = asked.player(identity, quiet=quiet) if is_model else POLICIES[name].for_env(env)
            load_policies(env, player)
        except BaseException:
            env.close()
            raise
    return env, player, env.unwrapped.session.world.seed, (observation, info)


def replayed(path: str, salvage_to: str | None, *, quiet: bool) -> Replay:
    """Execute a run again.

    Args:
        path: The run file.
        salvage_to: File to copy the turns into that are whole and come out the same, None for none.
        quiet: Show no progress.
    """
    from merchantbench_gym.cli_report import show_status
    from merchantbench_gym.recording import replay, salvage

    with told():
        if salvage_to is not None:
            turns = salvage(path, salvage_to)
            print(f"merchantbench: saved {turns} turns in {salvage_to}", file=sys.stderr)
        with show_status() as say:

            def on_turn(turns: int) -> None:
                if not quiet and turns % 100 == 0:
                    say(f"{turns} turns replayed")

            return replay(path, on_turn)


def reported(paths: list[str], out: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Write a page about runs.

    Args:
        paths: The run files.
        out: The page.
        quiet: Show no progress.

    Returns:
        Identity and outcome of every seat on the page.
    """
    from merchantbench_gym.cli_report import show_status
    from merchantbench_gym.evaluation.report import write_report

    with told(), show_status() as say:
        if not quiet:
            say(f"reading and executing {len(paths)} recorded runs")
        return [seat.as_json() for seat in write_report(paths, out)]
