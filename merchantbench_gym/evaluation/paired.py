"""Controlled experiments: what one change makes of a run, from the moment in which it is made."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merchantbench_gym.baselines import POLICIES, Policy, run_episode
from merchantbench_gym.baselines.runner import observations_of
from merchantbench_gym.evaluation.intervals import interval
from merchantbench_gym.evaluation.record import result_record
from merchantbench_gym.recording import fork, resume
from merchantbench_gym.recording.resuming import load_policies, resume_with
from merchantbench_gym.recording.schema import Pathish, Row, open_run, read_run, rows
from merchantbench_gym.recording.stack import build_env, describe_stack
from merchantbench_gym.wrappers.chat_seat import ChatSeat
from merchantbench_gym.wrappers.order import RANKS, names_of_stack
from merchantbench_gym.wrappers.seat import Seat

CONTROL = "control"
ROW_KEYS = ("arm", "n", "n_valid", "mean", "difference", "low", "high")
"""Keys of a row of the outcome, in order."""

Make = Callable[[Any], Policy]
Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Arm:
    """What is different in one arm of an experiment; nothing by default.

    Attributes:
        wrap: Puts wrappers around an environment, interventions above all. They come inside ``Chat`` and
            must change nothing before the window of the experiment. An arm that brings a ``Chat`` of its own,
            such as ``ContextTrim(Chat(env), mode="off")``, has it in place of that of the run and of its
            ``ContextTrim``; the conversation is then kept so from its beginning on.
        policy: Makes the player for an environment. One of the recorded name and version takes over the
            state that the recorded one had, any other starts afresh.
    """

    wrap: Wrap | None = None
    policy: Make | None = None


@dataclass(frozen=True)
class Paired:
    """What an experiment came to.

    Attributes:
        at: Index of the window from which the arms differ.
        metric: What is compared.
        records: Result records by arm, one per recorded run and repeat, in the same order for every arm.
            Each is that of the whole run and has the arm as its label.
    """

    at: int
    metric: str
    records: dict[str, list[dict[str, Any]]]

    def values(self, arm: str) -> list[float | None]:
        """The metric of an arm's runs, None where it is unknown or the run invalid."""
        return [_figure(record, self.metric) if record["valid"] else None for record in self.records[arm]]

    def differences(self, arm: str) -> list[float]:
        """Differences of an arm to the control arm, of the pairs that both know the metric."""
        pairs = zip(self.values(arm), self.values(CONTROL), strict=True)
        return [own - control for own, control in pairs if own is not None and control is not None]

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per arm with the keys `ROW_KEYS`.

        ``n`` counts runs, ``n_valid`` valid pairs; ``mean`` is that of the arm in these, ``difference``
        that of the differences to the control arm, ``low`` and ``high`` its 95 % bootstrap interval, None for
        fewer than three pairs.
        """
        found = []
        for arm in self.records:
            own, control = self.values(arm), self.values(CONTROL)
            both = [a for a, b in zip(own, control, strict=True) if a is not None and b is not None]
            gaps = self.differences(arm)
            bounds = interval(gaps)
            found.append(
                {
                    "arm": arm,
                    "n": len(own),
                    "n_valid": len(gaps),
                    "mean": sum(both) / len(both) if both else None,
                    "difference": sum(gaps) / len(gaps) if gaps else None,
                    "low": bounds[0] if bounds else None,
                    "high": bounds[1] if bounds else None,
                }
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """The experiment as JSON data."""
        return {"at": self.at, "metric": self.metric, "table": self.table, "records": self.records}


def paired_experiment(
    record: Pathish | Sequence[Pathish],
    at: int,
    arms: Mapping[str, Arm | Wrap],
    *,
    repeats: int = 1,
    metric: str = "final_net_assets",
    policy: Make | None = None,
    out: Pathish | None = None,
) -> Paired:
    """Branch a recorded run off at a window and play every arm to the end.

    All arms start in the same world, with the same transcript, notes and state of the policy, and under the
    same seed. Arms without a difference and with a deterministic policy differ by exactly zero::

        outcome = paired_experiment(
            "run.db", 200, {"no notes": lambda env: NotesIntervention(env, "blank", windows=(200, None))}
        )
        print(outcome.table)

    Args:
        record: Run file of one seat, or several of them; they are not changed. Every pair of an arm and its
            control counts alike, whether from another run or from a repeat.
        at: Index of the window in which the arms begin to differ.
        arms: By name; a function stands for an arm that only wraps. The arm ``"control"``, without any
            difference, is added if it is not there.
        repeats: Runs of every arm, for policies that are not deterministic.
        metric: Key of the result record, with dots into its groups (``"calls.by_tool.list_product"``).
        policy: Makes the player of arms that have none of their own; None takes the one of ``POLICIES`` with
            the recorded name.
        out: Folder in which the runs of the arms are kept; None throws them away.

    Returns:
        The outcome; its ``table`` has the differences and their intervals.

    Raises:
        FileExistsError: A run of an arm is in the folder already.
        JournalMismatch: A run file is damaged, or an arm changes what was before the window.
        KeyError: Result records have no such metric.
        ValueError: An argument is out of range, a run did not get to the window, or its player is not known.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    paths = [record] if isinstance(record, (str, os.PathLike)) else list(record)
    if not paths:
        raise ValueError("there must be a run file")
    chosen = {CONTROL: Arm()} | {
        name: arm if isinstance(arm, Arm) else Arm(wrap=arm) for name, arm in arms.items()
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with _folder(out) as folder:
        for number, path in enumerate(paths):
            for repeat in range(repeats):
                for name, arm in chosen.items():
                    file = folder / f"{number}-{repeat}-{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}.db"
                    fork(path, file, at)
                    played = _play(file, arm, policy)
                    _figure(played, metric)
                    runs[name].append({**played, "label": name})
    return Paired(at, metric, runs)


@contextmanager
def _folder(out: Pathish | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        Path(out).mkdir(parents=True, exist_ok=True)
        yield Path(out)


def _play(file: Path, arm: Arm, policy: Make | None) -> dict[str, Any]:
    """Play a forked run to its end as an arm says."""
    with read_run(file) as connection:
        run = rows(connection, "SELECT * FROM run")[0]
    if run["merchants"] > 1:
        raise ValueError(f"{file.name}: only runs of one seat can be branched off into arms")
    make = arm.policy or policy or _by_name(run)
    if arm.wrap is not None:
        _wrap(file, run, arm.wrap)
    env, observation, info = resume(file)
    try:
        player = make(env)
        raw = observations_of(env.observation_space) == "raw"
        if isinstance(player, ChatSeat) or (raw and player.observes == "chat"):
            # It keeps its conversation itself, which is made again along with the run.
            env.close()
            env, observation, info = resume_with(file, player, _hand_over)
        else:
            _hand_over(env, player)
        seed = env.unwrapped.session.world.seed
        start = (observation, info)
        return result_record(run_episode(env, player, seed=seed, start=start, allow_privileged=True))
    finally:
        env.close()


def _by_name(run: Row) -> Make:
    name = json.loads(run["policy"]).get("0", {}).get("name")
    if name not in POLICIES:
        raise ValueError(f"the run was played by {name!r}, which is not in POLICIES; pass policy=")
    return POLICIES[name].for_env


def _wrap(file: Path, run: Row, wrap: Wrap) -> None:
    """Put an arm's wrappers into the stack of a run that has not been resumed yet."""
    layers = json.loads(run["stack"])
    outer = next((i for i, layer in enumerate(layers) if _rank(layer) >= RANKS["Chat"]), len(layers))
    inner = wrap(build_env({**run, "stack": json.dumps(layers[:outer])}))
    around = layers[outer:]
    if "Chat" in names_of_stack(inner):
        around = [layer for layer in around if _rank(layer) not in (RANKS["Chat"], RANKS["ContextTrim"])]
    try:
        stack = json.dumps(describe_stack(inner) + around)
    except TypeError as error:
        raise ValueError(f"wrappers of an arm must be rebuilt from plain data: {error}") from None
    with closing(open_run(file)) as connection:
        connection.execute("UPDATE run SET stack = ?", (stack,))


def _rank(layer: Mapping[str, Any]) -> int:
    return RANKS.get(layer["wrapper"].rpartition(":")[2], 0)


def _hand_over(env: Any, player: Policy) -> None:
    """Give a policy the state of the recorded one if it is the same, else start it."""
    identity, _ = env.recorder.player(0)
    if (identity.get("name"), identity.get("version")) == (player.name, player.version):
        load_policies(env, player)
    else:
        starting = player.policy if isinstance(player, ChatSeat) else player
        starting.reset(Seat.from_env(env), seed=int(identity.get("seed", env.unwrapped.session.world.seed)))


def _figure(record: Mapping[str, Any], metric: str) -> float | None:
    """A figure of a record; counters in the groups of a group are there only once they have counted."""
    value: Any = record
    for depth, key in enumerate(metric.split(".")):
        if value is None:
            return None
        value = value[key] if depth < 2 else value.get(key, 0)
    return None if value is None else float(value)
