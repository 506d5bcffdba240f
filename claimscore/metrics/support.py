"""Are claims supported? The claims of a summary by its source, those of references by the summary.

FActScore (Min et al. 2023) and FENICE (Scirè et al. 2024) call the first claim precision; recall
is its mirror (Liu et al. 2023, RoSE). A verifier judges each claim against each text; every metric
here reduces the matrix ``[claims, texts]`` of its verdicts or probabilities.

Two things make a score of probabilities. What a claim gives by a text: p, the probability of
support, or the net support p·(1 − c), with c the contradiction of the evidence. How claims are
joined: by their mean, or by the soft minimum, which one bad claim pulls down (`soft_minimum`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    TaskRequirement,
    blank_reason,
    failure_reasons,
    option,
    option_facts,
    scored,
    unscored,
)
from claimscore.metrics.claims import ONCE, Counted, counted, repeats_option
from claimscore.tables import LLM_PROVENANCE, REFERENCES_SIDE, SOURCE_SIDE
from claimscore.text import NORMAL_FORM, RULES_VERSION

REFERENCE = (
    "Min et al. 2023, FActScore: Fine-grained Atomic Evaluation of Factual Precision in Long Form "
    "Text Generation (EMNLP)"
)

SUPPORTED, CONTRADICTED, UNMENTIONED = VERDICTS = ("supported", "contradicted", "unmentioned")

#: What of a text is a premise: its sentences, its windows, or both; by default as the verifier was
#: trained, both for one of three labels and windows for one of two.
READ = MODEL, BOTH, SENTENCES, WINDOWS = ("model", "both", "sentence", "window")

#: Of a longer text a claim is judged by what bears on it most, or by everything.
EVIDENCE = BEST, ALL = ("best", "all")

#: The threshold of a verifier that has none of its own.
THRESHOLD = 0.5

#: A verdict is unsure from this uncertainty on: its probability is from .25 to .75.
UNSURE = 0.5

#: The columns of the table `support` that say which claim beside which text a row is of.
OF_CLAIM = ("id", "side", "claim_position", "source_index")

SUMMARY = "summary"

Matrix = NDArray[np.float64]


def members_of(verifier: Any) -> Sequence[Any]:
    """The verifiers of a role: several where `--verifier` names several models."""
    members: Sequence[Any] = getattr(verifier, "members", None) or (verifier,)
    return members


def threshold_of(verifier: Any) -> float:
    """The probability of support from which on a claim is supported by this model, or the mean of
    several."""
    if len(members := members_of(verifier)) > 1:
        return math.fsum(map(threshold_of, members)) / len(members)
    threshold = getattr(verifier, "threshold", None)
    return THRESHOLD if threshold is None else float(threshold)


def verdicts(support: ArrayLike, contradiction: ArrayLike, threshold: float) -> list[str]:
    """The verdict of each claim on one text.

    `support` is the largest probability over the text, `contradiction` that of the evidence alone:
    over all sentences some unrelated one always seems to contradict. Supported from the threshold
    on; else contradicted from .5 on; else unmentioned.
    """
    against = np.nan_to_num(np.asarray(contradiction, dtype=np.float64)) >= THRESHOLD
    supported = np.asarray(support) >= threshold
    names = np.where(supported, SUPPORTED, np.where(against, CONTRADICTED, UNMENTIONED))
    return [str(verdict) for verdict in names]


def uncertainty(probability: Any) -> Any:
    """How unsure a verdict is, or each of an array or a column: 0 where its probability is 0 or 1,
    and 1 where that is .5."""
    return 1 - abs(2 * probability - 1)


Row = dict[str, Any]


def by_claim(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows of `support` by claim and text, in order."""
    of_claims: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        of_claims.setdefault(tuple(row[name] for name in OF_CLAIM), []).append(row)
    return of_claims


