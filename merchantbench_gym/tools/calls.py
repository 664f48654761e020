"""From anything an agent may hand in to a batch of calls.

`normalise` never raises and never changes what it is given: what cannot be read becomes a fault of the batch
or of one of its calls, and every fault is answered like a call.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import numpy as np

from merchantbench_gym.tools.control import END_OF_STEP
from merchantbench_gym.tools.registry import MAX_ERRORS, invalid_arguments, path_text
from merchantbench_gym.tools.results import ToolError, canonical, dumps, echo, failure

MAX_ENTRIES: Final = 1024
MAX_ACTION_CHARACTERS: Final = 8 * 2**20
MAX_ARGUMENT_CHARACTERS: Final = 2 * 2**20
MAX_ID: Final = 128
MAX_NAME: Final = 64

# Both keep the outcome independent of the interpreter's recursion and integer limits.
MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1000

FORMS: Final = (
    "a list of calls {id, name, arguments} or {id, type, function: {name, arguments}}, "
    "an assistant message with tool_calls, JSON text of one of these, or None"
)

#: Rules that stop a whole turn -> message of the result of each of its calls.
TURN_RULES: Final = {
    "too_many_calls": "the turn has more calls than a turn may have; none was executed",
    "duplicate_call_id": "two calls of the turn have the same id; none was executed",
    "end_of_step_misplaced": "end_of_step must be the last call of a turn, and once only; none was executed",
}

#: Simple calls that are remembered.
KEPT_CALLS: Final = 4096

_MISSING: Final = object()
_SCALARS: Final = {str, int, float, bool, type(None)}
_quoted = json.encoder.encode_basestring


class Call(NamedTuple):
    """One call of a batch.

    Attributes:
        position: Place in the batch, from 0.
        id: Its id, made up where none was given.
        name: Name of the tool; "" if there is no valid one.
        arguments: Plain JSON object of our own, or None if it could not be read. With a fault
            `invalid_arguments` it holds null in place of the values at fault.
        fault: Why the call cannot be executed as it stands, or None.
        raw: Text of arguments that could not be read.
    """

    position: int
    id: str
    name: str
    arguments: dict[str, Any] | None
    fault: ToolError | None = None
    raw: str = ""

    def text(self) -> str:
        """Canonical JSON of the arguments, `null` if they could not be read."""
        return canonical(self.arguments)


class KnownCall(Call):
    """A simple call that is handed out again whenever it is made again, with all that was found out about it.

    Attributes:
        checked: The tool that found its arguments valid last, and what it made of them; for `dispatch`.
    """

    checked: tuple[Any, dict[str, Any]] | None = None
    _text: str | None = None

    def text(self) -> str:
        """As for any call."""
        if self._text is None:
            self._text = super().text()
        return self._text


# Policies make the same calls window after window.
_known: Final[dict[bytes, KnownCall]] = {}


class Batch(NamedTuple):
    """A normalised action.

    Attributes:
        calls: Its calls in order; none is a thought turn.
        text: Content of the message, or the text that could not be read; for recording only.
        fault: `malformed_action` if the action as a whole could not be read, else None.
    """

    calls: tuple[Call, ...] = ()
    text: str = ""
    fault: ToolError | None = None


def normalise(action: Any) -> Batch:
    """Turn an action of any form into a batch; never raises."""
    try:
        return _container(action)
    except Exception:  # a hostile object: attributes and iterators may do anything
        return _unreadable("reading it failed")


def turn_fault(batch: Batch, max_calls: int) -> str | None:
    """Return the code of the rule that stops the whole turn, or None."""
    if batch.fault is not None:
        return batch.fault.code
    calls = batch.calls
    if len(calls) <= 1:
        return None
    if len(calls) > max_calls:
        return "too_many_calls"
    if len({call.id for call in calls}) < len(calls):
        return "duplicate_call_id"
    if any(call.name == END_OF_STEP for call in calls[:-1]):
        return "end_of_step_misplaced"
    return None


def argument_texts(batch: Batch) -> list[str]:
    """Return the canonical JSON of each call's arguments, `null` for those that could not be read."""
    return [call.text() for call in batch.calls]


