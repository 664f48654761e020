"""Shared fixtures of the market tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

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
