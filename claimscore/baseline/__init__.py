"""Deterministic rules for the four tasks: what `--llm builtin` answers.

No model, no data to download: word lists written for claimscore (the TOML files here)
and a shallow reading of one sentence at a time. A baseline, not a parser.
"""

from __future__ import annotations

from claimscore.baseline.decomposition import decompose, decompose_text
from claimscore.baseline.facts import facts
from claimscore.baseline.negation import negate, rejoin
from claimscore.baseline.paraphrase import paraphrase

__all__ = ["decompose", "decompose_text", "facts", "negate", "paraphrase", "rejoin"]
