"""Counting tokens and money, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")
PRICED = TOKENS[:4]  # reasoning is part of output
COUNTS = (*TOKENS, "calls", "attempts", "missing")

Prices = Mapping[str, Decimal]


@dataclass(frozen=True)
class Reading:
    """The usage that came with one response.

    Attributes:
        tokens: Tokens by kind, keys ``TOKENS``.
        prompt: Prompt tokens as reported; 0 is unknown.
        known: Whether any usage was reported.
        bad: Reported figures that are no token counts; they count as 0.
    """

    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    prompt: int = 0
    known: bool = False
    bad: tuple[str, ...] = ()

    def to_json(self) -> dict[str, int] | None:
        """Tokens and prompt as JSON data, None if nothing was reported."""
        return {**self.tokens, "prompt": self.prompt} if self.known else None

    @classmethod
    def load(cls, data: Mapping[str, int] | None) -> Reading:
        """Take a usage back from JSON data."""
        if data is None:
            return cls()
        return cls({kind: data[kind] for kind in TOKENS}, data["prompt"], known=True)


def read_usage(usage: Any) -> Reading:
    """Read the usage of a response.

    Args:
        usage: What the provider sent under ``usage``, JSON data of any shape.
    """
    if not isinstance(usage, Mapping) or not _told(usage, "prompt_tokens", "completion_tokens"):
        return Reading()
    bad: list[str] = []

    def number(name: str, value: Any) -> int:
        if type(value) is int and value >= 0:
            return value
        bad.append(name)
        return 0

    def optional(*places: tuple[str, ...]) -> int:
        for path in places:
            value: Any = usage
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                return number(".".join(path), value)
        return 0

    prompt = number("prompt_tokens", usage.get("prompt_tokens"))
    output = number("completion_tokens", usage.get("completion_tokens"))
    read = optional(
        ("prompt_tokens_details", "cached_tokens"),
        ("cacheReadInputTokensCompatible",),
        ("cache_read_input_tokens",),
    )
    written = optional(("cache_creation_input_tokens",))
    reasoning = optional(("completion_tokens_details", "reasoning_tokens"))
    fresh = max(0, prompt - read - written)
    tokens = dict(zip(TOKENS, (fresh, output, read, written, reasoning), strict=True))
    return Reading(tokens, prompt, True, tuple(bad))


def _told(usage: Mapping[str, Any], *keys: str) -> bool:
    return any(usage.get(key) is not None for key in keys)


def cost_of(reading: Reading, prices: Prices | None) -> int | None:
    """Cost of one response.

    Args:
        reading: Its usage.
        prices: US dollars per million tokens by kind; without ``cache_read`` or ``cache_write`` such tokens
            cost what input does.

    Returns:
        Micro-dollars, half-even; None if prices, usage or a part of the usage are unknown.
    """
    if prices is None or not reading.known or reading.bad:
        return None
    # A dollar per million tokens is a micro-dollar per token.
    total = sum(
        (reading.tokens[kind] * prices.get(kind, prices["input"]) for kind in PRICED), start=Decimal(0)
    )
    return int(total.quantize(Decimal(1), ROUND_HALF_EVEN))


@dataclass
class Tally:
    """Sums over calls of the model.

    Attributes:
        counts: By ``COUNTS``: tokens; decisions the model was asked for (``calls``), requests sent
            (``attempts``), responses without usage (``missing``).
        known: Micro-dollars of the responses whose cost is known.
        unknown: Number of the others.
        dearest: Micro-dollars of the dearest response whose cost is known, None if there is none.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    known: int = 0
    unknown: int = 0
    dearest: int | None = None

    @property
    def cost(self) -> int | None:
        """Micro-dollars; None if a part of it is unknown."""
        return None if self.unknown else self.known

    @property
    def spent(self) -> int | None:
        """Micro-dollars to hold against a budget: what is unknown counts as much as the dearest response.

        None if no response tells what it cost.
        """
        if not self.unknown:
            return self.known
        return None if self.dearest is None else self.known + self.unknown * self.dearest

    def response(self, reading: Reading, cost: int | None) -> None:
        """Count a response."""
        for kind, number in reading.tokens.items():
            self.counts[kind] += number
        self.counts["missing"] += not reading.known
        if cost is None:
            self.unknown += 1
        else:
            self.known += cost
            self.dearest = max(cost, self.dearest or 0)

    def to_json(self) -> dict[str, Any]:
        """The sums as JSON data."""
        return {**self.counts, "known": self.known, "unknown": self.unknown, "dearest": self.dearest}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Tally:
        """Take sums back from JSON data."""
        counts = {name: int(data[name]) for name in COUNTS}
        return cls(counts, data["known"], data["unknown"], data["dearest"])