def body_hash(window: int, batch: Batch, texts: Sequence[str] | None = None) -> str:
    """Return SHA-256 (hex) of the canonical JSON of a window and the calls that answer it.

    Args:
        window: The window.
        batch: The calls.
        texts: Their `argument_texts`, if these have been made already.
    """
    if batch.fault is not None:
        body = canonical({"window": window, "fault": [batch.fault.code, batch.text]})
    else:
        calls = [
            f"[{_quoted(call.id)},{_quoted(call.name)},{text},"
            f"{'null' if call.fault is None else canonical(failure(call.fault))},{_quoted(call.raw)}]"
            for call, text in zip(batch.calls, argument_texts(batch) if texts is None else texts, strict=True)
        ]
        body = f'{{"calls":[{",".join(calls)}],"window":{window}}}'
    # Text that could not be read may hold lone surrogates.
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


# --- containers ------------------------------------------------------------------------------------------


def _unreadable(what: str, text: str = "") -> Batch:
    message = f"the action cannot be read ({what}); accepted are {FORMS}"
    return Batch(text=text, fault=ToolError("malformed_action", message))


def _container(action: Any) -> Batch:
    if action is None:
        return Batch()
    if isinstance(action, str):
        return _text(str(action))
    if isinstance(action, (list, tuple)):
        return _entries(action, "")
    if isinstance(action, Mapping):
        return _message(lambda key: action.get(key, _MISSING))
    if not isinstance(action, (bytes, bytearray)) and hasattr(action, "tool_calls"):
        return _message(lambda key: getattr(action, key, _MISSING))
    return _unreadable(f"a {echo(type(action).__name__)} is none of the accepted forms")


def _text(text: str) -> Batch:
    if not text.strip():
        return Batch()
    if len(text) > MAX_ACTION_CHARACTERS:
        return _unreadable(f"the text is over {MAX_ACTION_CHARACTERS} characters")
    try:
        value = _parse(text)
    except _NotJSON as error:
        return _unreadable(f"the text is not strict JSON: {error}", text)
    if value is None:
        return Batch()
    if isinstance(value, (list, dict)):
        batch = _container(value)
        return batch if batch.fault is None else Batch(text=text, fault=batch.fault)
    return _unreadable("the JSON text is neither an array nor an object", text)


def _message(get: Any) -> Batch:
    """Read an assistant message through `get`, which returns `_MISSING` for a missing key."""
    role, calls, legacy = get("role"), get("tool_calls"), get("function_call")
    if role not in (_MISSING, None, "assistant"):
        return _unreadable("the message's role is not assistant")
    if calls is _MISSING and role != "assistant":
        return _unreadable("the object is no assistant message")
    if legacy is not _MISSING and legacy is not None:
        return _unreadable("function_call is a legacy form, use tool_calls")
    text = _content(get("content"))
    if calls is _MISSING or calls is None:
        return Batch(text=text)
    if not isinstance(calls, (list, tuple)):
        return _unreadable("tool_calls is not a list", text)
    return _entries(calls, text)


