"""What a pronoun stands for: a name in its place, where only one name agrees.

A text is read sentence by sentence. The subject of a sentence is its topic, which the next one may
speak of by a pronoun in or before its subject; behind a subject that is a name, a pronoun stands
for that name. Where another name agrees, or the parse is not clear, the pronoun stays: a wrong name
is worse. That subjects stay the topic follows centering (Grosz, Joshi and Weinstein 1995).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from claimscore.baseline.tree import SUBJECTS, Tree, words_of

_FORMS = {
    "he": ("he", "him", "his"),
    "she": ("she", "her", "hers"),
    "it": ("it", "its"),
    "they": ("they", "them", "their"),
}
_PRONOUN = {form: pronoun for pronoun, forms in _FORMS.items() for form in forms}
_PEOPLE = ("person", "name")
#: The kinds of subjects that these may stand for.
_KINDS = {"it": ("thing", "name"), "they": ("things",)}
_SPEAKERS = frozenset({"I", "me", "my", "our", "we", "My", "Our", "We"})
_POSSESSIVE = ("his", "hers", "its", "their")
#: What a clause may add to "it is" without that "it" stands for anything.
_EXTRAPOSED = ("ccomp", "xcomp", "advcl", "csubj", "mark", "relcl", "acl", "pcomp")
#: With these "it" is the weather or the time of day.
_WEATHER_VERBS = ("rain", "snow", "drizzl", "hail", "thunder")
_OF_WEATHER = ("late", "early", "sunny", "windy", "cloudy", "foggy", "rainy", "stormy", "outside")
#: What "they" do who work where a text speaks of rooms or prices.
_ACTS = (
    *("apolog", "charge", "clean", "gave", "give", "greet", "help", "ignore", "improve", "lied"),
    *("promise", "refuse", "replace", "said", "say", "served", "speak", "spoke", "tell", "told"),
    *("took", "treat", "tried", "try", "upgrade", "want", "welcome"),
)
_PERSONS = ("er", "or", "ist", "ian", "man", "woman", "boy", "girl", "old")
#: "Gave her flowers" is read as what she owns, and means what she got.
_GIVING = re.compile(r"(?i)\b(?:gave|give[ns]?|giving|offer(?:s|ed)?|sen[dt]s?|shows?|showed) $")
#: Nouns in the singular that "they" may stand for.
_GROUPS = ("band", "company", "crew", "family", "police", "staff", "team")
_BEFORE_NOUNS = ("amod", "compound", "det", "nmod", "nummod")


class Subject(NamedTuple):
    """What a sentence speaks of.

    `kind` is "person", "name" (of a person or not), "thing", "things", "human" (a common noun),
    "plural" (more than one person), a pronoun, or "" where a sentence speaks of nothing that the
    next one could mean. `pronoun` is the one that agrees; empty where that is not known.
    """

    text: str = ""
    kind: str = ""
    place: int = -1
    is_certain: bool = False
    pronoun: str = ""


class Mentions(NamedTuple):
    """The subject of a sentence, the place of the first use of each pronoun that may be completed,
    the other persons as place, label and pronoun, the pronouns that other things agree with, and
    those that stand before each subject that agrees with them; the labels of "her", and what "it"
    and "they" stand for where it is the only noun that agrees."""

    subject: Subject = Subject()
    pronouns: Mapping[str, int] = MappingProxyType({})
    others: tuple[tuple[int, str, str], ...] = ()
    has_kin: bool = False
    things: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()
    her: frozenset[str] = frozenset()
    nouns: Mapping[str, str] = MappingProxyType({})


def mentions_of(tree: Tree | None) -> Mentions:
    """What a sentence mentions; nothing where it is not parsed."""
    if tree is None:
        return Mentions(Subject(kind="plural"))
    root = next(k for k in range(len(tree)) if tree.heads[k] == k)
    subject = _subject(tree, root)
    others = [
        (k, tree.labels[k], _gender(_name(tree, k)))
        for k in range(len(tree))
        if k != subject.place and _is_person(tree, k)
    ]
    things = {
        "it" if tree.tags[k] in ("NN", "NNP") else "they"
        for k in range(len(tree))
        if k != subject.place
        and tree.tags[k].startswith("NN")
        and tree.labels[tree.first_conjunct(k)] in (*SUBJECTS, "dobj", "dative")
    }
    has_kin = not words_of("kin").isdisjoint(tree.lower)
    uses = _uses(tree)
    her = frozenset(tree.labels[k] for k in range(len(tree)) if tree.lower[k] == "her")
    leading = {pronoun for pronoun, place in uses.items() if _leads(tree, pronoun, place)}
    nouns = {p: _only_noun(tree, p, place) for p, place in uses.items() if p in _KINDS}
    return Mentions(
        subject, uses, tuple(others), has_kin, frozenset(things), frozenset(leading), her, nouns
    )


def _subject(tree: Tree, root: int) -> Subject:
    head = tree.subject(root)
    if head is None and tree.is_name(root):
        head = root  # "Barack Obama in Jamaica"
    elif head is None or tree.labels[head] not in SUBJECTS:
        return Subject()
    low, tag = tree.lower[head], tree.tags[head]
    if low in _PRONOUN:
        return Subject(low, _PRONOUN[low], head, head not in tree.unsure)
    nouns = tree.of(root, "attr") if low == "this" and tree.lower[root] in words_of("be") else []
    if nouns and tree.tags[nouns[0]] == "NN" and not tree.of(nouns[0], "conj", "prep"):
        return Subject(f"this {tree.lower[nouns[0]]}", "thing", head, True)
    members = [head, *tree.of(head, "conj")]
    is_human = any(_is_human(tree, noun) for noun in members)
    if head in tree.unsure or not tag.startswith("NN") or len(members) > 1:
        return Subject(kind="plural" if is_human else "", place=head)
    described = tree.of(head, "det", "poss")
    if tree.is_name(head) and not described and low not in words_of("titles"):
        name = _name(tree, head)
        attributes = tree.of(root, "attr")
        nouns = [*attributes, *tree.of(head, "compound")]
        is_born = tree.lower[root] == "born" or any(map(tree.is_agent, nouns))
        genders = map(_gender, (name, *(tree.words[noun] for noun in nouns)))
        pronoun = next(filter(None, genders), "")
        if any(map(_is_organisation, (name, *(tree.words[noun] for noun in attributes)))):
            pronoun = "it"
        is_defined = any(tree.of(noun, "det") for noun in attributes)
        is_person = is_born or pronoun or (" " in name and not is_defined)
        kind = "person" if is_person and pronoun != "it" else "name"
        return Subject(name, kind, head, is_born or is_defined, pronoun)
    determiners = {tree.lower[c] for c in described}
    modifiers = [c for c in tree.children[head] if tree.labels[c] not in _BEFORE_NOUNS]
    is_certain = bool(determiners & {"the", "this", "these"}) and not modifiers
    kind = "things" if tag in ("NNS", "NNPS") else "human" if is_human else "thing"
    return Subject(_phrase(tree, head), kind, head, is_certain)


def _is_human(tree: Tree, noun: int) -> bool:
    low = tree.lower[noun]
    if tree.is_name(noun):
        return not tree.of(noun, "det", "poss")
    if low in words_of("titles") | words_of("kin") | {"crew", "staff"}:
        return True
    return low.endswith(_PERSONS) and low not in words_of("no_titles")


def _uses(tree: Tree) -> dict[str, int]:
    """The first place of each pronoun that no quotation holds and that stands for something; of
    none where the words are someone's own ("I"), or the subject is left out ("Insists he")."""
    is_cut = tree.tags[0] in ("VBD", "VBZ") and tree.heads[0] == 0
    if is_cut or any(
        word in _SPEAKERS and tree.tags[k] != "NNP" and (not k or word == "I" or word.islower())
        for k, word in enumerate(tree.words)
    ):
        return {}
    places: dict[str, int] = {}
    unclear: set[str] = set()
    for index, low in enumerate(tree.lower):
        pronoun = _PRONOUN.get(low)
        if pronoun is None:
            continue
        places.setdefault(pronoun, index)
        is_subject = tree.labels[index] in (*SUBJECTS, "expl")
        if (
            tree.quoted_in(index) is not None
            or (pronoun == "it" and is_subject and _is_empty(tree, index))
            or (low == "they" and "us" in tree.lower)
            or (low == "they" and tree.lower[tree.heads[index]].startswith(_ACTS))
        ):
            unclear.add(pronoun)
    marks = (k for k, word in enumerate(tree.words) if word in "\"“'‘")
    end = next(marks, len(tree)) if tree.has_stray_quote() else len(tree)
    return {
        pronoun: place
        for pronoun, place in places.items()
        if pronoun not in unclear and place < end
    }


