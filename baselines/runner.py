"""Playing one episode with one policy, and what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

import merchantbench_gym
from merchantbench_gym.baselines.policy import Policy, PolicyStop
from merchantbench_gym.baselines.tally import Tally, Tap, start_counting
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers.chat_seat import ChatSeat
from merchantbench_gym.wrappers.errors import ResponseLost
from merchantbench_gym.wrappers.memory_doc import notes_reader
from merchantbench_gym.wrappers.seat import Seat

TERMS = ("gross", "refunds", "fines", "fees", "other")
LIMITS = ("turns", "windows", "model_calls", "cost_micro_usd", "wall_s")
RETRIES = 3
COLLECTED = "fine_collected_"

OnTurn = Callable[[Any, float, Mapping[str, Any]], None]


@dataclass(frozen=True)
class EpisodeResult:
    """What one seat reached, as plain data. Amounts are cents; None is unknown.

    Attributes:
        env_id: Registered id, or the class name of an environment made without one.
        merchants: Seats of the market.
        agent: Name of this seat.
        scenario: Name of the scenario.
        hashes: ``scenario_hash``, ``catalog_hash``, ``tool_schema_hash``.
        seed: Seed of the market.
        policy: ``name``, ``version``, ``privileged``.
        harness: Names of the wrappers, innermost first.
        interventions: Labels of interventions in the stack, innermost first.
        label: Word for the run, that of its file if it is recorded.
        reason: Why the run ended early; "" if it reached its end.
        message: What a policy said that stopped or failed.
        end_reason: ``horizon`` or ``shop_closed``; "" if the run did not reach its end.
        horizon_hours, window_hours: The frame of the run.
        windows_offered: Windows opened for this seat.
        active, active_any: One flag per offered window (see :class:`Tally`).
        forced: Windows ended without a decision: window and cause.
        initial_net_assets, last_net_assets: Net assets at the start and when last seen.
        terms: Sums of the reward terms.
        counters: Turn and call counters (see :class:`Tally`).
        metrics: Figures of the market at the end, None if they could not be read.
        mean_active_listings: Mean over the days of the run, None if unknown.
        report: What the policy says about itself.
        wall_s: Seconds the run took; not part of any comparison.
    """

    env_id: str
    merchants: int
    agent: str
    scenario: str
    hashes: dict[str, str]
    seed: int | None
    policy: dict[str, Any]
    harness: tuple[str, ...]
    reason: str
    end_reason: str
    horizon_hours: int
    window_hours: int
    windows_offered: int
    active: tuple[bool, ...]
    active_any: tuple[bool, ...]
    forced: dict[int, str]
    initial_net_assets: int | None
    last_net_assets: int | None
    terms: dict[str, int]
    counters: dict[str, Any]
    metrics: dict[str, Any] | None
    mean_active_listings: float | None
    report: dict[str, Any]
    wall_s: float
    package_version: str = field(default_factory=lambda: merchantbench_gym.__version__)
    interventions: tuple[str, ...] = ()
    label: str = ""
    message: str = ""

    @property
    def ledger_holds(self) -> bool:
        """Whether the reward terms lead exactly from the first to the last net assets."""
        if self.initial_net_assets is None or self.last_net_assets is None:
            return False
        return self.initial_net_assets + sum(self.terms.values()) == self.last_net_assets


def run_episode(
    env: Any,
    policy: Policy,
    *,
    seed: int | None,
    options: dict[str, Any] | None = None,
    policy_seed: int | None = None,
    limits: Mapping[str, float | None] | None = None,
    on_turn: OnTurn | None = None,
    start: tuple[Any, Mapping[str, Any]] | None = None,
    on_error: str = "record",
    allow_privileged: bool = False,
) -> EpisodeResult:
    """Play one episode on an environment of one seat.

    The environment is reset at the start and stays open at the end. A policy that stops or fails, a limit
    that is reached and a keyboard interrupt end the run; what was reached is in the result.

    Args:
        env: A Gymnasium environment of this package, wrapped or not.
        policy: The player. One of conversations (``observes = "chat"``) may play an environment of raw
            observations as well: a ``ChatSeat`` is put in between.
        seed: Seed of the market.
        options: Passed on to ``env.reset``.
        policy_seed: Seed of the policy's own generator; None is ``seed``.
        limits: Highest ``turns``, ``windows``, ``model_calls``, ``cost_micro_usd`` and ``wall_s``
            (seconds), looked at before each turn; None or absent is no limit. Calls and costs are those of
            the whole run, the others count from here on. Responses of unknown cost count as much as the
            dearest one; if the cost of all is unknown, its limit is reached.
        on_turn: Called after each turn with observation, reward and info.
        start: Observation and info to continue from; neither environment nor policy is reset then.
        on_error: ``"record"`` notes an exception of the policy in the result, ``"raise"`` raises it.
        allow_privileged: Whether a policy that sees hidden state may play.

    Returns:
        The result; it is valid only if ``reason`` is empty.

    Raises:
        TypeError: The policy does not fit the environment's observations.
        ValueError: An argument is out of range, or the policy is privileged and not allowed.
    """
    limits = checked_limits(limits, on_error)
    check_policy(env.observation_space, policy, allow_privileged)
    bare = env.unwrapped
    agent, merchant = getattr(bare, "agent", "merchant_0"), getattr(bare, "merchant", 0)
    policy = seated(policy, env, env.observation_space, merchant, resumed=start is not None)
    run = SeatRun(policy, limits, start_counting(bare, getattr(bare, "merchants", 1)), agent, merchant)
    recorder, reason, message = recorder_of(env), "", ""
    try:
        if start is None:
            run.begin(*env.reset(seed=seed, options=options))
            own_seed = seed if policy_seed is None else policy_seed
            run.recorded_by(recorder, own_seed)
            run.reset(Seat.from_env(env), own_seed)
        else:
            run.begin(*start)
            run.recorded_by(recorder)
        while not run.over and not reason:
            reason = run.limit_reached()
            if not reason:
                step = run.step(env, run.act())
                if step is None:
                    reason = "response_lost"
                else:
                    run.take(*step)
                    run.tell()
                    if on_turn is not None:
                        on_turn(step[0], step[1], step[4])
    except KeyboardInterrupt:
        reason = "interrupted"
    except PolicyStop as stop:
        reason, message = f"policy_stopped:{stop.code}", str(stop)
    except PolicyError as error:
        if on_error == "raise":
            raise error.cause from None
        reason, message = f"policy_error:{type(error.cause).__name__}", str(error.cause)
    finally:
        policy.close()
    if recorder is not None and reason:
        recorder.stop(reason)
    return run.result(env, reason, seed, message)


def recorder_of(env: Any) -> Any:
    """What records an environment, None if nothing does."""
    try:
        return env.get_wrapper_attr("recorder") if hasattr(env, "get_wrapper_attr") else env.recorder
    except AttributeError:
        return None


class PolicyError(Exception):
    """Marks an exception as one of the policy, not of the environment."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def blame_policy() -> Iterator[None]:
    """Turn what a policy raises, except for a stop on purpose, into a :class:`PolicyError`."""
    try:
        yield
    except PolicyStop:
        raise
    except Exception as error:
        raise PolicyError(error) from error


