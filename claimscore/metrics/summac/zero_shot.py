"""SummaC-ZS, the best evidence of each summary sentence, averaged; and MNLI-doc, its baseline.

Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization (TACL 10), SummaC_ZS, and their code, `SummaCZS.image2score`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from claimscore.metrics.base import ChunkTables, Metric, MetricFamily, Score, option
from claimscore.metrics.ragged import first_largest, reduce_runs, split_runs, starts_of
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
    read_pair_matrices,
    scores_of,
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
    entailment, contradiction = (
        _OPERATORS[op1](matrix[:, :, label], axis=0) for label in (ENTAILMENT, CONTRADICTION)
    )
    return float(_OPERATORS[op2](_VARIANTS[variant](entailment, contradiction)))


class Setting(NamedTuple):
    """One way to reduce a pair matrix to a score."""

    op1: str
    op2: str
    variant: str


SETTINGS = tuple(
    Setting(op1, op2, variant) for variant in VARIANTS for op1 in OPERATORS for op2 in OPERATORS
)


def summac_zs_grid(probabilities: ArrayLike) -> dict[Setting, float] | None:
    """SummaC-ZS with every operator and variant (Table A1), from one matrix; None as there."""
    matrix = pair_matrix(probabilities)
    if matrix is None:
        return None
    values = {setting: summac_zs(matrix, **setting._asdict()) for setting in SETTINGS}
    return {setting: value for setting, value in values.items() if value is not None}


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

    def score(tables: ChunkTables) -> list[Score]:
        found = read_pair_matrices(tables, requires.passes[0])
        shapes, pairs = found.matrices.shapes, found.matrices.values
        entailment, contradiction = (
            reduce_runs(pairs[:, label], shapes.row_lengths, options.op1)
            for label in (ENTAILMENT, CONTRADICTION)
        )
        sentences = _VARIANTS[options.variant](entailment, contradiction)
        values = reduce_runs(sentences, shapes.n_rows, options.op2).tolist()
        components: list[dict[str, object]] = [
            {"n_document_blocks": document, "n_summary_blocks": summary, "sentence_scores": own}
            for document, summary, own in zip(
                shapes.n_columns.tolist(),
                shapes.n_rows.tolist(),
                split_runs(sentences, shapes.n_rows),
                strict=True,
            )
        ]
        return scores_of(tables, requires, found, values, components)

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=score,
        signature_keys=SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(-1.0 if options.variant == "code" else 0.0, 1.0),
        description="best entailment of each summary sentence by a document sentence, averaged",
        reference=f"{REFERENCE}, SummaC_ZS",
        facts=summac_facts(settings, "op1", "op2", "variant"),
    )


SUMMAC_ZS = MetricFamily("summac-zs", ZeroShotOptions, _make)


_MNLI_REQUIRES = cut_requirements(dataclasses.asdict(CutOptions(granularity="document")))


def _score_mnli(tables: ChunkTables) -> list[Score]:
    found = read_pair_matrices(tables, _MNLI_REQUIRES.passes[0])
    shapes, pairs = found.matrices.shapes, found.matrices.values
    best = pairs[first_largest(pairs[:, ENTAILMENT], shapes.sizes) + starts_of(shapes.sizes)]
    components: list[dict[str, object]] = [
        {"n_documents": n, **dict(zip(PROBABILITIES, own, strict=True))}
        for n, own in zip(shapes.n_columns.tolist(), best.tolist(), strict=True)
    ]
    return scores_of(tables, _MNLI_REQUIRES, found, best[:, ENTAILMENT].tolist(), components)


MNLI_DOC = Metric(
    name="mnli-doc",
    version="v1",
    requires=_MNLI_REQUIRES,
    score=_score_mnli,
    signature_keys=SIGNATURE_KEYS,
    higher_is="more consistent",
    range=(0.0, 1.0),
    description="entailment of the whole summary by the whole document",
    reference=f"{REFERENCE}, baseline MNLI-doc",
)
