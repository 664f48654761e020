"""The scripted model server, spoken to by the openai client and by plain urllib."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from merchantbench_gym.baselines.react.model_server import ModelRequest, ModelServer, Reply
from merchantbench_gym.wrappers.tokens import estimate_request

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "query_balance", "parameters": {"type": "object"}}}


def post(server: ModelServer, body: Any, path: str = "/chat/completions") -> tuple[int, Any, dict[str, str]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read()
        return answer.status, json.loads(text) if text else None, dict(answer.headers)


def ask(server: ModelServer, *messages: Any, **body: Any) -> tuple[int, Any, dict[str, str]]:
    return post(server, {"model": "m", "messages": list(messages) or [USER], **body})


@contextmanager
def openai_client(server: ModelServer, **options: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key="key-of-a-test", max_retries=0, **options) as client:
        yield client


def complete(server: ModelServer, **options: Any) -> Any:
    with openai_client(server, **options) as client:
        return client.chat.completions.create(model="m", messages=[USER])  # type: ignore[list-item]


def count(body: Any) -> int:
    return estimate_request(body["messages"], body.get("tools"))


# -- answers -------------------------------------------------------------------------------------------


def test_the_openai_client_reads_a_whole_answer() -> None:
    reply = Reply(
        calls=[
            ("query_balance", {}),
            ("search_products", '{"query": "茶"}', "own"),
            ("end_of_step", "{broken"),
        ],
        text="let me see",
        reasoning="hm",
        usage=(120, 7, 100),
    )
    with ModelServer([reply]) as server:
        answer = complete(server)
    [choice] = answer.choices
    assert (answer.id, answer.model, answer.created, choice.finish_reason) == (
        "chatcmpl-0001",
        "m",
        0,
        "tool_calls",
    )
    assert (choice.message.role, choice.message.content) == ("assistant", "let me see")
    assert choice.message.reasoning_content == "hm"
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert calls == [
        ("call-1-0", "query_balance", "{}"),
        ("own", "search_products", '{"query": "茶"}'),
        ("call-1-2", "end_of_step", "{broken"),
    ]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        120,
        7,
        127,
    )
    assert answer.usage.prompt_tokens_details.cached_tokens == 100
    assert answer._request_id == "req-0001"


def test_plain_urllib_gets_the_same_bytes_every_time() -> None:
    def play() -> list[Any]:
        with ModelServer([Reply(text="a"), Reply(calls=[("end_of_step", {}, None)], text=None)]) as server:
            return [ask(server), ask(server)]

    first, second = play()
    assert [first, second] == play()
    assert first[0] == 200
    assert first[1] == {
        "id": "chatcmpl-0001",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"},
        ],
    }
    assert {name.lower() for name in first[2]} == {
        "content-type",
        "content-length",
        "connection",
        "x-request-id",
    }
    [choice] = second[1]["choices"]
    call = {"type": "function", "function": {"name": "end_of_step", "arguments": "{}"}}
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_requests_are_kept_in_order_with_body_headers_and_bytes() -> None:
    with ModelServer([Reply(), Reply()]) as server:
        complete(server)
        ask(server, USER, temperature=0.5)
        assert server.unused == 0
        first, second = server.requests
    assert first.body["messages"] == [USER]
    assert first.headers["authorization"] == "Bearer key-of-a-test"
    assert second.body == json.loads(second.raw) == {"model": "m", "messages": [USER], "temperature": 0.5}


@pytest.mark.parametrize(
    ("usage", "reported"),
    [
        ({"prompt_tokens": "many"}, {"prompt_tokens": "many"}),
        ("exact", {"prompt_tokens": 13, "completion_tokens": 16}),
        ((1, 2, 0), {"prompt_tokens": 1, "completion_tokens": 2}),
        (None, {}),
    ],
)
def test_usage(usage: Any, reported: dict[str, Any]) -> None:
    with ModelServer([Reply(text="good morning", usage=usage)], counter=count) as server:
        got = ask(server)[1].get("usage", {})
    assert {name: got[name] for name in reported} == reported
    assert (usage is None) == (got == {})


def test_models_are_listed_and_other_paths_are_not_there() -> None:
    with ModelServer([]) as server:
        with openai_client(server) as client:
            assert [model.id for model in client.models.list()] == ["scripted"]
        assert post(server, {}, "/completions")[0] == 404
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{server.url}/other", timeout=30)
        error.value.close()
        assert error.value.code == 404
        assert server.requests == []


def test_a_function_can_be_the_script() -> None:
    def script(request: ModelRequest, number: int) -> Reply:
        return Reply(text=f"{number}: {request.body['messages'][-1]['content']}")

    with ModelServer(script) as server:
        texts = [ask(server)[1]["choices"][0]["message"]["content"] for _ in range(2)]
        assert server.unused == 0
    assert texts == ["1: hello", "2: hello"]


# -- what goes wrong on purpose -------------------------------------------------------------------------


def test_errors_come_with_status_body_and_headers() -> None:
    error = {"code": "rate_limit_exceeded", "type": "requests", "message": "slow down"}
    reply = Reply(status=429, error=error, headers={"Retry-After": "3"})
    with ModelServer([reply]) as server, pytest.raises(openai.RateLimitError) as raised:
        complete(server)
    assert (raised.value.code, raised.value.type, raised.value.request_id) == (
        "rate_limit_exceeded",
        "requests",
        "req-0001",
    )
    assert raised.value.response.headers["retry-after"] == "3"


def test_an_error_without_a_body_of_its_own() -> None:
    with ModelServer([Reply(status=503)]) as server, pytest.raises(openai.InternalServerError):
        complete(server)


@pytest.mark.parametrize("drop", ["before", "headers", "body"])
def test_dropped_connections_break_the_client(drop: str) -> None:
    with ModelServer([Reply(text="never read", drop=drop), Reply(text="read")]) as server:
        with pytest.raises(openai.APIConnectionError):
            complete(server)
        assert complete(server).choices[0].message.content == "read"
        assert len(server.requests) == 2


def received(server: ModelServer) -> bytes:
    """Everything the server sends in answer to one request."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(server.url.split(":")[2].split("/")[0]), timeout=30
    )
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": [USER]}))
        assert connection.sock is not None
        with connection.sock.makefile("rb") as stream:
            return stream.read()
    finally:
        connection.close()


