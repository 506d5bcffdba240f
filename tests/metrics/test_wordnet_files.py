"""WordNet's own file formats, on a few lines and, where it is installed, on the whole."""

from __future__ import annotations

import pytest

from claimscore.metrics.meteor import DEBIAN_WORDNET
from claimscore.metrics.wordnet_files import WordNetFiles

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
    """Words, exceptions, endings, markers."""
    assert names(WordNetFiles(folder), word) == expected


def test_the_real_files():
    """WordNet 3.0 as Debian has it."""
    if not (DEBIAN_WORDNET / "data.noun").is_file():
        pytest.skip("Debian's wordnet-base is not installed")
    wordnet = WordNetFiles(DEBIAN_WORDNET)
    assert len(wordnet.synsets("dogs")) == 8
    assert {"dog", "domestic_dog", "chase", "track"} <= names(wordnet, "dogs")
