"""ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum of a summary against its references or its source.

`by_rouge_score` is the package rouge-score (Google's, which follows ROUGE-1.5.5). `by_rouge_101`
counts as the package `rouge` 1.0.1, which made many published values; it is written out here,
because two packages install a module `rouge`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from claimscore.errors import ConfigError
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
    "rouge-score 0.1.2; rouge 1.0.1 (variant=rouge-1.0.1)"
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
    rouge_type: str, candidate: str, reference: str, *, stemmer: bool = False, split: bool = True
) -> Rouge:
    """ROUGE as rouge-score 0.1.2 gives it (Lin 2004, equations 1 to 7).

    Words are runs of a-z and 0-9 after lower-casing; n-grams count as often as they occur.
    `rouge-lsum` needs sentences: cut by `claimscore.text.split_sentences`, or with `split` off at
    line ends, as the package expects them. `NoTokensError` where a text has no such word.
    """
    words = _tokenizer(stemmer).tokenize
    n_candidate, n_reference = len(words(candidate)), len(words(reference))
    _refuse_empty(n_candidate, n_reference)
    if rouge_type == "rouge-lsum" and split:
        candidate, reference = ("\n".join(split_sentences(text)) for text in (candidate, reference))
    score = _scorer(rouge_type, stemmer).score(reference, candidate)[_NAMES[rouge_type]]
    size = 2 if rouge_type == "rouge-2" else 1
    return _defined(
        score.precision, score.recall, score.fmeasure, n_candidate >= size, n_reference >= size
    )


def _defined(
    precision: float, recall: float, f1: float, has_candidate: bool, has_reference: bool
) -> Rouge:
    return Rouge(
        float(precision) if has_candidate else None,
        float(recall) if has_reference else None,
        float(f1) if has_candidate or has_reference else None,
    )


def _refuse_empty(n_candidate: int, n_reference: int) -> None:
    if not n_candidate or not n_reference:
        raise NoTokensError("reference" if n_candidate else "candidate")


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


def by_rouge_101(rouge_type: str, candidate: str, reference: str) -> Rouge:
    """ROUGE as the package `rouge` 1.0.1 gives it with its default settings.

    It differs: full stops end sentences and vanish, words are what spaces separate, in their own
    case and with their other punctuation; an n-gram counts once, however often it occurs; ROUGE-L
    is the number of different words in the union of the longest common subsequences of all pairs
    of sentences; F1 has 1e-8 in its denominator. `NoTokensError` for a text of nothing but full
    stops.
    """
    theirs, ours = _sentences_101(candidate), _sentences_101(reference)
    _refuse_empty(len(theirs), len(ours))
    size = 2 if rouge_type == "rouge-2" else 1
    candidate_ngrams, reference_ngrams = _ngrams(theirs, size), _ngrams(ours, size)
    if rouge_type == "rouge-l":
        pairs = ((words, others) for words in ours for others in theirs)
        hits = len(set[str]().union(*(_common_words(*pair) for pair in pairs)))
    else:
        hits = len(candidate_ngrams & reference_ngrams)
    return _ratios(hits, len(candidate_ngrams), len(reference_ngrams))


def _sentences_101(text: str) -> list[list[str]]:
    """Words by sentence; a piece of nothing but spaces is a sentence of one empty word."""
    pieces = [" ".join(piece.split()) for piece in text.split(".") if piece]
    return [piece.split(" ") for piece in pieces]


def _ngrams(sentences: Sequence[Sequence[str]], size: int) -> set[tuple[str, ...]]:
    """The different n-grams; they run over the ends of sentences."""
    words = [word for sentence in sentences for word in sentence]
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def _ratios(hits: int, n_candidate: int, n_reference: int) -> Rouge:
    precision, recall = hits / max(n_candidate, 1), hits / max(n_reference, 1)
    f1 = 2 * precision * recall / (precision + recall + 1e-8)
    return _defined(precision, recall, f1, n_candidate > 0, n_reference > 0)


def _common_words(reference: Sequence[str], candidate: Sequence[str]) -> set[str]:
    """The words of one longest common subsequence, the one that `rouge` 1.0.1 walks back to."""
    lengths = [[0] * (len(candidate) + 1)]
    for word in reference:
        above, row = lengths[-1], [0]
        for j, other in enumerate(candidate):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    i, j, words = len(reference), len(candidate), set[str]()
    while i and j:
        if reference[i - 1] == candidate[j - 1]:
            words.add(reference[i - 1])
            i, j = i - 1, j - 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words


@dataclasses.dataclass(frozen=True)
class RougeOptions(MeasureOptions):
    """Options of `rouge-1`, `rouge-2` and `rouge-l`."""

    stemmer: bool = option(False, "Whether words are stemmed.", (False, True))
    variant: str = option(
        "rouge-score", "The package that is followed.", ("rouge-score", "rouge-1.0.1")
    )


@dataclasses.dataclass(frozen=True)
class RougeLsumOptions(RougeOptions):
    """Options of `rouge-lsum`, which the package rouge 1.0.1 does not have."""

    variant: str = option("rouge-score", "The package that is followed.", ("rouge-score",))
    sentences: str = option(
        "rules", "Where sentences end: by rules, or at line ends.", ("rules", "lines")
    )


_UNITS = {"rouge-1": "word", "rouge-2": "bigram"}


def _make(rouge_type: str, name: str, options: RougeOptions) -> Metric:
    lines = isinstance(options, RougeLsumOptions) and options.sentences == "lines"
    facts = option_facts(options, "variant", "against", "measure", "multi", "stemmer")
    if options.variant == "rouge-1.0.1":
        if options.stemmer:
            raise ConfigError(f"metric {rouge_type}: the package rouge 1.0.1 has no stemmer")
        count = functools.partial(by_rouge_101, rouge_type)
    else:
        count = functools.partial(
            by_rouge_score, rouge_type, stemmer=options.stemmer, split=not lines
        )
        if rouge_type == "rouge-lsum":
            facts = (*facts, ("splitter", "lines" if lines else RULES_VERSION))

    def score_pair(pair: SummaryPair) -> Score:
        scores: dict[int, Rouge] = {}
        wordless = ""
        for index, text in pair.texts.items():
            try:
                scores[index] = count(pair.summary, text)
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


ROUGE_1, ROUGE_2, ROUGE_L = (
    MetricFamily(name, RougeOptions, functools.partial(_make, name))
    for name in ("rouge-1", "rouge-2", "rouge-l")
)
ROUGE_LSUM = MetricFamily("rouge-lsum", RougeLsumOptions, functools.partial(_make, "rouge-lsum"))
