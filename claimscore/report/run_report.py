"""The report of a run directory: reads what a run wrote, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from claimscore.calibration import threshold_in
from claimscore.console import cost, duration
from claimscore.errors import ConfigError
from claimscore.report.llm_calls import open_llm_calls
from claimscore.report.report_tables import (
    TEXT_COLUMNS,
    DetailChunk,
    LLMCalls,
    ReportTables,
    RunFacts,
)
from claimscore.report.run_page import write_report
from claimscore.runs import RunDirectory, damage_as_error, models_asked
from claimscore.stats.gates import Gate

#: What users call the models of a run, by their role.
_MODELS = {
    "nli": "NLI model",
    "verifier": "Verifier",
    "embedder": "Sentence encoder",
    "token_encoder": "Token encoder",
    "ls_model": "LS_Score model",
    "causal_lm": "Causal language model",
    "seq2seq_lm": "Sequence-to-sequence model",
    "masked_lm": "Masked language model",
}


def write_run_report(
    out: Path | str,
    cache_dir: Path | None = None,
    prompts: Mapping[str, str] = MappingProxyType({}),
    prompts_dir: Path | None = None,
) -> Path | str:
    """Write `report.html` into a run directory and return its path or address.

    Answers come from the cache in `cache_dir` (the user's own where None). Prompts that are not
    claimscore's are shown where `prompts` (by task a version or a file) or `prompts_dir` have them.

    Raises `ConfigError` where `out` is no run directory or its run has no scores yet.
    """
    directory = RunDirectory.reader(out)
    scores, summary = directory.scores(), directory.summary()
    if scores is None or not summary:
        raise ConfigError(f"{out}: the run has no scores yet; run it to the end first")
    directory.check_read()
    with (
        damage_as_error(out),
        open_llm_calls(directory, cache_dir, prompts, prompts_dir) as llm_calls,
    ):
        write_report(_tables(directory, scores, summary, llm_calls), directory.path / "report.html")
    return directory.publish("report.html")


def _tables(
    directory: RunDirectory,
    scores: pl.LazyFrame,
    summary: Mapping[str, Any],
    llm_calls: LLMCalls | None,
) -> ReportTables:
    settings = directory.settings
    support = settings["additive"].get("support", {})

    def chunks() -> Iterator[DetailChunk]:
        names = [name for name in DetailChunk._fields if name != "scores"]
        n_metrics = scores.select(pl.col("metric").n_unique()).collect().item()
        start = 0
        for number in range(directory.n_chunks):
            tables = {name: directory.read(name, number) for name in names}
            ids = tables["records"]["id"]
            rows = scores.slice(start, len(ids) * n_metrics).collect()  # lie together
            is_whole = rows["id"].unique(maintain_order=True).equals(ids) or not n_metrics
            if not (is_whole and rows["value"].drop_nulls().is_finite().all()):
                raise ConfigError(
                    f"{directory.name}: scores.parquet is not what a run wrote; run it again"
                )
            yield DetailChunk(**tables, scores=rows)
            start += rows.height

    return ReportTables(
        run=_facts(directory, settings, summary),
        metrics={name: _metric(row) for name, row in summary["metrics"].items()},
        scores=scores,
        failures=summary["failures"],
        chunks=chunks,
        records=directory.scan("records"),
        columns=summary.get("columns", TEXT_COLUMNS),
        threshold=float(support.get("threshold", threshold_in(settings["additive"]))),
        llm_calls=llm_calls,
    )


def _facts(
    directory: RunDirectory, settings: Mapping[str, Any], summary: Mapping[str, Any]
) -> RunFacts:
    additive, checks = settings["additive"], summary.get("claim_checks") or {}
    models = {
        label: f"{additive[key]['name']} @ {additive[key]['revision']}"
        for key, label in _MODELS.items()
        if key in additive and "revision" in additive[key]
    }
    return RunFacts(
        title=directory.title,
        input=summary["input"],
        n_records=summary["records"]["total"],
        llm=models_asked(settings) or "none",
        models=models,
        version=summary["claimscore"],
        finished=f"{datetime.fromisoformat(summary['finished']):%Y-%m-%d %H:%M} UTC",
        counts=_counts(summary, "llm" in additive),
        settings=settings,
        notices=(
            *(f"Gate {Gate(**gate)}" for gate in summary.get("gates", ())),
            *summary.get("notices", ()),
            *(f"Texts {check['text']}" for check in summary.get("text_checks", ())),
            *checks.get("warnings", ()),
        ),
        truncated=dict(summary.get("truncated", {})),
        claim_checks=checks,
    )


def _counts(summary: Mapping[str, Any], asked_llm: bool) -> dict[str, object]:
    """Time and cost: what was spent on the whole run, the rest of its last start."""
    call, spent = summary["last_call"], summary.get("spent", {})
    items = call.get("model_items") or {}
    counts: dict[str, object] = {
        "Records with failures": summary["records"]["failed"],
        "Duration": duration(call["seconds"]),
    }
    if asked_llm and spent:
        counts |= {
            "Cost": cost(spent),
            "Requests": spent.get("requests"),
            "Prompt tokens": spent.get("prompt_tokens") or None,
            "Prompt tokens that the server had cached": spent.get("cached_prompt_tokens") or None,
            "Completion tokens": spent.get("completion_tokens") or None,
            "Answers from the cache": call["cache_hits"],
        }
    return counts | {
        "Text pairs judged": call["nli_pairs"],
        "Model results computed": items.get("computed"),
        "Model results kept from before": items.get("stored"),
    }


def _metric(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the summary says of a metric, which may come from a stranger."""
    worst = [{"id": str(one["id"]), "value": float(one["value"])} for one in row["worst"]]
    return {**row, "worst": worst, "signature": str(row["signature"])}
