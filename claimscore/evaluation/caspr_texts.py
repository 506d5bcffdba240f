"""The texts of the CASPR paper's five comparisons: those of the records, and those that are made.

A record has `id`, `entity_a_summary` (two texts or more, one an annotator) and
`entity_b_summary` (one text or more): what sets A apart, and what sets B apart. The texts of
`MADE_FROM` may be there or not; runs of the engine make those that a record lacks from the first
annotator's summaries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from claimscore.config import Granularity, LLMConfig, RunConfig
from claimscore.errors import InputError
from claimscore.evaluation.result import write_rows
from claimscore.pipeline.llm.budget.cap import SPEND_FILE, spent_so_far
from claimscore.pipeline.run import OnProgress, run
from claimscore.records.files import find_files
from claimscore.records.readers import place, read
from claimscore.runs import RunDirectory

_A, _A_OTHER, _B = "entity_a_summary[0]", "entity_a_summary[1]", "entity_b_summary[0]"

#: The two texts of each comparison (CASPR paper, Table 3), least contrast first, paraphrases last.
COMPARISONS: dict[str, tuple[str, str]] = {
    "syn_low": (_A, "syn_low_contrast"),
    "ref_similar": (_A, _A_OTHER),
    "ref_contrastive": (_A, _B),
    "syn_high": (_A, "syn_high_contrast"),
    "syn_contrast": ("paraphrase_a", "paraphrase_b"),
}

#: The texts that a data set may bring, and the text that each is made from where it does not.
MADE_FROM = {
    "syn_low_contrast": _A,
    "syn_high_contrast": _A,
    "paraphrase_a": _A,
    "paraphrase_b": _B,
}

#: The runs of an evaluation, folders inside its own.
PARAPHRASES, NEGATIONS, SCORED = "paraphrases", "negations", "run"

#: A text by record and name.
Key = tuple[str, str]


class AnnotatedRecord(NamedTuple):
    """A pair of entities: the texts it has, by name."""

    id: str
    texts: Mapping[str, str]

    @property
    def lacking(self) -> tuple[str, ...]:
        """The texts of `MADE_FROM` that it does not have."""
        return tuple(name for name in MADE_FROM if name not in self.texts)


class TextPair(NamedTuple):
    """Two texts to compare."""

    comparison: str
    id: str
    summary_a: str
    summary_b: str


class MissingPair(NamedTuple):
    """A pair that cannot be compared, and why."""

    comparison: str
    id: str
    reason: str


class MadeTexts(NamedTuple):
    """The texts that were made, and why others were not."""

    texts: dict[Key, str]
    reasons: dict[Key, str]


def read_annotated(source: str) -> list[AnnotatedRecord]:
    """The records of a JSONL or Parquet file.

    `InputError` names file, line and column of a record that cannot be used or has the id of
    another one; fewer than two records cannot be compared.
    """
    records: dict[str, AnnotatedRecord] = {}
    for file in find_files(source):
        for line, record in read(file):
            try:
                found = _annotated(record)
                if found.id in records:
                    raise ValueError(f"the id {found.id!r} is there twice")
            except ValueError as exc:
                raise InputError(f"{place(file, line)}: {exc}") from None
            records[found.id] = found
    if len(records) < 2:
        raise InputError(f"{source}: {len(records)} records are too few to compare; give two")
    return list(records.values())


def _annotated(record: Mapping[str, Any]) -> AnnotatedRecord:
    name = record.get("id")
    if not isinstance(name, str | int) or name == "":
        raise ValueError("id must be there, a text or an integer")
    a = _texts(record, "entity_a_summary", 2)
    b = _texts(record, "entity_b_summary", 1)
    made = {key: _text(record[key], key) for key in MADE_FROM if record.get(key) is not None}
    return AnnotatedRecord(str(name), {_A: a[0], _A_OTHER: a[1], _B: b[0], **made})


def _texts(record: Mapping[str, Any], column: str, least: int) -> Sequence[str]:
    found = record.get(column)
    if not isinstance(found, list) or len(found) < least:
        count = "two texts, one an annotator" if least == 2 else "one text"
        raise ValueError(f"{column} must be a list of at least {count}")
    return [_text(text, column) for text in found[:least]]


def _text(value: object, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column} must hold texts that are not empty")
    return value


def build_pairs(
    records: Sequence[AnnotatedRecord], made: MadeTexts
) -> tuple[list[TextPair], list[MissingPair]]:
    """The pairs, comparison by comparison one a record, and those that lack a text.

    A text that the record lacks is taken from `made`, whose reasons say why one is not there.
    """
    pairs, missing = [], []
    for comparison, names in COMPARISONS.items():
        for record in records:
            a, b = (record.texts.get(n) or made.texts.get((record.id, n)) for n in names)
            if a and b:
                pairs.append(TextPair(comparison, record.id, a, b))
            else:
                reason = made.reasons[record.id, names[1] if a else names[0]]
                missing.append(MissingPair(comparison, record.id, reason))
    return pairs, missing


def make_texts(
    records: Sequence[AnnotatedRecord],
    config: RunConfig,
    paraphrase: Granularity,
    on_progress: OnProgress | None = None,
) -> MadeTexts:
    """Paraphrase and negate the summaries of the records that lack such texts.

    Two runs inside `config.out`, resumed like any other. A paraphrase is asked for each sentence
    (CASPR paper, section 3.2) or for the whole summary (appendix B). A negation is that of each
    claim of a sentence, joined again by conjunctions (section 3.2). Sentences are joined by spaces.
    """
    made = MadeTexts({}, {})
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
        task_config = dataclasses.replace(
            config,
            input=str(write_rows(config.folder / f"{folder}.jsonl", rows)),
            out=config.folder / folder,
            metrics=(),
            tasks=(task,),
            granularity=granularity,
            units="claims",
            llm=remaining_budget(config, folder),
        )
        run(task_config, on_progress=on_progress)
        _collect(task_config.folder, asked, made)
    return made


def _source_id(record: AnnotatedRecord, name: str) -> str:
    """One paraphrase of a summary serves every text that is a paraphrase of it."""
    return f"{record.id}/{'b' if name == 'paraphrase_b' else 'a'}"


def _collect(out: Path, asked: Iterable[tuple[AnnotatedRecord, str]], made: MadeTexts) -> None:
    """Add the texts that the run in `out` made, and the reasons where it did not."""
    directory = RunDirectory.reader(out)
    rows = directory.scan(out.name).filter(pl.col("sample").fill_null(0) == 0)
    if out.name == NEGATIONS:
        rows = rows.filter(level="sentence")
    texts = rows.collect().sort("sentence_index", nulls_last=False, maintain_order=True)
    text_of = dict(texts.group_by("id").agg(pl.col("text").str.join(" ")).iter_rows())
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


def remaining_budget(config: RunConfig, folder: str) -> LLMConfig:
    """The settings with the money and requests that the evaluation's other runs have left."""
    others = (name for name in (PARAPHRASES, NEGATIONS, SCORED) if name != folder)
    spent = [spent_so_far(config.folder / name / ".state" / SPEND_FILE) for name in others]
    llm = config.llm
    usd = sum((total.usd or 0.0) + total.possibly_billed_usd for total in spent)
    requests = sum(total.requests for total in spent)
    return dataclasses.replace(
        llm,
        max_cost=None if llm.max_cost is None else max(0.0, llm.max_cost - usd),
        max_requests=None if llm.max_requests is None else max(0, llm.max_requests - requests),
    )
