"""ROUGE as the package `rouge` 1.0.1 counts it, which made many published values: a metric file.

Wu et al. 2020 (LS_Score, Table 4) give its recall on Newsroom. Written out here, because two
packages install a module `rouge`.

    claimscore run newsroom.jsonl --out runs/old --metrics old-rouge-1:measure=recall \\
        --metric-file papers/rouge_101.py
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from claimscore.metrics.base import Metric, MetricFamily, Score, unscored
from claimscore.metrics.reference_texts import (
    MeasureOptions,
    SummaryPair,
    scored_texts,
    text_metric,
)
from claimscore.metrics.rouge import NoTokensError, Rouge


def by_rouge_101(rouge_type: str, candidate: str, reference: str) -> Rouge:
    """ROUGE as the package `rouge` 1.0.1 gives it with its default settings.

    It differs: full stops end sentences and vanish, words are what spaces separate, in their own
    case and with their other punctuation; an n-gram counts once, however often it occurs; ROUGE-L
    is the number of different words in the union of the longest common subsequences of all pairs
    of sentences; F1 has 1e-8 in its denominator. `NoTokensError` for a text of nothing but full
    stops.
    """
    theirs, ours = _sentences_101(candidate), _sentences_101(reference)
    if not theirs or not ours:
        raise NoTokensError("reference" if theirs else "candidate")
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
    return Rouge(
        precision if n_candidate else None,
        recall if n_reference else None,
        f1 if n_candidate or n_reference else None,
    )


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


def _make(rouge_type: str, name: str, options: MeasureOptions) -> Metric:
    def score_pair(pair: SummaryPair) -> Score:
        values: dict[int, float] = {}
        for index, text in pair.texts.items():
            try:
                value = getattr(by_rouge_101(rouge_type, pair.summary, text), options.measure)
            except NoTokensError as exc:
                return unscored(pair.id, str(exc))
            if value is None:
                return unscored(pair.id, f"no n-gram to count: {options.against} {index}")
            values[index] = value
        return scored_texts(pair, values, options.multi, {})

    return text_metric(
        name,
        options,
        lambda tables: score_pair,
        signature_keys=("claimscore",),
        higher_is="more shared words",
        range=(0.0, 1.0),
        description=f"{rouge_type} {options.measure} as the package rouge 1.0.1 counts it",
        reference="Lin 2004, ROUGE; the package rouge 1.0.1",
    )


OLD_ROUGE_1, OLD_ROUGE_2, OLD_ROUGE_L = (
    MetricFamily(f"old-{rouge_type}", MeasureOptions, functools.partial(_make, rouge_type))
    for rouge_type in ("rouge-1", "rouge-2", "rouge-l")
)