def _leads(tree: Tree, pronoun: str, place: int) -> bool:
    """Whether nothing stands before a pronoun that could be meant by it."""
    if pronoun == "it" and tree.labels[place] in SUBJECTS and "IN" in tree.tags[:place]:
        return False
    return not any(
        tree.labels[k] in SUBJECTS
        and tree.tags[k].startswith("NN")
        and (pronoun in ("it", "they") or _is_human(tree, k))
        for k in range(place)
    )


def _only_noun(tree: Tree, pronoun: str, place: int) -> str:
    """The subject before "it" or "they" that has the only noun which agrees, or what there is, what
    something has or what was made; "" for none."""
    nouns = [noun for noun in range(place) if _agrees(tree, noun, pronoun)]
    if len(nouns) != 1 or nouns[0] in tree.unsure:
        return ""
    noun = subject = nouns[0]
    above = tree.heads[tree.heads[noun]]
    if tree.labels[noun] == "pobj" and tree.lower[tree.heads[noun]] == "of":
        subject = above
    determiners = [tree.lower[c] for c in tree.of(noun, "det")]
    known = [["the"], ["this"], ["these"]]
    inside = {*_BEFORE_NOUNS, "prep"}
    if tree.labels[subject] not in SUBJECTS:
        says = tree.of(tree.heads[place], "acomp", "attr", "dobj", "ccomp")
        has = tree.lower[tree.heads[subject]] in words_of("offering")
        if tree.labels[subject] == "dobj" and says and not has:
            return ""  # "won the cup and it was a surprise"
        if tree.labels[subject] not in ("attr", "dobj") or tree.labels[place] not in SUBJECTS:
            return ""
        known += [[], ["a"], ["an"]]
        inside |= {"acl", "relcl"}
    if determiners not in known or not {tree.labels[c] for c in tree.children[subject]} <= inside:
        return ""
    if tree.tags[subject] != "DT":
        return ("" if determiners else "the ") + re.sub("^an? ", "the ", _phrase(tree, noun))
    text = _words(tree, subject, noun)
    return text[0].lower() + text[1:]


