"""Synonyms from the files of WordNet 3.0, where they lie outside of nltk's own folders.

Formats: wndb(5WN), morphy(7WN). Only what METEOR asks for; equal there to nltk's reader.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

#: Endings that a word may have lost or changed, by part of speech (morphy(7WN)).
_ENDINGS = {
    "noun": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "verb": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "adj": "er: est: er:e est:e",
    "adv": "",
}
_MARKER = re.compile(rb"\((?:a|p|ip)\)$")


class Lemma:
    """A word of a synset."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


class Synset:
    """Words of one meaning."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._lemmas = [Lemma(name) for name in names]

    def lemmas(self) -> list[Lemma]:
        return self._lemmas


class WordNetFiles:
    """WordNet's synsets of a word, of all parts of speech, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._parts = [_PartOfSpeech(folder, name) for name in _ENDINGS]

    @functools.lru_cache(maxsize=1 << 14)  # noqa: B019 - one object, kept as long as the process
    def synsets(self, word: str) -> tuple[Synset, ...]:
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

    def synsets(self, form: str) -> Iterator[Synset]:
        for base in dict.fromkeys([form, *self._bases(form)]):
            for offset in self._offsets.get(base, ()):
                yield Synset(tuple(self._names(offset)))

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
