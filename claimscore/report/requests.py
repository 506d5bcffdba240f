"""The requests behind the rows of a record: one entry a request, rows point to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import polars as pl

from claimscore.report.data import DetailChunk, Exchange, Exchanges
from claimscore.report.index import RecordList
from claimscore.report.matrix import Room
from claimscore.tables import LLM_PROVENANCE

JSON = dict[str, Any]

#: Longer prompts and answers are cut here; the run directory and the cache have the rest.
MAX_EXCHANGE_CHARS = 20_000

#: The task whose rows a table has; `llm_answers` says it row by row. And the place of a row.
_TASKS = {
    "claims": ("decompose", "sentence_index"),
    "paraphrases": ("paraphrase", "sentence_index"),
    "negations": ("negate", "sentence_index"),
    "facts": ("facts", None),
    "llm_answers": (None, "index"),
}


@dataclasses.dataclass
class RecordRequests:
    """The requests of one record, in the order of the tables; `left_out` where there was no room
    for what was said."""

    calls: list[JSON] = dataclasses.field(default_factory=list)
    left_out: bool = False
    numbers: dict[str, int] = dataclasses.field(default_factory=dict)

    def of_claims(self, claims: list[JSON]) -> JSON:
        """For each claim the number of its request; nothing where none of them has one."""
        numbers = [self.numbers.get(row["request_key"] or "") for row in claims]
        return {"calls": numbers} if any(number is not None for number in numbers) else {}


def chunk_requests(
    exchanges: Exchanges | None, chunk: DetailChunk, listed: RecordList, room: Room
) -> dict[str, RecordRequests]:
    """The requests of a chunk's records. Each conversation takes room once a record."""
    rows = pl.concat(list(_asked(chunk)))
    ids = chunk.records["id"].cast(pl.String)
    rows = rows.filter(pl.col("id").is_in(ids.implode()) & pl.col("request_key").is_not_null())
    rows = rows.unique(("id", "request_key"), keep="first", maintain_order=True)
    keys = frozenset(rows["request_key"].to_list())
    known = exchanges.of_chunk(chunk, keys) if exchanges is not None and keys else {}
    found: dict[str, RecordRequests] = {}
    for row in rows.iter_rows(named=True):
        mine = found.setdefault(row["id"], RecordRequests())
        exchange = known.get(row["request_key"], Exchange(why_no_answer="not looked up"))
        said = _said(exchange, listed)
        size = len(said.get("user", "")) + len(said.get("answer", ""))
        if not room.take(size):
            mine.left_out = True
            why = "This file holds as much as it may."
            said = {"prompt_note": why, "answer_note": why}
        mine.numbers[row["request_key"]] = len(mine.calls)
        mine.calls.append(
            {
                "task": row["task"],
                "side": row["side"],
                "place": None if row["place"] is None else row["place"] + 1,
                "key": row["request_key"],
                "prompt": row["prompt"],
                "version": row["prompt_version"],
                "digest": row["prompt_digest"],
                "model": row["model"],
                **said,
            }
        )
    return found


def _asked(chunk: DetailChunk) -> Iterator[pl.DataFrame]:
    """The rows of every table that a model made, with the same columns."""
    for table, (task, place) in _TASKS.items():
        frame: pl.DataFrame = getattr(chunk, table)
        yield frame.select(
            "id",
            *([pl.lit(task).alias("task")] if task else ["task"]),
            "side",
            (pl.col(place) if place else pl.lit(None)).cast(pl.Int32).alias("place"),
            *LLM_PROVENANCE,
        )


def _said(exchange: Exchange, listed: RecordList) -> JSON:
    said: JSON = {}
    if exchange.messages:
        *head, last = exchange.messages
        said["head"] = listed.head(tuple((role, content) for role, content in head))
        said["user"] = last.content[:MAX_EXCHANGE_CHARS]
    else:
        said["prompt_note"] = exchange.why_no_messages
    if exchange.answer is None:
        said["answer_note"] = exchange.why_no_answer
        return said
    answer = exchange.answer
    usage = answer.usage
    return said | {
        "answer": answer.text[:MAX_EXCHANGE_CHARS],
        "finish": answer.finish_reason,
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens],
        "usd": exchange.usd,
    }
