"""What `--llm builtin` answers, one sentence at a time and always the same.

Rules over word lists (the TOML files here) answer the four tasks: `decompose` here is that of
`builtin-rules`. `claim_maker` makes the claims of `builtin`, with a parser.
"""

from __future__ import annotations

from claimscore.baseline.decomposition import decompose, decompose_text
from claimscore.baseline.facts import facts
from claimscore.baseline.negation import negate, rejoin
from claimscore.baseline.paraphrase import paraphrase

__all__ = ["decompose", "decompose_text", "facts", "negate", "paraphrase", "rejoin"]
