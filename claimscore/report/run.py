"""The report of a run directory: reads what a run wrote, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.errors import ConfigError
from claimscore.metrics import load_metric
from claimscore.report.data import DetailChunk, MetricFacts, ReportTables, RunFacts
from claimscore.report.html import write_report
from claimscore.rundir import RunDirectory, damage_as_error


def write_run_report(out: Path) -> Path:
    """Write `report.html` into a run directory and return its path.

    Raises `ConfigError` where `out` is no run directory or its run has no scores yet.
    """
    directory = RunDirectory.reader(out)
    summary_path = out / "summary.json"
    if not (summary_path.is_file() and (out / "scores.parquet").is_file()):
        raise ConfigError(f"{out}: the run has no scores yet; run it to the end first")
    path = out / "report.html"
    with damage_as_error(out):
        summary = json.loads(summary_path.read_text(encoding="utf-8"))
        write_report(_tables(directory, summary), path)
    return path


def _tables(directory: RunDirectory, summary: Mapping[str, Any]) -> ReportTables:
    settings = directory.settings

    def chunks() -> Iterator[DetailChunk]:
        for chunk in range(directory.n_chunks):
            yield DetailChunk(**{name: directory.read(name, chunk) for name in DetailChunk._fields})

    return ReportTables(
        run=_facts(directory, settings, summary),
        metrics=[_metric(name, row) for name, row in summary["metrics"].items()],
        scores=pl.scan_parquet(directory.path / "scores.parquet", glob=False),
        failures=directory.scan("failures"),
        chunks=chunks,
    )


def _facts(
    directory: RunDirectory, settings: Mapping[str, Any], summary: Mapping[str, Any]
) -> RunFacts:
    additive = settings["additive"]
    models = {
        label: f"{additive[key]['name']} @ {additive[key]['revision']}"
        for key, label in (("nli", "NLI"), ("token_encoder", "token encoder"))
        if key in additive
    }
    return RunFacts(
        title=directory.path.resolve().name,
        input=summary["input"],
        n_records=summary["records"]["total"],
        llm=_llm(additive.get("llm")),
        models=models,
        version=summary["claimscore"],
        finished=f"{datetime.fromisoformat(summary['finished']):%Y-%m-%d %H:%M} UTC",
        counts=_counts(summary),
        settings=settings,
    )


def _llm(llm: Mapping[str, str] | None) -> str:
    if llm is None:
        return "none"
    builtin = llm["provider"] == "builtin"
    return llm["model"] if builtin else f"{llm['provider']}:{llm['model']}"


def _counts(summary: Mapping[str, Any]) -> dict[str, object]:
    call = summary["last_call"]
    return {
        "Records with failures": summary["records"]["failed"],
        "Requests (last call)": call["requests"],
        "Answers from the cache (last call)": call["cache_hits"],
        "Prompt tokens (last call)": call["prompt_tokens"],
        "Completion tokens (last call)": call["completion_tokens"],
        "Text pairs judged (last call)": call["nli_pairs"],
        "Seconds (last call)": round(call["seconds"], 1),
    }


def _metric(name: str, row: Mapping[str, Any]) -> MetricFacts:
    """What the run said of a metric; of runs that said nothing, what is known of it now."""
    facts = MetricFacts(name=name, half_width=row["half_width"])
    if "range" not in row:
        return _described_now(facts)
    low, high = row["range"]
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return dataclasses.replace(
        facts, description=row["description"], higher_is=row["higher_is"], range=bounds
    )


def _described_now(facts: MetricFacts) -> MetricFacts:
    try:
        metric = load_metric(facts.name)
    except ConfigError:
        return facts
    return dataclasses.replace(
        facts, description=metric.description, higher_is=metric.higher_is, range=metric.range
    )
