"""Envelopes, tables and numbers of tool results.

Everything a tool hands out passes through here: the success and failure envelopes, the one compact table
form, shown money and rounded numbers, and the serialisation whose bytes are part of the contract.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from json.encoder import c_make_encoder, encode_basestring, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any

from merchantbench_gym.market.calendar import stamp
from merchantbench_gym.market.money import currency

__all__ = [
    "ERROR_CODES",
    "MAX_CONTENT",
    "ToolError",
    "canonical",
    "compact_encoder",
    "dumps",
    "echo",
    "failure",
    "money",
    "rounded",
    "stamp",
    "success",
    "table",
]

#: Error codes of calls and batch items; the list is closed.
ERROR_CODES = (
    "malformed_action",
    "too_many_calls",
    "duplicate_call_id",
    "end_of_step_misplaced",
    "not_deciding",
    "shop_closed",
    "unknown_tool",
    "tool_denied",
    "invalid_json",
    "invalid_arguments",
    "invalid_range",
    "not_found",
    "not_available",
    "version_conflict",
    "too_large",
    "result_too_large",
    "internal",
    "not_offered",
    "not_listed",
    "shelf_full",
    "price_out_of_range",
)

#: Largest number of characters of one serialised result.
MAX_CONTENT = 32_000

#: Largest number of characters of input repeated in a message.
MAX_ECHO = 80

_CODES = frozenset(ERROR_CODES)


def compact_encoder(*, ensure_ascii: bool = False, sort_keys: bool = False) -> Callable[[Any], str]:
    """What compact `json.dumps` does, without making the encoder of the C library anew at every call."""
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
    )
    if c_make_encoder is None:
        return encoder.encode
    inside: dict[int, Any] = {}  # containers being encoded, which shows those that contain themselves
    quoted = encode_basestring_ascii if ensure_ascii else encode_basestring
    chunks = c_make_encoder(inside, encoder.default, quoted, None, ":", ",", sort_keys, False, False)

    def encode(value: Any) -> str:
        try:
            return "".join(chunks(value, 0))
        except BaseException:
            inside.clear()
            raise

    return encode


_encode = compact_encoder()
_canonical = compact_encoder(sort_keys=True)


class ToolError(Exception):
    """A call that fails for a reason its caller should read.

    Args:
        code: One of `ERROR_CODES`.
        message: English sentence composed by this project; input in it has gone through `echo`.
        path: Place of the problem in the arguments (`$`, `$.field`, `$.items[3].sale_price`), if any.
        errors: Every problem of the call as `{"path", "message"}`; only with `invalid_arguments`.

    Raises:
        ValueError: The code is not in the list.
    """

    def __init__(
        self,
        code: str,
        message: str,
        path: str | None = None,
        errors: Sequence[dict[str, str]] | None = None,
    ) -> None:
        if code not in _CODES:
            raise ValueError(f"unknown error code {code!r}")
        super().__init__(code, message, path, errors)
        self.code = code
        self.message = message
        self.path = path
        self.errors = errors

    def __str__(self) -> str:
        """Return code and message in one line."""
        return f"{self.code}: {self.message}"


def success(**fields: Any) -> dict[str, Any]:
    """Return the envelope of a call that was executed; `ok` is its first key."""
    return {"ok": True, **fields}


def failure(error: ToolError) -> dict[str, Any]:
    """Return the envelope of a call that was not executed."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.path is not None:
        body["path"] = error.path
    if error.errors is not None:
        body["errors"] = [dict(problem) for problem in error.errors]
    return {"ok": False, "error": body}


def dumps(result: Any) -> str:
    """Serialise a result: compact, keys in their order, Unicode as it is.

    Raises:
        TypeError: A value is not JSON.
        ValueError: A number is not finite, or the value contains itself.
    """
    if type(result) is dict and result:
        # A table of ready rows stands last, so that the rest is encoded as usual.
        key, last = next(reversed(result.items()))
        if type(last) is ReadyTable:
            rest = result.copy()
            del rest[key]
            return last.text(f'{_encode(rest)[:-1]},"{key}":', "}")
    return _encode(result)


def canonical(value: Any) -> str:
    """Serialise JSON data so that equal data give equal text (sorted keys); for hashes, not for results.

    Raises:
        TypeError: A value is not JSON.
        ValueError: A number is not finite, or the value contains itself.
    """
    return _canonical(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return the compact table form `{"columns", "rows", "count"}`; rows are copied into lists."""
    listed = [list(row) for row in rows]
    return {"columns": list(columns), "rows": listed, "count": len(listed)}


class ReadyTable:
    """A table whose rows are JSON text already; the last entry of a result, and never the only one.

    Most of a catalogue row never changes, so its text is kept and the live figures are put in between.
    """

    __slots__ = ("columns", "rows")

    def __init__(self, columns: Sequence[str], rows: list[str]) -> None:
        self.columns = columns
        self.rows = rows

    def text(self, before: str = "", after: str = "") -> str:
        """JSON text of the table, as `dumps` would give it for the plain one, between two other texts."""
        columns, rows = _columns_text(tuple(self.columns)), ",".join(self.rows)
        return f'{before}{{"columns":{columns},"rows":[{rows}],"count":{len(self.rows)}}}{after}'


@lru_cache(maxsize=64)
def _columns_text(columns: tuple[str, ...]) -> str:
    return _encode(list(columns))


def money(cents: int) -> float:
    """Return an amount as shown: cents / 100."""
    return currency(cents)


def rounded(x: float, digits: int) -> float:
    """Round half-even on the shortest decimal representation of `x`; never -0.0.

    Args:
        x: A finite number.
        digits: Decimals to keep.
    """
    x = float(x)
    units = x * 10**digits
    if abs(units) < 1e9 and abs(units % 1 - 0.5) > 1e-6:
        return round(x, digits) + 0.0  # no tie near, so the decimal form decides nothing
    return float(Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN)) + 0.0


def echo(value: object) -> str:
    """Return input for use in a message: at most 80 characters, lone surrogates as U+FFFD.

    Text stands as it is, other JSON values as JSON, anything else by the name of its type (a `repr` may
    hold memory addresses).
    """
    if isinstance(value, str):
        text = value[: MAX_ECHO + 1]
    else:
        try:
            text = _encode(value)
        except (TypeError, ValueError, RecursionError):
            text = repr(value) if isinstance(value, float) else type(value).__name__
    if len(text) > MAX_ECHO:
        text = text[: MAX_ECHO - 1] + "…"
    if not text.isascii():
        text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text
