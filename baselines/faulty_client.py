"""A model client that fails on purpose, to see what an agent makes of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

CONNECTION, TIMEOUT = "connection", "timeout"
STATUS_ERRORS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
URL = "http://model.invalid/v1/chat/completions"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request; without anything set, nothing does.

    Attributes:
        status: HTTP status of 400 or more that is answered instead of asking the model.
        error: ``code``, ``type``, ``message`` of that answer.
        headers: Headers of that answer, such as ``Retry-After``.
        exception: What is raised instead of asking the model: ``"connection"`` and ``"timeout"`` are the
            openai library's own, anything else is raised as it is.
        empty_choices: The model's answer arrives without choices.
        broken_arguments: The arguments of all calls in the answer arrive without their last character.
        delay: Seconds before any of this. Longer than the time-out that the request names, it is a time-out.
    """

    status: int | None = None
    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    exception: BaseException | type[BaseException] | str | None = None
    empty_choices: bool = False
    broken_arguments: bool = False
    delay: float = 0

    def __post_init__(self) -> None:
        if self.status is not None and self.status < 400:
            raise ValueError(f"status must be 400 or more, not {self.status}")
        if isinstance(self.exception, str) and self.exception not in (CONNECTION, TIMEOUT):
            raise ValueError(
                f"exception must be {CONNECTION!r}, {TIMEOUT!r} or an exception, not {self.exception!r}"
            )


Script = Mapping[int, Fault] | Callable[[int], Fault | None]


class FaultyClient:
    """Wraps an OpenAI-like client and lets requests for completions fail by script.

    For example::

        client = FaultyClient(OpenAI(), {2: Fault(status=429, headers={"Retry-After": "3"})})
        policy = ReActPolicy(client, "some-model")

    Everything but ``chat.completions.create`` and ``with_options`` is the wrapped client's.

    Args:
        client: The client to wrap. Its own retries are not seen here and should be off.
        script: Faults by the number of the request, counted from 1, or a function of it that returns the
            fault or None.
        sleep: Called with the seconds of a delay.
    """

    def __init__(self, client: Any, script: Script, *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._client = client
        self._fault = script if callable(script) else script.get
        self._sleep = sleep
        self._attempts = [0]  # shared with the twins of other options
        self._timeout: Any = None

    @property
    def attempts(self) -> int:
        """Requests for completions so far, failed ones included."""
        return self._attempts[0]

    @property
    def chat(self) -> Any:
        """The part of the client that has ``completions.create``."""
        return _Chat(self)

    def with_options(self, **options: Any) -> FaultyClient:
        """The same client with other options; both count and fail together."""
        twin = copy.copy(self)
        if hasattr(self._client, "with_options"):
            twin._client = self._client.with_options(**options)
        twin._timeout = options.get("timeout", self._timeout)
        return twin

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)

    def create(self, **request: Any) -> Any:
        """Ask for a completion, as ``chat.completions.create`` does."""
        self._attempts[0] += 1
        fault = self._fault(self._attempts[0]) or Fault()
        if fault.delay:
            self._wait(fault.delay, request.get("timeout", self._timeout))
        if fault.exception is not None:
            raise _connection_error(fault.exception) if isinstance(fault.exception, str) else fault.exception
        if fault.status is not None:
            raise _status_error(fault.status, fault.error, fault.headers)
        response = self._client.chat.completions.create(**request)
        return _damaged(response, fault) if fault.empty_choices or fault.broken_arguments else response

    def _wait(self, delay: float, timeout: Any) -> None:
        if isinstance(timeout, (int, float)) and delay > timeout:
            self._sleep(timeout)
            raise _connection_error(TIMEOUT)
        self._sleep(delay)


class _Chat:
    def __init__(self, client: FaultyClient) -> None:
        self.completions = self
        self.create = client.create


def _connection_error(kind: str) -> Exception:
    import openai

    # The library names its HTTP package only in its own signatures.
    request = get_type_hints(openai.APIConnectionError.__init__)["request"]("POST", URL)
    return openai.APITimeoutError(request) if kind == TIMEOUT else openai.APIConnectionError(request=request)


def _status_error(status: int, error: Mapping[str, Any], headers: Mapping[str, str]) -> Exception:
    import openai

    name = STATUS_ERRORS.get(status, "InternalServerError" if status >= 500 else "APIStatusError")
    response_type = get_type_hints(openai.APIStatusError.__init__)["response"]
    request_type = get_type_hints(openai.APIConnectionError.__init__)["request"]
    body = {"error": {"message": "injected", "type": None, "code": None, **error}}
    response = response_type(status, headers=dict(headers), json=body, request=request_type("POST", URL))
    made: Exception = getattr(openai, name)(
        f"Error code: {status} - {body['error']['message']}", response=response, body=body["error"]
    )
    return made


def _damaged(response: Any, fault: Fault) -> Any:
    response = copy.deepcopy(response)
    if fault.empty_choices:
        _put(response, "choices", [])
    for choice in _get(response, "choices") or ():
        for call in _get(_get(choice, "message"), "tool_calls") or ():
            function = _get(call, "function")
            _put(function, "arguments", _get(function, "arguments")[:-1])
    return response


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _put(value: Any, name: str, item: Any) -> None:
    if isinstance(value, dict):
        value[name] = item
    else:
        setattr(value, name, item)
