"""Keyed random words and their transforms.

There is no generator state. Every random word is addressed by a path of non-negative integer keys
in a tree of SplitMix64 streams, `draw(seed, channel, k1, ..., kr)`, so words can be computed in any
order, one at a time or in arrays. A node (the value of a prefix of the path) is itself a word and
may be cached; its children are `sm(node, key)`.

Scalar words are Python ints below 2**64, arrays of words have dtype uint64 and wrap silently.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

GAMMA: Final = 0x9E3779B97F4A7C15
"""Increment of SplitMix64 (Steele, Lea and Flood 2014)."""
MASK: Final = 0xFFFFFFFFFFFFFFFF
"""64 ones."""

SUPPLIER: Final = 1
PRODUCT: Final = 2
TITLE: Final = 3
HOUR_SHAPE: Final = 4
CURVE_NOISE: Final = 5
PRICE_TIMELINE: Final = 6
LISTING_TIMELINE: Final = 7
SHIPPING_TIMELINE: Final = 8
ARRIVAL: Final = 9
FATE: Final = 10
QUEUE: Final = 11
CONTENTION: Final = 12

NEVER: Final = 2**31 - 1
"""Wait that never ends; longer waits are cut to it. Beyond any hour a world can reach."""

_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_UNIT: Final = 2.0**-53
_TOP: Final = 1.0 - 2.0**-32
_TAU: Final = 2.0 * math.pi

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def mix(z: int) -> int:
    """Return the SplitMix64 finaliser of the 64-bit word `z`."""
    z = (z ^ (z >> 30)) * _MIX_1 & MASK
    z = (z ^ (z >> 27)) * _MIX_2 & MASK
    return z ^ (z >> 31)


def sm(h: int, n: int) -> int:
    """Return output number `n` (from 0) of the SplitMix64 generator seeded with `h`."""
    # mix() is repeated here because this is the innermost call of order creation.
    z = (h + (n + 1) * GAMMA) & MASK
    z = (z ^ (z >> 30)) * _MIX_1 & MASK
    z = (z ^ (z >> 27)) * _MIX_2 & MASK
    return z ^ (z >> 31)


def draw(seed: int, channel: int, *keys: int) -> int:
    """Return the word (or node) at path `channel`, `keys` below `seed`.

    Args:
        seed: Seed, 0 to 2**64 - 1.
        channel: Channel number, one of the constants of this module.
        *keys: Further non-negative keys of the path.
    """
    node = sm(seed, channel)
    for key in keys:
        node = sm(node, key)
    return node


def sm_array(h: Any, n: Any) -> Words:
    """Return `sm(h, n)` for arrays of words and keys.

    Args:
        h: Word or array of words (uint64).
        n: Key or array of non-negative integer keys.

    Returns:
        Fresh uint64 array of the broadcast shape of `h` and `n`, at least one-dimensional.
    """
    # At least one dimension, because numpy warns about wrapping scalars but not about arrays.
    keys = np.atleast_1d(np.asarray(n, dtype=np.uint64))
    z: Words = (keys + 1) * GAMMA
    z = z + np.atleast_1d(np.asarray(h, dtype=np.uint64))
    z ^= z >> 30
    z *= _MIX_1
    z ^= z >> 27
    z *= _MIX_2
    z ^= z >> 31
    return z


def uniform(x: int) -> float:
    """Return the uniform number in [0, 1) of the word `x`."""
    return (x >> 11) * _UNIT


def uniform_array(x: Words) -> Floats:
    """Return the uniform numbers in [0, 1) of an array of words."""
    u: Floats = (x >> 11).astype(np.float64)
    u *= _UNIT
    return u


def real(u: Any, a: float, b: float) -> Any:
    """Map uniform numbers to Real[a, b); scalar and array form."""
    return a + (b - a) * u


def integer(u: float, a: int, b: int) -> int:
    """Map a uniform number to Int{a..b}, both ends included."""
    return a + int(u * (b - a + 1))


def integer_array(u: Floats, a: int, b: int) -> Ints:
    """Map an array of uniform numbers to Int{a..b}, both ends included, as int64."""
    return a + (u * (b - a + 1)).astype(np.int64)


def wait(u: float, hazard: float) -> int:
    """Return the waiting time of a uniform number under an hourly hazard.

    Args:
        u: Uniform number in [0, 1).
        hazard: Probability per hour.

    Returns:
        Geometric number of hours 1, 2, ..., mean 1 / `hazard`; 1 for a hazard of 1 or more,
        `NEVER` for a hazard of 0 or less.
    """
    # Through the array form, so that both use one implementation of the logarithm.
    return int(wait_array(np.array([u]), hazard)[0])


def wait_array(u: Floats, hazard: Any) -> Ints:
    """Return `wait` for arrays of uniform numbers and hazards (broadcast), as int64."""
    h = np.asarray(hazard, dtype=np.float64)
    usual = (h > 0.0) & (h < 1.0)
    # The replaced hazard keeps the logarithm finite; a subnormal hazard may overflow to infinity.
    with np.errstate(over="ignore"):
        hours = np.floor(np.log1p(-u) / np.log1p(-np.where(usual, h, 0.5)))
    finite = np.minimum(hours, NEVER - 1).astype(np.int64) + 1
    result: Ints = np.where(usual, finite, np.where(h >= 1.0, 1, NEVER)).astype(np.int64)
    return result


def normal(u0: Any, u1: Any) -> Any:
    """Return standard normal numbers of two uniform numbers each; scalar and array form."""
    return np.sqrt(-2.0 * np.log(1.0 - u0)) * np.cos(_TAU * u1)


def poisson_quantile(u: float, q: float) -> int:
    """Return the Poisson count of a uniform number.

    Args:
        u: Uniform number in [0, 1).
        q: Expected count, at most 1000.

    Returns:
        Number of j >= 0 with F(j) <= min(u, 1 - 2**-32), F the Poisson(`q`) distribution
        function; 0 if `q` <= 0. Never falls when `u` or `q` rises.
    """
    if q <= 0.0:
        return 0
    if u > _TOP:
        u = _TOP
    if q <= 30.0:
        n = 0
        f = math.exp(-q)
        if u < f:
            return 0
    else:
        # What is skipped below n has a mass under 1e-20, less than the step of u.
        n = max(0, math.floor(q - 9.0 * math.sqrt(q) - 25.0))
        f = math.exp(n * math.log(q) - q - math.lgamma(n + 1))
    bound = math.floor(q + 9.0 * math.sqrt(q) + 25.0)
    total = f
    while total <= u and n < bound:
        n += 1
        f = f * q / n
        total += f
    return n
