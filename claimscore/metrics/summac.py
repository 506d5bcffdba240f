"""SummaC: the NLI probabilities of a document's blocks with a summary's sentences, and what reads
them: SummaC-ZS, the best evidence of each sentence, averaged; and two baselines of whole texts,
MNLI-doc and FactCC.

Laban et al. 2022, and their code, `SummaCZS.image2score`. A pair matrix is ``[document block,
summary sentence, (entailment, neutral, contradiction)]``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.blocks import GRANULARITIES, KEEP, SHORT_CHARACTERS, SPLITTERS, Cut, find_cut
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    blank_reason,
    failure_reasons,
    option,
    scored,
    unscored,
)
from claimscore.metrics.claims import cells_by_record
from claimscore.metrics.reference_texts import read_number, value_metric
from claimscore.tables import SOURCE_SIDE, texts_on_side
from claimscore.text import RULES_VERSION

REFERENCE = (
    "Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in "
    "Summarization (TACL 10)"
)
SIGNATURE_KEYS = ("nli", "dtype", "claimscore")

SOURCE, SUMMARY = "source", "summary"
PROBABILITIES = ("entailment", "neutral", "contradiction")

#: Places of the categories in the last axis.
ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2

#: Rounding of a softmax in single precision may reach so far beyond 0 and 1.
ROUNDING = 1e-5

Values = NDArray[np.float64]


def pair_matrix(probabilities: ArrayLike) -> Values | None:
    """`[document blocks, summary sentences, 3]`; None where there is no block on a side.

    `ValueError` for another shape and for what is no probability.
    """
    try:
        matrix = np.asarray(probabilities, dtype=np.float64)
    except (ValueError, TypeError) as exc:
        raise ValueError(
            "probabilities must be [document block][summary sentence][3] numbers, every document "
            "block with as many summary sentences"
        ) from exc
    if matrix.size == 0:
        return None
    if matrix.ndim != 3 or matrix.shape[2] != 3:
        shape = ", ".join(map(str, matrix.shape))
        raise ValueError(f"probabilities must be [document, summary, 3], not [{shape}]")
    if not (
        np.isfinite(matrix).all() and -ROUNDING <= matrix.min() <= matrix.max() <= 1 + ROUNDING
    ):
        raise ValueError("probabilities must be numbers from 0 to 1")
    return np.clip(matrix, 0.0, 1.0)


def check(name: str, value: str, known: Sequence[str]) -> None:
    """`ValueError` that names the known values of an option."""
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")


#: One granularity for both sides, or `document-summary` as the authors' code spells it.
_PAIRS = tuple(f"{a}-{b}" for a in GRANULARITIES for b in GRANULARITIES if a != b)

BY_VARIANT = "variant"

#: The options that say how texts are cut, and their values.
CUT_VALUES = {
    "granularity": (*GRANULARITIES, *_PAIRS),
    "splitter": SPLITTERS,
    "blocks": (BY_VARIANT, *KEEP),
}


@dataclasses.dataclass(frozen=True)
class CutOptions:
    """How the document and the summary are cut into blocks."""

    granularity: str = option(
        "sentence",
        "What a block is, of both texts or of document-summary.",
        CUT_VALUES["granularity"],
    )
    splitter: str = option(
        "rules", "What cuts sentences: rules, or nltk's trained model.", CUT_VALUES["splitter"]
    )
    blocks: str = option(
        BY_VARIANT,
        "Blocks to read: all, those of the published code, or as the variant says.",
        CUT_VALUES["blocks"],
    )


def kept_blocks(settings: Mapping[str, str]) -> str:
    """Which blocks are read: as `blocks` says, else `code` for that variant and `all` elsewhere."""
    named = settings["blocks"]
    code = settings.get("variant") == "code"
    return ("code" if code else "all") if named == BY_VARIANT else named


def cut_pass(cut: Mapping[str, str]) -> PassRequirement:
    """The pass over the cuts that `granularity`, `splitter` and `blocks` name."""
    document, _, summary = cut["granularity"].partition("-")
    cuts = (
        Cut(granularity, cut["splitter"], kept_blocks(cut)).name
        for granularity in (document, summary or document)
    )
    sides = zip((SOURCE, SUMMARY), cuts, strict=True)
    return PassRequirement("block_nli", tuple(f"{side}.{cut}" for side, cut in sides))


def cut_requirements(cut: Mapping[str, str]) -> Requirements:
    """The requirements of a metric over these cuts."""
    return Requirements(columns=(SOURCE, SUMMARY), passes=(cut_pass(cut),))


def summac_facts(settings: Mapping[str, str], *names: str) -> tuple[tuple[str, str], ...]:
    """The cut and these settings for the signature; our own splitter with its version."""
    splitter = settings["splitter"].replace("rules", RULES_VERSION)
    facts = {**settings, "splitter": splitter, "blocks": kept_blocks(settings)}
    return tuple((name, facts[name]) for name in (*CUT_VALUES, *names))


def read_pair_matrices(
    tables: ChunkTables, block_pass: PassRequirement
) -> dict[str, Values | None]:
    """The pair matrices that the pass made, by record; None where a row is missing, is there twice,
    or has no probabilities."""
    rows = tables["block_nli"].filter(*_made_by(block_pass))
    cells = cells_by_record(
        rows.select(
            "id", *map(_probability, PROBABILITIES), row="premise_index", column="hypothesis_index"
        )
    )
    return {record: of_record.matrix(of_record.shape) for record, of_record in cells.items()}


def _probability(name: str) -> pl.Expr:
    """As `pair_matrix` takes it; null where it is none."""
    value = pl.col(name).cast(pl.Float64)
    return pl.when(value.is_between(-ROUNDING, 1 + ROUNDING)).then(value.clip(0, 1)).alias(name)


def _made_by(block_pass: PassRequirement) -> Iterator[pl.Expr]:
    for role, item in zip(("premise", "hypothesis"), block_pass.over, strict=True):
        side, _, cut = item.partition(".")
        yield pl.col(f"{role}_side") == side
        yield pl.col(f"{role}_cut") == cut


def score_matrices(
    tables: ChunkTables,
    requires: Requirements,
    score: Callable[[Values], tuple[float, dict[str, object]]],
) -> list[Score]:
    """One score a record, in order: value and components of its pair matrix.

    A record without one has as reason the first of: broken rows, a failure, no text, no block.
    """
    matrices = read_pair_matrices(tables, requires.passes[0])
    failed = failure_reasons(tables, requires)

    def score_row(row: Mapping[str, Any]) -> Score:
        record = row["id"]
        matrix = matrices.get(record)
        if matrix is not None:
            return scored(record, *score(matrix))
        if record in matrices:
            return unscored(record, "NLI rows do not match the blocks, or are no numbers")
        reason = failed.get(record) or _empty_side(row, requires)
        return unscored(record, reason or "no NLI rows")

    return [score_row(row) for row in tables.records.iter_rows(named=True)]


def _empty_side(row: Mapping[str, Any], requires: Requirements) -> str | None:
    """The first side without a text or without a block, as a reason."""
    blank = blank_reason(row, requires.columns)
    if blank:
        return blank
    for item in requires.passes[0].over:
        side, _, name = item.partition(".")
        cut = find_cut(name)
        if not cut.document_blocks(texts_on_side(row, side)):
            return f"no {cut.granularity} of more than {SHORT_CHARACTERS} characters in {side}"
    return None


# SummaC-ZS and MNLI-doc

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
    requires=_MNLI_REQUIRES,
    score=lambda tables: score_matrices(tables, _MNLI_REQUIRES, _score_mnli),
    signature_keys=SIGNATURE_KEYS,
    higher_is="more consistent",
    range=(0.0, 1.0),
    description="entailment of the whole summary by the whole document",
    reference=f"{REFERENCE}, baseline MNLI-doc",
)


# FactCC

FACTCC_REFERENCE = (
    "Kryściński et al. 2020, Evaluating the Factual Consistency of Abstractive Text Summarization "
    "(EMNLP), FactCC; as a baseline of whole texts in Laban et al. 2022 (SummaC), FactCC-CLS"
)


@dataclasses.dataclass(frozen=True)
class FactCCOptions:
    """Options of `factcc`."""

    multi: str = option(
        "max", "The value of a record with several sources: the best, or the mean.", ("max", "mean")
    )


def _make_factcc(name: str, options: FactCCOptions) -> Metric:
    return value_metric(
        name,
        options,
        read_number("factcc", "supported", SOURCE_SIDE),
        "probability of support",
        (PassRequirement("factcc", (SOURCE_SIDE, "summary")),),
        signature_keys=("verifier", "dtype", "claimscore"),
        higher_is="more consistent",
        range=(0.0, 1.0),
        description="probability that the source supports the whole summary (--verifier)",
        reference=FACTCC_REFERENCE,
    )


FACTCC = MetricFamily("factcc", FactCCOptions, _make_factcc)
