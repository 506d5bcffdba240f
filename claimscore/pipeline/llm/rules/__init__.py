"""Deterministic rules for the four tasks: what `--llm builtin` answers.

No model, no data to download: word lists written for claimscore (the TOML files here)
and a shallow reading of one sentence at a time. A baseline, not a parser.
"""

from __future__ import annotations

from claimscore.pipeline.llm.rules.clauses import decompose, decompose_text
from claimscore.pipeline.llm.rules.facts import facts
from claimscore.pipeline.llm.rules.negation import negate, rejoin
from claimscore.pipeline.llm.rules.paraphrase import paraphrase

__all__ = ["decompose", "decompose_text", "facts", "negate", "paraphrase", "rejoin"]
