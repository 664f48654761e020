"""One request to the provider, and what came of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from merchantbench_gym.baselines.react.config import ReActConfig
from merchantbench_gym.baselines.react.errors import Failure, read_failure
from merchantbench_gym.baselines.react.response import BadResponse, message_of, plain
from merchantbench_gym.baselines.react.usage import Reading, read_usage

DEFAULT_URL = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Outcome:
    """What came of a request.

    Attributes:
        started: Date and time it was sent, UTC.
        seconds: How long it took.
        message: The message of the answer; None if there is none.
        failure: What failed; None if nothing did.
        reading: The usage of the response; None if no response came.
        request_id: The provider's id of the request, "" if it gave none.
    """

    started: str
    seconds: float
    message: dict[str, Any] | None = None
    failure: Failure | None = None
    reading: Reading | None = None
    request_id: str = ""

    @property
    def status(self) -> int | None:
        """HTTP status; None if none was seen."""
        if self.reading is not None:
            return 200
        return None if self.failure is None else self.failure.status


class Caller:
    """Sends requests through a client that retries nothing itself.

    Args:
        config: The settings; they make the client if none is given.
        client: A client of the ``openai`` library, or one like it.
        clock: Seconds now.
    """

    def __init__(self, config: ReActConfig, client: Any, clock: Callable[[], float]) -> None:
        self._config = config
        self._given = client
        self._clock = clock
        self._masker = config.masker
        self._client: Any = None

    def send(
        self, request: Mapping[str, Any], headers: Mapping[str, str], timeout: float, *, worked: bool
    ) -> Outcome:
        """Send one request.

        Args:
            request: Arguments of ``create``.
            headers: Further headers.
            timeout: Seconds it may take.
            worked: Whether a request of this run has succeeded before.
        """
        client = self._open()
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        begun = self._clock()
        more = {"extra_headers": dict(headers)} if headers else {}
        reading, request_id = None, ""
        message: dict[str, Any] | None = None
        failure: Failure | None = None
        try:
            response = client.chat.completions.create(**request, **more, timeout=timeout)
            request_id = self._masker.word(getattr(response, "_request_id", None))
            reading = Reading()
            # Masked before anybody reads it, so that an answer and its record are the same.
            body = self._masker.data(plain(response))
            reading = read_usage(body.get("usage") if isinstance(body, dict) else None)
            message = message_of(body)
        except BadResponse as error:
            failure = Failure("bad_response", request_id=request_id, error=str(error))
        except Exception as error:
            failure = read_failure(error, worked, self._masker)
            if failure.kind == "bad_response":
                reading = Reading()  # it may have cost something, nobody knows what
        return Outcome(started, self._clock() - begun, message, failure, reading, request_id or _id(failure))

    def _open(self) -> Any:
        if self._client is not None:
            return self._client
        client = self._given
        if client is None:
            from openai import OpenAI

            # The library reads a blank variable as an address, here it means that there is none.
            url = self._config.base_url or DEFAULT_URL
            client = OpenAI(api_key=self._config.api_key, base_url=url, max_retries=0)
        elif hasattr(client, "with_options"):
            client = client.with_options(max_retries=0)
        self._client = client
        return client

    def close(self) -> None:
        """Close the client, unless it was passed in."""
        client, self._client = self._client, None
        if client is not None and self._given is None:
            client.close()


def _id(failure: Failure | None) -> str:
    return failure.request_id if failure is not None else ""