def _agrees(tree: Tree, noun: int, pronoun: str) -> bool:
    """Whether "it" or "they" may stand for a noun."""
    tag, label, low = tree.tags[noun], tree.labels[noun], tree.lower[noun]
    if label in ("compound", "nmod", "npadvmod") or low in words_of("times"):
        return False
    if label == "attr" and not tree.of(tree.heads[noun], "expl"):
        return False  # it says what the subject is
    if any(tree.lower[c] == "your" for c in tree.of(noun, "poss")):
        return False  # "will ease your mind because it"
    if label == "pobj" and tag == "NN" and not tree.children[noun]:
        return False  # "on offer"
    if pronoun == "they":
        return tag in ("NNS", "NNPS") or low in _GROUPS
    return tag in ("NN", "NNP") and low != "staff" and not (tag == "NN" and _is_human(tree, noun))


def _is_empty(tree: Tree, it: int) -> bool:
    """Whether "it" may stand for a clause, the weather, or all that was said."""
    verb = tree.heads[it]
    predicate = [verb, *tree.of(verb, "acomp", "attr")]
    is_extraposed = any(c > it for node in predicate for c in tree.of(node, *_EXTRAPOSED))
    nouns = tree.of(verb, "attr", *(["dobj"] if tree.lower[verb] in words_of("be") else []))
    has_noun = any(map(tree.has_article, nouns))
    is_weather = tree.lower[verb].startswith((*_WEATHER_VERBS, "take", "took")) or any(
        tree.lower[node] in _OF_WEATHER
        for part in predicate
        for node in (part, *tree.children[part])
    )
    return tree.labels[it] == "expl" or is_extraposed or has_noun or is_weather


