"""Shared set-up of the tool tests."""

from __future__ import annotations

import sys
from pathlib import Path

# The helper modules of this folder, for test modules that pytest imports by path.
sys.path.insert(0, str(Path(__file__).parent))
