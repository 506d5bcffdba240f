"""Files and batches of the loopback server, as OpenAI's own SDK uses them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.fake_server import FakeServer, text_answer
from tests.unit.fake_server.test_fake_server import question


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(text="warm") as server:
        yield server


def lines_of(*texts: str, **changes: Any) -> bytes:
    """A file of requests."""
    items = (
        {
            "custom_id": f"item-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": question(text),
        }
        | changes
        for number, text in enumerate(texts)
    )
    return "".join(json.dumps(item) + "\n" for item in items).encode()


@pytest.fixture
def sdk(server: FakeServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as sdk:
        yield sdk


def start(sdk: openai.OpenAI, content: bytes, **metadata: str) -> Any:
    file = sdk.files.create(file=("in.jsonl", content), purpose="batch")
    return sdk.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata=metadata,
    )


def results(sdk: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    lines = sdk.files.content(file_id).text.splitlines()
    return {line["custom_id"]: line for line in map(json.loads, lines)}


class TestBatches:
    """Files and batches as the SDK uses them."""

    def test_a_batch_is_answered_and_billed_like_online_requests(
        self, server: FakeServer, sdk: openai.OpenAI
    ) -> None:
        """Every line once, in an order of its own; what was also asked online was paid twice."""
        sdk.chat.completions.create(model="m", messages=question("b")["messages"])
        batch = start(sdk, lines_of("a", "b", "c"), run="r1")
        assert (batch.status, batch.metadata) == ("validating", {"run": "r1"})
        batch = sdk.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert (batch.request_counts.completed, batch.request_counts.total) == (3, 3)
        found = results(sdk, batch.output_file_id)
        assert set(found) == {"item-0", "item-1", "item-2"}
        reply = found["item-0"]["response"]
        assert reply["status_code"] == 200
        assert reply["body"]["choices"][0]["message"]["content"] == "warm"
        assert sorted(server.paid.values()) == [1, 1, 2]
        assert server.counts.batched == 3

    def test_batches_that_wait_to_be_told_or_for_a_time(
        self, server: FakeServer, sdk: openai.OpenAI
    ) -> None:
        """In progress until then; one that was cancelled is not executed."""
        server.change(batch_delay_s=None)
        first, second = (start(sdk, lines_of(text)).id for text in ("a", "b"))
        assert sdk.batches.retrieve(first).status == "in_progress"
        assert sdk.batches.cancel(second).status == "cancelled"
        server.finish_batches()
        assert sdk.batches.retrieve(first).status == "completed"
        assert server.counts.batched == 1
        server.change(batch_delay_s=0.05)
        third = start(sdk, lines_of("c")).id
        give_up = time.monotonic() + 5
        while sdk.batches.retrieve(third).status != "completed":
            assert time.monotonic() < give_up

    def test_an_expired_batch_has_partial_results(
        self, server: FakeServer, sdk: openai.OpenAI
    ) -> None:
        """What was done is in the output, the rest in the errors, and only the first is paid."""
        server.change(batch_share=0.6)
        batch = sdk.batches.retrieve(start(sdk, lines_of(*"abcde")).id)
        assert batch.status == "expired"
        done, left = (results(sdk, name) for name in (batch.output_file_id, batch.error_file_id))
        assert (len(done), len(left)) == (3, 2)
        assert not set(done) & set(left)
        assert {line["error"]["code"] for line in left.values()} == {"batch_expired"}
        assert server.paid.total() == 3

    def test_failed_lines(self, server: FakeServer, sdk: openai.OpenAI) -> None:
        """By rate and by content, in the error file with their status."""
        server.change(on_content={"bomb": "filter"}, batch_rates={"500": 0.3})
        batch = sdk.batches.retrieve(start(sdk, lines_of("bomb", *map(str, range(60)))).id)
        failed = results(sdk, batch.error_file_id)
        statuses = Counter(line["response"]["status_code"] for line in failed.values())
        assert statuses[400] == 1
        assert 8 <= statuses[500] <= 28
        assert batch.request_counts.failed == len(failed)
        assert len(results(sdk, batch.output_file_id)) == 61 - len(failed)

    @pytest.mark.parametrize(
        ("content", "settings", "code"),
        [
            pytest.param(b"", {}, "empty_file", id="empty"),
            pytest.param(b"{\n", {}, "invalid_json_line", id="json"),
            pytest.param(lines_of("a", "b", custom_id="x"), {}, "duplicate_custom_id", id="ids"),
            pytest.param(lines_of("a", url="/v1/x"), {}, "mismatched_url", id="url"),
            pytest.param(lines_of("a", "b"), {"batch_max_lines": 1}, "too_many_tasks", id="lines"),
            pytest.param(
                lines_of("a"),
                {"batch_error": "token_limit_exceeded"},
                "token_limit_exceeded",
                id="told",
            ),
        ],
    )
    def test_a_batch_that_fails_validation(
        self,
        server: FakeServer,
        sdk: openai.OpenAI,
        content: bytes,
        settings: dict[str, Any],
        code: str,
    ) -> None:
        """Nothing is executed, and the reason is named."""
        server.change(**settings)
        batch = sdk.batches.retrieve(start(sdk, content).id)
        assert batch.status == "failed"
        assert batch.errors.data[0].code == code
        assert server.counts.batched == 0

    def test_lists_come_in_pages(self, sdk: openai.OpenAI) -> None:
        """The newest batch first; the SDK's own paging sees each once."""
        made = [start(sdk, lines_of(str(i))).id for i in range(5)]
        first = sdk.batches.list(limit=2)
        assert ([b.id for b in first.data], first.has_more) == (made[:2:-1], True)
        assert [batch.id for batch in sdk.batches.list(limit=2)] == made[::-1]
        files = list(sdk.files.list(purpose="batch", limit=3))
        assert len({file.id for file in files}) == len(files) == 5

    def test_what_happened_although_the_answer_was_lost(
        self, server: FakeServer, sdk: openai.OpenAI
    ) -> None:
        """ "lost": the batch exists, the client does not know; "500": it does not exist."""
        server.change(on_path={"POST /v1/batches": ["500", "lost"]})
        with pytest.raises(openai.InternalServerError):
            start(sdk, lines_of("a"))
        assert not server.batches
        with pytest.raises(openai.APIConnectionError):
            start(sdk, lines_of("a"))
        assert len(server.batches) == 1
        assert start(sdk, lines_of("b")).id in server.batches

    def test_deleted_and_unknown_objects(self, sdk: openai.OpenAI) -> None:
        """404, as everywhere."""
        file = sdk.files.create(file=("x", b"1\r\n\r\n--2"), purpose="batch")
        assert sdk.files.content(file.id).read() == b"1\r\n\r\n--2"
        assert sdk.files.retrieve(file.id).bytes == file.bytes
        sdk.files.delete(file.id)
        for missing in (sdk.files.retrieve, sdk.files.content, sdk.batches.retrieve):
            with pytest.raises(openai.NotFoundError):
                missing(file.id)

    def test_answers_by_a_function(self, sdk: openai.OpenAI) -> None:
        """The same answers as online."""
        with FakeServer(answer=text_answer("fine")) as server:
            other = sdk.with_options(base_url=server.base_url)
            batch = other.batches.retrieve(start(other, lines_of("a")).id)
            found = results(other, batch.output_file_id)
        message = found["item-0"]["response"]["body"]["choices"][0]["message"]
        assert message["content"] == "fine"