def _content(content: Any) -> str:
    """Return the text of a message's content: a string, or a list of parts with text."""
    if isinstance(content, str):
        return str(content)
    if isinstance(content, (list, tuple)):
        texts = [part.get("text") for part in _bounded(content) if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _entries(entries: list[Any] | tuple[Any, ...], text: str) -> Batch:
    if len(entries) > MAX_ENTRIES:
        return _unreadable(f"more than {MAX_ENTRIES} entries", text)
    read = [_entry(position, entry) for position, entry in enumerate(_bounded(entries))]
    if all(call.id for call in read):
        return Batch(tuple(read), text)
    taken = {call.id for call in read if call.id}
    calls = []
    for call in read:
        if not call.id:
            fresh = f"auto_{call.position}"
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            call = Call(call.position, fresh, call.name, call.arguments, call.fault, call.raw)
        calls.append(call)
    return Batch(tuple(calls), text)


def _bounded(values: Any) -> Any:
    """Iterate over as many values as a container says it has; a hostile one might never end."""
    return values if type(values) in (list, tuple) else islice(values, len(values))


# --- one entry -------------------------------------------------------------------------------------------


def _entry(position: int, entry: Any) -> Call:
    """Read one entry; an id that is missing or invalid stays "" for now."""
    if type(entry) is dict and "function" not in entry and type(entry.get("name")) is str:
        # The canonical form; the rest would read it the same way, only slower.
        key = _key(position, entry)
        known = _known.get(key)
        if known is not None:
            return known
        call_id, name = entry.get("id"), entry["name"]
        if type(call_id) is str and name.isascii() and 0 < len(name) <= MAX_NAME:
            if not (call_id.isascii() and 0 < len(call_id) <= MAX_ID):
                call_id = _valid_id(call_id)
            simple = _simple(entry.get("arguments"), 2)
            if simple is None:
                return Call(position, call_id, name, *_arguments(entry.get("arguments")))
            if not key or not call_id:
                return Call(position, call_id, name, simple)
            if len(_known) >= KEPT_CALLS:
                _known.clear()
            call = _known[key] = KnownCall(position, call_id, name, simple)
            return call
    call_id = ""
    try:
        get = _getter(entry)
        if get is None:
            raw = str(entry) if isinstance(entry, str) else ""
            return _no_call(position, "", "is no call", raw)
        call_id = _valid_id(get("id"))
        function = get("function")
        kind = get("type") if function is not _MISSING else None
        if function is not _MISSING:
            get = _getter(function)
            if get is None:
                return _no_call(position, call_id, "has no function object")
        name = get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or _has_surrogate(name):
            return _no_call(position, call_id, f"has no name of 1 to {MAX_NAME} characters")
        if kind not in (_MISSING, None, "function"):
            return _no_call(position, call_id, 'has a type other than "function"', name=str(name))
        arguments, fault, raw = _arguments(get("arguments"))
        return Call(position, call_id, str(name), arguments, fault, raw)
    except Exception:  # a hostile object, see normalise
        return _no_call(position, call_id, "cannot be read")


def _key(position: int, entry: dict[Any, Any]) -> bytes:
    """Bytes that a simple entry shares only with its equals; b"" for one that is not to be remembered.

    They tell types apart, as 1, 1.0 and true have to be. Only what marshal takes for bytes (an array, say)
    is not told apart by them; an entry with such a value is no simple one, and never remembered.
    """
    arguments = entry.get("arguments")
    # Nothing nested: objects inside could not be handed out twice, and might be without end.
    if type(arguments) is dict and len(entry) == 3 and _SCALARS.issuperset(map(type, arguments.values())):
        try:
            return marshal.dumps(cast("Any", (position, entry)), 2)
        except ValueError:
            return b""
    return b""


def _getter(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return lambda key: entry.get(key, _MISSING)
    if hasattr(entry, "function") or hasattr(entry, "arguments"):
        return lambda key: getattr(entry, key, _MISSING)
    if hasattr(entry, "type") and hasattr(entry, "id"):  # an SDK's call of another type
        return lambda key: getattr(entry, key, _MISSING)
    return None


def _no_call(position: int, call_id: str, what: str, raw: str = "", name: str = "") -> Call:
    path = f"$[{position}]"
    message = f"entry {path} {what}; a call is {{id, name, arguments}}"
    return Call(position, call_id, name, None, ToolError("malformed_action", message, path), raw)


def _valid_id(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_ID and not _has_surrogate(value):
        return str(value)
    return ""


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    return any("\ud800" <= character <= "\udfff" for character in text)


# --- arguments -------------------------------------------------------------------------------------------


def _arguments(value: Any) -> tuple[dict[str, Any] | None, ToolError | None, str]:
    """Return arguments, fault and raw text of a call's arguments."""
    if value is _MISSING or value is None:
        return {}, None, ""
    if isinstance(value, str):
        return _argument_text(str(value))
    if not isinstance(value, Mapping):
        return None, _not_an_object(), ""
    try:
        arguments, problems = _plain_object(value, MAX_ARGUMENT_CHARACTERS)
    except _TooLarge:
        return None, _whole(f"must have at most {MAX_ARGUMENT_CHARACTERS} characters as JSON"), ""
    except _TooDeep:
        return None, _whole(f"must be nested at most {MAX_DEPTH} deep"), ""
    return arguments, invalid_arguments(problems) if problems else None, ""


def _argument_text(text: str) -> tuple[dict[str, Any] | None, ToolError | None, str]:
    if not text or text == "{}" or text.isspace():
        return {}, None, ""
    if len(text) > MAX_ARGUMENT_CHARACTERS:
        return None, _invalid_json(f"over {MAX_ARGUMENT_CHARACTERS} characters"), text
    try:
        value = _parse(text)
        if value is None:
            return {}, None, ""
        if not isinstance(value, dict):
            return None, _not_an_object(), text
        if text.isascii() and "\\u" not in text and text.count("{") + text.count("[") <= MAX_DEPTH:
            return value, None, ""  # neither surrogates nor depth to look for
        # Numbers may be longer written out than they were in the text; only the text has a limit.
        arguments, problems = _plain_object(value, 64 * MAX_ARGUMENT_CHARACTERS)
    except _NotJSON as error:
        return None, _invalid_json(str(error)), text
    except _TooDeep:
        return None, _invalid_json(f"nested more than {MAX_DEPTH} deep"), text
    return arguments, invalid_arguments(problems) if problems else None, ""


def _invalid_json(what: str) -> ToolError:
    return ToolError("invalid_json", f"the arguments are not strict JSON: {what}", "$")


def _whole(what: str) -> ToolError:
    return invalid_arguments([{"path": "$", "message": what}])


def _not_an_object() -> ToolError:
    return _whole("must be an object of arguments, or JSON text of one")


class _NotJSON(Exception):
    """Text is not strict JSON; the message says why in our own words."""


class _TooDeep(Exception):
    pass


class _TooLarge(Exception):
    pass


def _refuse_constant(name: str) -> Any:
    raise _NotJSON(f"{name} is not allowed")


def _strict_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotJSON("a number is too large")
    return value


def _strict_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _NotJSON(f"an integer has more than {MAX_DIGITS} digits")
    return int(text)


def _strict_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise _NotJSON(f"the key {echo(twice)} occurs twice")
    return value


_decoder = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_float=_strict_float,
    parse_int=_strict_int,
    object_pairs_hook=_strict_object,
)


def _parse(text: str) -> Any:
    """Parse strict JSON: no NaN, no duplicate keys, no numbers beyond reason.

    Raises:
        _NotJSON: It is none.
    """
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _NotJSON(f"syntax error at character {error.pos}") from None
    except RecursionError:
        raise _NotJSON(f"nested more than {MAX_DEPTH} deep") from None


# --- plain data ------------------------------------------------------------------------------------------


Path = tuple[int | str, ...]

# Arguments within these bounds are far below the size limits, so nothing but types is to be looked at.
_FEW_KEYS: Final = 12
_FEW_ITEMS: Final = 100
_SHORT_TEXT: Final = 64
_LARGE: Final = 2**63


class _Copier:
    """Copies a value into plain JSON data, collecting what cannot be copied.

    Attributes:
        problems: At most 20 problems found.
        size: Rough number of characters of the copy as JSON: off by a factor of six at most in both
            directions, see the places that compare it.
    """

    def __init__(self, limit: int) -> None:
        self.problems: list[dict[str, str]] = []
        self.size = 0
        self.limit = limit

    def refuse(self, path: Path, message: str) -> None:
        if len(self.problems) < MAX_ERRORS:
            self.problems.append({"path": path_text(path), "message": message})

    def copy(self, value: Any, path: Path) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        self.size += 4
        if isinstance(value, str):
            self.size += len(value)
            if not _has_surrogate(value):
                return str(value)
            return self.refuse(path, "must not hold a lone surrogate")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            self.size += value.bit_length() // 3
            if value.bit_length() < 3.3 * MAX_DIGITS:
                return int(value)
            return self.refuse(path, f"must have at most {MAX_DIGITS} digits")
        if isinstance(value, float):
            self.size += 20
            return float(value) if math.isfinite(value) else self.refuse(path, "must be a finite number")
        if len(path) >= MAX_DEPTH:
            raise _TooDeep
        if isinstance(value, (list, tuple)):
            return self.array(value, path)
        if isinstance(value, Mapping):
            return self.mapping(value, path)
        return self.refuse(path, f"must be a JSON value, got a {echo(type(value).__name__)}")

    def array(self, value: list[Any] | tuple[Any, ...], path: Path) -> list[Any]:
        out = []
        for i, item in enumerate(_bounded(value)):
            out.append(self.copy(item, (*path, i)))
            self.check()
        return out

    def mapping(self, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in islice(value.items(), len(value)):
            if not isinstance(key, str) or _has_surrogate(key):
                place = (*path, key) if isinstance(key, str) else path
                self.refuse(place, "must have keys that are valid strings")
                continue
            self.size += len(key)
            out[str(key)] = self.copy(item, (*path, key))
            self.check()
        return out

    def check(self) -> None:
        if self.size > 8 * self.limit:
            raise _TooLarge


def _simple(value: Any, depth: int) -> Any:
    """Copy a small object of ordinary values, as most arguments are; None if it needs a closer look."""
    if type(value) is not dict or len(value) > _FEW_KEYS:
        return None
    out = {}
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str or len(key) > _SHORT_TEXT or not key.isascii():
            return None
        if kind is str:
            if len(item) > _SHORT_TEXT or not item.isascii():
                return None
        elif kind is int or kind is float:
            if not -_LARGE < item < _LARGE:  # so is no number that is not finite
                return None
        elif kind is list and depth > 1 and len(item) <= _FEW_ITEMS:
            item = [_simple(part, depth - 1) for part in item]
            if None in item:
                return None
        elif kind is not bool and item is not None:
            return None
        out[key] = item
    return out


def _plain_object(value: Mapping[Any, Any], limit: int) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Copy an arguments object; returns the copy and the problems found.

    Raises:
        _TooLarge: It is over the size limit.
        _TooDeep: It is nested too deep, or contains itself.
    """
    if not value:
        return {}, []
    simple = _simple(value, 2)
    if simple is not None:
        return simple, []
    copier = _Copier(limit)
    copy = copier.mapping(value, ())
    if copier.size > limit // 8 and len(dumps(copy)) > limit:
        raise _TooLarge
    return copy, copier.problems


def plain_json(value: Any, limit: int) -> Any:
    """Return a plain copy of a JSON value whose UTF-8 text has at most `limit` bytes.

    Raises:
        ValueError: It is not JSON, nested too deep, or too large.
    """
    copier = _Copier(limit)
    try:
        copy = copier.copy(value, ())
    except (_TooLarge, _TooDeep):
        raise ValueError("too large or nested too deep") from None
    if copier.problems:
        raise ValueError("{path} {message}".format(**copier.problems[0]))
    if copier.size > limit // 8 and len(dumps(copy).encode()) > limit:
        raise ValueError(f"over {limit} bytes")
    return copy
