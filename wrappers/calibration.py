"""How many estimated tokens fit: the settings of a context, and the ratio of real to estimated tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

MODES: Final = ("guarded", "reference", "off")
REINJECT: Final = ("after_trim", "never", "each_window")

LOWEST: Final = Fraction(1, 2)
HIGHEST: Final = Fraction(4)
OVERFLOW: Final = Fraction(115, 100)
"""What an overflow makes of the ratio."""
SAMPLES: Final = 16


@dataclass(frozen=True)
class ContextSettings:
    """How the messages of a request are kept within the context of a model.

    Provider tokens are those that the provider counts, estimated tokens those of
    :func:`~merchantbench_gym.wrappers.tokens.estimate`.

    Attributes:
        mode: ``"guarded"``, ``"reference"`` for the handling of the published reference agent, ``"off"`` for
            no compaction.
        context_window: Provider tokens that a request and its answer may have together.
        output_reserve: Provider tokens of them that are kept free for the answer.
        margin: Share of the rest that is kept free besides, from 0 to below 1.
        trigger: Size of a request in provider tokens from which on a compaction is announced. In mode
            ``"reference"`` 0 and less is never.
        keep: Estimated tokens of messages that a compaction leaves.
        history_limit: Most estimated tokens of the messages of a request, without the system message.
        reminders: Turns of the model that a compaction waits for notes to be saved.
        notes_tokens: Estimated tokens of notes that are shown to the model.
        reinject: When notes are shown: ``"after_trim"``, ``"each_window"`` or ``"never"``.
        hard: Whether every request is kept within the budget; without it only compactions take messages away.

    Raises:
        ValueError: A value is out of range, or the values leave no room for messages.
    """

    mode: str = "guarded"
    context_window: int = 200_000
    output_reserve: int = 16_384
    margin: float = 0.05
    trigger: int = 160_000
    keep: int = 30_000
    history_limit: int = 160_000
    reminders: int = 3
    notes_tokens: int = 4_000
    reinject: str = "after_trim"
    hard: bool = True

    def __post_init__(self) -> None:
        for name, value, known in (("mode", self.mode, MODES), ("reinject", self.reinject, REINJECT)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        for name in ("context_window", "keep", "history_limit", "reminders"):
            self._check_whole(name, 1)
        for name in ("output_reserve", "notes_tokens"):
            self._check_whole(name, 0)
        self._check_whole("trigger", None if self.mode == "reference" else 1)
        if (
            isinstance(self.margin, bool)
            or not isinstance(self.margin, int | float)
            or not 0 <= self.margin < 1
        ):
            raise ValueError(f"margin must be a number from 0 to below 1, not {self.margin!r}")
        if not isinstance(self.hard, bool):
            raise ValueError(f"hard must be True or False, not {self.hard!r}")
        if self.output_reserve >= self.context_window:
            raise ValueError(f"output_reserve must be below context_window, not {self.output_reserve}")
        if self.kept < 1:
            raise ValueError("context_window, output_reserve, margin and trigger leave no room for messages")

    def _check_whole(self, name: str, least: int | None) -> None:
        value = getattr(self, name)
        if type(value) is not int or (least is not None and value < least):
            bound = "" if least is None else f" of at least {least}"
            raise ValueError(f"{name} must be a whole number{bound}, not {value!r}")

    @property
    def room(self) -> int:
        """Provider tokens that a request may have."""
        return int((self.context_window - self.output_reserve) * (1 - Fraction(str(self.margin))))

    @property
    def threshold(self) -> int:
        """Provider tokens of a request from which on a compaction is announced."""
        return min(self.trigger, self.room * 92 // 100)

    @property
    def kept(self) -> int:
        """Estimated tokens of messages that a compaction leaves."""
        return self.keep if self.mode == "reference" else min(self.keep, self.threshold // 4)


class Calibration:
    """Ratio of the tokens that a provider counts to estimated ones, from what was seen of it.

    The largest of the last 16 samples counts, within 0.5 and 4; without samples the ratio is 1.

    Args:
        samples: Samples seen before, the oldest first.
    """

    def __init__(self, samples: Iterable[str | Fraction] = ()) -> None:
        self._samples = deque((Fraction(sample) for sample in samples), SAMPLES)

    @property
    def ratio(self) -> Fraction:
        """The ratio, exactly."""
        return min(max(*self._samples, LOWEST), HIGHEST) if self._samples else Fraction(1)

    @property
    def samples(self) -> list[str]:
        """The samples as JSON data."""
        return [str(sample) for sample in self._samples]

    def add(self, counted: int, estimated: int) -> None:
        """Take in that a provider counted a request of so many estimated tokens."""
        self._samples.append(Fraction(counted, estimated))

    def overflow(self) -> None:
        """Take in that a provider found a request too large."""
        self._samples.append(OVERFLOW * self.ratio)

    def size(self, estimated: int) -> int:
        """Provider tokens to expect of estimated ones, rounded up."""
        return -(-estimated * self.ratio // 1)

    def budget(self, settings: ContextSettings, fixed: int) -> int:
        """Most estimated tokens of the messages of a request without the system message.

        Args:
            settings: Settings of the context.
            fixed: Estimated tokens of system message and tools.
        """
        return min(settings.history_limit, int(settings.room // self.ratio) - fixed)