def answered(step: Callable[[Any], Any], action: Any) -> Any:
    """Take a step, sending the same action again while its answer is lost; None if it is lost for good."""
    for _ in range(1 + RETRIES):
        try:
            return step(action)
        except ResponseLost:
            continue
    return None


class SeatRun:
    """One seat of an episode: its policy, what that has seen, and what it has reached so far.

    Args:
        policy: The player.
        limits: Limits by name.
        tap: The counting listener of the environment.
        agent: Name of the seat.
        merchant: Its number.
    """

    def __init__(
        self, policy: Policy, limits: Mapping[str, float], tap: Tap, agent: str, merchant: int
    ) -> None:
        self.policy = policy
        self.limits = limits
        self.tap = tap
        self.agent = agent
        self.merchant = merchant
        self.label = ""
        self.turns = 0
        self.info: Mapping[str, Any] | None = None
        self.initial: int | None = None
        self.first_window = self.began_window = 0
        self.last_window = -1  # last window opened for this seat
        self.terms = dict.fromkeys(TERMS, 0)
        self.observation: Any = None
        self.started = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether the run of the seat has reached its end, or not begun."""
        return self.info is None or bool(self.info["end_reason"])

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Take in where the episode starts."""
        self.observation, self.info = observation, info
        self.initial = _cents(info["net_assets"])
        self.first_window = self.began_window = info["window"]
        self._see_window(info)

    def recorded_by(self, recorder: Any, policy_seed: int | None = None) -> None:
        """Tell who plays to what records the run; what a resumed run did before counts as done here."""
        if recorder is None:
            return
        recorder.played_by(self.policy, seed=policy_seed, merchant=self.merchant)
        self.label = recorder.label
        if recorder.past is not None:
            past = recorder.past.seats[self.merchant]
            self.initial = past.initial
            self.first_window, self.last_window = past.first_window, past.last_window
            self.terms = dict(zip(TERMS, past.terms, strict=True))
            for record in past.records:
                self.tap(record)

    def reset(self, seat: Seat, seed: int | None) -> None:
        """Start the policy.

        Raises:
            PolicyError: It fails.
        """
        with blame_policy():
            self.policy.reset(seat, seed=seed)

    def act(self) -> Any:
        """Ask the policy for an action.

        Raises:
            PolicyError: It fails.
        """
        with blame_policy():
            return self.policy.act(self.observation, self.info or {})

    def take(
        self, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        """Take in the return of a turn."""
        self.observation, self.info = observation, info
        self.turns += 1
        if reward or info["gross"] or info["refunds"] or info["fines"] or info["fees"] or info["other"]:
            for term in TERMS:
                self.terms[term] += _cents(info[term])
        self._see_window(info)

    def step(self, env: Any, action: Any) -> Any:
        """Step an environment of one seat; None if the answer is lost for good.

        Raises:
            PolicyError: The policy cannot go on from what has happened.
        """
        try:
            return answered(env.step, action)
        except TurnRefused as refused:
            front = self.policy
            if not isinstance(front, ChatSeat) or not front.transcript.is_late(refused):
                raise
            if not env.has_wrapper_attr("catch_up"):
                raise
            session = env.get_wrapper_attr("session")
            turns = session.turn_results(self.merchant, front.transcript.window)
            step = env.get_wrapper_attr("catch_up")()
            with blame_policy():
                front.recover(turns, step[0], step[4])
            front.note_events()
            return step

    def tell(self) -> None:
        """Tell the policy what came of its turn, if it wants to know before it is asked again.

        Raises:
            PolicyError: It fails.
        """
        if isinstance(self.policy, ChatSeat):
            with blame_policy():
                self.policy.take(self.observation, self.info or {})

    def _transcript(self, env: Any) -> Any:
        """The conversation of the seat, None if there is none."""
        if isinstance(self.policy, ChatSeat):
            return self.policy.transcript
        converses = hasattr(env, "has_wrapper_attr") and env.has_wrapper_attr("transcript")
        return env.get_wrapper_attr("transcript") if converses else None

    def _see_window(self, info: Mapping[str, Any]) -> None:
        if not info["end_reason"]:
            self.last_window = info["window"]

    def limit_reached(self) -> str:
        """Reason of the end if a limit has been reached, else ""."""
        if not self.limits:
            return ""
        report = self.policy.report() if {"model_calls", "cost_micro_usd"} & set(self.limits) else {}
        reached = {
            "turns": self.turns,
            "windows": self.last_window - self.began_window,
            "model_calls": report.get("calls") or 0,
            "cost_micro_usd": _spent(report),
            "wall_s": time.perf_counter() - self.started,
        }
        name = next((name for name in LIMITS if reached[name] >= self.limits.get(name, float("inf"))), "")
        return name and f"budget:{name}"

    def result(self, env: Any, reason: str, seed: int | None, message: str = "") -> EpisodeResult:
        """What the seat reached.

        Args:
            env: The environment it was played on.
            reason: Why the run ended early, "" if it reached its end.
            seed: Seed of the market.
            message: What a policy said that stopped or failed.
        """
        wall_s = time.perf_counter() - self.started
        tally = self.tap.finish(self.merchant)
        bare, info = env.unwrapped, self.info
        windows = range(self.first_window, self.last_window + 1)
        scenario = bare.scenario
        metrics, listings = (None, None) if info is None else _figures(bare, self.merchant)
        return EpisodeResult(
            env_id=_env_id(bare),
            merchants=1 if info is None else bare.session.world.merchants,
            agent=self.agent,
            scenario=scenario.name,
            hashes=dict(bare.hashes),
            seed=seed,
            policy=_identity(self.policy),
            harness=_stack(env),
            reason=reason,
            message=message,
            end_reason=info["end_reason"] if info is not None else "",
            horizon_hours=scenario.run.horizon_days * 24,
            window_hours=scenario.run.activation_period,
            windows_offered=len(windows),
            active=tuple(window in tally.active for window in windows),
            active_any=tuple(window in tally.active_any for window in windows),
            forced=tally.forced,
            initial_net_assets=self.initial,
            last_net_assets=None if info is None else _cents(info["net_assets"]),
            terms=self.terms,
            counters=_counters(tally),
            metrics=metrics,
            mean_active_listings=listings,
            report={**_conversation(tally, info, self._transcript(env)), **self.policy.report()},
            wall_s=wall_s,
            interventions=_interventions(env),
            label=self.label,
        )


def _spent(report: Mapping[str, Any]) -> float:
    """Micro-dollars to hold against a limit; where nobody knows them, any limit is reached."""
    spent = report.get("spent_micro_usd", report.get("cost_micro_usd", 0))
    return float("inf") if spent is None else float(spent)


def _cents(amount: float) -> int:
    return round(amount * 100)


def _env_id(bare: Any) -> str:
    spec = getattr(bare, "spec", None)
    if spec is not None:
        return str(spec.id)
    return str(bare.metadata.get("name", type(bare).__name__))


def checked_limits(limits: Mapping[str, float | None] | None, on_error: str) -> dict[str, float]:
    """The limits that hold.

    Raises:
        ValueError: There is an unknown one, or ``on_error`` is neither ``"record"`` nor ``"raise"``.
    """
    if on_error not in ("record", "raise"):
        raise ValueError(f"on_error must be 'record' or 'raise', not {on_error!r}")
    unknown = sorted(set(limits or ()) - set(LIMITS))
    if unknown:
        raise ValueError(f"unknown limits: {', '.join(unknown)}; known are {', '.join(LIMITS)}")
    return {name: value for name, value in (limits or {}).items() if value is not None}


def observations_of(space: spaces.Space[Any]) -> str:
    """What kind of observations a space holds: ``"raw"``, ``"chat"`` or ``"flat"``."""
    if not isinstance(space, spaces.Dict):
        return "flat"
    if "tool_results" in space.spaces:
        return "raw"
    return "chat" if "messages" in space.spaces else "flat"


def seated(policy: Policy, env: Any, space: spaces.Space[Any], merchant: int, *, resumed: bool) -> Policy:
    """A policy as it plays a seat: one of conversations gets a :class:`ChatSeat` if observations are raw.

    Args:
        policy: The player.
        env: The environment.
        space: Observation space of the seat.
        merchant: Number of the seat.
        resumed: Whether an episode is continued; the conversation is then that of the recorded run.
    """
    if policy.observes != "chat" or observations_of(space) != "raw":
        return policy
    recorder = recorder_of(env)
    front = recorder.fronts.get(merchant) if resumed and recorder is not None else None
    if front is None or front.policy is not policy:
        front = ChatSeat(policy, notes=notes_reader(env, merchant))
    return front


def check_policy(space: spaces.Space[Any], policy: Policy, allow_privileged: bool) -> None:
    """Raise unless a policy may play and reads the observations of a space, or can be made to.

    Raises:
        TypeError: It reads others.
        ValueError: It sees hidden state, which is not allowed.
    """
    gives = observations_of(space)
    if policy.observes != gives and (policy.observes, gives) != ("chat", "raw"):
        raise TypeError(
            f"policy {policy.name!r} reads {policy.observes!r} observations, this environment gives {gives!r}"
        )
    if policy.privileged and not allow_privileged:
        raise ValueError(f"policy {policy.name!r} sees hidden state; pass allow_privileged=True to run it")


def _identity(policy: Policy) -> dict[str, Any]:
    return {"name": policy.name, "version": policy.version, "privileged": policy.privileged}


def _stack(env: Any) -> tuple[str, ...]:
    """Names of the wrappers of this package, innermost first."""
    names = []
    while env is not env.unwrapped:
        if type(env).__module__.startswith("merchantbench_gym."):
            names.append(type(env).__name__)
        env = env.env
    return tuple(reversed(names))


def _interventions(env: Any) -> tuple[str, ...]:
    """Labels of the interventions in a stack, innermost first."""
    labels = []
    while env is not env.unwrapped:
        labels.append(str(getattr(env, "intervention", "")))
        env = env.env
    return tuple(label for label in reversed(labels) if label)


def _conversation(tally: Tally, info: Mapping[str, Any] | None, transcript: Any) -> dict[str, Any]:
    """What there is to tell of conversation and notes, nothing if there are none."""
    found: dict[str, Any] = {} if transcript is None else {"recoveries": transcript.recoveries}
    if tally.compactions is not None:
        found["compactions"] = dict(sorted(tally.compactions.items()))
    if info is not None and "notes_version" in info:
        found["notes_versions"] = info["notes_version"]
    return found


def _counters(tally: Tally) -> dict[str, Any]:
    return {
        "turns": tally.turns,
        "by_tool": dict(sorted(tally.by_tool.items())),
        "ok": tally.ok,
        "business_errors": tally.business_errors,
        "invalid": tally.invalid,
        "rejected_turns": tally.rejected_turns,
        "partially_applied": tally.partially_applied,
        "internal_faults": tally.internal_faults,
    }


def _figures(bare: Any, merchant: int) -> tuple[dict[str, Any], float | None]:
    """Figures of the market at the end, amounts in cents, and the mean number of listings over the days."""
    session = bare.session
    final, days = session.world.metrics(merchant), session.world.day_records(merchant)
    orders = session.observe(merchant)["orders"]["totals"]
    kinds = [key.removeprefix(COLLECTED) for key in final if key.startswith(COLLECTED)]
    fines = {kind: final[COLLECTED + kind] for kind in kinds}
    figures = {
        "orders": {status: number for status, number in orders.items() if status != "total"},
        "fines": {"total": sum(fines.values()), **fines},
        "procured": final["orders_procured"],
        "late": final["late"],
        "rating": final["rating"],
        "closed_t": final["closed_t"],
    }
    listings = [day["active_listings"] for day in days if day["t"] < bare.scenario.horizon_hours]
    return figures, sum(listings) / len(listings) if listings else None
