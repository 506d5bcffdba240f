"""SUPERT: a summary beside a pseudo reference, the first sentences of its source."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.metrics.base import Metric, MetricFamily, PassRequirement, option, option_facts
from claimscore.metrics.reference_texts import read_number, value_metric
from claimscore.tables import SOURCE_SIDE
from claimscore.text import RULES_VERSION

REFERENCE = (
    "Gao, Zhao and Eger 2020, SUPERT: Towards New Frontiers in Unsupervised Evaluation Metrics for "
    "Multi-Document Summarization (ACL); supert.py of yg211/acl20-ref-free-eval"
)

#: Sentences of a source that are its pseudo reference.
SALIENT = 15

_ENGLISH = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing a an the and
    but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here
    there when where why how all any both each few more most other some such no nor not only own
    same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn
    doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""

#: nltk's English stop words that a token can be: no token has an apostrophe beside letters.
STOP_WORDS = frozenset(_ENGLISH.split())

MEASURES = ("precision", "recall", "f1")

Vectors = NDArray[np.floating[Any]]


class Alignment(NamedTuple):
    """How well the tokens of two texts find each other."""

    precision: float
    recall: float
    f1: float


def supert(summary: Vectors, reference: Vectors) -> Alignment | None:
    """Soft alignment of token vectors ``[tokens, d]``; None where a text has none.

    Gao et al. 2020, section 3: recall is the mean over the reference's tokens of the largest cosine
    with a token of the summary, precision the mean the other way round, F1 their harmonic mean.
    """
    if not len(summary) or not len(reference):
        return None
    one, other = (vectors.astype(np.float64) for vectors in (summary, reference))
    norms = np.linalg.norm(other, axis=1)[:, None] * np.linalg.norm(one, axis=1)[None, :]
    cosines = other @ one.T / norms
    recall, precision = float(cosines.max(1).mean()), float(cosines.max(0).mean())
    both = recall + precision
    return Alignment(precision, recall, 2 * recall * precision / both if both else math.nan)


@dataclasses.dataclass(frozen=True)
class SupertOptions:
    """Options of `supert`."""

    measure: str = option("f1", "The number that is the score.", ("f1", "recall", "precision"))
    multi: str = option(
        "mean",
        "The value of a record with several sources: the mean, or the best.",
        ("mean", "max"),
    )


def _make(name: str, options: SupertOptions) -> Metric:
    return value_metric(
        name,
        options,
        read_number("supert", options.measure, SOURCE_SIDE),
        "alignment of tokens",
        (PassRequirement("supert", ("summary", SOURCE_SIDE)),),
        signature_keys=("token_encoder", "layer", "dtype", "claimscore"),
        higher_is="more of the source's first sentences",
        range=(-1.0, 1.0),
        description="soft alignment of the summary's tokens with the first sentences of the source",
        reference=REFERENCE,
        facts=(*option_facts(options), ("sentences", str(SALIENT)), ("splitter", RULES_VERSION)),
    )


SUPERT = MetricFamily("supert", SupertOptions, _make)
