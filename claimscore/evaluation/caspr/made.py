"""Paraphrases and negations that a data set does not bring, made by runs of the engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.atomic import os_errors, write_text
from claimscore.config import Granularity, LLMConfig, RunConfig
from claimscore.evaluation.caspr.pairs import MADE_FROM, Annotated
from claimscore.pipeline.llm.budget.cap import SPEND_FILE, spent_so_far
from claimscore.pipeline.run import OnProgress, run
from claimscore.runs import RunDirectory

#: The runs of an evaluation, folders inside its own.
PARAPHRASES, NEGATIONS, SCORED = "paraphrases", "negations", "run"

#: A text by record and name.
Key = tuple[str, str]


class Made(NamedTuple):
    """The texts that were made, and why others were not."""

    texts: dict[Key, str]
    reasons: dict[Key, str]


def make_texts(
    records: Sequence[Annotated],
    config: RunConfig,
    paraphrase: Granularity,
    on_progress: OnProgress | None = None,
) -> Made:
    """Paraphrase and negate the summaries of the records that lack such texts.

    Two runs inside `config.out`, resumed like any other. A paraphrase is asked for each sentence
    (CASPR paper, section 3.2) or for the whole summary (appendix B). A negation is that of each
    claim of a sentence, joined again by conjunctions (section 3.2). Sentences are joined by spaces.
    """
    made = Made({}, {})
    wanted = [(record, name) for record in records for name in record.lacking]
    for folder, task, granularity in (
        (PARAPHRASES, "paraphrase", paraphrase),
        (NEGATIONS, "negate", config.granularity),
    ):
        negating = folder == NEGATIONS
        asked = [(r, name) for r, name in wanted if (name == "syn_high_contrast") == negating]
        if not asked:
            continue
        originals = {_source_id(r, name): r.texts[MADE_FROM[name]] for r, name in asked}
        rows = ({"id": name, "summary": text} for name, text in originals.items())
        source = write_rows(config.folder / f"{folder}.jsonl", rows)
        out = config.folder / folder
        run(
            dataclasses.replace(
                config,
                input=str(source),
                out=out,
                metrics=(),
                tasks=(task,),
                granularity=granularity,
                units="claims",
                llm=what_is_left(config, folder),
            ),
            on_progress=on_progress,
        )
        _collect(out, asked, made)
    return made


def _source_id(record: Annotated, name: str) -> str:
    """One paraphrase of a summary serves every text that is a paraphrase of it."""
    return f"{record.id}/{'b' if name == 'paraphrase_b' else 'a'}"


def _collect(out: Path, asked: Iterable[tuple[Annotated, str]], made: Made) -> None:
    directory = RunDirectory.reader(out)
    table = "negations" if out.name == NEGATIONS else "paraphrases"
    rows = directory.scan(table).filter(pl.col("sample").fill_null(0) == 0).collect()
    if table == "negations":
        rows = rows.filter(level="sentence")
    texts = rows.sort("sentence_index", nulls_last=False, maintain_order=True)
    joined = texts.group_by("id").agg(pl.col("text").str.join(" "))
    text_of = dict(joined.iter_rows())
    failed = directory.scan("failures").group_by("id").agg(pl.col("message").first()).collect()
    why = dict(failed.iter_rows())
    for record, name in asked:
        key, source = (record.id, name), _source_id(record, name)
        text = text_of.get(source, "").strip()
        if source in why or not text:
            reason = why.get(source) or "the language model gave no text"
            made.reasons[key] = f"{name} could not be made: {reason.splitlines()[0]}"
        else:
            made.texts[key] = text


def what_is_left(config: RunConfig, folder: str) -> LLMConfig:
    """The money and requests that the other runs of the evaluation left to this one."""
    others = [name for name in (PARAPHRASES, NEGATIONS, SCORED) if name != folder]
    spent = [spent_so_far(config.folder / name / ".state" / SPEND_FILE) for name in others]
    cost, requests = config.llm.max_cost, config.llm.max_requests
    usd = sum((total.usd or 0.0) + total.possibly_billed_usd for total in spent)
    return dataclasses.replace(
        config.llm,
        max_cost=None if cost is None else max(0.0, cost - usd),
        max_requests=None
        if requests is None
        else max(0, requests - sum(total.requests for total in spent)),
    )


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Records as JSONL; the folder is made."""
    with os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path
