"""Settings of the policy that asks a model, and where each of them came from."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from merchantbench_gym.baselines.react.schedule import LONG, SHORT
from merchantbench_gym.baselines.react.secrets import Masker

_SECRET_NAME = re.compile("auth|key|token|secret|cookie|password|credential")
PRICE_KINDS = ("input", "output", "cache_read", "cache_write")


class ConfigError(ValueError):
    """A setting that is missing or has no usable value; the text names it and its source."""


class _Unfit(Exception):
    """A value has not the form that a setting needs."""


# --- forms of values --------------------------------------------------------------------------------------


def _string(value: Any) -> str:
    if not isinstance(value, str) or not value.strip().isprintable():
        raise _Unfit
    return value.strip()


def _url(value: Any) -> str:
    text = _string(value)
    parts = urlsplit(text)
    # A part of a password that reads as a port would be shown; asking for the port raises then.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise _Unfit
    return text


def _integer(least: int | None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d[\d_]{0,17}", value.strip()):
            value = int(value)
        if type(value) is not int or (least is not None and value < least):
            raise _Unfit
        return value

    return read


def _number(above: float, *, inclusive: bool = False) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _Unfit
        number = float(value)
        if not math.isfinite(number) or number < above or (number == above and not inclusive):
            raise _Unfit
        return number

    return read


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        word = _string(value).lower()
        if word not in words:
            raise _Unfit
        return word

    return read


def _choice(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _data(value)
    return _one_of("auto", "none", "required")(value)


def _data(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Unfit
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise _Unfit from None
    return copied


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _Unfit
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str) or not f"{name}{text}".isprintable():
            raise _Unfit
    return dict(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit
    return value


def _prices(value: Any) -> Mapping[str, Decimal]:
    if not isinstance(value, Mapping) or not {"input", "output"} <= set(value) <= set(PRICE_KINDS):
        raise _Unfit
    try:
        prices = {kind: Decimal(str(price)) for kind, price in value.items() if price is not None}
    except InvalidOperation:
        raise _Unfit from None
    if not {"input", "output"} <= set(prices) or any(not p.is_finite() or p < 0 for p in prices.values()):
        raise _Unfit
    return prices


def _retry(value: Any) -> Mapping[str, tuple[float, ...]]:
    if not isinstance(value, Mapping) or not set(value) <= {"short", "long"}:
        raise _Unfit
    read = _number(0, inclusive=True)
    given = {name: tuple(read(wait) for wait in waits) for name, waits in value.items()}
    return {"short": SHORT, "long": LONG, **given}


# --- the settings -----------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    variable: str  # "" for a setting that is an argument only
    default: Any
    form: str
    read: Callable[[Any], Any]


_POSITIVE = "an integer of at least 1"
_SECONDS = "a number of seconds above 0"

SETTINGS: dict[str, _Setting] = {
    "api_key": _Setting("OPENAI_API_KEY", None, "a key of printable characters", _string),
    "base_url": _Setting("OPENAI_BASE_URL", None, "an http or https URL", _url),
    "model": _Setting("MODEL_NAME", None, "the name of a model", _string),
    "temperature": _Setting("TEMPERATURE", None, "a number of at least 0", _number(0, inclusive=True)),
    "max_output_tokens": _Setting("MAX_OUTPUT_TOKENS", None, _POSITIVE, _integer(1)),
    "tool_choice": _Setting("TOOL_CHOICE", "auto", "auto, required, none, or a mapping", _choice),
    "extra_headers": _Setting("", {}, "a mapping of printable texts", _headers),
    "extra_body": _Setting("", {}, "a mapping of JSON data", _data),
    "claude": _Setting(
        "CLAUDE_STYLE",
        "auto",
        "auto, blocks, extend_params or off",
        _one_of("auto", "blocks", "extend_params", "off"),
    ),
    "context_window": _Setting("CONTEXT_WINDOW_TOKENS", 200_000, _POSITIVE, _integer(1)),
    "trigger": _Setting("COMPACT_TRIGGER_TOKENS", 160_000, "an integer", _integer(None)),
    "keep": _Setting("COMPACT_KEEP_TOKENS", 30_000, _POSITIVE, _integer(1)),
    "timeout": _Setting("REQUEST_TIMEOUT", 120.0, _SECONDS, _number(0)),
    "max_hops": _Setting("MAX_HOPS_PER_WINDOW", None, _POSITIVE, _integer(1)),
    "reasoning": _Setting("REASONING_POLICY", "off", "off, window or all", _one_of("off", "window", "all")),
    "prices": _Setting(
        "", None, "US dollars per million tokens: input, output, cache_read, cache_write", _prices
    ),
    "retry": _Setting("", {"short": SHORT, "long": LONG}, "short and long, sequences of seconds", _retry),
    "window_deadline": _Setting("WINDOW_DEADLINE", None, _SECONDS, _number(0)),
    "max_failed_windows": _Setting("MAX_FAILED_WINDOWS", 3, _POSITIVE, _integer(1)),
    "reference": _Setting("", False, "True or False", _flag),
}
_REFERENCE_DEFAULTS = {"reasoning": "all"}


class ReActConfig:
    """The settings, resolved once: argument, else environment variable, else ``.env`` file, else default.

    A value that is None or blank counts as not given. Nothing is ever written to the environment.

    Args:
        env_file: A file of lines ``KEY=VALUE``; None is ``./.env``, if there is one.
        **settings: Values of settings:

            * ``api_key``, ``base_url``, ``model``: whom to ask;
            * ``temperature``, ``max_output_tokens``, ``tool_choice``, ``extra_headers``, ``extra_body``,
              ``claude``: what is sent with a request. ``{run}`` in a header is the label of the run;
            * ``context_window``, ``trigger``, ``keep``: sizes in tokens for the management of the context;
            * ``timeout`` and ``window_deadline``: seconds per request and per window;
            * ``max_hops``: answers of the model per window, None for as many as there are turns;
            * ``reasoning``: whether reasoning texts are sent again, ``"off"``, ``"window"`` or ``"all"``;
            * ``prices``: US dollars per million tokens by ``input, output, cache_read, cache_write``;
            * ``retry``: ``short`` and ``long`` waits in seconds;
            * ``max_failed_windows``: windows in a row without an answer that end the run;
            * ``reference``: play as the published reference agent does, for comparisons.

    Attributes:
        sources: Where each setting came from: ``"argument"``, the name of the file, ``"environment"`` or
            ``"default"``.

    Raises:
        ConfigError: A value does not have the form its setting needs, or there is no such setting.
    """

    # Named here for readers and type checkers; __init__ sets them.
    api_key: str | None
    base_url: str | None
    model: str | None
    temperature: float | None
    max_output_tokens: int | None
    tool_choice: Any
    extra_headers: Mapping[str, str]
    extra_body: Mapping[str, Any]
    claude: str
    context_window: int
    trigger: int
    keep: int
    timeout: float
    max_hops: int | None
    reasoning: str
    prices: Mapping[str, Decimal] | None
    retry: Mapping[str, tuple[float, ...]]
    window_deadline: float | None
    max_failed_windows: int
    reference: bool

    def __init__(self, *, env_file: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise ConfigError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(SETTINGS)}")
        self._given = {name: value for name, value in settings.items() if not _blank(value)}
        self._env_file = env_file
        file_name, file = _read_file(env_file)
        levels = [("environment", dict(os.environ)), (file_name, file)]
        self.sources: Mapping[str, str] = {}
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, setting in SETTINGS.items():
            found = [("argument", self._given[name])] if name in self._given else []
            found += [(where, there.get(setting.variable)) for where, there in levels]
            source, value = next(
                ((where, value) for where, value in found if not _blank(value)), ("default", None)
            )
            sources[name] = source
            values[name] = copy.copy(setting.default) if source == "default" else _read(name, source, value)
        for name, value in _REFERENCE_DEFAULTS.items():
            if values["reference"] and sources[name] == "default":
                values[name] = value
        self.__dict__.update(values, sources=MappingProxyType(sources))

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings are fixed once they are resolved; :meth:`changed` makes others of them."""
        if name in SETTINGS:
            raise AttributeError(f"{name} cannot be set; use changed()")
        super().__setattr__(name, value)

    def changed(self, **settings: Any) -> ReActConfig:
        """The same settings, but for those given here."""
        given = {name: value for name, value in settings.items() if not _blank(value)}
        return ReActConfig(env_file=self._env_file, **{**self._given, **given}) if given else self

    def require(self, *names: str) -> None:
        """Raise unless settings have a value.

        Raises:
            ConfigError: One has none.
        """
        for name in names:
            if getattr(self, name) is None:
                variable, form = SETTINGS[name].variable, SETTINGS[name].form
                raise ConfigError(
                    f"{name} is missing: pass it, or set {variable} in the environment or in .env to {form}"
                )

    @property
    def masker(self) -> Masker:
        """Masks the key, and the values of headers that hold one."""
        secret = [text for name, text in self.extra_headers.items() if _SECRET_NAME.search(name.lower())]
        return Masker(self.api_key, *" ".join(secret).split())

    @property
    def output_reserve(self) -> int:
        """Tokens of the context window that are kept free for the answer."""
        if self.max_output_tokens is not None:
            return self.max_output_tokens
        return min(16_384, self.context_window // 8)

    @property
    def context(self) -> dict[str, Any]:
        """Settings for the management of the context."""
        names = ("context_window", "output_reserve", "trigger", "keep")
        sizes = {name: getattr(self, name) for name in names}
        return {**sizes, "mode": "reference"} if self.reference else sizes

    def describe(self) -> dict[str, dict[str, Any]]:
        """Value and source of each setting as JSON data, without secrets."""
        return {name: {"value": self._shown(name), "source": self.sources[name]} for name in SETTINGS}

    def config_hash(self) -> str:
        """SHA-256 of all values that ``describe`` shows, but for whether a key is set."""
        shown = {name: self._shown(name) for name in SETTINGS if name != "api_key"}
        return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()

    def _shown(self, name: str) -> Any:
        value = getattr(self, name)
        if name == "api_key":
            return None if value is None else "set"
        if name == "base_url":
            return None if value is None else _bare_url(value)
        if name == "extra_headers":
            return dict.fromkeys(sorted(value), "set")
        if name == "prices":
            return None if value is None else {kind: str(price) for kind, price in sorted(value.items())}
        if name == "retry":
            return {kind: list(waits) for kind, waits in value.items()}
        if name == "extra_body":
            value = _hidden(value)
        return self.masker.data(value)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self._shown(name)!r}" for name in SETTINGS)
        return f"ReActConfig({shown})"


