"""What kind of failure a provider's error is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from merchantbench_gym.baselines.react.secrets import Masker

CLASSES = (
    "auth",
    "model",
    "forbidden",
    "quota",
    "rate",
    "overflow",
    "transient",
    "bad_response",
    "request",
    "unknown",
)
STOPPING = ("auth", "model")
"""Classes that end the run: no further request can succeed."""

_PAID_OUT = re.compile("insufficient_?(user_?)?(quota|balance|credits?|funds)|billing|arrear")
_CREDENTIALS = {"key", "keys", "apikey", "accesskey", "permission", "permissions", "account", "accounts"}
_CREDENTIALS |= {"billing", "region", "regions"}
_FILTERED = re.compile("filter|inspection|moderation|policy|policies")
_THROTTLED = re.compile("throttl|burst|rate_?limit|too_?many_?requests")
_TOO_LONG = re.compile(
    "context_?(length|window)|(prompt|input|request|string)_?(is_?)?(too_?(long|large)|above_?max)"
)
_TOO_LONG_MESSAGE = re.compile(
    "maximum context|context (length|window)|(prompt|input|request) is too (long|large)"
    "|too many (input )?tokens|range of input length"
)
_HALF_READ = ("JSONDecodeError", "APIResponseValidationError", "UnicodeDecodeError", "DecodingError")
_CONNECTION = ("APIConnectionError", "TransportError", "ConnectionError", "TimeoutError", "HTTPException")


@dataclass(frozen=True)
class Failure:
    """A failed attempt, reduced to what may be written down.

    Attributes:
        kind: One of ``CLASSES``.
        status: HTTP status, None without an answer.
        code: ``code`` of the error body.
        type: ``type`` of the error body.
        request_id: The provider's id of the request.
        error: What failed where no answer tells: class of the exception, or what is missing.
        retry_after: Seconds the provider asks to wait, None if it does not.
    """

    kind: str
    status: int | None = None
    code: str = ""
    type: str = ""
    request_id: str = ""
    error: str = ""
    retry_after: float | None = None

    def facts(self) -> dict[str, Any]:
        """All that is known, for an event."""
        facts = {"class": self.kind, "status": self.status, "code": self.code, "type": self.type}
        facts |= {"request_id": self.request_id, "error": self.error}
        return {key: value for key, value in facts.items() if value not in ("", None)}

    def line(self) -> str:
        """All that is known, in one line."""
        return ", ".join(f"{key} {value}" for key, value in self.facts().items())


def read_failure(error: Exception, worked: bool, masker: Masker) -> Failure:
    """Tell what kind of failure an exception of a client is.

    Exceptions are told by their attributes and the names of their classes, so that clients of other libraries
    are understood too.

    Args:
        error: The exception.
        worked: Whether a request of this run has succeeded before.
        masker: Keeps keys out.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    body = getattr(error, "body", None)
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    body = body if isinstance(body, Mapping) else {}
    code = masker.word(body.get("code", getattr(error, "code", None)))
    kind = masker.word(body.get("type", getattr(error, "type", None)))
    status = getattr(error, "status_code", None)
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or {}
    if names.intersection(_HALF_READ):
        found = "bad_response"
    elif isinstance(status, int):
        found = classify(status, code, kind, str(body.get("message") or ""), worked)
    elif names.intersection(_CONNECTION):
        found = "transient"
    else:
        found = "unknown"
    return Failure(
        kind=found,
        status=status if isinstance(status, int) else None,
        code=code,
        type=kind,
        request_id=masker.word(getattr(error, "request_id", None) or headers.get("x-request-id")),
        error=type(error).__name__,
        retry_after=retry_after(headers),
    )


def classify(status: int, code: str, kind: str = "", message: str = "", worked: bool = True) -> str:
    """The class of an error answer; status first, then code and type, the message as a last resort.

    Args:
        status: HTTP status.
        code: ``code`` of the error body.
        kind: ``type`` of the error body.
        message: ``message`` of the error body.
        worked: Whether a request of this run has succeeded before; a first request that is forbidden without
            a reason means that the credentials are not accepted.
    """
    named, said = f"{_snake(code)} {_snake(kind)}", message.lower()
    return (
        _refused(status, named, worked)
        or _crowded(status, named, said)
        or _oversized(status, named, said)
        or _plain(status)
    )


def _refused(status: int, named: str, worked: bool) -> str:
    words = set(re.split("[^a-z0-9]+", named))
    credentials = bool(words & _CREDENTIALS) or "auth" in named
    if status in (401, 402) or _PAID_OUT.search(named):
        return "auth"
    if status == 403 and (credentials or not worked):
        return "auth"
    if status == 404 or re.search("model_?not_?found", named):
        return "model"
    if status == 403 or (status == 400 and _FILTERED.search(named)):
        return "forbidden"
    return ""


def _crowded(status: int, named: str, said: str) -> str:
    throttled = _THROTTLED.search(named)
    if status == 429:
        allocation = "allocat" in named or (not throttled and re.search("allocated? .*quota", said))
        return "quota" if allocation else "rate"
    return "rate" if throttled else ""


def _oversized(status: int, named: str, said: str) -> str:
    too_long = status == 400 and (_TOO_LONG.search(named) or _TOO_LONG_MESSAGE.search(said))
    return "overflow" if status == 413 or too_long else ""


def _plain(status: int) -> str:
    if status in (408, 409, 425) or 500 <= status < 600:
        return "transient"
    return "request" if status in (400, 422) else "unknown"


def _snake(word: str) -> str:
    """``DataInspectionFailed`` and ``data-inspection-failed`` as ``data_inspection_failed``."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word)
    return re.sub("[^A-Za-z0-9]+", "_", parts).lower()


def retry_after(headers: Any) -> float | None:
    """Seconds to wait by the headers of an answer.

    Args:
        headers: A mapping; ``retry-after-ms`` counts milliseconds, ``retry-after`` seconds or names a date.

    Returns:
        The seconds, None if the headers do not tell.
    """
    named = {str(key).lower(): str(value) for key, value in dict(headers or {}).items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        number = _number(named.get(name))
        if number is not None:
            return number / unit
    moment = _moment(named.get("retry-after"))
    if moment is None:
        return None
    # The provider's own clock, if it tells the time, is the one its date was made by.
    now = _moment(named.get("date"))
    return max(0.0, moment - (time() if now is None else now))


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\s*\d{1,12}(\.\d*)?\s*", text):
        return None
    return float(text)


def _moment(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
