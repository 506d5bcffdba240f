"""Changes of a text by rule: the same said otherwise, something else said, and nothing said.

Words that stand for each other are in ``changes.toml``. Where a change decides what follows,
what it makes has the label.
"""

from __future__ import annotations

import functools
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from claimscore.baseline import parser
from claimscore.baseline.tree import Tree
from scripts.judge.edits import entity_edits, negation_edits, number_edits

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ENTAILED, NEUTRAL, CONTRADICTED = "entailment", "neutral", "contradiction"
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])")
WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_VERBS, _NOUNS = ("VBD", "VBZ", "VBN", "VBG"), ("NN", "NNS")
_CONTENT = (*_VERBS, *_NOUNS, "JJ")
_EMPTY = frozenset(["was", "is", "has", "had", "been", "being", "having"])


class Made(NamedTuple):
    """A pair and the rule that made it."""

    premise: str
    hypothesis: str
    label: str
    kind: str


@functools.cache
def _pairs(table: str, name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in _WORDS[table][name].split():
        first, second = (side.replace("_", " ") for side in pair.split(":"))
        found.setdefault(first, []).append(second)
        found.setdefault(second, []).append(first)
    return found


@functools.cache
def _list(table: str, name: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in _WORDS[table][name].split())


@functools.cache
def _kinds() -> dict[str, list[str]]:
    """Each word that has others of its kind."""
    found: dict[str, list[str]] = {}
    for name in _WORDS["kinds"]:
        words = _list("kinds", name)
        for word in words:
            found.setdefault(word.lower(), []).extend(w for w in words if w != word)
    return found


@functools.cache
def _wider() -> dict[str, list[str]]:
    return {word: found for word, found in _pairs("wider", "pairs").items() if len(found) == 1}


def widen(rng: random.Random, text: str) -> str | None:
    """The text with a wider word for one of its words."""
    return _swap(rng, text, _wider())


def _cased(new: str, old: str) -> str:
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _swap(rng: random.Random, text: str, table: dict[str, list[str]]) -> str | None:
    """One word of the table for another; None where no word is in it."""
    found = [m for m in WORD.finditer(text) if m.group().lower() in table]
    if not found:
        return None
    match = rng.choice(found)
    new = rng.choice(table[match.group().lower()])
    return text[: match.start()] + _cased(new, match.group()) + text[match.end() :]


def reword(rng: random.Random, text: str) -> str:
    """The text with its case, marks, a contraction or a function word changed."""
    changed = text
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.random()
        if kind < 0.12:
            changed = rng.choice((str.lower, str.upper, str.title))(changed)
        elif kind < 0.3:
            changed = _other_marks(rng, changed)
        elif kind < 0.5:
            changed = _contracted(rng, changed) or changed
        elif kind < 0.75:
            changed = _swap(rng, changed, _pairs("same", "pairs")) or changed
        elif kind < 0.88:
            loose = list(re.finditer(rf"\b(?:{'|'.join(_list('same', 'loose'))})\b\s", changed))
            if loose:
                match = rng.choice(loose)
                changed = changed[: match.start()] + changed[match.end() :]
        else:
            words = changed.split(" ")
            words.insert(rng.randrange(len(words)), rng.choice(_list("same", "added")))
            changed = " ".join(words)
    return changed if changed.strip() else text


def _other_marks(rng: random.Random, text: str) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return text.rstrip(".!? ")
    if kind == 1:
        return text.rstrip(".") + rng.choice(("!", " .", ";", "..", ""))
    if kind == 2:
        return re.sub(r"[,;]", "", text)
    if kind == 3:
        return re.sub(r"([.,;:!?()])", r" \1 ", text).replace("  ", " ").strip()
    if kind == 4:
        return text.replace("'", "’").replace('"', "“").replace("-", "–")
    return re.sub(r"[\"“”'‘’()]", "", text)


def _contracted(rng: random.Random, text: str) -> str | None:
    edits = [
        (match, short)
        for long, others in _pairs("same", "contractions").items()
        for short in others
        for match in re.finditer(rf"\b{re.escape(long)}\b", text, re.IGNORECASE)
    ]
    if not edits:
        return None
    match, new = rng.choice(edits)
    return text[: match.start()] + _cased(new, match.group()) + text[match.end() :]


def scramble(rng: random.Random, text: str) -> str:
    """Words of the text in another order, or broken off."""
    words = text.split()
    if len(words) < 4:
        return " ".join(reversed(words))
    kind = rng.random()
    if kind < 0.45:
        size = max(3, round(len(words) * rng.choice((0.4, 0.5, 0.5, 0.6))))
        kept = rng.sample(words, min(size, len(words)))
    elif kind < 0.65:
        kept = rng.sample(words, len(words))
    elif kind < 0.8:  # runs of two or three words in another order
        runs, at = [], 0
        while at < len(words):
            step = rng.choice((2, 3, 3, 4))
            runs.append(words[at : at + step])
            at += step
        rng.shuffle(runs)
        kept = [word for run in runs for word in run]
    elif kind < 0.9:  # a few words elsewhere
        kept = list(words)
        for _ in range(max(2, len(words) // 5)):
            kept.insert(rng.randrange(len(kept)), kept.pop(rng.randrange(len(kept))))
    else:
        places = sorted(rng.sample(range(len(words)), max(2, len(words) // 3)))
        kept = [words[k] for k in places]
    if kept == words:
        kept = kept[::-1]
    made = " ".join(kept)
    return made if rng.random() < 0.3 else _cased(made.rstrip(".,") + ".", "A")


def change_number(rng: random.Random, text: str, context: str) -> str | None:
    edits = number_edits(text, context)
    found = list(NUMBER.finditer(text))
    if found and (not edits or rng.random() < 0.6):
        match = rng.choice(found)
        old = match.group()
        at = rng.choice([k for k, c in enumerate(old) if c.isdigit()])
        digit = rng.choice([d for d in "123456789" if d != old[at]])
        return text[: match.start()] + old[:at] + digit + old[at + 1 :] + text[match.end() :]
    return rng.choice(edits).apply(text) if edits else None


def denied(rng: random.Random, text: str) -> str:
    """The text with an auxiliary verb negated or affirmed, or negated as a whole."""
    edits = negation_edits(text, "")
    return rng.choice(edits).apply(text) if edits and rng.random() < 0.5 else negate(text)


def contradict(rng: random.Random, text: str, context: str) -> Made | None:
    """A change that contradicts the text; the premise of the result is empty."""

    makers: list[tuple[str, Callable[[], str | None]]] = [
        ("number", lambda: change_number(rng, text, context)),
        ("kind", lambda: _swap(rng, text, _kinds())),
        ("opposite", lambda: _swap(rng, text, _pairs("opposites", "pairs"))),
        ("opposite", lambda: _swap(rng, text, _antonyms())),
    ]
    rng.shuffle(makers)
    for kind, make in [*makers, ("negation", lambda: denied(rng, text))]:
        if (made := make()) and made != text:
            return Made("", made, CONTRADICTED, kind)
    return None


@functools.cache
def _antonyms() -> dict[str, list[str]]:
    one_way = (pair.split(":") for pair in _WORDS["opposites"]["turned"].split())
    return {old: [new.replace("_", " ")] for old, new in one_way} | _pairs("opposites", "words")


@functools.cache
def negate(text: str) -> str:
    """The text with `not` at its main verb, or without the one that is there.

    `do` comes in where the verb has no auxiliary.
    """
    affirmed = [edit for edit in negation_edits(text, "") if not edit.new.endswith(" not")]
    if affirmed:
        return affirmed[0].apply(text)
    tree = parser.load().parse(text)
    if tree is None:
        return f"It is not true that {text}"
    root = next(k for k, head in enumerate(tree.heads) if k == head)
    first = [*tree.auxiliaries(root), root][0]
    if first != root or tree.lower[root] in _BE:
        return _put(tree, [(first + 1, first + 1, "not")])
    if tree.tags[root] in _DO:
        base = _base(tree.lower[root], tree.tags[root])
        return _put(tree, [(root, root + 1, f"{_DO[tree.tags[root]]} not {base}")])
    return f"It is not true that {_phrase(tree, 0, len(tree))}"


_BE = ("am", "is", "are", "was", "were", "'s", "’s", "'re", "’re")
_DO = {"VBD": "did", "VBZ": "does", "VBP": "do"}
_Y = re.compile(r"ie[sd]$")


def _base(verb: str, tag: str) -> str:
    """The base form: of the list, else the first that the vocabulary has of what a rule gives."""
    if tag == "VBP" or verb == "has":
        return "have" if verb == "has" else verb
    if tag == "VBD" and verb in _past():
        return _past()[verb]
    forms = [_Y.sub("y", verb)] if _Y.search(verb) else []
    forms += [verb[:-1], verb[:-2], *([verb[:-3]] if tag == "VBD" else [])]
    return next((form for form in forms if form in _vocabulary()), forms[0])


@functools.cache
def _past() -> dict[str, str]:
    return dict(pair.split(":") for pair in _WORDS["verbs"]["past"].split())


_vocabulary = functools.cache(parser.read_vocabulary)


def change_name(rng: random.Random, text: str, context: str, other: str) -> Made | None:
    """A name for another: of the context, else of an unrelated text."""
    edits = entity_edits(text, context) if rng.random() < 0.7 else []
    edits = edits or entity_edits(text, other)
    if not edits:
        return None
    edit = rng.choice(edits)
    label = NEUTRAL if edit.start < 3 or rng.random() < 0.5 else CONTRADICTED
    return Made("", edit.apply(text), label, "name")


def _span(tree: Tree, index: int) -> tuple[int, int] | None:
    """First word and the one behind the last of a subtree without gaps."""
    nodes = tree.trim(tree.subtree(index))
    if not nodes or nodes[-1] - nodes[0] + 1 - len(nodes) > 1:
        return None
    return nodes[0], nodes[-1] + 1


def _text(tree: Tree, first: int, end: int) -> str:
    return "".join(tree.words[k] + " " * tree.spaces[k] for k in range(first, end)).strip()


def _phrase(tree: Tree, first: int, end: int) -> str:
    """A phrase as inside a sentence: its first word small unless it is a name."""
    text = _text(tree, first, end)
    small = first == 0 and not tree.is_name(0) and tree.words[0] != "I"
    return text[:1].lower() + text[1:] if small else text


def _adjuncts(tree: Tree) -> Iterator[tuple[int, tuple[int, int]]]:
    """Prepositions that hang on a verb, not at the beginning, and where their phrases are."""
    for k in range(len(tree)):
        if tree.labels[k] == "prep" and tree.is_verb(tree.heads[k]):
            span = _span(tree, k)
            if span and span[0] > 0:
                yield k, span


def _put(tree: Tree, edits: Sequence[tuple[int, int, str]]) -> str:
    """The sentence with runs of words replaced."""
    out, at = "", 0
    for first, end, new in sorted(edits):
        out += f"{_text(tree, at, first)} {_cased(new, 'A') if first == 0 else new} "
        at = end
    out += _text(tree, at, len(tree))
    return re.sub(r"\s+([.,;:!?)%]|['’]s\b)", r"\1", re.sub(r"\s+", " ", out)).strip()


def swap_roles(rng: random.Random, tree: Tree) -> str | None:
    """Subject and object (or agent) of a verb, or two names, in each other's place."""
    found = []
    for verb in range(len(tree)):
        objects = tree.of(verb, "dobj", "dative")
        objects += [o for by in tree.of(verb, "agent", "prep") for o in tree.of(by, "pobj")]
        for subject in tree.of(verb, "nsubj", "nsubjpass"):
            pairs = [(subject, o) for o in objects]
            found += [p for p in pairs if all(tree.tags[k].startswith("NN") for k in p)]
    roles = ("nsubj", "dobj", "pobj", "nsubjpass", "poss")
    names = [k for k in range(len(tree)) if tree.is_name(k) and tree.labels[k] in roles]
    if not found or rng.random() < 0.2:
        found += [(a, b) for a in names for b in names if a < b and tree.lower[a] != tree.lower[b]]
    rng.shuffle(found)
    for a, b in found:
        first, second = _span(tree, a), _span(tree, b)
        if not first or not second or not (first[1] <= second[0] or second[1] <= first[0]):
            continue
        if max(first[1] - first[0], second[1] - second[0]) > 8:
            continue
        one, two = _phrase(tree, *first), _phrase(tree, *second)
        if one.lower() != two.lower():
            return _put(tree, [(*first, two), (*second, one)])
    return None


class Phrases:
    """Words and phrases of parsed texts, to put into others."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.words: dict[str, list[str]] = {}
        self.adjuncts: list[str] = []
        for tree in trees:
            for k, tag in enumerate(tree.tags):
                if tag in _CONTENT and tree.words[k].isalpha() and tree.lower[k] not in _EMPTY:
                    self.words.setdefault(tag, []).append(tree.lower[k])
            spans = [span for _, span in _adjuncts(tree) if 1 < span[1] - span[0] < 7]
            self.adjuncts += [_text(tree, *span) for span in spans]

    def change(self, rng: random.Random, tree: Tree) -> Made | None:
        """Another verb, noun, adjective or adjunct, or one more adjunct: not entailed."""
        kind = rng.random()
        if kind < 0.55:
            tags = rng.choice((_VERBS, _NOUNS, _NOUNS, ("JJ",)))
            places = [k for k, tag in enumerate(tree.tags) if tag in tags]
            places = [k for k in places if tree.lower[k] not in _EMPTY - {"having"}]
            if not places:
                return None
            k = rng.choice(places)
            new = rng.choice(self.words.get(tree.tags[k], tree.lower[k : k + 1]))
            if new[:4] == tree.lower[k][:4]:
                return None
            return Made("", _put(tree, [(k, k + 1, new)]), NEUTRAL, "word")
        places_of = list(_adjuncts(tree))
        new = rng.choice(self.adjuncts)
        if places_of and kind < 0.75:
            k, span = rng.choice(places_of)
            some = rng.sample(self.adjuncts, min(200, len(self.adjuncts)))
            same = [phrase for phrase in some if phrase.split()[0] == tree.lower[k]]
            return Made("", _put(tree, [(*span, rng.choice(same or [new]))]), NEUTRAL, "adjunct")
        text = _text(tree, 0, len(tree))
        return Made("", text.rstrip(". ") + " " + new + ".", NEUTRAL, "addition")

    def shorten(self, rng: random.Random, tree: Tree) -> str | None:
        """The sentence without an adjunct of its main verb; None where that may not follow."""
        if not set(_list("shorter", "not_with")).isdisjoint(tree.lower):
            return None
        spans = [span for _, span in _adjuncts(tree) if span[0] > 2]
        if not spans:
            return None
        return _put(tree, [(*rng.choice(spans), "")])


def role_pairs(rng: random.Random, count: int) -> Iterator[Made]:
    """Sentences about who did what to whom, and the same with the two exchanged."""
    groups = ("opposed", "open", "mutual", "relations")
    roles = {
        n: [v.replace("_", " ").split(":") for v in _WORDS["roles"][n].split()] for n in groups
    }
    labels = {
        "opposed": CONTRADICTED,
        "open": NEUTRAL,
        "mutual": ENTAILED,
        "relations": CONTRADICTED,
    }
    for _ in range(count):
        a, b = rng.sample(_list("roles", rng.choice(("names", "names", "phrases"))), 2)
        end = rng.choice(_list("roles", "endings")).rstrip()
        group = rng.choices(groups, (3, 4, 1, 2))[0]
        forms, label = rng.choice(roles[group]), labels[group]
        says, back = forms[-2:]
        if group == "mutual":
            yield _made(f"{a} {says} {b}{end}", f"{b} {says} {a}{end}", label, "roles")
            continue
        if group != "relations":
            back = f"was {back} by"
        premise, restated = f"{a} {says} {b}{end}", f"{b} {back} {a}{end}"
        if rng.random() >= 0.65:
            premise, restated = restated, premise
        if label == CONTRADICTED and "again" in end:
            label = NEUTRAL
        turned, also = f"{b} {says} {a}{end}", f"{a} {back} {b}{end}"
        answers = ((restated, ENTAILED), (premise, ENTAILED), *[(turned, label)] * 2, (also, label))
        yield _made(premise, *rng.choice(answers), "roles")


def word_pairs(rng: random.Random, texts: Sequence[str], count: int) -> Iterator[Made]:
    """Sentences with one word exchanged for another of its kind, or for its opposite."""
    for text in rng.sample(texts, len(texts)):
        kind = rng.random()
        if kind < 0.5:
            made, label = _swap(rng, text, _kinds()), CONTRADICTED
        elif kind < 0.8:
            made, label = _swap(rng, text, _pairs("opposites", "pairs")), CONTRADICTED
        else:
            made, label = _swap(rng, text, _pairs("same", "pairs")), ENTAILED
        if made and made != text and count > 0:
            count -= 1
            yield Made(text, made, label, "lexical")


def _made(premise: str, hypothesis: str, label: str, kind: str) -> Made:
    return Made(_cased(premise, "A"), _cased(hypothesis, "A"), label, kind)
