"""Shared fixtures of the market tests."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The helper modules of this folder, for test modules that pytest imports by path.
sys.path.insert(0, str(Path(__file__).parent))

_GLOBAL_DRAWS = {
    random: ("random", "randint", "randrange", "uniform", "gauss", "choice", "choices", "sample", "shuffle"),
    np.random: (
        "default_rng",
        "random",
        "rand",
        "randn",
        "randint",
        "uniform",
        "normal",
        "standard_normal",
        "exponential",
        "poisson",
        "choice",
        "shuffle",
        "permutation",
    ),
}


@pytest.fixture(autouse=True, scope="module")
def no_global_generator() -> Iterator[None]:
    """Every market test runs with the global generators replaced by functions that raise."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the market must not draw from a global generator")

    with pytest.MonkeyPatch.context() as patch:
        for module, names in _GLOBAL_DRAWS.items():
            for name in names:
                patch.setattr(module, name, refuse)
        yield
