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
from merchantbench_gym.baselines.tally import Tally, start_counting
from merchantbench_gym.wrappers.errors import ResponseLost
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
        reason: Why the run ended early; "" if it reached its end.
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
        policy: The player.
        seed: Seed of the market.
        options: Passed on to ``env.reset``.
        policy_seed: Seed of the policy's own generator; None is ``seed``.
        limits: Highest ``turns``, ``windows``, ``model_calls``, ``cost_micro_usd`` and ``wall_s``
            (seconds), looked at before each turn; None or absent is no limit.
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
    _check_fit(env, policy)
    if policy.privileged and not allow_privileged:
        raise ValueError(f"policy {policy.name!r} sees hidden state; pass allow_privileged=True to run it")
    if on_error not in ("record", "raise"):
        raise ValueError(f"on_error must be 'record' or 'raise', not {on_error!r}")
    unknown = sorted(set(limits or ()) - set(LIMITS))
    if unknown:
        raise ValueError(f"unknown limits: {', '.join(unknown)}; known are {', '.join(LIMITS)}")
    episode = _Episode(env, policy, {k: v for k, v in (limits or {}).items() if v is not None}, on_turn)
    try:
        if start is None:
            episode.begin(*env.reset(seed=seed, options=options))
            seat = Seat.from_env(env)
            with _blame_policy():
                policy.reset(seat, seed=seed if policy_seed is None else policy_seed)
        else:
            episode.begin(*start)
        reason = episode.play()
    except KeyboardInterrupt:
        reason = "interrupted"
    except PolicyStop as stop:
        reason = f"policy_stopped:{stop.code}"
    except _PolicyError as error:
        if on_error == "raise":
            raise error.cause from None
        reason = f"policy_error:{type(error.cause).__name__}"
    finally:
        policy.close()
    return episode.result(reason, seed)


class _PolicyError(Exception):
    """Marks an exception as one of the policy, not of the environment."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def _blame_policy() -> Iterator[None]:
    try:
        yield
    except PolicyStop:
        raise
    except Exception as error:
        raise _PolicyError(error) from error


class _Episode:
    """The loop of one episode and what it has seen so far."""

    def __init__(self, env: Any, policy: Policy, limits: Mapping[str, float], on_turn: OnTurn | None) -> None:
        self.env = env
        self.policy = policy
        self.limits = limits
        self.on_turn = on_turn
        self.turns = 0
        self.info: Mapping[str, Any] | None = None
        self.initial: int | None = None
        self.first_window = 0
        self.last_window = -1  # last window opened for this seat
        self.terms = dict.fromkeys(TERMS, 0)
        self.observation: Any = None
        self.tap = start_counting(env.unwrapped)
        self.started = time.perf_counter()

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        self.observation, self.info = observation, info
        self.initial = _cents(info["net_assets"])
        self.first_window = info["window"]
        self._see_window(info)

    def play(self) -> str:
        """Play to the end; returns "" or the limit that was reached."""
        while self.info is not None and not self.info["end_reason"]:
            reached = self._limit_reached() if self.limits else ""
            if reached:
                return f"budget:{reached}"
            with _blame_policy():
                action = self.policy.act(self.observation, self.info)
            if not self._step(action):
                return "response_lost"
        return ""

    def _step(self, action: Any) -> bool:
        """Take one turn; False if its answer was lost for good."""
        for _ in range(1 + RETRIES):
            try:
                self.observation, reward, _, _, info = self.env.step(action)
            except ResponseLost:
                continue
            break
        else:
            return False
        self.info = info
        self.turns += 1
        if reward or info["gross"] or info["refunds"] or info["fines"] or info["fees"] or info["other"]:
            for term in TERMS:
                self.terms[term] += _cents(info[term])
        self._see_window(info)
        if self.on_turn is not None:
            self.on_turn(self.observation, reward, info)
        return True

    def _see_window(self, info: Mapping[str, Any]) -> None:
        if not info["end_reason"]:
            self.last_window = info["window"]

    def _limit_reached(self) -> str:
        report = self.policy.report() if {"model_calls", "cost_micro_usd"} & set(self.limits) else {}
        reached = {
            "turns": self.turns,
            "windows": self.last_window - self.first_window,
            "model_calls": report.get("calls") or 0,
            "cost_micro_usd": report.get("cost_micro_usd") or 0,
            "wall_s": time.perf_counter() - self.started,
        }
        return next((name for name in LIMITS if reached[name] >= self.limits.get(name, float("inf"))), "")

    def result(self, reason: str, seed: int | None) -> EpisodeResult:
        wall_s = time.perf_counter() - self.started
        tally = self.tap.finish(0)
        bare, info = self.env.unwrapped, self.info
        windows = range(self.first_window, self.last_window + 1)
        scenario = bare.scenario
        metrics, listings = (None, None) if info is None else _figures(bare)
        return EpisodeResult(
            env_id=bare.spec.id if bare.spec is not None else type(bare).__name__,
            merchants=1,
            agent="merchant_0",
            scenario=scenario.name,
            hashes=dict(bare.hashes),
            seed=seed,
            policy=_identity(self.policy),
            harness=_stack(self.env),
            reason=reason,
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
            report=self.policy.report(),
            wall_s=wall_s,
        )


def _cents(amount: float) -> int:
    return round(amount * 100)


def _check_fit(env: Any, policy: Policy) -> None:
    """Raise TypeError unless the environment gives the observations the policy reads."""
    space = env.observation_space
    gives = "flat"
    if isinstance(space, spaces.Dict):
        gives = "raw" if "tool_results" in space.spaces else "chat"
    if policy.observes != gives:
        raise TypeError(
            f"policy {policy.name!r} reads {policy.observes!r} observations, this environment gives {gives!r}"
        )


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


def _figures(bare: Any) -> tuple[dict[str, Any], float | None]:
    """Figures of the market at the end, amounts in cents, and the mean number of listings over the days."""
    session = bare.session
    final, days = session.world.metrics(0), session.world.day_records(0)
    orders = session.observe(0)["orders"]["totals"]
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
