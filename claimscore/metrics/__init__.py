"""Scores of texts and of tables. Every metric stands in `METRICS`; nothing heavy is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claimscore.metrics.base import Metric
from claimscore.metrics.catalogue import Catalogue

#: Name on the command line -> "module:attribute" of a `Metric` or `MetricFamily`: those of a
#: summary and its source, then those of references, then those of two summaries.
METRICS: dict[str, str] = {
    "faithfulness": "claimscore.metrics.support:FAITHFULNESS",
    "claim-recall": "claimscore.metrics.support:CLAIM_RECALL",
    "claim-f1": "claimscore.metrics.support:CLAIM_F1",
    "claim-support-share": "claimscore.metrics.support:CLAIM_SUPPORT_SHARE",
    "source-coverage": "claimscore.metrics.support:SOURCE_COVERAGE",
    "summac-zs": "claimscore.metrics.summac:SUMMAC_ZS",
    "summac-conv": "claimscore.metrics.summac_convolution:SUMMAC_CONV",
    "mnli-doc": "claimscore.metrics.summac:MNLI_DOC",
    "factcc": "claimscore.metrics.summac:FACTCC",
    "factsim": "claimscore.metrics.fact_similarity:FACTSIM",
    "qa": "claimscore.metrics.qa:QA",
    "llm-judge": "claimscore.metrics.llm_judge:LLM_JUDGE",
    "ner-overlap": "claimscore.metrics.ner_overlap:NER_OVERLAP",
    "bart-score": "claimscore.metrics.likelihood:BART_SCORE",
    "supert": "claimscore.metrics.supert:SUPERT",
    "blanc": "claimscore.metrics.blanc:BLANC",
    "ls-score": "claimscore.metrics.linguistic_semantic:LS_SCORE",
    "rouge-1": "claimscore.metrics.rouge:ROUGE_1",
    "rouge-2": "claimscore.metrics.rouge:ROUGE_2",
    "rouge-l": "claimscore.metrics.rouge:ROUGE_L",
    "rouge-lsum": "claimscore.metrics.rouge:ROUGE_LSUM",
    "bertscore": "claimscore.metrics.bert_score:BERTSCORE",
    "meteor": "claimscore.metrics.meteor:METEOR",
    "bert-cosine": "claimscore.metrics.bert_score:BERT_COSINE",
    "moverscore": "claimscore.metrics.movers:MOVERSCORE",
    "wms": "claimscore.metrics.movers:WMS",
    "sms": "claimscore.metrics.movers:SMS",
    "caspr": "claimscore.metrics.caspr:CASPR",
    "ds": "claimscore.metrics.ds:DS",
    "ds3": "claimscore.metrics.ds:DS3",
    "bs-inverse": "claimscore.metrics.bert_score:BS_INVERSE",
    "perplexity": "claimscore.metrics.likelihood:PERPLEXITY",
}

#: The functions (and their results) that notebooks may rely on -> the module that has them.
FUNCTIONS: dict[str, str] = {
    "distinctiveness": "claimscore.metrics.ds",
    "caspr_from_labels": "claimscore.metrics.caspr",
    "bertscore": "claimscore.metrics.bert_score",
    "BERTScore": "claimscore.metrics.bert_score",
    "summac_zs": "claimscore.metrics.summac",
    "summac_conv": "claimscore.metrics.summac_convolution",
    "ls_score": "claimscore.metrics.linguistic_semantic",
    "LSScore": "claimscore.metrics.linguistic_semantic",
    "factsim": "claimscore.metrics.fact_similarity",
    "FactSim": "claimscore.metrics.fact_similarity",
}


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return getattr(importlib.import_module(FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS])


def catalogue(files: Iterable[Path] = ()) -> Catalogue:
    """Every metric that can be named, those of metric files included; the files are run."""
    return Catalogue(METRICS, files)


def load_metric(spec: str) -> Metric:
    """The metric of that name, or of a family with options: `summac-zs:variant=code:op1=max`.

    `ConfigError` naming what is known where there is no such metric, option or value.
    """
    return catalogue().load(spec)
