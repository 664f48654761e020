"""Spaces of chat messages and of tool schemas, in the form of OpenAI's chat completions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from merchantbench_gym.spaces import OpenText, copy_generator

Space = TypeVar("Space", bound=spaces.Space[Any])

ROLES = ("system", "user", "assistant", "tool")


class Messages(spaces.Space[Any]):
    """Lists of chat messages: mappings with a role and a text as content.

    A tool message names the call it answers, an assistant message may have calls. Samples are short
    conversations of a system and some user messages.

    Args:
        seed: Seed of the sampling generator.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: conversations have no length of their own."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> list[dict[str, Any]]:
        """Draw a conversation.

        Raises:
            ValueError: A mask or probability is given; there is nothing to mask.
        """
        _no_mask(mask, probability)
        texts = OpenText(64, seed=self.np_random)
        drawn = [{"role": "system", "content": texts.sample()}]
        drawn += [{"role": "user", "content": texts.sample()} for _ in range(int(self.np_random.integers(4)))]
        return drawn

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a list of messages."""
        return isinstance(x, list) and all(map(_is_message, x))

    def __deepcopy__(self, memo: dict[int, Any]) -> Messages:
        """Copy with its own generator."""
        return _copied(self, Messages())

    def __repr__(self) -> str:
        """Constructor form."""
        return "Messages()"

    def __eq__(self, other: object, /) -> bool:
        """All spaces of messages are equal."""
        return isinstance(other, Messages)

    __hash__ = None  # type: ignore[assignment]


class Tools(spaces.Space[Any]):
    """Lists of tool schemas in OpenAI function form, each tool once.

    Args:
        schemas: Schemas that samples are made of; what the space contains does not depend on them.
        seed: Seed of the sampling generator.
    """

    def __init__(
        self, schemas: Iterable[Mapping[str, Any]] = (), seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(None, None, seed)
        self._schemas = [dict(schema) for schema in copy.deepcopy(list(schemas))]

    @property
    def is_np_flattenable(self) -> bool:
        """False: schemas are no numbers."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> list[dict[str, Any]]:
        """Draw some of the schemas, in their order.

        Raises:
            ValueError: A mask or probability is given; there is nothing to mask.
        """
        _no_mask(mask, probability)
        taken = self.np_random.integers(2, size=len(self._schemas)).tolist()
        return [copy.deepcopy(schema) for schema, take in zip(self._schemas, taken, strict=True) if take]

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a list of schemas of different tools."""
        if not isinstance(x, list) or not all(map(_is_schema, x)):
            return False
        return len({schema["function"]["name"] for schema in x}) == len(x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tools:
        """Copy with its own generator; the schemas, never changed in place, are shared."""
        twin = Tools()
        twin._schemas = self._schemas
        return _copied(self, twin)

    def __repr__(self) -> str:
        """Number of tools that samples are made of."""
        return f"Tools({len(self._schemas)})"

    def __eq__(self, other: object, /) -> bool:
        """All spaces of schemas are equal; those behind the samples do not count."""
        return isinstance(other, Tools)

    __hash__ = None  # type: ignore[assignment]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        return False
    if not isinstance(value.get("content"), str):
        return False
    if value["role"] == "tool":
        return isinstance(value.get("tool_call_id"), str)
    calls = value.get("tool_calls", [])
    return isinstance(calls, list) and all(map(_is_call, calls))


def _is_call(value: Any) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(value.get("id"), str)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
    )


def _is_schema(value: Any) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _no_mask(mask: Any, probability: Any) -> None:
    if mask is not None or probability is not None:
        raise ValueError("this space can be sampled without mask and probability only")


def _copied(source: spaces.Space[Any], target: Space) -> Space:
    """A target with a copy of the generator of a source."""
    if source._np_random is not None:
        target._np_random = copy_generator(source._np_random)
    return target
