"""METEOR of a summary against its references or its source, as nltk computes it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from claimscore.errors import ConfigError
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    nothing_to_check,
    option,
    option_facts,
    unscored,
)
from claimscore.metrics.reference_texts import (
    SummaryPair,
    TextOptions,
    score_pairs,
    scored_texts,
)
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


@dataclasses.dataclass(frozen=True)
class MeteorOptions(TextOptions):
    """Options of `meteor`."""

    synonyms: str = option("wordnet", "Whether synonyms of WordNet match.", ("wordnet", "none"))


def _make(name: str, options: MeteorOptions) -> Metric:
    with_wordnet = options.synonyms == "wordnet"
    requires = Requirements(columns=("summary", options.against))

    def score_pair(pair: SummaryPair) -> Score:
        found = {i: meteor(pair.summary, t, synonyms=with_wordnet) for i, t in pair.texts.items()}
        values = {index: value for index, value in found.items() if value is not None}
        if not values:
            return unscored(pair.id, "a text has no word")
        return scored_texts(pair, values, options.multi, {})

    def score(tables: ChunkTables) -> list[Score]:
        return score_pairs(tables, requires, options.against, score_pair)

    return Metric(
        name=name,
        version="v1",
        requires=requires,
        score=score,
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


# WordNet 3.0 in Debian's folder. nltk reads its own folders alone, and needs a file of names that
# Debian's package lacks. Formats: wndb(5WN), morphy(7WN).

#: Endings that a word may have lost or changed, by part of speech (morphy(7WN)).
_ENDINGS = {
    "noun": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "verb": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "adj": "er: est: er:e est:e",
    "adv": "",
}
_MARKER = re.compile(rb"\((?:a|p|ip)\)$")


class _Lemma(NamedTuple):
    """A word of a synset."""

    word: str

    def name(self) -> str:
        return self.word


class _Synset(NamedTuple):
    """Words of one meaning."""

    words: tuple[_Lemma, ...]

    def lemmas(self) -> tuple[_Lemma, ...]:
        return self.words


class WordNetFiles:
    """WordNet's synsets of a word, of all parts of speech, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._parts = [_PartOfSpeech(folder, name) for name in _ENDINGS]

    @functools.lru_cache(maxsize=1 << 14)  # noqa: B019 - one object, kept as long as the process
    def synsets(self, word: str) -> tuple[_Synset, ...]:
        """The synsets of the word or, by its endings, of its base forms."""
        form = word.lower()
        return tuple(synset for part in self._parts for synset in part.synsets(form))


class _PartOfSpeech:
    """Index, exceptions and data of one part of speech."""

    def __init__(self, folder: Path, name: str) -> None:
        self._data = (folder / f"data.{name}").read_bytes()
        self._offsets = dict(_index(folder / f"index.{name}"))
        self._exceptions = {
            words[0]: words[1:]
            for line in (folder / f"{name}.exc").read_text(encoding="utf-8").splitlines()
            if (words := line.split())
        }
        pairs = (item.partition(":") for item in _ENDINGS[name].split())
        self._endings = [(old, new) for old, _, new in pairs]

    def synsets(self, form: str) -> Iterator[_Synset]:
        for base in dict.fromkeys([form, *self._bases(form)]):
            for offset in self._offsets.get(base, ()):
                yield _Synset(tuple(map(_Lemma, self._names(offset))))

    def _bases(self, form: str) -> list[str]:
        if form in self._exceptions:
            return self._exceptions[form]
        return [form[: -len(old)] + new for old, new in self._endings if form.endswith(old)]

    def _names(self, offset: int) -> Iterator[str]:
        fields = self._data[offset : self._data.index(b"|", offset)].split()
        for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]:
            yield _MARKER.sub(b"", word).decode("utf-8")


def _index(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Lemma and offsets of each line: `lemma pos n_synsets n_pointers ... offset offset`."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):  # the licence is indented
            fields = line.split()
            yield fields[0], tuple(map(int, fields[-int(fields[2]) :]))
