"""Recorded runs as one page that a person can read: :func:`write_report`."""

from __future__ import annotations

from merchantbench_gym.evaluation.report.facts import SeatFacts, read_seats
from merchantbench_gym.evaluation.report.page import MOST_BYTES, page, write_report

__all__ = ["MOST_BYTES", "SeatFacts", "page", "read_seats", "write_report"]