def _hidden(value: Any, named: bool = False) -> Any:
    """JSON data in which texts under a name that tells of a secret are only said to be set."""
    if isinstance(value, Mapping):
        return {
            name: _hidden(item, named or bool(_SECRET_NAME.search(name.lower())))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_hidden(item, named) for item in value]
    return "set" if named and isinstance(value, str) else value


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _read(name: str, source: str, value: Any) -> Any:
    setting = SETTINGS[name]
    try:
        return setting.read(value)
    except (_Unfit, ValueError, TypeError, OverflowError):
        pass
    # The value itself is not shown: it may be a key that was put in the wrong place.
    which = name if source == "argument" or not setting.variable else setting.variable
    where = "as an argument" if source == "argument" else f"in {source}"
    raise ConfigError(f"{which} {where} must be {setting.form}")


def _bare_url(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


# --- the file ---------------------------------------------------------------------------------------------

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_QUOTED = re.compile(r"""'([^']*)'\s*(?:\#.*)?|"((?:[^"\\]|\\.)*)"\s*(?:\#.*)?""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def _read_file(env_file: str | os.PathLike[str] | None) -> tuple[str, dict[str, str]]:
    path = Path(".env" if env_file is None else env_file)
    if env_file is None and not path.is_file():
        return ".env", {}
    try:
        return os.fspath(path), parse_env(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"env_file {os.fspath(path)} cannot be read: {type(error).__name__}") from None


def parse_env(text: str) -> dict[str, str]:
    """The variables of a ``.env`` file.

    Args:
        text: Lines ``KEY=VALUE``, with or without ``export`` and quotes; ``#`` begins a comment. Other lines
            say nothing.
    """
    values = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found:
            values[found[1]] = _value(found[2])
    return values


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return re.sub(r"(^|\s+)#.*", "", text)
    if quoted[1] is not None:
        return quoted[1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted[2])
