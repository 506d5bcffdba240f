"""Claim-level scores for text summaries.

    import claimscore

    result = claimscore.evaluate(frame, metrics=["caspr", "ds"])  # or a list of dicts, a path
    result.scores

Names are loaded when they are first used: importing claimscore loads neither torch nor
openai.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claimscore.cache.store import DiskCache, MemoryCache
    from claimscore.config import EncoderConfig, LLMConfig, RunConfig
    from claimscore.errors import ClaimscoreError
    from claimscore.evaluation.correlations import CorrelateConfig, correlate
    from claimscore.evaluation.human_claims import ClaimsConfig, evaluate_claims
    from claimscore.evaluation.labels import LabelsConfig, evaluate_labels
    from claimscore.evaluation.result import EvaluationResult
    from claimscore.evaluation.support_benchmark import SupportConfig, evaluate_support
    from claimscore.functions import decompose, embed, extract_facts, map, nli, verify
    from claimscore.notebook import Evaluation, evaluate, score, score_pair
    from claimscore.pipeline.llm.engine import Engine
    from claimscore.pipeline.llm.providers.base import load_provider
    from claimscore.pipeline.llm.question import Answer
    from claimscore.pipeline.llm.session import open_engine
    from claimscore.pipeline.map.job import MapResult
    from claimscore.pipeline.map.settings import MapConfig
    from claimscore.pipeline.run import RunResult, run
    from claimscore.prompts import Prompt, load_prompt, load_prompt_file

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "ClaimsConfig",
    "ClaimscoreError",
    "CorrelateConfig",
    "DiskCache",
    "EncoderConfig",
    "Engine",
    "Evaluation",
    "EvaluationResult",
    "LLMConfig",
    "LabelsConfig",
    "MapConfig",
    "MapResult",
    "MemoryCache",
    "Prompt",
    "RunConfig",
    "RunResult",
    "SupportConfig",
    "correlate",
    "decompose",
    "embed",
    "evaluate",
    "evaluate_claims",
    "evaluate_labels",
    "evaluate_support",
    "extract_facts",
    "load_prompt",
    "load_prompt_file",
    "load_provider",
    "map",
    "nli",
    "open_engine",
    "run",
    "score",
    "score_pair",
    "verify",
]

_NAMES = {
    "cache.store": "DiskCache MemoryCache",
    "config": "EncoderConfig LLMConfig RunConfig",
    "errors": "ClaimscoreError",
    "evaluation.correlations": "CorrelateConfig correlate",
    "evaluation.human_claims": "ClaimsConfig evaluate_claims",
    "evaluation.labels": "LabelsConfig evaluate_labels",
    "evaluation.result": "EvaluationResult",
    "evaluation.support_benchmark": "SupportConfig evaluate_support",
    "functions": "decompose embed extract_facts map nli verify",
    "notebook": "Evaluation evaluate score score_pair",
    "pipeline.llm.engine": "Engine",
    "pipeline.llm.providers.base": "load_provider",
    "pipeline.llm.question": "Answer",
    "pipeline.llm.session": "open_engine",
    "pipeline.map.job": "MapResult",
    "pipeline.map.settings": "MapConfig",
    "pipeline.run": "RunResult run",
    "prompts": "Prompt load_prompt load_prompt_file",
}
_HOMES = {name: f"claimscore.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'claimscore' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
