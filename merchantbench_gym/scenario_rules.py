"""Rules for the single values of a scenario.

A rule stands in the annotation of a model's field (``Annotated[int, Int(1, 3650)]``). It turns what a
user wrote into what the simulator reads, or says what is wrong in the user's own units, and it turns
the stored value back (`Rule.show`).
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from merchantbench_gym.market.money import accept_price, currency, to_cents

_LONGEST_ECHO = 80
_ISO_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def echo(value: object) -> str:
    """Return a short text of a value the user gave, in the notation of TOML where it has one."""
    text: str
    if value is None:
        text = "nothing"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int) and value.bit_length() > 256:
        # Beyond some thousand digits Python refuses to write an integer out.
        text = f"an integer of {value.bit_length()} bits"
    elif isinstance(value, (int, float)):
        text = type(value).__repr__(value)
    elif isinstance(value, str):
        text = '"' + value.encode("utf-8", "replace").decode() + '"'
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(echo(item) for item in value[:_LONGEST_ECHO]) + "]"
    elif isinstance(value, Mapping):
        text = "a table"
    elif isinstance(value, (datetime.date, datetime.time)):
        text = value.isoformat()
    elif isinstance(value, Decimal):
        text = str(value)
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_ECHO else text[: _LONGEST_ECHO - 1] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known name most like a word, the first one if several are equally like it."""
    return max(known, key=lambda name: difflib.SequenceMatcher(None, word, name, autojunk=False).ratio())


class Problem(ValueError):
    """What is wrong with one value: ``what (got …, allowed …)``."""

    def __init__(self, what: str, got: object, allowed: str = "") -> None:
        super().__init__(f"{what} (got {echo(got)}{', allowed ' + allowed if allowed else ''})")
        self.what = what


class Rule:
    """Base of all rules; pydantic calls `check` for the annotated field."""

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        raise NotImplementedError

    def check(self, value: Any) -> Any:
        """Return the value to store.

        Raises:
            Problem: If the value is not legal.
        """
        raise NotImplementedError

    def show(self, stored: Any) -> Any:
        """Return a stored value as plain JSON data in the units users write."""
        return stored

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let the rule alone decide; the annotated type says what it returns."""
        return core_schema.no_info_plain_validator_function(self.check)


@dataclass(frozen=True)
class Bool(Rule):
    """A truth value."""

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return "true, false"

    def check(self, value: Any) -> bool:
        """Return the value; numbers are no truth values."""
        if not isinstance(value, bool):
            raise Problem("must be a bool", value, self.allowed)
        return value


@dataclass(frozen=True)
class Int(Rule):
    """A whole number from `low` to `high`, both included; 7.0 is none."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"{self.low:,}–{self.high:,}"

    def check(self, value: Any) -> int:
        """Return the value."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise Problem("must be a whole number", value, self.allowed)
        if not self.low <= value <= self.high:
            raise Problem("out of range", value, self.allowed)
        return value


def _require_number(value: Any, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Problem("must be a number", value, allowed)
    if not isinstance(value, int) and not math.isfinite(value):
        raise Problem("must be finite", value, allowed)


@dataclass(frozen=True)
class Real(Rule):
    """A number from `low` to `high`; `above` excludes `low`, `step` asks for a multiple of it."""

    low: float
    high: float
    above: bool = False
    step: str = ""

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        span = f"> {self.low:,}, ≤ {self.high:,}" if self.above else f"{self.low:,}–{self.high:,}"
        return f"{span} in steps of {self.step}" if self.step else span

    def check(self, value: Any) -> float:
        """Return the value as a float."""
        _require_number(value, self.allowed)
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise Problem("out of range", value, self.allowed)
        if self.step and Decimal(str(value)) % Decimal(self.step):
            raise Problem(f"must be a multiple of {self.step}", value, self.allowed)
        # Adding 0.0 turns -0.0 into 0.0: equal scenarios must have equal texts.
        return float(value) + 0.0


@dataclass(frozen=True)
class Amount(Rule):
    """An amount of money: decimal currency outside, integer cents inside."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"{self.low:,}–{self.high:,}"

    def check(self, value: Any) -> int:
        """Return the amount in cents; the range is checked before rounding."""
        _require_number(value, self.allowed)
        cents = accept_price(value, to_cents(self.low), to_cents(self.high))
        if cents is None:
            raise Problem("out of range", value, self.allowed)
        return cents

    def show(self, stored: Any) -> float:
        """Return the amount in currency units."""
        return currency(stored)


