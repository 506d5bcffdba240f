"""`claimscore prompts from-labels`: claims that people judged become examples of a prompt.

A language model is asked about each labelled claim with the prompt as it is; what it gets wrong
teaches most. What the examples gain is cross-fitted over the records.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w

from claimscore.atomic import write_text
from claimscore.config import LLM_VERIFIER, EncoderConfig, LLMConfig, RunConfig, read_toml
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.calibration import folds, gains, gains_result, mean_of, refuse_few
from claimscore.evaluation.label_items import labelled_texts
from claimscore.evaluation.result import EvaluationResult
from claimscore.evidence import N_SENT, ranked, shared_words
from claimscore.metrics.support import CONTRADICTED, UNMENTIONED, VERDICTS
from claimscore.option import argument, check_least, like, option
from claimscore.pipeline.llm.endpoints import ignore_event
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import plan_engine, run_task
from claimscore.pipeline.plan import only, open_plan, plan_steps
from claimscore.pipeline.supervision import run_blocking
from claimscore.pipeline.tasks.verify import VERIFY, deciding, windows
from claimscore.prompts import Prompt, Spec
from claimscore.prompts.prompt import NAME
from claimscore.tables import CLAIMS
from claimscore.text import split_sentences

Row = dict[str, Any]

#: More bytes than a text has.
_LONGER = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class ExamplesConfig:
    """A prompt, the labels that it is to learn from, and the model that it is for."""

    prompt: str = argument(metavar="PROMPT", help="Prompt: verify, verify=VERSION, or a file.")
    labels: str = argument(metavar="LABELS", help="Labels, as `claimscore label` wrote them.")
    n: int = option(6, panel="Essential", name="n", help="Number of examples.")
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    cache_dir: Path | None = like(RunConfig, "cache_dir")
    prompts_dir: Path | None = like(RunConfig, "prompts_dir")

    def __post_init__(self) -> None:
        check_least(self, n=1)
        if Spec.parse(self.prompt).name not in (VERIFY.name, None):
            raise ConfigError(f"{self.prompt}: labels are of verdicts; name a prompt of verify")


def from_labels(
    config: ExamplesConfig, out: Path, on_begin: Callable[[str], None]
) -> tuple[EvaluationResult, bool]:
    """The gain of a prompt with examples, and whether there is one, so that `out` was written.

    `on_begin` hears what will be asked. `InputError` for labels of no use, `ConfigError` where the
    model cannot be asked, `StoppedEarly` at a cap: then the same call goes on.
    """
    if not (out.suffix == ".toml" and re.fullmatch(NAME, out.stem)):
        raise ConfigError(f"--out {out}: a prompt file is called as its version, and ends in .toml")
    spec, rows = Spec.parse(config.prompt), labelled_texts(config.labels)
    record = np.unique([row["id"] for row in rows], return_inverse=True)[1]
    refuse_few(config.labels, len(rows), len(np.unique(record)))
    settings = RunConfig(
        *([], Path(), (), (VERIFY.name,), {VERIFY.name: spec.version}, config.prompts_dir),
        llm=config.llm,
        encoders=EncoderConfig(verifier=LLM_VERIFIER),
        cache_dir=config.cache_dir,
    )
    plan = open_plan(only(plan_steps(settings, (), ("sources", "summary")), [VERIFY.name]))
    ((prompt, planned),) = ((one.prompt, one) for one in plan.tasks)
    assert prompt is not None, "an open plan has prompts"
    if prompt.label_words:
        rows = [row | {"label": row["label"].replace(CONTRADICTED, UNMENTIONED)} for row in rows]
    on_begin(
        f"asks {config.llm.of(VERIFY.name).model} twice about {len(rows):,} claims, with the "
        "prompt as it is and with examples; what is in the cache costs nothing"
    )
    fold = folds(record, seed=0)

    async def judge(engine: Engine, asked: Prompt, some: Sequence[Row], column: str) -> None:
        """Put what the model says of some claims into their column."""
        texts = [
            {"id": str(n), "side": "summary", "text": row["claim"], "sentence": row["sentence"]}
            for n, row in enumerate(some)
        ]
        sources = [[row["source"]] for row in some]
        records = pl.DataFrame(texts).with_columns(pl.Series("sources", sources), summary="text")
        asking, tables = dataclasses.replace(planned, prompt=asked), {"claims": CLAIMS.frame(texts)}
        made = await run_task(asking, records, tables, engine)
        for row in deciding(made.rows.to_dicts(), "id"):
            some[int(row["id"])][column] = row["verdict"]

    async def ask() -> None:
        async with plan_engine(plan, ignore_event) as engine:
            await judge(engine, prompt, rows, "said")
            if all(row.get("said") == row["label"] for row in rows):
                raise InputError(f"{config.labels}: the model says of each claim what people say")
            for held_out in (fold == number for number in np.unique(fold)):
                taught = _taught(prompt, list(itertools.compress(rows, ~held_out)), config.n)
                await judge(engine, taught, list(itertools.compress(rows, held_out)), "taught")

    run_blocking(ask)
    measures = [
        mean_of(np.array([row.get(name) == row["label"] for row in rows], float))
        for name in ("said", "taught")
    ]
    weight = np.array([row["weight"] for row in rows])
    table = gains({"agreement": measures}, weight, record)
    if helps := table["gain"][0] > 0:
        content = read_toml(spec.path(config.prompts_dir))
        turns = _taught(prompt, rows, config.n).examples
        content |= {"version": out.stem, "changes": f"Examples from {Path(config.labels).name}."}
        content["examples"] = [{"user": user, "assistant": answer} for user, answer in turns]
        write_text(out, tomli_w.dumps(content, multiline_strings=True))
    notes = f"{len(rows):,} labels, cross-fitted"
    return gains_result("What examples gain", config, table, {"helps": helps}, notes), helps


def _taught(prompt: Prompt, rows: Sequence[Row], n: int) -> Prompt:
    """The prompt with `n` more examples: of each verdict of people in turn, one a record, first
    those that the model got wrong."""
    wrong_first = sorted(rows, key=lambda row: row.get("said") == row["label"])
    chosen: dict[str, Row] = {}
    for verdict in VERDICTS * n:
        left = (row for row in wrong_first if row["label"] == verdict and row["id"] not in chosen)
        chosen |= {row["id"]: row for row in itertools.islice(left, 1)}
    examples = [_example(prompt, row) for row in list(chosen.values())[:n]]
    return dataclasses.replace(prompt, examples=(*prompt.examples, *examples))


def _example(prompt: Prompt, row: Row) -> tuple[str, str]:
    """A question about a claim, with what of the source bears on it, and the answer of people."""
    sentences, evidence = split_sentences(row["source"]), row["evidence"]
    best = ranked(shared_words(sentences, [row["claim"]])[:, 0])[:N_SENT]
    quoted = [at for at, text in enumerate(sentences) if evidence and evidence in text]
    ((_, source),) = windows(row["source"], _LONGER, {*best, *quoted})
    if row["label"] == UNMENTIONED:
        evidence = ""
    elif not evidence or evidence not in source:
        evidence = sentences[best[0]]
    fields = {"source": source, "text": row["claim"], "sentence": row["sentence"]}
    question = prompt.render({name: fields[name] for name in prompt.fields})[-1].content
    if prompt.label_words:
        return question, prompt.label_words[row["label"]]
    answer = {"verdict": row["label"], "evidence": evidence}
    return question, json.dumps(answer, ensure_ascii=False)
