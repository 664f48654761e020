"""What the environment tests share: short runs and common actions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.envs import MerchantEnv

# The helper modules of this folder, for test modules that pytest imports by path.
sys.path.insert(0, str(Path(__file__).parent))

Action = tuple[dict[str, str], ...]


@pytest.fixture
def env() -> Iterator[MerchantEnv]:
    """A week, not yet reset."""
    made = MerchantEnv("smoke")
    yield made
    made.close()


@pytest.fixture(scope="session")
def call() -> Callable[..., Action]:
    """Canonical action of one call."""

    def make(name: str, /, **arguments: Any) -> Action:
        return ({"id": f"call_{name}", "name": name, "arguments": json.dumps(arguments)},)

    return make


@pytest.fixture(scope="session")
def end(call: Callable[..., Action]) -> Action:
    """A lone end_of_step."""
    return call("end_of_step")


@pytest.fixture(scope="session")
def fill(call: Callable[..., Action]) -> Action:
    """A shelf of twenty products at prices that sell."""
    return call("list_product", items=[{"product_id": f"P{i:05d}", "sale_price": 150.0} for i in range(20)])
