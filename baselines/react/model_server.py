"""A scripted model behind a real HTTP server on this machine, for tests of agents without a provider.

Any OpenAI-compatible client can talk to it. The script says what the model answers and what goes wrong on
the way::

    from openai import OpenAI

    from merchantbench_gym.baselines.react.model_server import ModelServer, Reply

    script = [
        Reply(status=429, error={"code": "rate_limit"}, headers={"Retry-After": "3"}),
        Reply(calls=[("query_balance", {})], usage=(1200, 15, 0)),
        Reply(text="Nothing to do."),
    ]
    with ModelServer(script) as server:
        client = OpenAI(base_url=server.url, api_key="any", max_retries=0)
        ...  # let the agent run
        assert not server.unused
        assert server.requests[1].body["messages"][-1]["role"] == "user"

A request beyond the script is answered with status 500, and the ``with`` block ends with an
``AssertionError``, whatever the agent made of the answer.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from merchantbench_gym.baselines.react.chat_rules import request_problem

DROPS = ("", "before", "headers", "body")
PATH = "/v1/chat/completions"

Counter = Callable[[Mapping[str, Any]], int]
Call = tuple[str, Mapping[str, Any] | str] | tuple[str, Mapping[str, Any] | str, str | None]


@dataclass(frozen=True)
class Reply:
    """What the server does with one request. The default is an empty message.

    Attributes:
        calls: Tool calls as (name, arguments) or (name, arguments, id). A mapping as arguments becomes JSON
            text, a string is sent as it is. Without an id the server makes one, ``call-<number>-<position>``;
            None leaves the id away.
        text: Content of the message; None is null, a list is sent as content parts.
        reasoning: Its ``reasoning_content``; None leaves it away.
        finish_reason: None is ``tool_calls`` with calls and ``stop`` without.
        usage: (prompt, completion, cached) tokens; ``"exact"``: counted by the server's counter, nothing
            cached; None: not reported; a mapping: sent as it is.
        status: HTTP status.
        error: ``code``, ``type``, ``message`` of an error body; with a status of 400 or more the body is
            always an error.
        headers: Headers besides the server's own, such as ``Retry-After``, or in place of these.
        delay: Seconds before the answer.
        drop: Where the connection breaks: ``"before"`` an answer, ``"headers"``: after the status line,
            ``"body"``: after half of the body.
        raw: A body to be sent as it is, instead of all of the above.
        choices: 0 sends an empty list of choices.
    """

    calls: Sequence[Call] = ()
    text: str | list[Any] | None = ""
    reasoning: str | None = None
    finish_reason: str | None = None
    usage: tuple[int, int, int] | str | Mapping[str, Any] | None = None
    status: int = 200
    error: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0
    drop: str = ""
    raw: bytes | str | None = None
    choices: int = 1

    def __post_init__(self) -> None:
        if self.drop not in DROPS:
            raise ValueError(f"drop must be one of {', '.join(map(repr, DROPS))}, not {self.drop!r}")
        if self.choices not in (0, 1):
            raise ValueError(f"choices must be 0 or 1, not {self.choices!r}")
        if isinstance(self.usage, str) and self.usage != "exact":
            raise ValueError(f"usage must be 'exact', figures or None, not {self.usage!r}")
        if self.error is not None and self.status < 400:
            raise ValueError(f"an error needs a status of 400 or more, not {self.status}")


@dataclass(frozen=True)
class ModelRequest:
    """A request as it arrived.

    Attributes:
        body: Its JSON data; None if it was none.
        headers: Its headers, names in small letters.
        raw: The bytes of the body.
    """

    body: Any
    headers: dict[str, str]
    raw: bytes


Script = Sequence[Reply] | Callable[[ModelRequest, int], Reply]


class ModelServer:
    """A model that follows a script, served on 127.0.0.1 while its ``with`` block runs.

    It answers ``POST /v1/chat/completions`` and ``GET /v1/models``. Requests are numbered from 1 in the
    order in which they arrive; numbers make the ids of answers (``chatcmpl-0001``) and of calls, and the
    header ``x-request-id`` (``req-0001``). Nothing in an answer depends on the clock.

    A request that breaks a rule or is too long gets status 400 before it reaches the model: it is in
    `requests` and has a number, but uses up no reply.

    Args:
        script: The replies in order, or a function of a request and its number that returns a reply.
        strict: Refuse what a strict provider would: illegal roles, names and keys, no messages or an
            assistant message at the end, calls that are not answered exactly once directly behind their
            message, arguments that are not JSON objects.
        counter: Prompt tokens of a request body (a mapping with ``messages`` and perhaps ``tools``); for
            ``usage="exact"``, which counts the answer as a body with that one message, and for `window`.
        window: Prompt tokens above which a request is refused as ``context_length_exceeded``.
        extra_keys: Names that a strict server allows at the top of a request besides the API's own.

    Raises:
        ValueError: ``window`` or ``usage="exact"`` without a counter.
    """

    def __init__(
        self,
        script: Script,
        *,
        strict: bool = True,
        counter: Counter | None = None,
        window: int | None = None,
        extra_keys: Collection[str] = (),
    ) -> None:
        self._script: Script = script if callable(script) else tuple(script)
        self._strict, self._counter, self._window = strict, counter, window
        self._extra_keys = frozenset(extra_keys)
        if counter is None and window is not None:
            raise ValueError("window needs a counter")
        if counter is None and not callable(self._script) and any(r.usage == "exact" for r in self._script):
            raise ValueError("usage='exact' needs a counter")
        self._used = 0
        self._requests: list[ModelRequest] = []
        self._refusals: list[tuple[int, str]] = []
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The ``base_url`` for a client, ending in ``/v1``.

        Raises:
            RuntimeError: The server was not started.
        """
        if self._server is None:
            raise RuntimeError("the model server runs inside its 'with' block only")
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests for completions so far, refused ones included, in order."""
        return list(self._requests)

    @property
    def refusals(self) -> list[tuple[int, str]]:
        """Number and reason of every request that the server refused by itself."""
        return list(self._refusals)

    @property
    def unused(self) -> int:
        """Number of replies left; 0 if the script is a function."""
        return 0 if callable(self._script) else len(self._script) - self._used

    def __enter__(self) -> Self:
        """Start to serve on a free port."""
        self._closing.clear()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        # The poll only bounds how long the shutdown takes.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to serve.

        Raises:
            AssertionError: There was a request beyond the script, or the script failed.
        """
        assert self._server is not None and self._thread is not None
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._failures and (error is None or isinstance(error, Exception)):
            more = f" (and {len(self._failures) - 1} more)" if len(self._failures) > 1 else ""
            raise AssertionError(f"model server: {self._failures[0]}{more}") from error

    def _answer(self, request: ModelRequest) -> tuple[int, Reply, bytes]:
        """Number a request, choose its reply and write the body; one request at a time."""
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            try:
                reply = self._refusal(request.body, number) or self._scripted(request, number)
                return number, reply, self._body(request, number, reply)
            except Exception as error:
                self._failures.append(f"request {number}: {type(error).__name__}: {error}")
                reply = _refusal(self._failures[-1], status=500, kind="server_error", code="script")
                return number, reply, self._body(request, number, reply)

    def _scripted(self, request: ModelRequest, number: int) -> Reply:
        if callable(self._script):
            reply = self._script(request, number)
            if reply.usage == "exact" and self._counter is None:
                raise ValueError("usage='exact' needs a counter")
            return reply
        if self._used == len(self._script):
            raise LookupError(f"the script has only {self._used} replies")
        self._used += 1
        return self._script[self._used - 1]

    def _refusal(self, body: Any, number: int) -> Reply | None:
        """The answer to a request that does not reach the model, None if it does."""
        problem, code = self._problem(body)
        if not problem:
            return None
        self._refusals.append((number, problem))
        return _refusal(problem, code=code)

    def _problem(self, body: Any) -> tuple[str, str | None]:
        if not isinstance(body, dict):
            return "the body is not a JSON object", None
        if body.get("stream"):
            return "stream: answers come whole", None
        problem = request_problem(body, self._extra_keys) if self._strict else ""
        if not problem and self._counter is not None and self._window is not None:
            tokens = self._counter(body)
            if tokens > self._window:
                problem = f"the prompt has {tokens} tokens, the context window {self._window}"
                return problem, "context_length_exceeded"
        return problem, None

    def _body(self, request: ModelRequest, number: int, reply: Reply) -> bytes:
        """The body of an answer."""
        if reply.raw is not None:
            return reply.raw if isinstance(reply.raw, bytes) else reply.raw.encode()
        if reply.status >= 400:
            return _json(
                {"error": {"message": "scripted", "type": None, "code": None, **(reply.error or {})}}
            )
        message = _message(reply, number)
        reason = reply.finish_reason or ("tool_calls" if reply.calls else "stop")
        body = {
            "id": f"chatcmpl-{number:04d}",
            "object": "chat.completion",
            "created": 0,
            "model": request.body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": reason}][: reply.choices],
        }
        usage = reply.usage
        if usage == "exact":
            assert self._counter is not None
            usage = (self._counter(request.body), self._counter({"messages": [message]}), 0)
        if usage is not None:
            body["usage"] = _usage(usage)
        return _json(body)


