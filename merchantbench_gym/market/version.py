"""Name of the simulated dynamics; it enters every scenario hash and snapshot."""

DYNAMICS_VERSION = "market-1"