@dataclass(frozen=True)
class Row(Rule):
    """A list of `count` values of one rule in ascending order, `strict` without equal ones."""

    item: Rule
    count: int
    broken: str = "values must never fall"
    strict: bool = False

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"{self.count} values {self.item.allowed}"

    def check(self, value: Any) -> tuple[Any, ...]:
        """Return the values as a tuple."""
        if not isinstance(value, (list, tuple)) or len(value) != self.count:
            raise Problem(f"must be a list of {self.count} values", value, self.allowed)
        row = []
        for place, item in enumerate(value, start=1):
            try:
                row.append(self.item.check(item))
            except Problem as problem:
                raise Problem(f"value {place} {problem.what}", value, self.item.allowed) from None
        for before, after in itertools.pairwise(row):
            if before > after or (self.strict and before == after):
                raise Problem(self.broken, value)
        return tuple(row)

    def show(self, stored: Any) -> list[Any]:
        """Return the values as a list."""
        return [self.item.show(item) for item in stored]


def pair(item: Rule) -> Row:
    """Return the rule of a range ``[low, high]``."""
    return Row(item, 2, "low must not exceed high")


@dataclass(frozen=True)
class Maybe(Rule):
    """A value of another rule, or none: the key is absent."""

    item: Rule

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return self.item.allowed

    def check(self, value: Any) -> Any:
        """Return the value, or None."""
        return None if value is None else self.item.check(value)

    def show(self, stored: Any) -> Any:
        """Return the value, or None."""
        return None if stored is None else self.item.show(stored)


@dataclass(frozen=True)
class OneOf(Rule):
    """One of a few fixed texts."""

    choices: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return ", ".join(f'"{choice}"' for choice in self.choices)

    def check(self, value: Any) -> str:
        """Return the text."""
        if value not in self.choices:
            raise Problem("unknown value", value, self.allowed)
        return str(value)


@dataclass(frozen=True)
class Text(Rule):
    """A text of `low` to `high` characters."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"text of {self.low:,}–{self.high:,} characters"

    def check(self, value: Any) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise Problem("must be a text", value, self.allowed)
        if not self.low <= len(value) <= self.high:
            raise Problem(f"has {len(value):,} characters", value, self.allowed)
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise Problem("holds half a character (a lone surrogate)", value, self.allowed)
        return value


class Bilingual(BaseModel):
    """One text in each of the languages of a brief."""

    model_config = ConfigDict(frozen=True)

    en: str
    zh: str


@dataclass(frozen=True)
class BilingualText(Rule):
    """A text, or a table with the text in each language."""

    item: Text

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"{self.item.allowed}, or a table {{en, zh}} of such"

    def check(self, value: Any) -> str | Bilingual:
        """Return the text or the texts."""
        if not isinstance(value, Mapping):
            return self.item.check(value)
        if set(value) != set(Bilingual.model_fields):
            raise Problem("must have exactly the keys en and zh", sorted(value), self.allowed)
        for language, text in value.items():
            try:
                self.item.check(text)
            except Problem as problem:
                raise Problem(f"{language} {problem.what}", text, self.allowed) from None
        return Bilingual(**value)

    def show(self, stored: Any) -> Any:
        """Return the text or a table of texts."""
        return stored.model_dump() if isinstance(stored, Bilingual) else stored


@dataclass(frozen=True)
class Date(Rule):
    """A calendar date up to `last`, or "" for none; ISO text is a date too, as JSON has no other way."""

    last: datetime.date

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f'a date such as 2025-06-01 up to {self.last}, or ""'

    def check(self, value: Any) -> datetime.date | None:
        """Return the date, None for ""."""
        if value == "":
            return None
        date = value
        if isinstance(value, str) and _ISO_DATE.fullmatch(value):
            with contextlib.suppress(ValueError):
                date = datetime.date.fromisoformat(value)
        if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
            raise Problem("must be a date", value, self.allowed)
        if date > self.last:
            raise Problem("out of range", value, self.allowed)
        return date

    def show(self, stored: Any) -> str:
        """Return the date as ISO text."""
        return "" if stored is None else str(stored)


@dataclass(frozen=True)
class Names(Rule):
    """A list of distinct names out of `known`, kept in the order of `known`; `never` are refused."""

    known: tuple[str, ...]
    never: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The legal values in words."""
        return f"distinct names of tools except {', '.join(self.never)}"

    def check(self, value: Any) -> tuple[str, ...]:
        """Return the names in the order of `known`."""
        if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
            raise Problem("must be a list of names", value, self.allowed)
        for name in value:
            if name in self.never:
                raise Problem(f"{name} cannot be denied", value, self.allowed)
            if name not in self.known:
                near = nearest(name, self.known)
                raise Problem(f"unknown name {echo(name)}, the nearest is {near}", value, self.allowed)
        if len(set(value)) != len(value):
            raise Problem("names must be distinct", value, self.allowed)
        return tuple(name for name in self.known if name in value)

    def show(self, stored: Any) -> list[str]:
        """Return the names as a list."""
        return list(stored)
