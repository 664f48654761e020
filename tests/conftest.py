"""Shared set-up of the test suite."""

from __future__ import annotations

from hypothesis import settings

# Examples are the same in every run, and nothing in the suite depends on the speed of the machine.
settings.register_profile("merchantbench", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("merchantbench")
