"""Going on with a run from its file."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium

from merchantbench_gym.recording.actions import text_action
from merchantbench_gym.recording.following import SEAT, Followers, note_missing, policies_by_agent
from merchantbench_gym.recording.journal import dumps
from merchantbench_gym.recording.market import Recorded, record_in_place
from merchantbench_gym.recording.past import Past, PastSeat, past_seat
from merchantbench_gym.recording.recorder import Recorder
from merchantbench_gym.recording.rerun import difference, place, resubmit, turn_rows
from merchantbench_gym.recording.schema import (
    JournalMismatch,
    Pathish,
    Row,
    damaged,
    erase_turn,
    open_run,
    rows,
)
from merchantbench_gym.recording.stack import build_env, check_hashes, find
from merchantbench_gym.session import TurnRefused

RECORD_RUN = "merchantbench_gym.wrappers.record_run:RecordRun"
Resumed = tuple[Any, Any, Any]


def resume(path: Pathish, policy: Any = None) -> Resumed:
    """Bring a recorded run back to where it ended, and go on recording into the same file.

    The stack is built again (without fault injection), reset with the seed of the run, and every recorded
    action is handed in again; each result and digest must be as recorded. What a market had begun of a step
    when it was cut off is dropped: nobody has been told of it.

    Args:
        path: The run file.
        policy: The player, or a mapping of players by agent; it is given the state it had after the last
            turn.

    Returns:
        The recorded environment, and observation and info as of the last return, for a market dicts of them
        by agent: what ``run_episode`` and ``run_parallel`` take as ``start``.

    Raises:
        FileNotFoundError: There is no such file.
        JournalMismatch: The file is damaged, or does not fit this package's format, scenario, catalog or
            tools, or a turn comes out differently now.
    """
    return resume_with(path, policy, load_policies)


def resume_with(path: Pathish, policy: Any, take_up: Callable[[Any, Any], None]) -> Resumed:
    """As :func:`resume`, for players that may be others than those of the run.

    Args:
        path: The run file.
        policy: As for :func:`resume`; its conversation, if it keeps one itself, is made again with the run.
        take_up: Starts the policy, given the environment and the policy.
    """
    connection = open_run(path)
    try:
        run = rows(connection, "SELECT * FROM run")[0]
        recorder = Recorder(path, connection=connection)
        stack = build_env(run)
        one_seat = isinstance(stack, gymnasium.Env)
        resumed = (_resume_stack if one_seat else _resume_market)(stack, run, connection, recorder, policy)
        if policy is not None:
            take_up(resumed[0], policy)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise damaged(path, error) from None
    except BaseException:
        connection.close()
        raise
    return resumed


def _resume_stack(
    stack: Any, run: Row, connection: sqlite3.Connection, recorder: Recorder, policy: Any
) -> Resumed:
    env = find(RECORD_RUN).continued(stack, recorder)
    observation, info = stack.reset(seed=int(run["seed"]))
    bare = stack.unwrapped
    check_hashes(run, bare)
    seat = past_seat(info)
    agent = str(getattr(bare, "agent", "merchant_0"))
    followers = Followers(env, policy, {agent: observation}, {agent: info}, recorder)
    env.keep_messages()
    events: Counter[tuple[str, str]] = Counter()
    records: list[dict[str, Any]] = []
    recorder.watch = records.append
    late = False
    for turn in turn_rows(connection):
        if turn["own"]:
            if late:
                observation, info = _caught_up(stack, agent, followers, seat, env) or (observation, info)
                late = False
            records.clear()
            action = text_action(turn["action"])
            observation, _, _, _, info = _stepped(stack, action, turn)
            _compare(turn, records)
            seat.take(observation, info, acted=True)
            seat.add(records[-1])
            followers.acted(agent, action)
            followers.told(agent, observation, info, seat)
            env.keep_messages()
            events.update((event["kind"], dumps(event)) for event in env.take_events())
        else:
            found = resubmit(bare.session, turn, records)
            if found is not None:
                raise found.mismatch()
            observation, info = stack.get_wrapper_attr("observe")()
            late = True
    if late:
        observation, info = _caught_up(stack, agent, followers, seat, env) or (observation, info)
    told = [*env.take_events(), *followers.take_events()]
    events.update((event["kind"], dumps(event)) for event in told)
    recorder.go_on(bare, Past([seat]))
    note_missing(recorder, connection, events)
    return env, observation, info


def _caught_up(stack: Any, agent: str, followers: Followers, seat: PastSeat, env: Any) -> Any:
    """Let a conversation go on after the turns of another driver; None if it has missed nothing by them."""
    kept = stack.get_wrapper_attr("transcript") if stack.has_wrapper_attr("transcript") else None
    transcript = followers.transcript(agent) if kept is None else kept
    session = stack.get_wrapper_attr("session")
    if transcript is None or not (session.finished or session.window != transcript.window):
        return None
    turns = session.turn_results(0, transcript.window)
    observation, _, _, _, info = stack.get_wrapper_attr("catch_up")()
    seat.take(observation, info, acted=False)
    if kept is None:
        followers.recover(agent, turns, observation, info)
    env.keep_messages()
    return observation, info


def _resume_market(
    penv: Any, run: Row, connection: sqlite3.Connection, recorder: Recorder, policies: Any
) -> Resumed:
    observations, infos = penv.reset(seed=int(run["seed"]))
    check_hashes(run, penv)
    record_in_place(penv, recorder, waiting=True)
    agents = list(penv.possible_agents)
    past = Past([past_seat(infos[agent]) for agent in agents])
    followers = Followers(penv, policies, observations, infos, recorder)
    _drop_cut_step(connection)
    records: list[dict[str, Any]] = []
    recorder.watch = records.append
    last: dict[str, Any] = {}
    for _, group in itertools.groupby(turn_rows(connection), key=lambda turn: turn["step"]):
        turns = list(group)
        records.clear()
        actions = {agents[turn["merchant"]]: text_action(turn["action"]) for turn in turns}
        # A seat that could have made a turn and did not has repeated one.
        idle = [
            agent for m, agent in enumerate(agents) if penv.session.turns_left(m) and agent not in actions
        ]
        last |= actions
        repeated = {agent: last[agent] for agent in idle if agent in last}
        seen, _, _, _, told = _stepped(super(Recorded, penv), {**actions, **repeated}, turns[0])
        if len(records) != len(turns):
            raise JournalMismatch(f"turns of step {turns[0]['step']}", len(turns), len(records))
        for turn, record in zip(turns, list(records), strict=True):
            _compare(turn, [record])
            past.seats[turn["merchant"]].add(record)
            followers.acted(agents[turn["merchant"]], actions[agents[turn["merchant"]]])
        for agent, observation in seen.items():
            seat = past.seats[agents.index(agent)]
            seat.take(observation, told[agent], acted=agent in actions)
            followers.told(agent, observation, told[agent], seat)
        observations, infos = {**observations, **seen}, {**infos, **told}
    recorder.go_on(penv, past)
    return penv, observations, infos


def _drop_cut_step(connection: sqlite3.Connection) -> None:
    """Delete the turns of a last step of which not all had been written."""
    last = rows(connection, "SELECT step, MAX(deciding) AS due, COUNT(*) AS made FROM turn GROUP BY step")
    if last and last[-1]["made"] < last[-1]["due"]:
        turns = rows(connection, "SELECT * FROM turn WHERE step = ?", (last[-1]["step"],))
        connection.execute("BEGIN IMMEDIATE")
        for turn in turns:
            erase_turn(connection, turn["seq"], place(turn))
        connection.execute("COMMIT")


def _stepped(env: Any, action: Any, turn: Row) -> Any:
    try:
        return env.step(action)
    except TurnRefused as refused:
        where = f"window {turn['window']}, turn {turn['turn']}, turn"
        raise JournalMismatch(where, turn["turn_id"], str(refused)) from None


def _compare(turn: Row, records: list[dict[str, Any]]) -> None:
    if not records:
        where = f"window {turn['window']}, turn {turn['turn']}, turn"
        raise JournalMismatch(where, turn["turn_id"], "no turn")
    found = difference(turn, records[-1])
    if found is not None:
        raise found.mismatch()


def load_policies(env: Any, policy: Any) -> None:
    """Give policies the state they had after the last recorded turn of their seats.

    Args:
        env: A resumed environment.
        policy: The player, or a mapping of players by agent.

    Raises:
        JournalMismatch: The run was played by another policy.
    """
    bare = env.unwrapped
    names = list(getattr(bare, "possible_agents", ["merchant_0"]))
    recorder: Recorder = getattr(bare, "recorder", None) or env.get_wrapper_attr("recorder")
    for agent, player in policies_by_agent(env, policy).items():
        identity, state = recorder.player(names.index(agent))
        for key in ("name", "version"):
            if key in identity and identity[key] != getattr(player, key):
                raise JournalMismatch(f"policy {key}", identity[key], getattr(player, key))
        seed = int(identity.get("seed", bare.session.world.seed))
        # A seat that has followed the past keeps its conversation; the policy in it starts like any other.
        starting = player.policy if hasattr(player, "follow") else player
        starting.reset(find(SEAT).from_env(env, agent), seed=seed)
        if state is not None:
            starting.load_state_dict(state)
