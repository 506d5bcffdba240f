"""SummaC-ZS: the best evidence of each summary sentence, averaged.

Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in
Summarization (TACL 10), SummaC_ZS, and their code, `SummaCZS.image2score`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from numpy.typing import ArrayLike

from claimscore.metrics.summac.image import (
    CONTRADICTION,
    ENTAILMENT,
    OPERATORS,
    Values,
    as_image,
    check,
    reduce,
)

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
    image = as_image(probabilities)
    if image is None:
        return None
    entailment, contradiction = (
        reduce(image[:, :, label], op1) for label in (ENTAILMENT, CONTRADICTION)
    )
    return float(reduce(sentence_scores(entailment, contradiction, variant), op2))


def sentence_scores(entailment: Values, contradiction: Values, variant: str) -> Values:
    """The scores of summary sentences, of whose pairs op1 is taken already."""
    return _VARIANTS[variant](entailment, contradiction)


class Setting(NamedTuple):
    """One way to shrink an image."""

    op1: str
    op2: str
    variant: str


SETTINGS = tuple(
    Setting(op1, op2, variant) for variant in VARIANTS for op1 in OPERATORS for op2 in OPERATORS
)


def summac_zs_grid(probabilities: ArrayLike) -> dict[Setting, float] | None:
    """SummaC-ZS with every operator and variant (Table A1), from one image; None as there."""
    image = as_image(probabilities)
    if image is None:
        return None
    found: dict[Setting, float] = {}
    for op1 in OPERATORS:
        entailment, contradiction = (
            reduce(image[:, :, label], op1) for label in (ENTAILMENT, CONTRADICTION)
        )
        for variant in VARIANTS:
            scores = sentence_scores(entailment, contradiction, variant)
            for op2 in OPERATORS:
                found[Setting(op1, op2, variant)] = float(reduce(scores, op2))
    return {setting: found[setting] for setting in SETTINGS}
