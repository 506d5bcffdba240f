"""The models that can be named without looking anything up, and which of them metrics ask."""

from __future__ import annotations

from claimscore.metrics.base import Metric
from claimscore.pipeline.passes import PASSES

MODEL_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("--llm", "builtin", "rules in place of a language model: a baseline, no key needed"),
    ("--llm", "openai:MODEL", "any OpenAI-compatible server (--base-url, OPENAI_API_KEY)"),
    ("--nli", "embedded", "all-MiniLM-L6-v2 with an adapter trained here (extra: offline)"),
    ("--nli", "ORG/NAME[@REVISION]", "a sequence classifier from the model hub, e.g. one for MNLI"),
    ("--nli", "PATH", "the same from a folder on disk"),
    ("--nli", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--embedder", "embedded", "all-MiniLM-L6-v2: sentence embeddings (extra: offline)"),
    ("--embedder", "ORG/NAME or PATH", "a sentence-transformers model, or any encoder"),
    ("--embedder", "tei:URL", "one behind a text-embeddings-inference server"),
    ("--embedder", "openai:MODEL@URL", "one behind a server with OpenAI's /embeddings"),
    ("--token-encoder", "embedded", "all-MiniLM-L6-v2, with its own baseline (extra: offline)"),
    ("--token-encoder", "ORG/NAME or PATH", "any encoder; published baselines where there are any"),
    ("--causal-lm", "ORG/NAME or PATH", "any causal language model, for perplexity"),
    ("--seq2seq-lm", "ORG/NAME or PATH", "any sequence-to-sequence model, for bart-score"),
    ("--ls-model", "PATH", "a folder made by `claimscore train ls-score`"),
)


def roles_of(metric: Metric) -> list[str]:
    """The roles of the models that its passes ask, each once: `nli`, `token_encoder`."""
    return list(dict.fromkeys(PASSES[need.kind].role for need in metric.needs.passes))
