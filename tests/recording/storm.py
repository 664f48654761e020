"""What the kill storm kills: a process that plays a recorded run, going on with the file if there is one."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

from merchantbench_gym.baselines import POLICIES, run_episode
from merchantbench_gym.recording import resume
from merchantbench_gym.recording.schema import has_run
from merchantbench_gym.wrappers import RecordRun
from tests.recording_kit import make

POINTS = ("BEGIN", "INSERT INTO turn", "COMMIT", "UPDATE turn")
"""Statements before and after which a process is killed."""


class Deadly:
    """A connection that kills the process around the nth statement of a kind."""

    def __init__(self, connection: sqlite3.Connection, point: str, nth: int, after: bool) -> None:
        self.connection = connection
        self.point = point
        self.left = nth
        self.after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def _run(self, method: str, query: str, *values: Any) -> Any:
        hit = query.startswith(self.point)
        self.left -= hit
        fatal = hit and self.left == 0
        if fatal and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = getattr(self.connection, method)(query, *values)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def execute(self, query: str, *values: Any) -> Any:
        return self._run("execute", query, *values)

    def executemany(self, query: str, *values: Any) -> Any:
        return self._run("executemany", query, *values)


def play(path: Path, days: int, point: str = "", nth: int = 0, after: bool = False) -> str:
    """Play a run to its end, unless the process is killed; returns the digest at the end."""
    player = POLICIES["random"]()
    if has_run(path):
        env, *start = resume(path, player)
        _arm(env, point, nth, after)
        run_episode(env, player, seed=1, start=(start[0], start[1]))
    else:
        env = RecordRun(make(overrides={"run": {"horizon_days": days}}), path)
        _arm(env, point, nth, after)
        run_episode(env, player, seed=1)
    env.close()
    digest: str = env.unwrapped.session.digest()
    return digest


def _arm(env: Any, point: str, nth: int, after: bool) -> None:
    if point:
        env.recorder._db = Deadly(env.recorder._db, point, nth, after)
