"""METEOR of a summary against its references or its source, as nltk computes it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

from claimscore.errors import ConfigError
from claimscore.metrics.base import (
    Metric,
    MetricFamily,
    Score,
    nothing_to_check,
    option,
    option_facts,
    unscored,
)
from claimscore.metrics.reference_texts import (
    SummaryPair,
    TextOptions,
    scored_texts,
    text_metric,
)
from claimscore.text import RULES_VERSION, word_tokens

REFERENCE = (
    "Banerjee and Lavie 2005, METEOR: An Automatic Metric for MT Evaluation with Improved "
    "Correlation with Human Judgments, section 2; written with alpha, beta and gamma as in "
    "Lavie and Agarwal 2007, METEOR (High Levels of Correlation); nltk.translate.meteor_score"
)


def meteor(candidate: str, reference: str, *, synonyms: bool = True) -> float | None:
    """METEOR in [0, 1], with alpha 0.9, beta 3 and gamma 0.5; None where a text has no word.

    Words are matched exactly, then by Porter stem, then (with ``synonyms``) the stems that are
    left as WordNet synonyms: nltk looks up stems, not words.
    F = P·R / (α·P + (1 − α)·R), the score F·(1 − γ·(chunks/matches)^β); no match is 0. Equal texts
    of n words have 1 − 0.5/n³. `ConfigError` where WordNet is needed and not installed.
    """
    ours, theirs = _words(candidate), _words(reference)
    if not ours or not theirs:
        return None
    from nltk.translate.meteor_score import single_meteor_score

    return float(
        single_meteor_score(theirs, ours, wordnet=_wordnet() if synonyms else _NoSynonyms())
    )


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word_tokens(text))


class _NoSynonyms:
    """A WordNet without words: matching stops at stems."""

    def synsets(self, _word: str) -> tuple[()]:
        return ()


def check_wordnet() -> None:
    """`ConfigError` where nltk's corpus is not installed."""
    import nltk

    for name in ("corpora/wordnet", "corpora/wordnet.zip"):
        with contextlib.suppress(LookupError):
            nltk.data.find(name)
            return
    raise ConfigError(
        "metric meteor: WordNet is not installed; run `python -m nltk.downloader wordnet`, or use "
        "meteor:synonyms=none"
    )


def _wordnet() -> Any:
    check_wordnet()
    from nltk.corpus import wordnet

    return wordnet


@dataclasses.dataclass(frozen=True)
class MeteorOptions(TextOptions):
    """Options of `meteor`."""

    synonyms: str = option("wordnet", "Whether synonyms of WordNet match.", ("wordnet", "none"))


def _make(name: str, options: MeteorOptions) -> Metric:
    with_wordnet = options.synonyms == "wordnet"

    def score_pair(pair: SummaryPair) -> Score:
        scores = {i: meteor(pair.summary, t, synonyms=with_wordnet) for i, t in pair.texts.items()}
        values = {index: value for index, value in scores.items() if value is not None}
        if not values:
            return unscored(pair.id, "a text has no word")
        return scored_texts(pair, values, options.multi, {})

    return text_metric(
        name,
        options,
        lambda tables: score_pair,
        signature_keys=("claimscore",),
        higher_is="more words matched, in the same order",
        range=(0.0, 1.0),
        description=f"METEOR of the summary against its {options.against}",
        reference=REFERENCE,
        facts=(
            *option_facts(options, "against", "multi"),
            ("synonyms", "wordnet-3.0" if with_wordnet else "none"),
            ("splitter", RULES_VERSION),
        ),
        check=check_wordnet if with_wordnet else nothing_to_check,
    )


METEOR = MetricFamily("meteor", MeteorOptions, _make)