def _is_person(tree: Tree, index: int) -> bool:
    """Whether a name may be a person's: not that of a place, a time or an organisation."""
    if not tree.is_name(index) or tree.labels[index] == "compound":
        return False
    if tree.is_year_or_month(index) or index in tree.brackets or tree.quoted_in(index) is not None:
        return False
    above = tree.heads[index]
    if tree.labels[index] in ("appos", "npadvmod", "nummod", "conj") and tree.is_name(above):
        return _is_person(tree, above)
    if tree.labels[index] == "pobj":
        if tree.lower[above] in words_of("place_prepositions"):
            return False
        if tree.lower[above] == "of" and not words_of("kin") & {tree.lower[tree.heads[above]]}:
            return False
    return not tree.of(index, "det") and not _is_organisation(_name(tree, index))


def _is_organisation(name: str) -> bool:
    return not words_of("no_persons").isdisjoint(name.lower().split())


def _gender(name: str) -> str:
    """The pronoun of a name with a title or a first name that is known."""
    words = [w for w in name.lower().replace(".", "").split() if w not in ("dr", "prof", "pc")]
    if not words:
        return ""
    return "he" if words[0] in words_of("male") else "she" if words[0] in words_of("female") else ""


def _name(tree: Tree, head: int) -> str:
    first = head
    while first and (
        tree.is_name(first - 1)
        or (
            first > 1
            and tree.lower[first - 1] in words_of("inside_names")
            and tree.is_name(first - 2)
        )
    ):
        first -= 1
    while first < head and (
        tree.lower[first].endswith("-old")
        or (not first and tree.lower[0] in words_of("titles") - words_of("male"))
    ):
        first += 1
    return _words(tree, first, head)


def _phrase(tree: Tree, head: int) -> str:
    """A noun with what stands before it."""
    before = [n for c in tree.of(head, *_BEFORE_NOUNS) if c < head for n in tree.subtree(c)]
    first = min([head, *before])
    text = _words(tree, first, head)
    return text if tree.is_name(first) else text[0].lower() + text[1:]


def _words(tree: Tree, first: int, last: int) -> str:
    words = range(first, last + 1)
    return "".join(tree.words[k] + " " * (tree.spaces[k] and k < last) for k in words)


