"""Shared set-up of the tests of sweeps."""

from __future__ import annotations

import sys
from pathlib import Path

# The policies of this folder, for test modules that pytest imports by path and for worker processes.
sys.path.insert(0, str(Path(__file__).parent))
