"""WordNet's own file formats, on a few lines and, where it is installed, on the whole."""

from __future__ import annotations

import shutil
import warnings

import pytest

from claimscore.metrics import meteor as module
from claimscore.metrics.meteor import DEBIAN_WORDNET, WordNetFiles, meteor
from claimscore.text import word_tokens

LICENCE = "  1 This software and database is being provided to you, the LICENSEE  \n"
SYNSETS = {
    "noun": [("dog domestic_dog", ("dog", "domestic_dog")), ("axe ax", ("axe", "ax"))],
    "verb": [("axe", ("axe", "ax"))],
    "adj": [("huge vast immense", ("huge", "vast", "immense(p)"))],
    "adv": [],
}


@pytest.fixture
def folder(tmp_path):
    """A WordNet of four synsets, offsets and hexadecimal counts as in the real one."""
    for name, synsets in SYNSETS.items():
        data, index = LICENCE, LICENCE
        for lemmas, words in synsets:
            offset = len(data)
            listed = " ".join(f"{word} 0" for word in words)
            data += f"{offset:08d} 05 n {len(words):02x} {listed} 000 | a gloss; with words  \n"
            index += "".join(f"{lemma} n 1 2 @ ~ 1 0 {offset:08d}  \n" for lemma in lemmas.split())
        (tmp_path / f"data.{name}").write_text(data)
        (tmp_path / f"index.{name}").write_text(index)
        (tmp_path / f"{name}.exc").write_text("axen axe\n" if name == "noun" else "")
    return tmp_path


def names(wordnet, word):
    return {lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas()}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("dog", {"dog", "domestic_dog"}, id="as it stands"),
        pytest.param("Dogs", {"dog", "domestic_dog"}, id="plural, any case"),
        pytest.param("axen", {"axe", "ax"}, id="exception"),
        pytest.param("axing", {"axe", "ax"}, id="verb's ending"),
        pytest.param("vast", {"huge", "vast", "immense"}, id="marker of an adjective"),
        pytest.param("hotel", set(), id="unknown"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_synonyms_by_base_form(folder, word, expected):
    assert names(WordNetFiles(folder), word) == expected


# WordNet 3.0 as Debian has it, by nltk's own reader and by ours.

PAIRS = [
    ("A huge hotel near the shore.", "It is a vast hotel close to the coast."),
    ("The physician purchased two automobiles.", "The doctor bought two cars."),
    ("Geese and oxen were running.", "A goose ran beside an ox."),
    ("They began speaking quickly.", "They started to talk fast."),
    ("The children were happier and glad.", "The kids were happy."),
    ("Ünïcode, 3.5 % and “quotes”!", "Unicode: 3.5 percent."),
]


@pytest.fixture(scope="module")
def real():
    if not (DEBIAN_WORDNET / "data.noun").is_file():
        pytest.skip("Debian's wordnet-base is not installed")
    return WordNetFiles(DEBIAN_WORDNET)


@pytest.fixture(scope="module")
def of_nltk(real, tmp_path_factory):
    """nltk's reader of the same files, and of the names of their sections, which Debian lacks."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    folder = tmp_path_factory.mktemp("wordnet")
    for path in DEBIAN_WORDNET.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    lines = (f"{number:02d}\tsection{number}\t1\n" for number in range(45))
    (folder / "lexnames").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no other languages
        patch.setattr("nltk.data.path", [str(folder)])
        patch.setattr(WordNetCorpusReader, "map_wn", lambda _self: None)  # for other versions
        yield WordNetCorpusReader(str(folder), None)


def in_order(wordnet, word):
    return [[lemma.name() for lemma in synset.lemmas()] for synset in wordnet.synsets(word)]


def test_synsets_are_those_of_nltk(real, of_nltk):
    words = {"Dogs", "geese", "axes", "ies", "s", "us", "men", "", "'s", "a.m.", "well-being"}
    for part in ("noun", "verb", "adj", "adv"):
        index = (DEBIAN_WORDNET / f"index.{part}").read_text(encoding="utf-8").splitlines()
        found = [line.split()[0] for line in index if not line.startswith(" ")][::250]
        words.update(word + ending for word in found for ending in ("", "s", "es", "ing", "ed"))
        exceptions = (DEBIAN_WORDNET / f"{part}.exc").read_text(encoding="utf-8").splitlines()
        words.update(line.split()[0] for line in exceptions[::20])
    different = [w for w in sorted(words) if in_order(real, w) != in_order(of_nltk, w)]
    assert len(words) > 3000
    assert not different


@pytest.fixture
def debian_only(monkeypatch):
    monkeypatch.setattr("nltk.data.path", [])
    module._wordnet.cache_clear()
    yield
    module._wordnet.cache_clear()


def check_meteor(pairs, of_nltk):
    from nltk.translate.meteor_score import single_meteor_score

    n_more = 0
    for candidate, reference in pairs:
        words = [word_tokens(text) for text in (reference, candidate)]
        expected = single_meteor_score(*words, wordnet=of_nltk)
        assert meteor(candidate, reference) == pytest.approx(expected, abs=1e-12)
        n_more += expected > meteor(candidate, reference, synonyms=False)
    return n_more


def test_meteor_is_that_of_nltk(real, of_nltk, debian_only):
    both_ways = [*PAIRS, *((b, a) for a, b in PAIRS)]
    assert check_meteor(both_ways, of_nltk) >= 8
