"""A sentence as words with tags and a dependency tree, which claims are made from.

Tags are the Penn Treebank's, labels those of ClearNLP (as spaCy's English models have them).
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

from claimscore.text import split_sentences

_ABBREVIATIONS = (
    "Mr Mrs Ms Dr Prof Sr Jr St Sgt Gen Col Lt Capt Cpl Rev Hon Gov Sen Rep Inc Ltd Co Corp vs v "
    "No Mt Ft ca Vol Ave Blvd al Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec"
)
_WORD = re.compile(
    rf"""(?:https?://|www\.)\S*[^\s.,;:!?)\]"'”’]
      | (?:[^\W\d_]\.){{2,}} | \b(?:[A-Z][a-z]?\.){{2,}}
      | \b(?:{_ABBREVIATIONS.replace(" ", "|")})\.(?!\w)
      | \b[A-Z]\.(?=\s+[A-Z])
      | \d+(?:[.,:/–-]\d+)+(?:[-–]\w+)*%?
      | \w+(?:[-’'.&@_/]\w+)*\+?
      | \.{{2,}} | -{{2,}} | [^\w\s]""",
    re.VERBOSE,
)
_CLITIC = re.compile(r"(?i)(.+?)(n['’]t|['’](?:s|re|ve|ll|d|m))$")
#: Between two sentences without a space: "a television.The rooms".
_GLUED = re.compile(r"(?<=[a-z]{2}[.!?])(?!(?:Com|Net|Org|Js)\b)(?=[A-Z][a-z]*[ ,’'])")
_SAYS_NOTHING = re.compile(
    r"""(?ix) .*\?\s*$ | .*\bclick[ ]here\b | (?:please[ ])?(?:click|scroll[ ]down|follow[ ]us)\b
      | read[ ](?:more|the[ ]full)\b | (?:watch|see)[ ](?:the[ ]|this[ ])?video\b
      | for[ ]more\b.*\b(?:visit|see|go[ ]to|call)\b
      | by(?-i:(?:[ ][A-Z][\w.’'-]*){1,3})\.?$""",
)
#: Marks of notes: "in Rome[1]".
_NOTE = re.compile(r"(?<=[\w.,)”\"'])\[\d{1,3}\]")
_LOOSE_CLITIC = re.compile(r"(?<=\w) (?=['’]s )")
_STOP_IN_QUOTES = re.compile(r'([.,])(["”])')
_YEAR = re.compile(r"[12]\d{3}s?")
_QUOTES = ("'", "‘", "’")

#: Labels of noun phrases that a date hangs on.
_DATE_LABELS = ("nummod", "pobj", "npadvmod", "prep")
_AFTER_FINITE = ("aux", "auxpass", "dobj", "attr", "acomp", "ccomp", "prt")
_PERSONS = ("er", "or", "ist", "ctress", "itress", "ian", "man", "woman", "ant", "ent")
#: Words by their places in the sentence.
Words = Set[int]

FINITE = ("VBD", "VBZ", "VBP", "MD")
SUBJECTS = ("nsubj", "nsubjpass")


@functools.cache
def words_of(name: str) -> frozenset[str]:
    """A list of words of `data/words.toml`."""
    words: str = _lists()["lists"][name]
    return frozenset(words.split())


@functools.cache
def irregular_past() -> dict[str, str]:
    """Participle in -ing -> past tense, where a rule does not make it."""
    return dict(pair.split(":") for pair in _lists()["irregular_past"].split())


@functools.cache
def _lists() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "words.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


class Word(NamedTuple):
    text: str
    space: bool  # whether a space follows


def sentences_of(text: str) -> list[str]:
    """The sentences of a text that say something: without questions, bylines and calls to the
    reader, without marks of notes, and also where no space stands between two."""
    sentences = split_sentences(_GLUED.sub(" ", _NOTE.sub("", text)), splitter="rules")
    return [s for s in sentences if re.search(r"\w", s) and not _SAYS_NOTHING.match(s)]


def move_stops(sentence: str) -> str:
    """A sentence with the full stops and commas at the end of quotations behind them, and no space
    before "'s"."""
    return _STOP_IN_QUOTES.sub(r"\2\1", _LOOSE_CLITIC.sub("", sentence))


def tokenise(sentence: str) -> list[Word]:
    """The words and marks of a sentence; clitics are words, full stops leave closing quotes."""
    text = move_stops(sentence)
    matches = list(_WORD.finditer(text))
    words = []
    for number, match in enumerate(matches):
        following = matches[number + 1].start() if number + 1 < len(matches) else match.end()
        space = following > match.end()
        clitic = _CLITIC.match(match[0])
        if clitic and (clitic[1].lower() not in ("ca", "wo", "sha") or clitic[2][0] in "nN"):
            words += [Word(clitic[1], False), Word(clitic[2], space)]
        else:
            words.append(Word(match[0], space))
    return words


class Tree:
    """Words, tags, labels and heads of a sentence (a root is its own head), and questions to them.

    `unsure` are words whose head is not certain: no cut depends on it.
    Quotation marks belong to no subtree: a claim has them where it has all that they enclose.
    Some heads are corrected, where parsers often choose a wrong one (`_correct`).
    """

    def __init__(
        self,
        words: Iterable[Word],
        tags: list[str],
        labels: list[str],
        heads: list[int],
        unsure: frozenset[int] = frozenset(),
    ) -> None:
        pairs = list(words)
        self.words = [word.text for word in pairs]
        self.spaces = [word.space for word in pairs]
        self.lower = [word.lower().replace("’", "'") for word in self.words]
        self.tags, self.heads = tags, list(heads)
        # Walks upwards end there, whatever the parser calls it.
        self.labels = ["ROOT" if heads[k] == k else label for k, label in enumerate(labels)]
        self.unsure = frozenset(k for k in unsure if heads[k] != k)
        self.children: list[list[int]] = [[] for _ in pairs]
        for child, head in enumerate(self.heads):
            if head != child:
                self.children[head].append(child)
        self._subtrees: dict[int, frozenset[int]] = {}
        self._hypothetical: frozenset[int] | None = None
        self.quotes = list(self._quotes())
        self.quote_marks = {mark for pair in self.quotes for mark in pair}
        self._correct()
        self.brackets, self.is_closed = self._brackets()

    def __len__(self) -> int:
        return len(self.words)

    # Walking

    def of(self, index: int, *labels: str) -> list[int]:
        """The children of a word that have one of the labels."""
        children, all_labels = self.children[index], self.labels
        return [c for c in children if all_labels[c] in labels] if children else []

    def subtree(self, index: int) -> frozenset[int]:
        """A word and all that hangs on it."""
        nodes = self._subtrees.get(index)
        if nodes is None:
            below = [self.subtree(c) for c in self.children[index] if c not in self.quote_marks]
            nodes = self._subtrees[index] = frozenset((index,)).union(*below)
        return nodes

    def first_conjunct(self, index: int) -> int:
        while self.labels[index] == "conj":
            index = self.heads[index]
        return index

    def ancestors(self, index: int) -> Iterator[int]:
        while self.heads[index] != index:
            index = self.heads[index]
            yield index

    def quoted_in(self, index: int) -> int | None:
        """The number of the quotation that a word stands in."""
        return next((n for n, (a, b) in enumerate(self.quotes) if a < index < b), None)

    def trim(self, nodes: Iterable[int]) -> list[int]:
        """In order, without marks at the ends."""
        kept = sorted(nodes)
        while kept and self._is_mark(kept[0], "\"“'‘$£("):
            kept.pop(0)
        while kept and self._is_mark(kept[-1], "\"”'’)%"):
            kept.pop()
        return kept

    def _is_mark(self, index: int, kept: str) -> bool:
        return self.labels[index] == "punct" and self.words[index] not in kept

    # Words

    def is_verb(self, index: int) -> bool:
        return self.tags[index].startswith("VB") or self.tags[index] == "MD"

    def is_name(self, index: int) -> bool:
        return self.tags[index] in ("NNP", "NNPS")

    def is_capital(self, index: int) -> bool:
        return self.words[index][0].isupper()

    def auxiliaries(self, verb: int) -> list[int]:
        return self.of(verb, "aux", "auxpass")

    def is_finite(self, verb: int) -> bool:
        return any(self.tags[index] in FINITE for index in [verb, *self.auxiliaries(verb)])

    def is_past(self, verb: int) -> bool:
        for index in [*self.auxiliaries(verb), verb]:
            if self.tags[index] == "VBD":
                return True
            if self.lower[index] in ("has", "have") or self.tags[index] in FINITE:
                return False
        return True

    def subject(self, verb: int) -> int | None:
        subjects = self.of(verb, "nsubj", "nsubjpass", "csubj", "csubjpass", "expl")
        return subjects[0] if subjects else None

    def is_year_or_month(self, index: int) -> bool:
        return self.lower[index] in words_of("months") or bool(_YEAR.fullmatch(self.words[index]))

    def is_time(self, index: int) -> bool:
        """Whether a phrase says when: it has a year, a day or a word such as "week"."""
        return any(
            self.is_year_or_month(node)
            or self.lower[node].endswith("day")
            or self.lower[node] in words_of("times")
            for node in self.subtree(index)
        )

    def follows_comma(self, index: int) -> bool:
        first = min(self.subtree(index))
        return first > 0 and self.words[first - 1] in (",", "(", "–", "—", "-")

    def has_article(self, index: int) -> bool:
        return any(self.lower[child] in ("a", "an") for child in self.of(index, "det"))

    def is_agent(self, index: int) -> bool:
        """Whether a noun is a word for a person, such as "singer"."""
        word = self.lower[index].removesuffix("s" if self.tags[index] == "NNS" else "")
        return word in words_of("titles") or word.endswith(_PERSONS)

    def is_clause(self) -> bool:
        """Whether the sentence says something by itself: a finite verb with a subject."""
        roots = [index for index in range(len(self)) if self.heads[index] == index]
        return all(self.is_finite(root) and self.subject(root) is not None for root in roots)

    # Making

    def _quotes(self) -> Iterator[tuple[int, int]]:
        opened = None
        for index, word in enumerate(self.words):
            single = word in _QUOTES and self.tags[index] != "POS"
            if word == "“" or ((word == '"' or single) and opened is None):
                opened = index
            elif (word in '"”' or single) and opened is not None:
                yield opened, index
                opened = None

    def has_stray_quote(self) -> bool:
        marks = sum(
            word in '"“”' or (word in _QUOTES and tag != "POS")
            for word, tag in zip(self.words, self.tags, strict=True)
        )
        return marks != len(self.quote_marks)

    def _brackets(self) -> tuple[set[int], bool]:
        """The words in brackets, and whether each bracket is closed."""
        inside: set[int] = set()
        depth = 0
        for index, word in enumerate(self.words):
            depth += word in "(["
            if depth:
                inside.add(index)
            depth = max(0, depth - (word in ")]"))
        return inside, not depth

    def _suspends(self, index: int) -> bool:
        """Whether what hangs on a word is not said to be so: a condition, a denial, a rumour."""
        if any(self.lower[c] in words_of("hedges") for c in self.of(index, "advmod")):
            return True
        if self.labels[index] == "advcl":
            times = [self.lower[c] for c in self.of(index, "mark", "advmod")]
            if not self.is_past(index) and {"when", "whenever", "once"}.intersection(times):
                return True
            return any(self.lower[m] in words_of("hypotheses") for m in self.of(index, "mark"))
        subjects = self.of(index, "nsubj", "nsubjpass")
        if any(self.lower[n] in words_of("denials") for s in subjects for n in self.subtree(s)):
            return True
        without = self.labels[index] == "prep" and self.lower[index] == "without"
        return without or bool(self.of(index, "neg"))

    @property
    def hypothetical(self) -> frozenset[int]:
        """The words of what is not said to be so."""
        if self._hypothetical is None:
            suspended = filter(self._suspends, range(len(self)))
            self._hypothetical = frozenset().union(*map(self.subtree, suspended))
        return self._hypothetical

    def cut(self, index: int, conjunctions: Iterable[int]) -> None:
        """Make a word the root of what hangs on it; the conjunctions before it join no words."""
        self.children[self.heads[index]].remove(index)
        self.heads[index], self.labels[index] = index, "ROOT"
        self.unsure -= {index}
        for conjunction in conjunctions:
            self.children[self.heads[conjunction]].remove(conjunction)
            self.heads[conjunction], self.labels[conjunction] = conjunction, "punct"
        self._subtrees.clear()
        self._hypothetical = None

    def move(self, index: int, head: int) -> None:
        """Hang a word, and all that hangs on it, on another one that does not hang on it."""
        if head == index or index in self.ancestors(head):
            return
        self.children[self.heads[index]].remove(index)
        self.heads[index] = head
        self.children[head] = sorted([*self.children[head], index])
        self._subtrees.clear()

    def _correct(self) -> None:
        for index in range(len(self)):
            head = self.heads[index]
            if self.labels[index] == "prep" and self.tags[head].startswith("NN"):
                nouns = [head, *self.of(head, "conj")]
                nouns += [n for noun in nouns[1:] for n in self.of(noun, "conj")]
                clauses = [c for n in nouns for c in self.of(n, "acl", "relcl") if head < c < index]
                if clauses and self.words[index - 1] != ")":
                    self.move(index, clauses[-1])
            if self.lower[index] in ("n't", "n’t"):
                self.tags[index], self.labels[index] = "RB", "neg"
            if self.labels[index][:5] == "nsubj" and self.labels[head] in ("aux", "auxpass"):
                self.move(index, self.heads[head])
            if self.lower[index : index + 3] == ["as", "well", "as"]:
                self._join(index)
            self._correct_predicate(index, head)
        for listing in range(len(self)):
            if self.lower[listing] == "including" and self.labels[listing] == "prep":
                self._to_plural(listing)
                for index in range(listing + 1, len(self)):
                    self._to_last_item(index, listing)
        for index in range(len(self)):
            head, label = self.heads[index], self.labels[index]
            is_dated = label == "prep" and self.labels[head] in _DATE_LABELS
            if is_dated and self.is_year_or_month(head):
                while self.labels[head] in _DATE_LABELS:
                    head = self.heads[head]
                self.move(index, head)

    def _correct_predicate(self, index: int, head: int) -> None:
        """What is coordinated with the last word of a predicate is so with its verb: "is a place to
        see and well known", "was tiring and the bus was late". And what a participle is."""
        label, tag, above = self.labels[index], self.tags[index], self.tags[head]
        behind = [n for n in self.of(head, label) if n > index]
        if self.lower[index] == "'s" and label[:5] == "nsubj" and behind and index - 1 != head:
            self.move(index - 1, behind[0])  # "the bar's rather old chairs"
            self.move(index, index - 1)
            self.labels[index - 1], self.labels[index], self.tags[index] = "poss", "case", "POS"
            return
        if tag == "JJ" and self.of(index, "auxpass"):
            self.tags[index] = "VBN"
        if tag == "VB" and label == "conj" and self.labels[head] == "amod":
            self.tags[index] = "JJ"  # "a clean and tidy room"
        if label == "dep" and self.lower[index] in ("all", "both"):
            self.labels[index] = label if self.of(self.subject(head) or 0, "appos") else "advmod"
        if label == "conj" and self.is_verb(index) and self.is_finite(index):
            self._to_subject(index)
        if tag == "DT" and self.lower[index] in ("a", "an"):
            self._to_qualities(index)
        if label == "conj" and tag == "VBD" and self.of(head, "auxpass"):
            active = self.auxiliaries(index) or self.of(index, *SUBJECTS, "dobj", "attr")
            if self.lower[index] in words_of("suffered") and not active:
                self.tags[index] = "VBN"  # "was accused but acquitted"
        if label == "conj" and tag == "VB" and above in ("VBP", "VBN") and self._is_present(head):
            self.tags[index] = "VBP" if not self.auxiliaries(index) else tag  # "are and include"
        if tag == "VBG" and (label == "acomp" or (label == "conj" and above == "JJ")):
            described = {self.labels[c] for c in self.children[index]} <= {"advmod", "prep"}
            self.tags[index] = "JJ" if described else tag
        if label != "conj" or head > index:
            return
        if self.labels[head] == "acomp":
            moves = self.subject(index) is not None and self.is_finite(index)
        else:
            moves = tag == "VBN" and above == "VB" and self.labels[head] == "relcl"
            if self.is_verb(index) and self.is_finite(index) and not self.subject(index):
                moves = moves or (self.is_verb(head) and not self.is_finite(head))
        verb = next((n for n in self.ancestors(head) if self.is_finite(n)), head)
        if moves and verb != head:
            first = min(self.subtree(index))
            for word in (index, first - 1):
                if word == index or self.labels[word] == "cc":
                    self.move(word, verb)

    def _to_subject(self, verb: int) -> None:
        """A noun right before a coordinated verb, without a conjunction between, is its subject,
        and not a member of a list before: "has a bar and food is served"."""
        is_participle = self.tags[verb] == "VBD" and self.lower[verb] not in words_of("be")
        if is_participle and not self.of(verb, *_AFTER_FINITE):
            return  # "the song published in May"
        first = min([verb, *self.auxiliaries(verb), *self.of(verb, "advmod", "neg")])
        noun = first - 1
        while noun > 0 and self.labels[noun] not in ("conj", "cc") and self.heads[noun] < noun:
            noun = self.heads[noun]
        if self.subject(verb) is not None or noun < 1 or self.labels[noun] != "conj":
            return
        if self.tags[noun][:2] != "NN" or self.tags[self.heads[noun]][:2] != "NN":
            return
        phrase = self.subtree(noun)
        conjunction = min(phrase) - 1
        if self.labels[conjunction] == "cc" and max(phrase) == first - 1:
            self.move(noun, verb)
            self.labels[noun] = "nsubj"
            self.move(conjunction, self.heads[verb])

    def _to_qualities(self, article: int) -> None:
        """The adjectives of "a clean, large and cosy room" are coordinated."""
        noun = article + 1
        while noun < len(self) and (self.tags[noun] == "JJ" or self.lower[noun] in (",", "and")):
            noun += 1
        words = range(article + 1, noun)
        members = [n for n in words if self.tags[n] == "JJ"]
        start = noun
        while self.tags[noun + 1 : noun + 2] == ["NN"]:
            noun += 1
        if noun == len(self) or self.tags[noun] != "NN" or len(members) < 2:
            return
        marks = [n for n in words if n not in members]
        between = [list(range(a + 1, b)) for a, b in itertools.pairwise(members)]
        texts = [" ".join(self.lower[n] for n in gap) for gap in between]
        if texts[-1] not in ("and", ", and") or set(texts[:-1]) - {","} or members[-1] != start - 1:
            return
        if not set(words).isdisjoint(self.ancestors(noun)):
            return  # the parser takes the noun for one of a list
        self.move(members[0], noun)
        self.labels[members[0]] = "amod"
        for word in (*members[1:], *marks):
            self.move(word, members[0])
            is_mark = self.words[word] == ","
            self.labels[word] = "conj" if word in members else "punct" if is_mark else "cc"
        self.unsure -= set(words)

    def _is_present(self, verb: int) -> bool:
        """Whether a verb and its auxiliaries are of the present tense, as "are decorated" is."""
        words = [*self.auxiliaries(verb), verb]
        return self.tags[words[0]] == "VBP" and self.lower[words[0]] not in ("do", "don't")

    def _join(self, index: int) -> None:
        """ "as well as" before a member of a list is an "and"."""
        if self.labels[index + 2] == "cc":
            for word in range(index, index + 3):
                self.move(word, self.heads[index + 2])
                self.labels[word], self.lower[word], self.tags[word] = "cc", "and", "CC"

    def _to_plural(self, listing: int) -> None:
        """ "clubs in his career including X": X is one of the clubs."""
        if self.tags[self.heads[listing]] == "NN" and self.words[listing - 1] != ",":
            nouns = (
                n for n in range(listing - 1, max(-1, listing - 8), -1) if self.tags[n] == "NNS"
            )
            self.move(listing, next(nouns, self.heads[listing]))

    def _to_last_item(self, index: int, listing: int) -> None:
        """A preposition behind a listed name belongs to the name and not to the verb."""
        head = self.heads[index]
        is_misplaced = head < listing and self.tags[head].startswith("VB")
        if self.labels[index] != "prep" or not is_misplaced:
            return
        if self.tags[index - 1].startswith("NN") and index - 1 in self.subtree(listing):
            self.move(index, index - 1)
