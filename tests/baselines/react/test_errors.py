"""Classes of failures, waits asked for, and words kept of an error."""

from __future__ import annotations

from importlib import import_module
from typing import Any, get_type_hints

import openai
import pytest

from merchantbench_gym.baselines.react.errors import CLASSES, classify, read_failure, retry_after
from merchantbench_gym.baselines.react.secrets import Masker

NO_MASK = Masker()

# The HTTP package that the library was built on; it names it only in its own signatures.
REQUEST = get_type_hints(openai.APIConnectionError.__init__)["request"]
http: Any = import_module(REQUEST.__module__.partition(".")[0])


@pytest.mark.parametrize(
    ("status", "code", "kind", "expected"),
    [
        (401, "", "", "auth"),
        (402, "", "", "auth"),
        (403, "invalid_api_key", "", "auth"),
        (403, "", "permission_error", "auth"),
        (403, "AccountDisabled", "", "auth"),
        (403, "unsupported_country_region_territory", "", "auth"),
        (429, "insufficient_quota", "", "auth"),
        (400, "billing_hard_limit_reached", "", "auth"),
        (400, "Arrearage", "", "auth"),
        (404, "", "", "model"),
        (400, "model_not_found", "", "model"),
        (500, "ModelNotFound", "", "model"),
        (403, "", "", "forbidden"),
        (403, "DataInspectionFailed", "", "forbidden"),
        (403, "sensitive_keyword", "", "forbidden"),
        (400, "content_filter", "", "forbidden"),
        (400, "data_inspection_failed", "", "forbidden"),
        (400, "", "moderation_blocked", "forbidden"),
        (400, "content_policy_violation", "", "forbidden"),
        (429, "Throttling.AllocationQuota", "", "quota"),
        (429, "", "", "rate"),
        (429, "rate_limit_exceeded", "", "rate"),
        (503, "limit_burst_rate", "", "rate"),
        (400, "Throttling.RateQuota", "", "rate"),
        (413, "", "", "overflow"),
        (400, "context_length_exceeded", "", "overflow"),
        (400, "string_above_max_length", "", "overflow"),
        (408, "", "", "transient"),
        (409, "", "", "transient"),
        (425, "", "", "transient"),
        (500, "", "", "transient"),
        (503, "context", "", "transient"),
        (529, "overloaded_error", "", "transient"),
        (400, "", "invalid_request_error", "request"),
        (422, "", "", "request"),
        (418, "", "", "unknown"),
        (302, "", "", "unknown"),
    ],
)
def test_classes_by_status_and_code(status: int, code: str, kind: str, expected: str) -> None:
    assert classify(status, code, kind) == expected
    assert expected in CLASSES


def test_a_first_request_forbidden_without_a_reason_is_one_of_credentials() -> None:
    assert classify(403, "", worked=False) == "auth"
    assert classify(403, "", worked=True) == "forbidden"


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        (400, "", "This model's maximum context length is 8192 tokens", "overflow"),
        (400, "invalid_request", "Prompt is too long", "overflow"),
        (400, "content_filter", "maximum context length", "forbidden"),
        (429, "", "Allocated quota exceeded, please increase your quota limit.", "quota"),
        (429, "rate_limit_exceeded", "Allocated quota exceeded", "rate"),
        (500, "", "maximum context length", "transient"),
        (400, "", "invalid api key", "request"),
    ],
)
def test_messages_are_a_last_resort(status: int, code: str, message: str, expected: str) -> None:
    assert classify(status, code, "", message) == expected


def status_error(status: int, error: Any, **headers: str) -> openai.APIStatusError:
    response = http.Response(status, headers=headers, request=http.Request("POST", "http://u:p@h/?k=v"))
    return openai.APIStatusError("secret text", response=response, body=error)


def test_what_is_kept_of_an_error() -> None:
    error = status_error(
        429,
        {"code": "rate <limit>" + "x" * 100, "type": 7, "message": "secret text"},
        **{"retry-after": "3", "x-request-id": "req 1"},
    )
    failure = read_failure(error, True, NO_MASK)
    assert failure.facts() == {
        "class": "rate",
        "status": 429,
        "code": "rate__limit_" + "x" * 52,
        "type": "7",
        "request_id": "req_1",
        "error": "APIStatusError",
    }
    assert failure.retry_after == 3
    assert "secret" not in failure.line()


def test_an_error_within_an_error_and_one_of_no_shape() -> None:
    wrapped = status_error(400, {"error": {"code": "model_not_found"}})
    assert read_failure(wrapped, True, NO_MASK).kind == "model"
    for body in ("<html>", None, ["x"], {"error": "x"}, {"code": {"a": 1}}):
        assert read_failure(status_error(503, body), True, NO_MASK).kind == "transient"


class Strange(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (openai.APITimeoutError(http.Request("POST", "http://h")), "transient"),
        (openai.APIConnectionError(request=http.Request("POST", "http://h")), "transient"),
        (http.ReadError("gone"), "transient"),
        (ConnectionResetError(), "transient"),
        (TimeoutError(), "transient"),
        (ValueError("x"), "unknown"),
        (Strange("x"), "unknown"),
    ],
)
def test_classes_by_exception(error: Exception, expected: str) -> None:
    failure = read_failure(error, True, NO_MASK)
    assert (failure.kind, failure.status) == (expected, None)


def test_a_body_that_cannot_be_read() -> None:
    with pytest.raises(ValueError) as caught:
        http.Response(200, content=b"{").json()
    assert read_failure(caught.value, True, NO_MASK).kind == "bad_response"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"Retry-After-Ms": "2500", "Retry-After": "1"}, 2.5),
        (
            {"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"},
            30.0,
        ),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_waits_asked_for(headers: Any, expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_masking() -> None:
    masker = Masker("the-key-itself", "short", None)
    text = "the-key-itself short sk-abcdefgh12 Bearer abcdefgh.ijkl== risk-adjusted Bearer of news"
    assert masker.text(text) == "masked short masked Bearer masked risk-adjusted Bearer of news"
    assert masker.data({"the-key-itself": ["x the-key-itself", 1, None, True]}) == {
        "masked": ["x masked", 1, None, True]
    }
    assert masker.word("the-key-itself") == "masked"
    assert [masker.word(value) for value in (None, True, {"a": 1}, "a b", 12)] == ["", "", "", "a_b", "12"]
