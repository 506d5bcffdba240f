"""ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum of a summary against its references or its source.

They are those of the package rouge-score (Google's, which follows ROUGE-1.5.5).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

from claimscore.metrics.base import (
    Metric,
    MetricFamily,
    Score,
    option,
    option_facts,
    scored,
    unscored,
)
from claimscore.metrics.reference_texts import (
    MeasureOptions,
    SummaryPair,
    best_place,
    combined,
    text_metric,
)
from claimscore.text import RULES_VERSION, split_sentences

REFERENCE = (
    "Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries, equations 1 to 7; "
    "rouge-score 0.1.2"
)

_NAMES = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL", "rouge-lsum": "rougeLsum"}


class Rouge(NamedTuple):
    """A measure is None where its denominator is zero: no n-gram to count in a text."""

    precision: float | None
    recall: float | None
    f1: float | None


class NoTokensError(ValueError):
    """A text in which ROUGE sees no word; `side` is `candidate` or `reference`."""

    def __init__(self, side: str) -> None:
        super().__init__(f"no word that ROUGE counts in the {side}")
        self.side = side


def by_rouge_score(
    rouge_type: str, candidate: str, reference: str, *, stemmer: bool = False
) -> Rouge:
    """ROUGE as rouge-score 0.1.2 gives it (Lin 2004, equations 1 to 7).

    Words are runs of a-z and 0-9 after lower-casing; n-grams count as often as they occur.
    `rouge-lsum` needs sentences: cut by `claimscore.text.split_sentences`, where the package
    expects line ends. `NoTokensError` where a text has no such word.
    """
    words = _tokenizer(stemmer).tokenize
    n_candidate, n_reference = len(words(candidate)), len(words(reference))
    if not n_candidate or not n_reference:
        raise NoTokensError("reference" if n_candidate else "candidate")
    if rouge_type == "rouge-lsum":
        candidate, reference = ("\n".join(split_sentences(text)) for text in (candidate, reference))
    score = _scorer(rouge_type, stemmer).score(reference, candidate)[_NAMES[rouge_type]]
    size = 2 if rouge_type == "rouge-2" else 1
    return Rouge(
        float(score.precision) if n_candidate >= size else None,
        float(score.recall) if n_reference >= size else None,
        float(score.fmeasure) if max(n_candidate, n_reference) >= size else None,
    )


@functools.cache
def _scorer(rouge_type: str, stemmer: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([_NAMES[rouge_type]], tokenizer=_tokenizer(stemmer))


@functools.cache
def _tokenizer(stemmer: bool) -> Any:
    """The package's tokenizer, which reads a text once for all that is asked about it."""
    from rouge_score.tokenizers import DefaultTokenizer

    tokenizer = DefaultTokenizer(stemmer)
    tokenizer.tokenize = functools.lru_cache(maxsize=4096)(tokenizer.tokenize)
    return tokenizer


@dataclasses.dataclass(frozen=True)
class RougeOptions(MeasureOptions):
    """Options of ROUGE."""

    stemmer: bool = option(False, "Whether words are stemmed.", (False, True))


_UNITS = {"rouge-1": "word", "rouge-2": "bigram"}


def _make(rouge_type: str, name: str, options: RougeOptions) -> Metric:
    facts = (
        ("variant", "rouge-score"),
        *option_facts(options, "against", "measure", "multi", "stemmer"),
    )
    if rouge_type == "rouge-lsum":
        facts = (*facts, ("splitter", RULES_VERSION))

    def score_pair(pair: SummaryPair) -> Score:
        scores: dict[int, Rouge] = {}
        wordless = ""
        for index, text in pair.texts.items():
            try:
                scores[index] = by_rouge_score(
                    rouge_type, pair.summary, text, stemmer=options.stemmer
                )
            except NoTokensError as exc:
                wordless = "summary" if exc.side == "candidate" else options.against
        if not scores:
            return unscored(pair.id, f"no word that ROUGE counts in {wordless}")
        values = {index: getattr(rouge, options.measure) for index, rouge in scores.items()}
        defined = {index: value for index, value in values.items() if value is not None}
        if not defined:
            lacking = options.against if options.measure == "recall" else "summary"
            return unscored(pair.id, f"no {_UNITS.get(rouge_type, 'word')} in {lacking}")
        best = best_place(defined)
        components = {**scores[best]._asdict(), "best": best, "values": values}
        return scored(pair.id, combined(defined, options.multi), components)

    return text_metric(
        name,
        options,
        lambda tables: score_pair,
        signature_keys=("claimscore",),
        higher_is="more shared words",
        range=(0.0, 1.0),
        description=(
            f"{rouge_type.upper()} {options.measure} of the summary against its {options.against}"
        ),
        reference=REFERENCE,
        facts=facts,
    )


ROUGE_1, ROUGE_2, ROUGE_L, ROUGE_LSUM = (
    MetricFamily(name, RougeOptions, functools.partial(_make, name)) for name in _NAMES
)
