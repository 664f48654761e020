"""Figures that were published for the original benchmark, as context only."""

from __future__ import annotations

PUBLISHED = {
    "human (n = 3)": 217.61,
    "best LLM set-up": 59.46,
    "rule-based": 24.48,
    "weakest LLM set-up": 6.56,
}
"""Final net assets in thousand RMB after 365 days from 3,000 (arXiv 2607.28956)."""

PUBLISHED_DAYS = 365

NOT_COMPARABLE = (
    "Published figures come from a private catalog; this package's market is synthetic, "
    "so its scores are not comparable with them."
)
"""The sentence that goes with every mention of the published figures."""
