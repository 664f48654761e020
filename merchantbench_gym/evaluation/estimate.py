"""What a run with a language model will need, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final, NamedTuple

import gymnasium

from merchantbench_gym.baselines import RuleBasedPolicy, run_episode
from merchantbench_gym.scenario import Scenario
from merchantbench_gym.wrappers import NotesProvider
from merchantbench_gym.wrappers.tokens import MESSAGE_OVERHEAD, estimate, estimate_request

CALLS_PER_WINDOW: Final = {"brief": 2, "typical": 5, "thorough": 12}
"""Model calls per window in the three cases shown; each makes one tool call, the last one ends the window."""

OUTPUT_TOKENS: Final = 200
"""Tokens assumed for a response: a few sentences and a tool call, no long reasoning."""

SAMPLE_WINDOWS: Final = 20


class Sizes(NamedTuple):
    """Estimated tokens of the pieces that requests are made of.

    Attributes:
        fixed: System prompt and tool schemas, part of every request.
        observation: Message that opens a window, mean.
        result: Answer to a tool call, mean.
    """

    fixed: int
    observation: int
    result: int


@dataclass(frozen=True)
class Estimate:
    """What one run is expected to need.

    Attributes:
        case: Name of the case.
        windows: Decisions on offer.
        calls: Responses of the model.
        prompt_tokens: Tokens of all requests.
        cached_tokens: Those among them that the request before had sent already.
        output_tokens: Tokens of all responses.
        compactions: Times that the history is cut.
        cost_usd: Cost without any prefix cache, None without prices.
        cost_usd_cached: Cost if the provider serves everything from its cache that it could.
    """

    case: str
    windows: int
    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    compactions: int
    cost_usd: float | None
    cost_usd_cached: float | None

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def measure_sizes(scenario: Scenario, *, seed: int = 1, memory: bool = True) -> Sizes:
    """Measure the pieces of requests by letting the rule-based merchant play the first windows.

    Args:
        scenario: The scenario.
        seed: Seed of the market.
        memory: Whether the note tools are offered too.
    """
    env = gymnasium.make("MerchantBench-v0", scenario=scenario, disable_env_checker=True)
    bare: Any = env.unwrapped
    if memory:
        bare.add_provider(NotesProvider())
    observations: list[int] = []
    results: list[int] = []

    def look(observation: Any, reward: float, info: Mapping[str, Any]) -> None:
        del reward
        if info["window_closed_by"]:
            observations.append(estimate(observation["text"]) + 2 * MESSAGE_OVERHEAD)
        # A result is more than its text: ids and names take about twice what any message takes.
        answers = [item for item in observation["tool_results"] if item["name"] != "end_of_step"]
        results.extend(estimate(item["content"]) + 4 * MESSAGE_OVERHEAD for item in answers)

    limits = {"windows": SAMPLE_WINDOWS}
    run_episode(env, RuleBasedPolicy(), seed=seed, limits=limits, on_turn=look)
    system = [{"role": "system", "content": bare.system_prompt}]
    fixed = estimate_request(system, bare.tool_schemas)
    env.close()
    return Sizes(fixed, _mean(observations), _mean(results))


def _mean(values: list[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def estimate_run(
    scenario: Scenario,
    sizes: Sizes,
    case: str,
    calls_per_window: int,
    *,
    trigger: int,
    keep: int,
    prices: Mapping[str, Any] | None = None,
) -> Estimate:
    """Add up the requests of a run whose history grows until it is cut.

    Args:
        scenario: The scenario.
        sizes: Tokens of the pieces.
        case: Name of the case.
        calls_per_window: Responses per window; the turn limit caps them.
        trigger: Size of a request, in tokens, at which the history is cut.
        keep: Tokens that a cut leaves of the history.
        prices: USD per million tokens: ``input``, ``output`` and optionally ``cache_read``; None is unknown.

    Returns:
        The expectation. A run may end early, if the shop closes, and responses may be longer.
    """
    windows = -(-scenario.horizon_hours // scenario.run.activation_period)
    calls_per_window = min(calls_per_window, scenario.turns.max_turns_per_window)
    history = prompt = cached = compactions = sent = 0
    for _ in range(windows):
        history += sizes.observation
        for call in range(calls_per_window):
            if sizes.fixed + history >= trigger and history > keep:
                # System prompt and schemas stay in the provider's cache, a cut history is new to it.
                history, sent, compactions = keep, sizes.fixed, compactions + 1
            size = sizes.fixed + history
            prompt += size
            cached += min(sent, size)
            sent = size
            if call < calls_per_window - 1:
                history += OUTPUT_TOKENS + sizes.result
    calls = windows * calls_per_window
    output = calls * OUTPUT_TOKENS
    return Estimate(
        case,
        windows,
        calls,
        prompt,
        cached,
        output,
        compactions,
        _cost(prompt, 0, output, prices),
        _cost(prompt - cached, cached, output, prices),
    )


def _cost(fresh: int, cached: int, output: int, prices: Mapping[str, Any] | None) -> float | None:
    """USD to whole cents."""
    if prices is None:
        return None
    read = prices.get("cache_read")
    rates = (prices["input"], prices["input"] if read is None else read, prices["output"])
    amounts = (fresh, cached, output)
    exact = sum(Decimal(str(rate)) * amount for rate, amount in zip(rates, amounts, strict=True)) / 1_000_000
    return float(Decimal(exact).quantize(Decimal("0.01"), ROUND_HALF_EVEN))
