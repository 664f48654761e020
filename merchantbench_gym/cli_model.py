"""Language models on the command line: settings, what a run will need, and where it stops."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from merchantbench_gym.cli import EXIT_STOPPED, UserError

if TYPE_CHECKING:
    from merchantbench_gym.baselines import ReActConfig
    from merchantbench_gym.evaluation.estimate import Estimate, Sizes
    from merchantbench_gym.scenario import Scenario

REACT = "react"
PRICE_KINDS = ("input", "output", "cache_read", "cache_write")
NOT_FROM_FILE = ("api_key", "base_url", "extra_headers")
"""Settings that a run file does not hold in full, because they may hold secrets."""
CONNECT_S = 10.0
HINTS = {
    "auth": "check OPENAI_API_KEY, and what its account may use",
    "model": "check the name (--model or MODEL_NAME), and OPENAI_BASE_URL, which often ends in /v1",
    "provider_unavailable": "look at what its server says, and go on later",
}


class ProviderError(UserError):
    """There is no provider where it should be."""

    code = EXIT_STOPPED


@dataclass(frozen=True)
class Asked:
    """What the command line says about the model.

    Attributes:
        model: Its name; None is that of the environment.
        env_file: File with settings; None is ``./.env``.
        reference: Whether to play as the published reference agent does.
        prices: As for :func:`parse_prices`; None is unknown.
        budget_usd: Most that the run may cost; None is no limit.
    """

    model: str | None = None
    env_file: str | None = None
    reference: bool = False
    prices: str | None = None
    budget_usd: float | None = None

    def check(self, policy: str, *, estimate: bool = False) -> None:
        """Raise if there are options for a model, but the policy asks none.

        Raises:
            UserError: There are.
        """
        options = {
            "--model": self.model,
            "--env-file": self.env_file,
            "--reference": self.reference,
            "--prices": self.prices,
            "--budget-usd": self.budget_usd,
            "--estimate": estimate,
        }
        if policy != REACT and (given := [name for name, value in options.items() if value]):
            raise UserError(f"{', '.join(given)} goes with --policy {REACT}; {policy} asks no model")

    def config(self, recorded: Mapping[str, Any] | None = None) -> ReActConfig:
        """Settings of the policy.

        Args:
            recorded: Settings of the run that goes on, as its file has them.

        Raises:
            UserError: One has no usable value.
        """
        from merchantbench_gym.baselines import ConfigError, ReActConfig

        settings = {
            name: setting["value"]
            for name, setting in (recorded or {}).items()
            if setting["source"] == "argument" and name not in NOT_FROM_FILE
        }
        if self.model is not None:
            settings["model"] = self.model
        if self.reference:
            settings["reference"] = True
        if self.prices is not None:
            settings["prices"] = parse_prices(self.prices)
        try:
            return ReActConfig(env_file=self.env_file, **settings)
        except ConfigError as error:
            raise UserError(str(error)) from None

    def player(self, identity: Mapping[str, Any] | None = None, *, quiet: bool = False) -> Any:
        """The policy.

        Args:
            identity: The player of the run that goes on, as its file has it.
            quiet: Whether nobody wants to know what it waits for.

        Raises:
            UserError: A setting is missing or has no usable value, or nobody answers at the base URL.
        """
        from merchantbench_gym.baselines import ConfigError, ReActPolicy

        config = self.config((identity or {}).get("config"))
        if config.prices is None and self.budget_usd is not None:
            raise UserError("--budget-usd needs --prices: without them nobody knows what a token costs")
        try:
            policy = ReActPolicy(config=config, tell=None if quiet else _tell)
        except ConfigError as error:
            raise UserError(str(error)) from None
        check_connection(config.base_url)
        return policy

    def limits(self) -> dict[str, float] | None:
        """Limits of the run loop.

        Raises:
            UserError: The budget is none.
        """
        if self.budget_usd is None:
            return None
        if not self.budget_usd > 0:
            raise UserError(f"--budget-usd must be above 0, not {self.budget_usd:g}")
        return {"cost_micro_usd": self.budget_usd * 1_000_000}


@dataclass(frozen=True)
class Contender:
    """The policy with the settings of the command line, to be made in every run of a sweep anew.

    Attributes:
        asked: What the command line says.
    """

    asked: Asked
    name: ClassVar[str] = REACT
    observes: ClassVar[str] = "chat"
    privileged: ClassVar[bool] = False

    @property
    def version(self) -> str:
        """Version of the policy."""
        from merchantbench_gym.baselines import ReActPolicy

        return ReActPolicy.version

    def for_env(self, env: Any) -> Any:
        """The policy for an environment."""
        from merchantbench_gym.baselines import ReActPolicy

        del env
        return ReActPolicy(config=self.asked.config())


def contenders(names: list[str], asked: Asked) -> list[str] | dict[str, Any]:
    """The policies of a sweep.

    Raises:
        UserError: A setting of the model is missing or unusable, nobody answers at its base URL, or there
            are settings, but no policy asks a model.
    """
    from merchantbench_gym.baselines import POLICIES

    if REACT not in names or not set(names) <= set(POLICIES):
        asked.check(", ".join(names) or "nobody")
        return names
    asked.player(quiet=True).close()
    return {name: Contender(asked) if name == REACT else POLICIES[name] for name in names}


def _tell(line: str) -> None:
    print(f"merchantbench: {line}", file=sys.stderr)


def check_connection(url: str | None) -> None:
    """Raise if nobody listens where the provider should be; a run would find that out in minutes only.

    Args:
        url: Base URL; None is the client's own. Behind a proxy nothing is checked.

    Raises:
        ProviderError: There is no connection.
    """
    from merchantbench_gym.baselines.react.caller import DEFAULT_URL

    parts = urlsplit(url or DEFAULT_URL)
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise ProviderError(
            f"no connection to {place} ({reason}): check OPENAI_BASE_URL, and that its server runs"
        ) from None


@contextmanager
def room_for_requests() -> Iterator[None]:
    """Tell the user if not even rules, tools and the newest messages fit into the model's context."""
    from merchantbench_gym.wrappers import ContextBudgetError

    try:
        yield
    except ContextBudgetError as error:
        raise UserError(
            f"{error}: the context of the model is too small; raise CONTEXT_WINDOW_TOKENS (rules and tools "
            "take about 7,000 tokens) or deny tools (--set tools.denied=[...])"
        ) from None


