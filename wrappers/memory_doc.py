"""Notes that a merchant keeps for itself over a whole run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.notes import NotesProvider
from merchantbench_gym.wrappers.order import check_order


def notes_of(env: Any) -> NotesProvider | None:
    """The provider that keeps the notes of an environment, None if it has none.

    Copies of an environment have providers of their own, so it is looked up whenever it is needed.
    """
    return next((item for item in env.unwrapped.providers if isinstance(item, NotesProvider)), None)


def notes_reader(env: Any, merchant: int = 0) -> Callable[[], tuple[int, str]] | None:
    """What tells version and text of a merchant's notes as a read would serve them now.

    Args:
        env: An environment of either kind, wrapped or not.
        merchant: Index of the merchant.

    Returns:
        A function without arguments, None if the environment keeps no notes.
    """
    if notes_of(env) is None:
        return None
    if hasattr(env, "get_wrapper_attr"):
        with suppress(AttributeError):
            served: Callable[[int], tuple[int, str]] = env.get_wrapper_attr("served_notes")
            return lambda: served(merchant)

    def read() -> tuple[int, str]:
        provider = notes_of(env)
        assert provider is not None  # providers are never taken away
        return provider.served_notes(merchant, env.unwrapped.session.window)

    return read


class MemoryDoc(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds the tools ``read_memory_doc`` and ``write_memory_doc``, and keeps what they write.

    The notes are one text document per merchant, kept in versions; they end with the episode. Info tells
    ``notes_version`` (0 if nothing has been written) and ``notes_bytes`` of the document as stored.

    Args:
        env: Environment to wrap.
        initial: Text the document starts with, as version 1; empty for none.

    Raises:
        ValueError: The text is larger than 262,144 bytes or holds a lone surrogate, the environment keeps
            notes already, or a wrong place in the stack.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, initial: str = "") -> None:
        RecordConstructorArgs.__init__(self, initial=initial)
        check_order(env, "MemoryDoc")
        self.equip(env.unwrapped, initial=initial)
        gymnasium.Wrapper.__init__(self, env)

    @staticmethod
    def equip(bare: Any, *, initial: str = "") -> None:
        """Do to an unwrapped environment what the wrapper does to it.

        Raises:
            ValueError: The text does not fit, or the environment keeps notes already.
        """
        if notes_of(bare) is not None:
            raise ValueError("this environment keeps notes already (NotesProvider); MemoryDoc adds others")
        provider = NotesProvider(initial)
        provider.of_wrapper = True
        bare.add_provider(provider)

    @property
    def provider(self) -> NotesProvider:
        """What keeps the notes."""
        provider = notes_of(self)
        assert provider is not None  # the constructor has added it
        return provider

    @property
    def _merchant(self) -> int:
        return int(getattr(self.unwrapped, "merchant", 0))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the document starts anew."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._told(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, self._told(info)

    def catch_up(self) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """What has happened since the last return, as a step without a turn."""
        observation, reward, terminated, truncated, info = self.env.get_wrapper_attr("catch_up")()
        return observation, reward, terminated, truncated, self._told(info)

    def observe(self) -> tuple[Any, dict[str, Any]]:
        """Observation and info as of now, without any effect."""
        observation, info = self.env.get_wrapper_attr("observe")()
        return observation, self._told(info)

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        version, size = self.provider.size(self._merchant)
        return {**info, "notes_version": version, "notes_bytes": size}

    def served_notes(self, merchant: int | None = None) -> tuple[int, str]:
        """Version and text of a document as a read would serve it now; (0, "") if there is none.

        Args:
            merchant: Index of the merchant; None is the one that plays.
        """
        window = self.get_wrapper_attr("session").window
        return self.provider.served_notes(self._merchant if merchant is None else merchant, window)

    def notes(self, merchant: int | None = None) -> list[dict[str, Any]]:
        """Every version of a document as stored, the oldest first.

        Args:
            merchant: Index of the merchant; None is the one that plays.

        Returns:
            Mappings of ``version, window, turn, content``; window (from 0) and turn (from 1) are those of
            the write, None for the initial text.
        """
        return self.provider.notes(self._merchant if merchant is None else merchant)

    def _state(self) -> None:
        """Nothing: the notes are part of the environment's state."""

    def _take(self, state: Any) -> None:
        """Nothing to take over."""