def test_where_connections_are_dropped() -> None:
    script = [Reply(drop=drop) for drop in ("before", "headers", "body", "")]
    with ModelServer(script) as server:
        before, headers, body, whole = (received(server) for _ in script)
    assert before == b""
    assert headers == b"HTTP/1.1 200 OK\r\n"
    head, _, sent = body.partition(b"\r\n\r\n")
    full = whole.partition(b"\r\n\r\n")[2]
    assert f"content-length: {len(full)}".encode() in head
    assert sent == full.replace(b"chatcmpl-0004", b"chatcmpl-0003")[: len(full) // 2]


def test_raw_bodies_and_empty_choices() -> None:
    page = Reply(raw="<html>busy</html>", headers={"Content-Type": "text/html"}, status=502)
    with ModelServer([page, Reply(raw=b"\xff{"), Reply(choices=0)]) as server:
        with pytest.raises(openai.InternalServerError) as error:
            complete(server)
        assert error.value.response.text == "<html>busy</html>"
        assert received(server).endswith(b"\r\n\r\n\xff{")
        assert complete(server).choices == []


def test_a_delay_is_cut_short_when_the_server_closes() -> None:
    with ModelServer([Reply(delay=3600)]) as server, pytest.raises(openai.APITimeoutError):
        complete(server, timeout=0.05)


@pytest.mark.parametrize(
    "wrong", [{"drop": "middle"}, {"choices": 2}, {"usage": "rough"}, {"error": {"code": "x"}}], ids=str
)
def test_impossible_replies(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Reply(**wrong)


# -- exhaustion -----------------------------------------------------------------------------------------


def test_a_request_beyond_the_script_fails_the_test() -> None:
    message = "request 2: LookupError: the script has only 1 replies"
    with pytest.raises(AssertionError, match=message), ModelServer([Reply()]) as server:
        assert ask(server)[0] == 200
        assert ask(server)[0] == 500


def test_it_fails_even_if_the_agent_swallows_or_raises() -> None:
    message = r"only 0 replies \(and 1 more\)"
    with pytest.raises(AssertionError, match=message) as raised, ModelServer([]) as server:
        ask(server)
        complete(server)
    assert isinstance(raised.value.__cause__, openai.InternalServerError)


def test_an_interrupt_is_not_hidden() -> None:
    with pytest.raises(KeyboardInterrupt), ModelServer([]) as server:
        ask(server)
        raise KeyboardInterrupt


def test_unused_replies_are_counted_but_no_failure() -> None:
    with ModelServer([Reply(), Reply(), Reply()]) as server:
        ask(server)
    assert server.unused == 2


def test_a_script_that_fails_fails_the_test() -> None:
    def script(request: ModelRequest, number: int) -> Reply:
        raise KeyError("no such scene")

    with pytest.raises(AssertionError, match="KeyError: 'no such scene'"), ModelServer(script) as server:
        assert ask(server)[0] == 500


def test_a_body_that_cannot_be_written_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="TypeError"), ModelServer([Reply(text=[object()])]) as server:
        assert ask(server)[0] == 500


def test_counting_needs_a_counter() -> None:
    with pytest.raises(ValueError, match="counter"):
        ModelServer([], window=100)
    with pytest.raises(ValueError, match="counter"):
        ModelServer([Reply(usage="exact")])
    uncounted = ModelServer(lambda request, number: Reply(usage="exact"))
    with pytest.raises(AssertionError, match="counter"), uncounted as server:
        ask(server)


def test_it_has_an_address_only_while_it_runs() -> None:
    with pytest.raises(RuntimeError, match="with"):
        _ = ModelServer([]).url


# -- refusals -------------------------------------------------------------------------------------------


def test_requests_above_the_window_are_refused_and_use_up_no_reply() -> None:
    with ModelServer([Reply(text="fits")], counter=count, window=count({"messages": [USER]})) as server:
        status, body, _ = ask(server, {"role": "user", "content": "hello there, all of you"})
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert server.unused == 1
        assert [number for number, _ in server.refusals] == [1]
        assert ask(server)[1]["id"] == "chatcmpl-0002"


def call(
    name: str = "query_balance", arguments: Any = "{}", own_id: str = "c1", **more: Any
) -> dict[str, Any]:
    return {"id": own_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def assistant(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


def result(own_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": own_id, "content": "{}", **more}


GOOD = {
    "one message": [USER],
    "a conversation": [
        {"role": "system", "content": "brief"},
        USER,
        assistant(call(own_id="c1"), call(own_id="c2", arguments='{"a": [1]}'), content=None),
        result("c2", name="query_balance"),
        result("c1"),
        {"role": "assistant", "content": "done", "reasoning_content": "hm"},
        USER,
    ],
    "the same id later": [assistant(call()), result(), assistant(call()), result()],
    "marked parts": [
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}
    ],
}
BAD = {
    "no messages": ([], "messages: must be a non-empty list"),
    "illegal role": ([{"role": "function", "content": ""}], "messages[0].role"),
    "no mapping": (["hello"], "messages[0].role"),
    "ends with assistant": ([USER, {"role": "assistant", "content": "x"}], "must not end with"),
    "unknown key": ([{**USER, "window": 3}], "messages[0]: unknown key 'window'"),
    "unknown key of a call": ([assistant(call(index=0)), result()], "messages[0].tool_calls[0]"),
    "no content": ([{"role": "user"}], "messages[0].content"),
    "null content without calls": ([{"role": "assistant", "content": None}, USER], "messages[0].content"),
    "empty list of calls": ([assistant(), USER], "messages[0].tool_calls"),
    "empty marked part": (
        [{"role": "user", "content": [{"type": "text", "text": "", "cache_control": {}}]}],
        "messages[0].content[0]",
    ),
    "not answered": ([assistant(call()), USER], "messages[1]: calls before it are not answered: c1"),
    "not answered at the end": (
        [assistant(call(), call(own_id="c2")), result()],
        "calls are not answered: c2",
    ),
    "answered later": ([assistant(call()), USER, result()], "not answered"),
    "answered twice": ([assistant(call()), result(), result()], "messages[2]: answers no open call"),
    "answer to nothing": ([USER, result()], "messages[1]: answers no open call"),
    "repeated id": ([assistant(call(), call()), result(), result()], "messages[0].tool_calls[1].id"),
    "no id": ([assistant(call(own_id="")), result("")], "messages[0].tool_calls[0].id"),
    "illegal name": ([assistant(call("query balance")), result()], "function.name"),
    "long name": ([assistant(call("x" * 65)), result()], "function.name"),
    "illegal name of a result": ([assistant(call()), result(name="a b")], "messages[1].name"),
    "broken arguments": ([assistant(call(arguments='{"a":')), result()], "function.arguments"),
    "arguments as a list": ([assistant(call(arguments="[1]")), result()], "function.arguments"),
    "arguments as an object": ([assistant(call(arguments={})), result()], "function.arguments"),
    "not a number": ([assistant(call(arguments='{"a": NaN}')), result()], "function.arguments"),
    "key twice": ([assistant(call(arguments='{"a": 1, "a": 2}')), result()], "function.arguments"),
}


@pytest.mark.parametrize("case", GOOD)
def test_good_requests_pass_a_strict_server(case: str) -> None:
    with ModelServer([Reply()]) as server:
        status, body, _ = ask(server, *GOOD[case], tools=[TOOL], tool_choice="auto")
        assert status == 200, body
        assert server.refusals == []


@pytest.mark.parametrize("case", BAD)
def test_strict_violations(case: str) -> None:
    messages, problem = BAD[case]
    with ModelServer([Reply()]) as server:
        status, body, _ = post(server, {"model": "m", "messages": messages})
        assert status == 400
        assert problem in body["error"]["message"]
        assert server.refusals == [(1, body["error"]["message"])]
        assert server.unused == 1


@pytest.mark.parametrize("case", BAD)
def test_a_lenient_server_accepts_them(case: str) -> None:
    with ModelServer([Reply()], strict=False) as server:
        assert post(server, {"model": "m", "messages": BAD[case][0]})[0] == 200


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"extendParams": {}}, "unknown key 'extendParams'"),
        ({"model": " "}, "model"),
        ({"n": 2}, "n: "),
        ({"tools": []}, "tools: must be a non-empty list"),
        ({"tools": [TOOL, TOOL]}, "tools[1]: second tool named 'query_balance'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
        ({"tools": [{"name": "a"}]}, "tools[0]"),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice: not without tools"),
    ],
    ids=str,
)
def test_strict_violations_outside_the_messages(body: dict[str, Any], problem: str) -> None:
    with ModelServer([Reply()]) as server:
        status, answer, _ = ask(server, **body)
        assert status == 400
        assert problem in answer["error"]["message"]


def test_a_gateway_may_allow_keys_of_its_own() -> None:
    with ModelServer([Reply()], extra_keys=["extendParams"]) as server:
        assert ask(server, extendParams={"system": []})[0] == 200


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "m", "stream": true}'])
def test_bodies_that_no_server_can_answer(body: bytes, strict: bool) -> None:
    with ModelServer([Reply()], strict=strict) as server:
        assert post(server, body)[0] == 400
        assert server.unused == 1
        assert server.requests[0].raw == body