class Antecedents:
    """What the sentences of a text have spoken of so far: a topic, and the pronouns of the other
    persons that may be meant ("" where that is not known)."""

    def __init__(self) -> None:
        self._topic = Subject()
        self._rivals: list[str] = []
        self._spoken_of = ""  # the pronoun that was the last subject, of a topic that is not known

    def read(self, mentions: Mentions) -> dict[str, str]:
        """What stands for each pronoun of the next sentence, where that is certain."""
        subject, topic = mentions.subject, self._topic
        is_unknown = subject.kind == "name" and not topic.kind and not mentions.others
        if is_unknown and mentions.pronouns.get(self._spoken_of, -1) > subject.place:
            subject = _with_pronoun(subject, self._spoken_of)  # "He is old. Lee sold his car."
        self._spoken_of = "" if topic.kind or subject.kind not in ("he", "she") else subject.kind
        is_topic = _is_same(topic, subject)
        if is_topic:
            subject = subject._replace(
                text=max(topic.text, subject.text, key=len),
                kind="person",
                is_certain=topic.is_certain or subject.is_certain,
                pronoun=topic.pronoun or subject.pronoun,
            )
        names: dict[str, str] = {}
        for pronoun, place in mentions.pronouns.items():
            if mentions.nouns.get(pronoun):
                names[pronoun] = mentions.nouns[pronoun]
            elif subject.kind in _PEOPLE and pronoun not in _KINDS and place > subject.place:
                if self._is_own(pronoun, place, subject, mentions, is_topic):
                    names[pronoun] = subject.text
                    subject = _with_pronoun(subject, pronoun)
            elif pronoun in mentions.leading and self._continues(pronoun):
                names[pronoun] = topic.text
                self._topic = topic = _with_pronoun(topic, pronoun)
        self._move_on(subject, mentions, is_topic or subject.kind in names)
        return names

    def _is_own(
        self, pronoun: str, place: int, subject: Subject, mentions: Mentions, is_topic: bool
    ) -> bool:
        """Whether a pronoun behind the subject stands for it."""
        if subject.kind != "person" or subject.pronoun not in ("", pronoun):
            return False
        rivals = [other for where, _, other in mentions.others if where < place]
        if self._topic.kind == "person" and not is_topic:
            rivals.append(self._topic.pronoun)
        if mentions.has_kin and not subject.pronoun:
            return False
        return not {"", pronoun}.intersection(rivals)

    def _continues(self, pronoun: str) -> bool:
        """Whether a pronoun in or before the subject stands for the topic."""
        topic = self._topic
        if pronoun in ("it", "they"):
            return topic.is_certain and topic.kind in _KINDS[pronoun] and not self._rivals
        agrees = topic.kind in _PEOPLE and topic.pronoun in ("", pronoun)
        return agrees and not {"", pronoun}.intersection(self._rivals)

    def _move_on(self, subject: Subject, mentions: Mentions, is_topic: bool) -> None:
        topic, others = self._topic, mentions.others
        if topic.kind == "person" and is_topic and topic.pronoun:
            if subject.kind in ("person", "name"):
                self._topic = subject
            self._rivals = [
                pronoun
                for _, label, pronoun in others
                if label in SUBJECTS or (label == "dobj" and pronoun == topic.pronoun)
            ]
        elif subject.kind in ("person", "name"):
            is_alone = subject.is_certain and (subject.pronoun or not mentions.has_kin)
            self._rivals = [] if is_alone else [pronoun for _, _, pronoun in others]
            is_meant = topic.kind in _PEOPLE and not {"he", "she"}.isdisjoint(mentions.pronouns)
            if (topic.kind == "person" and not is_topic and not subject.is_certain) or is_meant:
                self._rivals.append(topic.pronoun)
            self._topic = subject
        elif subject.kind in ("thing", "things") and topic.kind != "person":
            self._rivals = list(mentions.things)
            self._topic = subject
        elif subject.kind in ("it", "they") and topic.kind != "person":
            persons = (pronoun for pronoun in self._rivals if pronoun not in ("it", "they"))
            self._rivals = [*mentions.things, *persons, *(pronoun for _, _, pronoun in others)]
        elif subject.kind in ("he", "she", "human"):
            self._rivals.append(_gender(subject.text) if subject.kind == "human" else "")
        elif subject.kind == "plural" or topic.kind != "person":
            self._topic = Subject()


def _is_same(topic: Subject, subject: Subject) -> bool:
    """Whether a name is the topic's, in full or in part."""
    kinds = {topic.kind, subject.kind}
    if not kinds <= {"person", "name"} or "person" not in kinds:
        return False
    words, known = subject.text.split(), topic.text.split()
    return words[-1] == known[-1] or set(words) <= set(known)


def _with_pronoun(subject: Subject, pronoun: str) -> Subject:
    kind = "person" if pronoun in ("he", "she") else subject.kind
    return subject._replace(pronoun=pronoun, kind=kind)


def completed(claim: str, names: Mapping[str, str], her: frozenset[str]) -> str:
    """A claim with a name for the first pronoun that stands for it, unless it has the name.

    `her` are the labels of "her" in its sentence: where they differ the pronoun stays.
    """
    for pronoun, name in names.items():
        *others, last = map(re.escape, name.split())
        named = [word for word in others if word[0].isupper()]
        match = re.search(rf"(?i)(?<![\w’'-])(?:{'|'.join(_FORMS[pronoun])})(?![\w-])", claim)
        known = rf"\b(?:{'|'.join([*named, last, last.capitalize()])})\b"
        opens = match is not None and match.start() == 0 and match[0] in ("He", "She")
        if match is None or (not opens and re.search(known, claim)):
            continue
        form, following = match[0].lower(), claim[match.end() :]
        if contracted := re.match(r"['’](\w+)", following):
            if contracted[1] != "s":
                continue
            is_perfect = re.match(r"['’]s (?:been|become|got|had)\b", following)
            following = (" has" if is_perfect else " is") + following[2:]
        if form == "her" and "poss" in her and len(her) > 1:
            continue
        owns = form in _POSSESSIVE or (form == "her" and "poss" in her)
        if form == "her" and owns and _GIVING.search(claim[: match.start()]):
            continue
        ending = ("'" if name.endswith("s") else "'s") if owns else ""
        claim = claim[: match.start()] + name + ending + following
    return claim[:1].upper() + claim[1:]
