"""Keeping keys out of everything that is written down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "masked"

_KEY_LIKE = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}|\b([Bb]earer)\s+[A-Za-z0-9._~+/-]{8,}=*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]")
_SHORTEST_KEY = 8  # below that it is a placeholder such as "none", which texts may well hold
_LONGEST_WORD = 64


class Masker:
    """Masks a key, and whatever looks like one, in strings.

    Args:
        secrets: Keys to look for; those of fewer than 8 characters are taken for placeholders.
    """

    def __init__(self, *secrets: str | None) -> None:
        known = sorted({key for key in secrets if key and len(key) >= _SHORTEST_KEY}, key=len, reverse=True)
        self._keys = known

    def text(self, text: str) -> str:
        """A text without keys."""
        for key in self._keys:
            text = text.replace(key, MASK)
        return _KEY_LIKE.sub(lambda found: f"{found[1]} {MASK}" if found[1] else MASK, text)

    def data(self, value: Any) -> Any:
        """A copy of JSON data, all its strings without keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value

    def word(self, value: Any) -> str:
        """What may be kept of a code, type or id that a provider sent: at most 64 harmless characters."""
        if value is None or isinstance(value, bool | Mapping | list):
            return ""
        return _ILLEGAL.sub("_", self.text(str(value)))[:_LONGEST_WORD]
