"""What a pronoun stands for: the name in its place, where only one name agrees.

A text is read sentence by sentence. The subject of a sentence is what the next one may speak of,
by a pronoun in or before its own subject; behind a subject that is a name, a pronoun stands for
that name. Where another name agrees, or the parse is not clear, the pronoun stays: a wrong name is
worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from claimscore.baseline.tree import Tree, words_of

_FORMS = {"he": "he him his himself", "she": "she her hers herself", "it": "it its itself"}
_PRONOUN = {form: pronoun for pronoun, forms in _FORMS.items() for form in forms.split()}
_REFLEXIVE = ("himself", "herself", "itself")
_PERSONAL = ("he", "she")
_MODIFIERS = ("amod", "compound", "det", "nmod", "nummod", "poss", "case")


class Subject(NamedTuple):
    """What a sentence is about: `kind` is "person", "name", "thing", "human", "he", "she", "it" or
    "other"."""

    text: str = ""
    kind: str = "other"
    place: int = 0
    is_certain: bool = False
    pronoun: str = ""


class Uses(NamedTuple):
    """How a sentence uses the forms of a pronoun: the place of the first one, whether each is
    outside quotations, and whether the first stands in or before the subject."""

    first: int
    is_plain: bool
    leads: bool


class Mentions(NamedTuple):
    """The subject of a sentence, its pronouns, and the other persons with their places."""

    subject: Subject = Subject()
    pronouns: Mapping[str, Uses] = MappingProxyType({})
    others: tuple[tuple[int, str], ...] = ()


def mentions_of(tree: Tree | None) -> Mentions:
    """What a sentence mentions; nothing certain where it is not parsed."""
    root = next((k for k in range(len(tree or ())) if tree and tree.heads[k] == k), None)
    if tree is None or root is None:
        return Mentions()
    subject = _subject(tree, root)
    others = [
        (index, _name(tree, index))
        for index in range(len(tree))
        if _is_other_person(tree, index, subject)
    ]
    return Mentions(subject, _uses(tree, root), tuple(others))


def _subject(tree: Tree, root: int) -> Subject:
    head = tree.subject(root)
    if head is None or head in tree.unsure or tree.labels[head].startswith(("csubj", "expl")):
        return Subject()
    low = tree.lower[head]
    if low in _PRONOUN:
        return Subject(low, _PRONOUN[low], head)
    if tree.of(head, "conj") or tree.tags[head] not in ("NN", "NNP"):
        return Subject(place=head)
    if tree.is_name(head):
        name = _name(tree, head)
        words = {word.lower().strip(".") for word in name.split()}
        kind, pronoun = (
            "name",
            "he"
            if words & words_of("male_titles")
            else "she"
            if words & words_of("female_titles")
            else "",
        )
        if tree.of(head, "det"):
            return Subject(_phrase(tree, head), "thing", head)
        predicate = tree.of(root, "attr")
        is_certain = (
            bool(pronoun)
            or tree.lower[root] == "born"
            or any(tree.is_agent(noun) for noun in (*predicate, *tree.of(head, "compound")))
        )
        if is_certain or (len(name.split()) > 1 and not words & words_of("no_persons")):
            kind = "person"
        return Subject(name, kind, head, is_certain, pronoun)
    kind = "human" if tree.is_agent(head) else "thing"
    return Subject(_phrase(tree, head), kind, head, bool(tree.of(head, "det", "poss")))


def _uses(tree: Tree, root: int) -> dict[str, Uses]:
    places: dict[str, list[int]] = {}
    for index, low in enumerate(tree.lower):
        if low in _PRONOUN and low not in _REFLEXIVE:
            places.setdefault(_PRONOUN[low], []).append(index)
    head = tree.subject(root)
    end = max(tree.subtree(head)) if head is not None else -1
    return {
        pronoun: Uses(
            of[0],
            all(tree.quoted_in(k) is None for k in of) and not tree.has_stray_quote(),
            of[0] <= end,
        )
        for pronoun, of in places.items()
    }


def _is_other_person(tree: Tree, index: int, subject: Subject) -> bool:
    if not tree.is_name(index) or tree.labels[index] == "compound" or index == subject.place:
        return False
    words = _name(tree, index).lower().split()
    if tree.labels[index] == "pobj" and tree.lower[tree.heads[index]] in ("in", "at", "on", "from"):
        return False
    return not tree.is_time(index) and not words_of("no_persons").intersection(words)


def _name(tree: Tree, head: int) -> str:
    first = head
    while first and (
        tree.is_name(first - 1)
        or (
            tree.lower[first - 1] in words_of("inside_names")
            and first > 1
            and tree.is_name(first - 2)
        )
    ):
        first -= 1
    return _words(tree, first, head)


def _phrase(tree: Tree, head: int) -> str:
    """A noun with what stands before it."""
    before = [n for c in tree.of(head, *_MODIFIERS) if c < head for n in tree.subtree(c)]
    text = _words(tree, min([head, *before]), head)
    return text if tree.is_name(0) else text[0].lower() + text[1:]


def _words(tree: Tree, first: int, last: int) -> str:
    words = range(first, last + 1)
    return "".join(tree.words[k] + " " * (tree.spaces[k] and k < last) for k in words)


class Antecedents:
    """What the sentences of a text have spoken of so far."""

    def __init__(self) -> None:
        self._topic = Subject()

    def read(self, mentions: Mentions) -> dict[str, str]:
        """The name for each pronoun of the next sentence that stands for one."""
        subject = mentions.subject
        if self._is_topic(subject):
            subject = subject._replace(
                text=max(self._topic.text, subject.text, key=len),
                kind="person",
                is_certain=self._topic.is_certain or subject.is_certain,
                pronoun=self._topic.pronoun,
            )
        names: dict[str, str] = {}
        for pronoun, uses in mentions.pronouns.items():
            speaks_of = self._antecedent(pronoun, uses, subject, mentions)
            if speaks_of is not None and uses.is_plain:
                names[pronoun] = speaks_of.text
                if pronoun in _PERSONAL and speaks_of.kind in ("person", "name"):
                    resolved = speaks_of._replace(pronoun=pronoun, kind="person")
                    if speaks_of is subject:
                        subject = resolved
                    else:
                        self._topic = resolved
        self._move_on(subject, mentions)
        return names

    def _antecedent(
        self, pronoun: str, uses: Uses, subject: Subject, mentions: Mentions
    ) -> Subject | None:
        topic = self._topic
        if pronoun == "it":
            is_next = topic.kind == "thing" and subject.kind == "it" and topic.is_certain
            return topic if is_next else None
        if subject.kind in ("person", "name"):
            rivals = [name for place, name in mentions.others if place < uses.first]
            fits = subject.pronoun in ("", pronoun) and not rivals
            return subject if fits and subject.kind == "person" else None
        if not uses.leads or topic.kind != "person" or topic.pronoun not in ("", pronoun):
            return None
        if any(place < uses.first for place, _ in mentions.others):
            return None
        return topic

    def _move_on(self, subject: Subject, mentions: Mentions) -> None:
        topic = self._topic
        if subject.kind in ("person", "name", "thing"):
            is_another = topic.kind == "person" and not self._is_topic(subject)
            has_rivals = (bool(mentions.others) or is_another) and not subject.pronoun
            if subject.kind == "thing" and topic.kind == "person":
                return
            self._topic = Subject() if has_rivals else subject
        elif subject.kind in ("human", "other") or (
            subject.kind in _PERSONAL and topic.pronoun != subject.kind
        ):
            self._topic = Subject()

    def _is_topic(self, subject: Subject) -> bool:
        """Whether a name is the topic's, in full or in part."""
        if "person" not in (self._topic.kind, subject.kind) or not subject.text:
            return False
        words, known = subject.text.split(), self._topic.text.split()
        return subject.kind in ("person", "name") and (
            words[-1:] == known[-1:] or set(words) <= set(known)
        )


def completed(claim: str, names: Mapping[str, str]) -> str:
    """A claim with a name for the first pronoun that stands for it, unless it has the name."""
    for pronoun, name in names.items():
        if name.split()[-1] in claim:
            continue
        forms = _FORMS[pronoun].replace(" ", "|")
        match = re.search(rf"(?i)(?<![\w’'-])(?:{forms})(?![\w-])", claim)
        if match is None or match[0].lower() in _REFLEXIVE:
            continue
        form, following = match[0].lower(), claim[match.end() :]
        owns = form in ("his", "its", "hers") or (form == "her" and re.match(r" \w", following))
        ending = ("'" if name.endswith("s") else "'s") if owns else ""
        claim = claim[: match.start()] + name + ending + following
    return claim[:1].upper() + claim[1:]
