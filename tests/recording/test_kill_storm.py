"""A recorded run that is killed over and over ends as one left alone: no turn is lost, none doubled."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.recording import replay
from merchantbench_gym.recording.schema import has_run
from tests.recording import storm

DAYS, KILLS = 20, 60
SECONDS, AT_THE_START = 0.25, 0.05


def turns(path: Path) -> list[Any]:
    columns = "merchant, window, turn, turn_id, action, body_hash, note, net_assets, state_digest, reward"
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM turn ORDER BY seq").fetchall()


def whole(path: Path) -> None:
    """Every turn in the file that closed a window has its figures; its calls are in the same row."""
    with closing(sqlite3.connect(path)) as connection:
        closed = connection.execute("SELECT COUNT(*) FROM turn WHERE closed_by != ''").fetchone()
        figures = "SELECT COUNT(DISTINCT window) FROM metric"
        assert connection.execute(figures).fetchone() == closed


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], str]:
    path = tmp_path_factory.mktemp("control") / "control.run"
    digest = storm.play(path, DAYS)
    return turns(path), digest


def processes() -> Any:
    """Processes that start with everything imported, so that kills hit the run and not its start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.recording.storm"])
    return context


def check_end(path: Path, control: tuple[list[Any], str]) -> None:
    assert storm.play(path, DAYS) == control[1]
    assert turns(path) == control[0]
    whole(path)
    outcome = replay(path)
    assert outcome.identical and outcome.turns == len(control[0])


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path: Path, control: tuple[list[Any], str]) -> None:
    path, context, rng = tmp_path / "a.run", processes(), random.Random(1)
    killed = unbegun = reached = ends = 0
    while killed < KILLS:
        process = context.Process(target=storm.play, args=(path, DAYS))
        process.start()
        process.join(rng.uniform(0, AT_THE_START if killed < KILLS // 4 else SECONDS))
        process.kill()
        process.join()
        if process.exitcode == 0:  # it got to its end; the storm goes on with a new run
            check_end(path, control)
            path.unlink()
            reached, ends = 0, ends + 1
            continue
        assert process.exitcode == -signal.SIGKILL
        killed += 1
        if not has_run(path):
            unbegun += 1
            continue
        made = turns(path)
        assert len(made) >= reached
        # All but the reward of the last turn, which is written after the turn.
        assert [turn[:-1] for turn in made] == [turn[:-1] for turn in control[0][: len(made)]]
        whole(path)
        reached = len(made)
    check_end(path, control)
    print(f"{killed} kills, {unbegun} of them before the run had begun; {ends + 1} runs got to their end")


@pytest.mark.slow
def test_kills_around_every_statement_of_a_turn(tmp_path: Path, control: tuple[list[Any], str]) -> None:
    context, rng, killed = processes(), random.Random(2), 0
    for point in storm.POINTS:
        for after in (False, True):
            path = tmp_path / f"{point}-{after}.run".replace(" ", "-")
            for _ in range(3):
                arguments = (path, DAYS, point, rng.randint(1, 12), after)
                process = context.Process(target=storm.play, args=arguments)
                process.start()
                process.join()
                assert process.exitcode == -signal.SIGKILL
                killed += 1
                if has_run(path):
                    whole(path)
            check_end(path, control)
    assert killed == 6 * len(storm.POINTS)