def joined(votes: Sequence[Row], names: Sequence[str] = ()) -> Row:
    """The verdict of several votes on a claim and text: the row of the surest of those for it, or
    of those among them with evidence, with the mean probability and contradiction of all.

    Each vote has the `threshold` of its verifier, whose mean decides; the votes' names are those of
    their models where none are given. The columns of a language model stay, so that its request can
    be looked up.
    """
    if len(votes) == 1 or votes[0]["verbatim"]:
        return votes[0]
    probability, contradiction, threshold = (
        _mean_of(votes, name) for name in ("probability", "contradiction", "threshold")
    )
    (verdict,) = verdicts([probability], [contradiction], threshold)
    agreeing = [vote for vote in votes if vote["verdict"] == verdict] or votes
    of_llm = next((vote for vote in votes if vote.get("request_key")), {})
    return {
        **min(agreeing, key=lambda vote: (vote["evidence"] is None, float(vote["uncertainty"]))),
        **{name: of_llm[name] for name in LLM_PROVENANCE if name != "model" and of_llm},
        "verdict": verdict,
        "probability": probability,
        "contradiction": None if math.isnan(contradiction) else contradiction,
        "uncertainty": uncertainty(probability),
        "truncated": any(vote["truncated"] for vote in votes),
        "threshold": threshold,
        "votes": [
            {**vote, "verifier": name}
            for name, vote in zip(names or [vote["model"] for vote in votes], votes, strict=True)
        ],
    }


def _mean_of(votes: Sequence[Row], name: str) -> float:
    """The mean of those that have it; NaN where none has."""
    values = [float(vote[name]) for vote in votes if vote[name] is not None]
    return math.fsum(values) / len(values) if values else math.nan


