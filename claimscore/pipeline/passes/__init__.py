"""The model passes: each reads a chunk's texts and tables, asks one model, writes one table.

Importing this is cheap: a pass imports its model's library when a model is loaded.
"""

from __future__ import annotations

from claimscore.pipeline.passes.model_pass import (
    TABLES_READ,
    ModelPass,
    PassInput,
    PassResult,
)
from claimscore.pipeline.passes.pair_nli import (
    BLOCK_NLI_PASS,
    CLAIM_ENTAILMENT_PASS,
    ENTAILED_CLAIMS_PASS,
    NLI_PASS,
)
from claimscore.pipeline.passes.similarities import (
    FACT_SIMILARITIES_PASS,
    TEXT_SIMILARITIES_PASS,
)
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.pipeline.passes.text_scores import (
    BART_SCORE_PASS,
    BLANC_HELP_PASS,
    BLANC_TUNE_PASS,
    FACTCC_PASS,
    LS_PASS,
    PERPLEXITY_PASS,
    TOKEN_SCORES_PASS,
)
from claimscore.pipeline.passes.token_movers import (
    MOVER_SCORE_PASS,
    SENTENCE_MOVERS_PASS,
    SUPERT_PASS,
)

#: Every pass by its kind, in the order in which a chunk goes through them.
PASSES: dict[str, ModelPass] = {
    item.kind: item
    for item in (
        NLI_PASS,
        BLOCK_NLI_PASS,
        SUPPORT_PASS,
        CLAIM_ENTAILMENT_PASS,
        ENTAILED_CLAIMS_PASS,
        TOKEN_SCORES_PASS,
        LS_PASS,
        FACT_SIMILARITIES_PASS,
        TEXT_SIMILARITIES_PASS,
        SENTENCE_MOVERS_PASS,
        MOVER_SCORE_PASS,
        SUPERT_PASS,
        PERPLEXITY_PASS,
        BART_SCORE_PASS,
        BLANC_HELP_PASS,
        BLANC_TUNE_PASS,
        FACTCC_PASS,
    )
}

__all__ = ["PASSES", "TABLES_READ", "ModelPass", "PassInput", "PassResult"]
