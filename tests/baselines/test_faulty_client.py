"""The client that fails on purpose; what it raises is compared with what a real client raises."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from merchantbench_gym.baselines import Fault, FaultyClient
from merchantbench_gym.baselines.react.model_server import ModelServer, Reply

CALLS = [("query_balance", {}), ("search_products", {"query": "tea"})]


class Model:
    """The least that has the form of a client; its answers are mappings."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))
        self.base_url = "http://somewhere"

    def create(self, **request: Any) -> Any:
        self.asked.append(request)
        calls = [{"function": {"name": "query_balance", "arguments": "{}"}}]
        return {"choices": [{"message": {"tool_calls": calls}}]}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(lambda request, number: Reply(calls=CALLS)) as server:
        yield server


def ask(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], **more)


def test_faults_happen_at_their_numbers_and_attempts_are_counted(model: Model) -> None:
    client = FaultyClient(model, {2: Fault(status=503), 3: Fault(exception=KeyError("mine"))})
    assert ask(client)["choices"]
    with pytest.raises(openai.InternalServerError):
        ask(client)
    with pytest.raises(KeyError, match="mine"):
        ask(client)
    assert ask(client, temperature=0.5)["choices"]
    assert client.attempts == 4
    assert [request.get("temperature") for request in model.asked] == [None, 0.5]


def test_a_function_can_be_the_script(model: Model) -> None:
    client = FaultyClient(model, lambda number: Fault(status=500) if number % 2 else None)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            ask(client)
        ask(client)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 503])
def test_errors_are_those_of_a_real_client(status: int) -> None:
    error = {"code": "some_code", "type": "some_type", "message": "some message"}
    headers = {"Retry-After": "7", "x-request-id": "req-0001"}
    with (
        ModelServer([Reply(status=status, error=error, headers=headers)]) as server,
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as real,
        pytest.raises(openai.APIStatusError) as expected,
    ):
        ask(real)
    client = FaultyClient(None, {1: Fault(status=status, error=error, headers=headers)})
    with pytest.raises(openai.APIStatusError) as raised:
        ask(client)
    for name in ("status_code", "code", "type", "body", "request_id"):
        assert getattr(raised.value, name) == getattr(expected.value, name)
    assert type(raised.value) is type(expected.value)
    assert str(status) in str(raised.value)
    assert raised.value.response.headers["retry-after"] == "7"
    assert raised.value.response.json() == expected.value.response.json()


def test_connection_errors_are_those_of_the_library() -> None:
    client = FaultyClient(None, {1: Fault(exception="connection"), 2: Fault(exception="timeout")})
    with pytest.raises(openai.APIConnectionError) as raised:
        ask(client)
    assert type(raised.value) is openai.APIConnectionError
    with pytest.raises(openai.APITimeoutError):
        ask(client)


def test_answers_of_a_real_client_arrive_damaged(server: ModelServer) -> None:
    script = {1: Fault(empty_choices=True), 2: Fault(broken_arguments=True)}
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as real:
        client = FaultyClient(real, script)
        assert ask(client).choices == []
        broken = ask(client).choices[0].message.tool_calls
        whole = ask(client).choices[0].message.tool_calls
    assert [call.function.arguments for call in broken] == ["{", '{"query": "tea"']
    assert [call.function.arguments for call in whole] == ["{}", '{"query": "tea"}']


def test_answers_that_are_mappings_arrive_damaged(model: Model) -> None:
    client = FaultyClient(model, {1: Fault(broken_arguments=True), 2: Fault(empty_choices=True)})
    [choice] = ask(client)["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == "{"
    assert ask(client)["choices"] == []


def test_delays_wait_and_longer_ones_time_out(model: Model) -> None:
    waited: list[float] = []
    client = FaultyClient(model, lambda number: Fault(delay=100), sleep=waited.append)
    ask(client)
    ask(client, timeout=100)
    with pytest.raises(openai.APITimeoutError):
        ask(client, timeout=53)
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=20))
    assert waited == [100, 100, 53, 20]
    assert len(model.asked) == 2


def test_other_options_share_the_count(server: ModelServer) -> None:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=5) as real:
        client = FaultyClient(real, {2: Fault(status=400)})
        without_retries = client.with_options(max_retries=0)
        assert without_retries.max_retries == 0
        assert client.max_retries == 5
        ask(client)
        with pytest.raises(openai.BadRequestError):
            ask(without_retries)
        assert client.attempts == without_retries.attempts == 2
        assert len(server.requests) == 1


def test_everything_else_is_the_wrapped_clients(model: Model) -> None:
    client = FaultyClient(model, {})
    assert client.base_url == "http://somewhere"
    assert client.with_options(max_retries=0).attempts == 0
    with pytest.raises(AttributeError):
        _ = client.no_such_thing


@pytest.mark.parametrize("wrong", [{"status": 200}, {"exception": "typo"}], ids=str)
def test_impossible_faults(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Fault(**wrong)
