"""Playing one episode of a market with a policy on every seat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from merchantbench_gym.baselines.policy import END, Policy, PolicyStop
from merchantbench_gym.baselines.runner import (
    EpisodeResult,
    PolicyError,
    SeatRun,
    answered,
    check_policy,
    checked_limits,
    recorder_of,
    seated,
)
from merchantbench_gym.baselines.tally import start_counting
from merchantbench_gym.wrappers.mailbox import Mailbox
from merchantbench_gym.wrappers.seat import Seat

OnSeatTurn = Callable[[str, Any, float, Mapping[str, Any]], None]


def run_parallel(
    penv: Any,
    policies: Mapping[str, Policy],
    *,
    seed: int | None,
    options: dict[str, Any] | None = None,
    policy_seed: int | None = None,
    limits: Mapping[str, float | None] | None = None,
    on_turn: OnSeatTurn | None = None,
    start: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    on_error: str = "record",
    allow_privileged: bool = False,
) -> dict[str, EpisodeResult]:
    """Play one episode of a market.

    A policy is asked whenever its seat may make a turn; it is told then what came of its last turn and what
    the clock has brought since, in the form in which it would hear of it alone. A seat whose policy stops,
    fails or reaches a limit ends every further window at once, while the others play on; the run ends when
    the market does or nobody plays any more. The environment stays open.

    Args:
        penv: A ``MarketplaceEnv``.
        policies: Player by agent, for every agent; around one of conversations a ``ChatSeat`` is put.
        seed: Seed of the market.
        options: Passed on to ``penv.reset``.
        policy_seed: Seed of the policies' own generators; None is ``seed``.
        limits: As for ``run_episode``, for every seat on its own.
        on_turn: Called with agent, observation, reward and info when the return of a turn is complete.
        start: Observations and infos by agent to continue from; nothing is reset then.
        on_error: ``"record"`` notes an exception of a policy in its result, ``"raise"`` raises it.
        allow_privileged: Whether policies that see hidden state may play.

    Returns:
        Result by agent; one is valid only if its ``reason`` is empty.

    Raises:
        TypeError: A policy does not fit the observations.
        ValueError: Policies are missing or superfluous, an argument is out of range, or a policy is
            privileged and not allowed.
    """
    names = list(penv.possible_agents)
    if sorted(policies) != sorted(names):
        raise ValueError(f"policies are needed for {', '.join(names)}, not for {', '.join(policies)}")
    held = checked_limits(limits, on_error)
    for agent in names:
        check_policy(penv.observation_space(agent), policies[agent], allow_privileged)
    bare = penv.unwrapped
    policies = {
        agent: seated(policies[agent], bare, penv.observation_space(agent), m, resumed=start is not None)
        for m, agent in enumerate(names)
    }
    tap = start_counting(bare, len(names))
    runs = {agent: SeatRun(policies[agent], held, tap, agent, m) for m, agent in enumerate(names)}
    table = _Table(penv, runs, on_turn, on_error)
    recorder = recorder_of(bare)
    own_seed = seed if policy_seed is None else policy_seed
    try:
        table.begin(*(penv.reset(seed=seed, options=options) if start is None else start))
        for run in runs.values():
            run.recorded_by(recorder, own_seed if start is None else None)
        if start is not None and recorder is not None and recorder.past is not None:
            table.remember(recorder.past)
        if start is None:
            for agent, run in runs.items():
                table.ask(agent, partial(run.reset, Seat.from_env(penv, agent), own_seed))
        table.play()
    except KeyboardInterrupt:
        table.stop_all("interrupted")
    finally:
        for policy in policies.values():
            policy.close()
    reason = next(filter(None, table.reasons.values()), "")
    if recorder is not None and reason:
        recorder.stop(reason)
    return {
        agent: run.result(penv, table.reasons[agent], seed, table.messages[agent])
        for agent, run in runs.items()
    }


class _Table:
    """The seats of a market at play.

    Attributes:
        reasons: Why a seat's policy plays no more, by agent; "" while it does.
        messages: What a policy said that stopped or failed, by agent.
    """

    def __init__(
        self, penv: Any, runs: Mapping[str, SeatRun], on_turn: OnSeatTurn | None, on_error: str
    ) -> None:
        self.penv = penv
        self.runs = runs
        self.on_turn = on_turn
        self.on_error = on_error
        self.boxes: dict[str, Mailbox] = {}
        self.reasons = dict.fromkeys(runs, "")
        self.messages = dict.fromkeys(runs, "")

    def begin(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Take in where the episode starts; seats that are told nothing have left it before."""
        for agent, observation in observations.items():
            self.boxes[agent] = Mailbox(observation, infos[agent])
            self.runs[agent].begin(observation, infos[agent])

    def remember(self, past: Any) -> None:
        """Take over what seats that wait for others had not been told when a run was cut off."""
        for agent, box in self.boxes.items():
            box.load(past.seats[self.runs[agent].merchant].mail())

    def play(self) -> None:
        """Step the market until it is empty or no policy plays any more."""
        while self.penv.agents:
            actions = {agent: self._choose(agent) for agent in self.penv.agents}
            if all(self.reasons[agent] for agent in actions):
                return
            steps = answered(self.penv.step, actions)
            if steps is None:
                self.stop_all("response_lost")
                return
            self._take(steps)

    def _choose(self, agent: str) -> Any:
        """The action of a seat, None while it waits."""
        if not self.boxes[agent].decides:
            return None
        run = self.runs[agent]
        if not self.reasons[agent]:
            self.reasons[agent] = run.limit_reached()
        if not self.reasons[agent]:
            action = self.ask(agent, run.act)
            if not self.reasons[agent]:
                return action
        return [dict(END)]

    def ask(self, agent: str, question: Callable[[], Any]) -> Any:
        """Ask a policy for something; if it stops or fails, note why."""
        try:
            return question()
        except PolicyStop as stop:
            self.reasons[agent], self.messages[agent] = f"policy_stopped:{stop.code}", str(stop)
        except PolicyError as error:
            if self.on_error == "raise":
                raise error.cause from None
            self.reasons[agent] = f"policy_error:{type(error.cause).__name__}"
            self.messages[agent] = str(error.cause)

    def _take(self, steps: tuple[Any, ...]) -> None:
        observations, _, _, _, infos = steps
        for agent, observation in observations.items():
            box, run = self.boxes[agent], self.runs[agent]
            box.take(observation, infos[agent], acted=box.decides)
            if box.decides or box.done:
                step = box.read()
                run.take(*step)
                if not self.reasons[agent]:
                    self.ask(agent, run.tell)
                if self.on_turn is not None and not self.reasons[agent]:
                    self.on_turn(agent, step[0], step[1], step[4])

    def stop_all(self, reason: str) -> None:
        """Stop every seat that still plays."""
        for agent, run in self.runs.items():
            if not run.over and not self.reasons[agent]:
                self.reasons[agent] = reason
