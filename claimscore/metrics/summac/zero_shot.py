"""SummaC-ZS, the best evidence of each summary sentence, averaged; and MNLI-doc, its baseline.

Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization (TACL 10), SummaC_ZS, and their code, `SummaCZS.image2score`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from claimscore.metrics.base import Metric, MetricFamily, option
from claimscore.metrics.summac.pair_matrices import (
    CONTRADICTION,
    ENTAILMENT,
    PROBABILITIES,
    REFERENCE,
    SIGNATURE_KEYS,
    CutOptions,
    Values,
    check,
    cut_requirements,
    pair_matrix,
    score_matrices,
    summac_facts,
)

_OPERATORS: dict[str, Callable[..., Any]] = {"max": np.max, "mean": np.mean, "min": np.min}
OPERATORS = tuple(_OPERATORS)

#: A summary sentence's score from its entailment E and contradiction C, each already over the
#: document: the paper's E, the code's E − C, and what the code has with `use_ent=False`.
_VARIANTS: dict[str, Callable[[Values, Values], Values]] = {
    "paper": lambda entailment, contradiction: entailment,
    "code": lambda entailment, contradiction: entailment - contradiction,
    "contradiction": lambda entailment, contradiction: 1 - contradiction,
}
VARIANTS = tuple(_VARIANTS)


def summac_zs(
    probabilities: ArrayLike, *, op1: str = "max", op2: str = "mean", variant: str = "paper"
) -> float | None:
    """SummaC-ZS of one document and summary; None where either has no block.

    `probabilities[document block][summary sentence]` is (entailment, neutral, contradiction).
    `paper`: op2_j op1_i E_ij, in [0, 1]. `code`: op2_j (op1_i E_ij − op1_i C_ij), the two
    taken independently, in [−1, 1]. `contradiction`: op2_j (1 − op1_i C_ij). The operators are
    min, mean, max. `ValueError` for a wrong shape or option and for what is no probability.
    """
    for name, operator in (("op1", op1), ("op2", op2)):
        check(name, operator, OPERATORS)
    check("variant", variant, VARIANTS)
    matrix = pair_matrix(probabilities)
    if matrix is None:
        return None
    return float(_OPERATORS[op2](_sentence_scores(matrix, op1, variant)))


def _sentence_scores(matrix: Values, op1: str, variant: str) -> Values:
    entailment, contradiction = (
        _OPERATORS[op1](matrix[:, :, label], axis=0) for label in (ENTAILMENT, CONTRADICTION)
    )
    return _VARIANTS[variant](entailment, contradiction)


@dataclasses.dataclass(frozen=True)
class ZeroShotOptions(CutOptions):
    """Options of `summac-zs`."""

    op1: str = option("max", "How the document's blocks become one value a sentence.", OPERATORS)
    op2: str = option("mean", "How the summary's sentences become one value.", OPERATORS)
    variant: str = option(
        "paper",
        "Entailment (paper), entailment less contradiction (code), or 1 − contradiction.",
        VARIANTS,
    )


def _make(name: str, options: ZeroShotOptions) -> Metric:
    settings = dataclasses.asdict(options)
    requires = cut_requirements(settings)

    def score(matrix: Values) -> tuple[float, dict[str, object]]:
        sentences = _sentence_scores(matrix, options.op1, options.variant)
        return float(_OPERATORS[options.op2](sentences)), {
            "n_document_blocks": len(matrix),
            "n_summary_blocks": len(sentences),
            "sentence_scores": sentences.tolist(),
        }

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=lambda tables: score_matrices(tables, requires, score),
        signature_keys=SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(-1.0 if options.variant == "code" else 0.0, 1.0),
        description="best entailment of each summary sentence by a document sentence, averaged",
        reference=f"{REFERENCE}, SummaC_ZS",
        facts=summac_facts(settings, "op1", "op2", "variant"),
    )


SUMMAC_ZS = MetricFamily("summac-zs", ZeroShotOptions, _make)


_MNLI_REQUIRES = cut_requirements(dataclasses.asdict(CutOptions(granularity="document")))


def _score_mnli(matrix: Values) -> tuple[float, dict[str, object]]:
    best = matrix[matrix[:, 0, ENTAILMENT].argmax(), 0]
    components = dict(zip(PROBABILITIES, best.tolist(), strict=True))
    return float(best[ENTAILMENT]), {"n_documents": len(matrix), **components}


MNLI_DOC = Metric(
    name="mnli-doc",
    version="v1",
    requires=_MNLI_REQUIRES,
    score=lambda tables: score_matrices(tables, _MNLI_REQUIRES, _score_mnli),
    signature_keys=SIGNATURE_KEYS,
    higher_is="more consistent",
    range=(0.0, 1.0),
    description="entailment of the whole summary by the whole document",
    reference=f"{REFERENCE}, baseline MNLI-doc",
)