def _message(reply: Reply, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    calls = []
    for position, (name, arguments, *given) in enumerate(reply.calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call = {"type": "function", "function": {"name": name, "arguments": text}}
        own_id = given[0] if given else f"call-{number}-{position}"
        calls.append(call if own_id is None else {"id": own_id, **call})
    if calls:
        message["tool_calls"] = calls
    return message


def _usage(usage: Any) -> Any:
    if isinstance(usage, Mapping):
        return dict(usage)
    prompt, completion, cached = usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _refusal(
    message: str, *, status: int = 400, kind: str = "invalid_request_error", code: str | None = None
) -> Reply:
    return Reply(status=status, error={"message": message, "type": kind, "code": code})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up, and let anything else fail the test."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.model._failures.append(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Answer a request for a completion."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != PATH:
            return self._not_found()
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        model = self.server.model
        request = ModelRequest(body, {name.lower(): value for name, value in self.headers.items()}, raw)
        number, reply, answer = model._answer(request)
        if reply.delay:
            model._closing.wait(reply.delay)  # a server that closes need not be waited for
        self._send(reply, answer, f"req-{number:04d}")

    def do_GET(self) -> None:
        """List the one model."""
        if self.path != "/v1/models":
            return self._not_found()
        one = {"id": "scripted", "object": "model", "created": 0, "owned_by": "merchantbench-gym"}
        self._send(Reply(), _json({"object": "list", "data": [one]}))

    def _not_found(self) -> None:
        error = {"message": f"no such path: {self.path}", "type": "invalid_request_error", "code": None}
        self._send(Reply(status=404, error=error), _json({"error": error}))

    def _send(self, reply: Reply, body: bytes, request_id: str = "") -> None:
        self.close_connection = True
        if reply.drop == "before":
            return
        phrase = responses.get(reply.status, "")
        self.wfile.write(f"{self.protocol_version} {reply.status} {phrase}\r\n".encode("latin-1"))
        if reply.drop == "headers":
            return
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **({"x-request-id": request_id} if request_id else {}),
            **{name.lower(): value for name, value in reply.headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.wfile.write(head.encode("latin-1") + b"\r\n")
        self.wfile.write(body[: len(body) // 2] if reply.drop == "body" else body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
