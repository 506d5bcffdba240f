"""METEOR of a summary against its references or its source, as nltk computes it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claimscore.errors import ConfigError
from claimscore.metrics.against import AGAINST, MULTI, Compared, combined, compared
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    nothing_to_check,
    scored,
    unscored,
)
from claimscore.metrics.wordnet_files import WordNetFiles
from claimscore.text import RULES_VERSION, word_tokens

REFERENCE = (
    "Banerjee and Lavie 2005, METEOR: An Automatic Metric for MT Evaluation with Improved "
    "Correlation with Human Judgments, section 2; written with alpha, beta and gamma as in "
    "Lavie and Agarwal 2007, METEOR (High Levels of Correlation); nltk.translate.meteor_score"
)

#: Where Debian's package wordnet-base has WordNet 3.0, the version of nltk's corpus too.
DEBIAN_WORDNET = Path("/usr/share/wordnet")


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
    """`ConfigError` where neither nltk's corpus nor Debian's package is installed."""
    if not _in_nltk_data() and not (DEBIAN_WORDNET / "data.noun").is_file():
        raise ConfigError(
            "metric meteor: WordNet is not installed; run `python -m nltk.downloader wordnet` or "
            "install Debian's wordnet-base, or use meteor:synonyms=none"
        )


def _in_nltk_data() -> bool:
    import nltk

    for name in ("corpora/wordnet", "corpora/wordnet.zip"):
        try:
            nltk.data.find(name)
        except LookupError:
            continue
        return True
    return False


@functools.cache
def _wordnet() -> Any:
    check_wordnet()
    if not _in_nltk_data():
        return WordNetFiles(DEBIAN_WORDNET)
    from nltk.corpus import wordnet

    return wordnet


def _score(settings: Mapping[str, str], tables: ChunkTables) -> list[Score]:
    items = compared(tables.records, settings["against"])
    return [_score_record(settings, item) for item in items]


def _score_record(settings: Mapping[str, str], item: Compared) -> Score:
    if item.reason is not None:
        return unscored(item.id, item.reason)
    synonyms = settings["synonyms"] == "wordnet"
    values = {
        index: value
        for index, text in item.texts
        if (value := meteor(item.summary, text, synonyms=synonyms)) is not None
    }
    if not values:
        return unscored(item.id, "a text has no word")
    components: dict[str, object] = {"values": values}
    return scored(item.id, combined(list(values.values()), settings["multi"]), components)


def _make(name: str, settings: Mapping[str, str]) -> Metric:
    with_wordnet = settings["synonyms"] == "wordnet"
    return Metric(
        name=name,
        version="v1",
        requires=Requirements(columns=("summary", settings["against"])),
        score=functools.partial(_score, settings),
        signature_keys=("claimscore",),
        higher_is="more words matched, in the same order",
        range=(0.0, 1.0),
        description=f"METEOR of the summary against its {settings['against']}",
        reference=REFERENCE,
        facts=(
            ("against", settings["against"]),
            ("multi", settings["multi"]),
            ("synonyms", "wordnet-3.0" if with_wordnet else "none"),
            ("splitter", RULES_VERSION),
        ),
        check=check_wordnet if with_wordnet else nothing_to_check,
    )


METEOR = MetricFamily(
    "meteor", {"against": AGAINST, "multi": MULTI, "synonyms": ("wordnet", "none")}, _make
)
