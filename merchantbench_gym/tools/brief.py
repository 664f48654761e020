"""The brief: the rules of a run in words, read by an agent before its first turn.

A pure function of the scenario and a language. Every figure comes from the scenario; nothing hidden from a
merchant (probabilities, lengths of disturbances, the response of demand to prices) and no advice is stated.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from merchantbench_gym.tools import brief_chinese, brief_english

if TYPE_CHECKING:
    from merchantbench_gym.scenario import Scenario

SECTIONS = {"en": brief_english.SECTIONS, "zh": brief_chinese.SECTIONS}
"""Sections by language, in their order; each makes its title and body, an empty body leaves it out."""

OVERRIDABLE = ("role", "goals")
"""What a scenario may say in its own words: the first sections, in this order."""


def brief(scenario: Scenario, language: str | None = None) -> str:
    """The brief of a scenario.

    Args:
        scenario: The scenario whose rules are stated.
        language: ``"en"`` or ``"zh"``; None stands for the language of the scenario.

    Returns:
        The text, sections separated by one empty line.
    """
    chosen = language or scenario.brief.language
    sections = [section(scenario) for section in SECTIONS[chosen]]
    for place, key in enumerate(OVERRIDABLE):
        own = scenario.brief.own_text(key, chosen)
        if own is not None:
            sections[place] = sections[place][0], own
    return "\n\n".join(f"# {title}\n{body}" for title, body in sections if body)


def brief_hash(text: str) -> str:
    """First 16 hex digits of the SHA-256 of a brief."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