def parse_prices(text: str) -> dict[str, str]:
    """Prices named on the command line.

    Args:
        text: US dollars per million tokens of input, output and optionally cache reads and cache writes,
            separated by commas, such as ``2.5,10,0.25``.

    Raises:
        UserError: There are too few or too many.
    """
    values = [part.strip() for part in text.split(",")]
    if not 2 <= len(values) <= len(PRICE_KINDS) or not all(values):
        raise UserError(
            "--prices must be USD per million tokens of input,output[,cache_read[,cache_write]], "
            f"such as 2.5,10,0.25, not {text!r}"
        )
    return dict(zip(PRICE_KINDS, values, strict=False))


def why_stopped(reason: str, message: str, path: str | None) -> str:
    """What to tell of a run that a policy, its provider, a budget or the user has stopped; "" for others."""
    kind, _, what = reason.partition(":")
    if kind not in ("policy_stopped", "policy_error", "budget", "interrupted"):
        return ""
    if kind == "interrupted" and path is None:
        return kind
    cause = f"{what}: {message}" if what else kind
    if kind == "budget":
        cause = f"the budget ({what}) is used up"
    hint = f"; {HINTS[what]}" if kind == "policy_stopped" and what in HINTS else ""
    onwards = f"; merchantbench run --resume {path} goes on" if path else "; it was not recorded (--record)"
    return f"the run has stopped, {cause}{hint}{onwards}"


# -- estimates -----------------------------------------------------------------------------------------


def show_estimate(scenario: Scenario, asked: Asked, seed: int, *, as_json: bool) -> None:
    """Print what a run will need, in several cases; no model is asked, no key is needed."""
    from merchantbench_gym.evaluation.estimate import CALLS_PER_WINDOW, estimate_run, measure_sizes
    from merchantbench_gym.wrappers.calibration import ContextSettings

    config = asked.config()
    try:
        context = ContextSettings(**config.context)
    except ValueError as error:
        raise UserError(str(error)) from None
    sizes = measure_sizes(scenario, seed=seed)
    most = config.max_hops or scenario.turns.max_turns_per_window
    trigger = context.threshold
    if config.reference:
        trigger = config.trigger if config.trigger > 0 else sys.maxsize
    sizing: dict[str, Any] = {"trigger": trigger, "keep": context.kept, "prices": config.prices}
    found = [
        estimate_run(scenario, sizes, case, min(calls, most), **sizing)
        for case, calls in CALLS_PER_WINDOW.items()
    ]
    if as_json:
        cases = [estimate.as_json() for estimate in found]
        print(json.dumps({"scenario": scenario.name, "sizes": sizes._asdict(), "cases": cases}, indent=2))
    else:
        _show(scenario, sizes, found)


def _show(scenario: Scenario, sizes: Sizes, found: list[Estimate]) -> None:
    from merchantbench_gym.cli_report import show_rows
    from merchantbench_gym.evaluation.estimate import OUTPUT_TOKENS

    rows = [
        (
            case.case,
            f"{case.calls // case.windows}",
            f"{case.calls:,}",
            f"{case.prompt_tokens / 1e6:,.1f} M",
            f"{case.cached_tokens / case.prompt_tokens:.0%}",
            f"{case.output_tokens / 1e6:,.2f} M",
            str(case.compactions),
            "?" if case.cost_usd_cached is None else f"{case.cost_usd_cached:,.2f}",
            "?" if case.cost_usd is None else f"{case.cost_usd:,.2f}",
        )
        for case in found
    ]
    print(f"{scenario.name}: {found[0].windows} windows in {scenario.run.horizon_days} days\n")
    headings = ("play", "a window", "calls", "prompt", "cached", "output", "cuts", "USD cached", "USD")
    show_rows(headings, rows)
    print(
        "\nPrompt, output: tokens in all. Cached: what a provider with a prefix cache need not read again.\n"
        f"Measured on this scenario: {sizes.fixed:,} tokens of rules and tools in every request, "
        f"{sizes.observation:,} per observation, {sizes.result:,} per tool result.\nAssumed: {OUTPUT_TOKENS} "
        "output tokens per call; a model that thinks at length writes many more. Tokenizers differ."
    )
    if found[0].cost_usd is None:
        print("For the cost, name prices in USD per million tokens: --prices 2.5,10,0.25 (in, out, cached).")