def _is_probability(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def mean(values: Matrix) -> float:
    """The arithmetic mean."""
    return float(values.mean())


def soft_minimum(values: Matrix) -> float:
    """The power mean of exponent −2: ``(mean of x⁻²)^(−1/2)``; 0 where any value is 0.

    It lies between the least value and the mean, nearer to the least the fewer values there are:
    one x among n ones gives about x·√n where x is small.
    """
    least = values.min()
    return float(least / np.sqrt(np.square(least / values).mean())) if least > 0 else 0.0


class Way(NamedTuple):
    """How probabilities become a score: whether support is net of contradiction, and the join."""

    net: bool
    join: Callable[[Matrix], float]


#: The values of `score` that join probabilities.
WAYS = {
    "mean": Way(False, mean),
    "soft-minimum": Way(False, soft_minimum),
    "net-mean": Way(True, mean),
    "net-soft-minimum": Way(True, soft_minimum),
}

#: The way of `score=probability`: of faithfulness, and of metrics that a gap does not spoil.
FAITHFUL, COMPLETE = "soft-minimum", "mean"


@dataclasses.dataclass(frozen=True)
class SupportOptions:
    """Options of the metrics of support; claims, sources or references are joined by the mean."""

    score: str = option(
        "share",
        "Share of what is supported, or a mean of probabilities of support; net: times 1 − the "
        "contradiction of the evidence; probability: mean.",
        ("share", "probability", "mean", "net-mean"),
    )
    read: str = option(
        MODEL,
        "How a text is read: by sentences, by windows of them, both, or as fits the verifier.",
        READ,
    )
    evidence: str = option(
        BEST,
        "What of a longer text is judged: what shares most words with a claim, or everything.",
        EVIDENCE,
    )
    threshold: str = option(
        "model",
        "Probability from which on a claim is supported: the model's own, or a number.",
        ("model",),
        also=("a number from 0 to 1", _is_probability),
    )
    repeats: str = repeats_option(ONCE)


@dataclasses.dataclass(frozen=True)
class FaithfulnessOptions(SupportOptions):
    """Options of faithfulness, which one wrong claim can spoil."""

    score: str = option(
        "share",
        "Share of the claims that are supported, or their probabilities of support, joined by the "
        "mean or the soft minimum; net: times 1 − the contradiction of the evidence; probability: "
        f"{FAITHFUL}.",
        ("share", "probability", *WAYS),
    )


class Judged(NamedTuple):
    """The verdicts on those claims of a record that count: ``[claims, texts]`` each.

    `contradictions` are those of the evidence, 0 where the verifier knows none.
    """

    verdicts: NDArray[np.str_]
    probabilities: Matrix
    contradictions: Matrix
    claims: Counted

    def values(self, score: str) -> Matrix:
        """1 and 0 for supported or not, or what the way of that name takes of each claim."""
        if score not in WAYS:
            return self.supported.astype(np.float64)
        return self.probabilities * (1 - self.contradictions * WAYS[score].net)

    @property
    def supported(self) -> NDArray[np.bool_]:
        supported: NDArray[np.bool_] = self.verdicts == SUPPORTED
        return supported

    def components(self) -> dict[str, object]:
        """Counts of the claims by verdict over all texts, and their probabilities of support; a
        claim is as unsure as beside the text that supports it most."""
        supported = self.supported.any(axis=1)
        contradicted = ~supported & (self.verdicts == CONTRADICTED).any(axis=1)
        best = self.probabilities.max(axis=1)
        return {
            SUPPORTED: int(supported.sum()),
            CONTRADICTED: int(contradicted.sum()),
            UNMENTIONED: int((~supported & ~contradicted).sum()),
            "unsure": int((uncertainty(best) >= UNSURE).sum()),
            "mean_probability": _rounded(best.mean()),
            "least_probability": _rounded(best.min()),
            "texts": self.verdicts.shape[1],
        }


def _rounded(value: float) -> float:
    return round(float(value), 6)


class Direction(NamedTuple):
    """Whose claims are looked for in which texts."""

    claims: str
    texts: str

    @property
    def column(self) -> str:
        return {SOURCE_SIDE: "source"}.get(self.texts, self.texts)

    def pass_requirement(self, options: SupportOptions) -> PassRequirement:
        over = f"{self.texts}.{options.read}.{options.evidence}"
        return PassRequirement("support", (over, self.claims))


PRECISION = Direction(claims=SUMMARY, texts=SOURCE_SIDE)
RECALL = Direction(claims=REFERENCES_SIDE, texts=SUMMARY)


def _requirements(directions: Sequence[Direction], options: SupportOptions) -> Requirements:
    sides = tuple(dict.fromkeys(side for way in directions for side in (way.claims, way.texts)))
    return Requirements(
        columns=sides,
        tasks=(TaskRequirement("decompose", tuple(way.claims for way in directions)),),
        passes=tuple(way.pass_requirement(options) for way in directions),
    )


def _judged(
    tables: ChunkTables, way: Direction, options: SupportOptions
) -> dict[str, Judged | str]:
    """The verdicts by record, or why they cannot be used."""
    read = f"{options.read}.{options.evidence}"
    wanted = {"side": way.claims, "source_side": way.texts, "read": read}
    rows = tables["support"].filter(**wanted).sort("id", "source_index", "claim_position")
    claims = tables["claims"].filter(side=way.claims).group_by("id", maintain_order=True)
    claims_of = dict(claims.agg("text").iter_rows())
    threshold = _threshold(options)
    judged: dict[str, Judged | str] = dict.fromkeys(claims_of, "no rows of support")
    for (record,), its_rows in rows.group_by("id"):
        mine = counted(claims_of.get(record, ()), options.repeats)
        shape = its_rows["source_index"].n_unique(), mine.n
        distinct = its_rows.select("source_index", "claim_position").n_unique()
        probabilities = its_rows["probability"].cast(pl.Float64).to_numpy()
        against = its_rows["contradiction"].cast(pl.Float64).to_numpy()
        complete = its_rows.height == distinct == math.prod(shape)
        if not (complete and np.isfinite(probabilities).all()):
            judged[record] = "rows of support do not match the claims, or are no numbers"
            continue
        names = its_rows["verdict"].to_numpy().astype(str)
        if threshold is not None:
            names = np.array(verdicts(probabilities, against, threshold))
        judged[record] = Judged(
            names.reshape(shape).T[mine.places],
            probabilities.reshape(shape).T[mine.places],
            np.nan_to_num(against).reshape(shape).T[mine.places],
            mine,
        )
    return judged


def _threshold(options: SupportOptions) -> float | None:
    return None if options.threshold == "model" else float(options.threshold)


Reduce = Callable[[Mapping[Direction, Judged], str], tuple[float, dict[str, object]]]


def _family(
    name: str,
    directions: Sequence[Direction],
    reduce: Reduce,
    higher_is: str,
    description: str,
    verdict: str,
    weak_verdict: str = "",
    kind: type[SupportOptions] = SupportOptions,
) -> MetricFamily:
    def make(full_name: str, options: SupportOptions) -> Metric:
        if options.score == "probability":
            of_kind = FAITHFUL if kind is FaithfulnessOptions else COMPLETE
            options = dataclasses.replace(options, score=of_kind)
        requires = _requirements(directions, options)

        def score(tables: ChunkTables) -> list[Score]:
            failed = failure_reasons(tables, requires)
            judged = {way: _judged(tables, way, options) for way in directions}

            def score_row(row: Mapping[str, Any]) -> Score:
                record, mine = row["id"], dict[Direction, Judged]()
                reason = failed.get(record) or blank_reason(row, requires.columns)
                for way in directions:
                    of_way = judged[way].get(record) or tables.no_claims(record, way.claims)
                    if isinstance(of_way, str):
                        reason = reason or of_way
                    else:
                        mine[way] = of_way
                if reason:
                    return unscored(record, reason)
                value, components = reduce(mine, options.score)
                n_repeats = {
                    f"n_repeats_{way.claims}": one.claims.n_repeats for way, one in mine.items()
                }
                return scored(record, value, components | {"repeats": options.repeats} | n_repeats)

            return [score_row(row) for row in tables.records.iter_rows(named=True)]

        is_models = options.threshold == "model"
        facts = option_facts(
            options,
            *("score", "read", "evidence", *(() if is_models else ("threshold",)), "repeats"),
        )
        return Metric(
            name=full_name,
            version="v1",
            requires=requires,
            score=score,
            signature_keys=(
                *("decompose", "units", "granularity", "verifier", "dtype"),
                *(("threshold",) if is_models else ()),
                "claimscore",
            ),
            higher_is=higher_is,
            range=(0.0, 1.0),
            description=description,
            reference=REFERENCE,
            facts=(*facts, ("splitter", RULES_VERSION), ("reads", NORMAL_FORM)),
            verdict=verdict if options.score == "share" else "",
            weak_verdict=weak_verdict if options.score == "share" else "",
        )

    return MetricFamily(name, kind, make)


def _claims_supported(judged: Judged, score: str) -> float:
    """Each claim counts by the text that supports it most."""
    join = WAYS[score].join if score in WAYS else mean
    return join(judged.values(score).max(axis=1))


def _by_claims(way: Direction) -> Reduce:
    def reduce(judged: Mapping[Direction, Judged], score: str) -> tuple[float, dict[str, object]]:
        return _claims_supported(judged[way], score), judged[way].components()

    return reduce


def _f1(judged: Mapping[Direction, Judged], score: str) -> tuple[float, dict[str, object]]:
    precision, recall = (_claims_supported(judged[way], score) for way in (PRECISION, RECALL))
    both = precision + recall
    value = 2 * precision * recall / both if both else 0.0
    return value, {"precision": _rounded(precision), "recall": _rounded(recall)}


def _share(judged: Mapping[Direction, Judged], score: str) -> tuple[float, dict[str, object]]:
    precision = judged[PRECISION]
    by_claim = precision.values(score).mean(axis=1)
    return float(by_claim.mean()), {
        "texts": precision.verdicts.shape[1],
        "by_claim": precision.claims.by_claim([_rounded(share) for share in by_claim]),
    }


def _coverage(judged: Mapping[Direction, Judged], score: str) -> tuple[float, dict[str, object]]:
    precision = judged[PRECISION]
    by_text = precision.values(score).max(axis=0)
    return float(by_text.mean()), {
        "claims": len(precision.verdicts),
        "by_text": [_rounded(value) for value in by_text],
    }


#: Of a small verifier: it refuses some of what is true and confirms some of what is not.
_BOTH_WAYS = "; verdicts err both ways"

FAITHFULNESS = _family(
    "faithfulness",
    (PRECISION,),
    _by_claims(PRECISION),
    "more faithful",
    "share of the summary's claims that the source supports",
    "the source supports {share} of the claims of a summary",
    "{share} of the claims of a summary could be confirmed in its source" + _BOTH_WAYS,
    FaithfulnessOptions,
)
CLAIM_RECALL = _family(
    "claim-recall",
    (RECALL,),
    _by_claims(RECALL),
    "more complete",
    "share of the references' claims that the summary supports",
    "a summary supports {share} of the claims of its references",
    "{share} of the claims of the references could be confirmed in a summary" + _BOTH_WAYS,
)
CLAIM_F1 = _family(
    "claim-f1",
    (PRECISION, RECALL),
    _f1,
    "more faithful and complete",
    "harmonic mean of faithfulness and claim-recall",
    "{mean} of 1: 0 is no claim supported or none found, 1 every one",
)
CLAIM_SUPPORT_SHARE = _family(
    "claim-support-share",
    (PRECISION,),
    _share,
    "carried by more sources",
    "mean share of the sources that support a claim of the summary",
    "{share} of the sources support a claim of the summary",
    "{share} of the sources could be shown to support a claim of the summary" + _BOTH_WAYS,
)
SOURCE_COVERAGE = _family(
    "source-coverage",
    (PRECISION,),
    _coverage,
    "more sources reflected",
    "share of the sources that support at least one claim of the summary",
    "{share} of the sources support some claim of the summary",
    "{share} of the sources could be shown to support some claim of the summary" + _BOTH_WAYS,
)
