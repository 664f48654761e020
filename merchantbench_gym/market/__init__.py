"""The simulated market: numpy only, no files, no clock of the wall, no knowledge of tools or environments."""

from merchantbench_gym.market.cache import clear_caches
from merchantbench_gym.market.version import DYNAMICS_VERSION
from merchantbench_gym.market.world import MarketError, World

__all__ = ["DYNAMICS_VERSION", "MarketError", "World", "clear_caches"]
