"""Phrases inside a sentence that say something of a noun and become claims of their own: relative
clauses, participles, appositions, titles before a name, nationalities, births, places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from claimscore.baseline.surface import Draft, Items, article, be
from claimscore.baseline.tree import FINITE, Tree, words_of

_COMMON = ("NN", "NNS")


class Title(NamedTuple):
    """ "captain Wayne Rooney": the words of the title and of the name."""

    words: list[int]
    name: list[int]


def relative_word(tree: Tree, clause: int) -> int | None:
    """The who, which, that, whose or where of a relative clause."""
    for index in sorted(tree.subtree(clause)):
        if index >= clause:
            break
        if tree.tags[index] in ("WP", "WDT", "WP$", "WRB"):
            return index
    return None


def is_relative_claim(tree: Tree, noun: int, clause: int) -> bool:
    """Whether the relative clause of a noun can be said of the noun alone."""
    word = relative_word(tree, clause)
    if word is None or not tree.is_finite(clause) or clause in tree.unsure:
        return False
    alone = tree.labels[noun] not in ("appos", "conj") and not tree.of(noun, "conj")
    is_denied = alone and noun not in tree.hypothetical and tree.of(clause, "neg")
    if clause in tree.hypothetical and not is_denied:
        return False
    if not tree.follows_comma(clause):
        if _is_quantified(tree, noun) or tree.tags[noun] in ("DT", "WP", "PRP"):
            return False
        described = [noun, tree.first_conjunct(noun)] if is_predicate(tree, noun) else [noun]
        if tree.tags[noun] in _COMMON and not any(
            tree.of(n, "det", "poss", "nummod") for n in described
        ):
            return False
        if tree.tags[noun] == "NNS" and any(tree.lower[n] == "the" for n in tree.of(noun, "det")):
            return False  # "the residents who are at risk"
        if tree.of(tree.heads[noun], "expl") and not tree.has_article(noun):
            return False  # there are more of them
    if tree.labels[noun] == "pobj" and tree.lower[tree.heads[noun]] in ("as", "like", "than"):
        return False
    if not is_predicate(tree, noun) and any(c < clause for c in tree.of(noun, "conj")):
        return False
    if not tree.follows_comma(clause) and any(noun < c < clause for c in tree.of(noun, "prep")):
        return False
    low, head = tree.lower[word], tree.heads[word]
    located = tree.labels[noun] == "pobj" and tree.lower[tree.heads[noun]] in ("at", "from", "in")
    if low == "who" and located and tree.is_name(noun):
        return False
    if low == "which" and not is_certain_thing(tree, noun, clause):
        return False
    nested = _is_nested(tree, noun) and tree.lower[tree.heads[noun]] != "of"
    if low == "which" and nested and not tree.is_name(noun):
        return False
    if low == "whose":
        owned = tree.labels[head] in ("nsubj", "nsubjpass") and tree.heads[head] == clause
        return tree.labels[word] == "poss" and owned
    if is_with_preposition(tree, clause, word):
        known = alone and tree.quoted_in(noun) is None
        return known and low in ("whom", "which") and tree.subject(clause) is not None
    if low == "where":
        stays = tree.lower[clause] not in words_of("moving") and tree.subject(clause) is not None
        return head == clause and stays and place_of(tree, noun) != ""
    is_subject = tree.of(clause, "nsubj", "nsubjpass") == [word]
    return is_subject and low in ("who", "which", "that")


def is_with_preposition(tree: Tree, clause: int, word: int) -> bool:
    """Whether a relative clause begins as "with whom"."""
    return tree.labels[word] == "pobj" and tree.heads[word] == word - 1 == min(tree.subtree(clause))


def is_participle_claim(tree: Tree, noun: int, participle: int) -> bool:
    """Whether "directed by X" behind a noun can be said of the noun alone."""
    children, first = tree.children[participle], tree.first_conjunct(noun)
    comma = tree.follows_comma(participle)
    if tree.tags[participle] not in ("VBN", "VBG"):
        return False
    if tree.has_article(noun) and tree.labels[noun] in ("dobj", "pobj", "appos", "oprd"):
        return False
    if not comma and not (
        tree.is_name(noun)
        or (tree.has_article(first) and tree.labels[first] != "pobj")
        or tree.of(noun, "poss")
    ):
        return False
    if tree.tags[participle] == "VBG" and not comma:
        return False
    names = [n for of in tree.of(noun, "prep") for n in tree.of(of, "pobj") if tree.is_name(n)]
    if comma and names and not tree.is_name(noun):
        return False  # "the husband of Ann Lee, played by Eve Stone" speaks of one of two
    if _is_nested(tree, noun) and not tree.is_name(noun):
        return False
    return any(c > participle and tree.labels[c] != "punct" for c in children)


def is_free_participle(tree: Tree, participle: int) -> bool:
    """Whether ", winning the cup" of a clause can be said of the clause's subject."""
    nodes = tree.subtree(participle)
    first, last = min(nodes), max(nodes)
    low, children = tree.lower[participle], tree.children[participle]
    if tree.tags[participle] not in ("VBG", "VBN") or low in words_of("no_participles"):
        return False
    if participle in tree.unsure:
        return False
    verbs = [tree.heads[participle], *tree.auxiliaries(tree.heads[participle])]
    perfect = any(tree.lower[v] in ("has", "have") for v in verbs[1:])
    if tree.tags[participle] == "VBG" and not perfect and not tree.is_past(verbs[0]):
        return False
    if low in words_of("results") and first > tree.heads[participle]:
        return False
    if tree.of(participle, "mark", "nsubj", "nsubjpass", "neg", "aux", "auxpass", "expl"):
        return False
    set_off = tree.words[first - 1] if first else "".join(tree.words[last : last + 2])
    if "," not in set_off:
        return False
    return any(c > participle and tree.labels[c] != "punct" for c in children)


def is_apposition_claim(tree: Tree, noun: int, other: int) -> bool:
    """Whether "noun, other," says that the noun is the other."""
    nodes = tree.subtree(other)
    first, last = min(nodes), max(nodes)
    tag, described = tree.tags[other], tree.of(other, "det", "poss")
    if other in tree.unsure or any(tree.lower[c] == "&" for c in tree.of(noun, "cc")):
        return False
    if any(tree.tags[n] in FINITE for n in range(noun, other)):
        return False  # hardly one thing
    located = tree.labels[noun] == "pobj" and tree.lower[tree.heads[noun]] in ("in", "at", "from")
    if located and tree.lower[other] not in words_of("places"):
        return False
    if not first or tree.words[first - 1] not in (",", "—", "–"):
        return False
    if tag == "CD":
        ends = last + 1 >= len(tree) or tree.words[last + 1] in (",", ".")
        return ends and len(nodes) == 1 and tree.tags[noun] == "NNP" and _is_age(tree, other)
    if tree.is_name(other) and any(tree.lower[c] == "the" for c in tree.of(noun, "det")):
        return False  # "the TV drama, Melrose Place" is known by its name alone
    if tree.is_name(noun):
        if tree.is_name(other) and (not described or tree.of(other, "conj")):
            return False
        if not tree.is_name(other) and not tree.of(other, "det", "poss", "amod", "compound"):
            return False
    coordinated = tree.of(other, "conj")
    if coordinated and tree.tags[noun] == tag == "NNS":
        return False  # a list: "motors, wheels and sensors"
    if any(tree.words[c - 1] == "," for c in tree.of(other, "cc")) and len(coordinated) == 1:
        return False
    if tree.tags[noun] == "NN" and not tree.of(noun, "det", "poss"):
        return False
    return not tree.is_verb(noun) and tree.labels[noun] != "npadvmod"


def place_of(tree: Tree, noun: int) -> str:
    """The preposition with which a noun is where something is; empty where that is not certain."""
    preposition = tree.lower[tree.heads[noun]] if tree.labels[noun] == "pobj" else ""
    if tree.is_year_or_month(noun):
        return ""
    if tree.lower[noun] in words_of("institutions"):
        return "at"
    if preposition == "to" and tree.is_name(noun):
        return "in"
    return preposition if preposition in ("in", "at") else ""


def _is_nested(tree: Tree, noun: int) -> bool:
    """Whether a noun is part of what is said of another one: the "eye" of "pain in the eye"."""
    preposition = tree.heads[noun]
    above = tree.tags[tree.heads[preposition]]
    return tree.labels[noun] == "pobj" and above[:2] in ("NN", "CD", "DT")


def is_certain_thing(tree: Tree, noun: int, clause: int) -> bool:
    """Whether a clause with "which" is about a noun and not about the one before, or about all."""
    if any(tree.is_agent(c) for c in (noun, *tree.of(noun, "compound", "appos", "nmod"))):
        return False
    return tree.is_name(noun) or tree.labels[noun] != "pobj" or not tree.follows_comma(clause)


def _is_age(tree: Tree, index: int) -> bool:
    word = tree.words[index]
    return word.isdigit() and len(word) <= 2 and int(word) > 0


def _is_quantified(tree: Tree, noun: int) -> bool:
    narrowing = tree.of(noun, "det", "predet", "amod", "nummod")
    return any(tree.lower[n] in words_of("quantifiers") or tree.tags[n] == "JJS" for n in narrowing)


def is_aside(tree: Tree, clause: int) -> bool:
    """Whether words are a clause or participle between commas, without which the rest is true."""
    if not tree.follows_comma(clause) or tree.quoted_in(clause) is not None:
        return False
    if tree.labels[clause] == "acl":
        return tree.tags[clause] in ("VBN", "VBG")
    return tree.labels[clause] == "relcl" and relative_word(tree, clause) is not None


def leaves(tree: Tree, noun: int, child: int) -> bool:
    """Whether a phrase of a noun is no part of the claims that the noun stands in."""
    label = tree.labels[child]
    if label == "relcl" and is_relative_claim(tree, noun, child):
        is_known = tree.has_article(noun) or tree.is_name(noun) or bool(tree.of(noun, "poss"))
        return tree.follows_comma(child) or is_known or is_predicate(tree, noun)
    if label == "acl" and is_participle_claim(tree, noun, child):
        return tree.follows_comma(child) or tree.is_name(noun) or is_predicate(tree, noun)
    if label == "prep":
        return is_origin(tree, noun, child)
    return label == "appos" and is_apposition_claim(tree, noun, child)


def is_predicate(tree: Tree, noun: int) -> bool:
    """Whether a noun, or the first one of its list, says what the subject is."""
    return tree.labels[tree.first_conjunct(noun)] == "attr"


def is_origin(tree: Tree, noun: int, phrase: int) -> bool:
    """Whether a phrase says where a person is from: "Anna Dahl from Leeds won"."""
    if tree.labels[noun] not in ("nsubj", "nsubjpass") or tree.lower[phrase] != "from":
        return False
    places = tree.of(phrase, "pobj")
    is_person = tree.tags[noun] == "NNP" and bool(tree.of(noun, "compound"))
    sure = phrase not in tree.unsure and noun not in tree.hypothetical
    return is_person and sure and bool(places) and all(map(tree.is_name, places))


def is_optional(tree: Tree, noun: int, phrase: int) -> bool:
    """Whether what is said of a noun stays true without a phrase behind it: of a name, of "a film",
    of "three films" or "films", where the phrase is no complement ("a member of")."""
    verb = next((n for n in tree.ancestors(noun) if tree.is_verb(n)), noun)
    bare = tree.tags[noun] == "NNS" and not tree.of(noun, "det", "poss")
    if bare and any(tree.tags[a] == "MD" for a in tree.auxiliaries(verb)):
        return False  # "can sack players convicted of crimes"
    is_known = tree.has_article(noun) or tree.tags[noun] == "NNP" or bare
    if not is_known or noun in tree.hypothetical or tree.lower[noun] in words_of("relational"):
        return False
    above = [noun, *itertools.takewhile(lambda n: n != verb, tree.ancestors(noun))]
    if any(_is_narrowed(tree, n) for n in above):
        return False
    has = tree.labels[noun] == "dobj" and tree.lower[verb] in ("have", "has", "had", "having")
    if tree.labels[phrase] == "prep":
        if tree.lower[noun].endswith("ing") or has:
            return False
        is_located = tree.is_name(noun) or tree.labels[noun] == "attr"
        known = "locating_prepositions" if is_located else "separable_prepositions"
        return tree.lower[phrase] in words_of(known) and bool(tree.of(phrase, "pobj"))
    if tree.of(verb, "expl"):
        return False  # "there are things that can be done"
    if tree.labels[phrase] == "relcl":
        return relative_word(tree, phrase) is not None
    lasts = tree.lower[phrase] in ("left", "remaining")  # "with eight minutes remaining"
    return tree.labels[phrase] == "acl" and tree.tags[phrase] in ("VBN", "VBG") and not lasts


def _is_narrowed(tree: Tree, noun: int) -> bool:
    """Whether a noun is the only one of its kind, all, few or more than others."""
    words = tree.of(noun, "det", "predet", "amod", "nummod", "neg", "poss", "compound")
    return any(
        tree.lower[w] in words_of("quantifiers") | words_of("ordinals")
        or tree.tags[w] in ("JJR", "JJS", "RBS")
        for w in words
    )


def without_modifiers(tree: Tree, nodes: Collection[int]) -> set[int]:
    """Words without the phrases that become claims of their own."""
    kept = set(nodes)
    for noun in sorted(nodes):
        if noun in kept:
            for child in tree.children[noun]:
                if child in nodes and leaves(tree, noun, child):
                    kept -= tree.subtree(child)
    return kept


def noun_phrase(tree: Tree, noun: int) -> list[int]:
    """A noun with its modifiers, without what is coordinated or becomes a claim of its own."""
    nodes = tree.subtree(noun)
    if not any(tree.words[c] == "&" for c in tree.of(noun, "cc")):
        nodes = nodes.difference(*map(tree.subtree, tree.of(noun, "conj", "cc", "preconj")))
    return tree.trim(without_modifiers(tree, nodes))


def antecedent(tree: Tree, noun: int, clause: int) -> Items | None:
    """What a relative clause or participle is about; None where that is not certain.

    Of "X is an actor who ..." it is X, of "this is a bar that ..." this bar, of "has a bar that
    ..." the bar.
    """
    first = tree.first_conjunct(noun)
    verb = tree.heads[first]
    if tree.labels[first] == "attr" and tree.words[min(tree.subtree(first)) - 1] == ",":
        return None  # "when she was six, an event that"
    subject = tree.subject(verb)
    if tree.labels[first] == "attr" and tree.has_article(first) and subject is not None:
        if tree.lower[subject] == "this" and first == noun:
            before = (c for c in tree.of(noun, "compound") if c == noun - 1)
            return (subject, *before, noun)
        is_there = tree.labels[subject] == "expl" or tree.tags[subject] == "DT"
        if tree.lower[verb] in words_of("linking") and not is_there:
            return tuple(subject_phrase(tree, subject) or ()) or None
    if any(conjunct < clause for conjunct in tree.of(noun, "conj")) or tree.tags[noun] == "PRP":
        return None
    above = tree.heads[noun]
    bare = tree.tags[above] == "NN" and not tree.of(above, "det", "poss", "amod")
    if tree.labels[noun] == "appos" and tree.has_article(noun) and (bare or tree.is_name(above)):
        if any(tree.tags[n] in FINITE for n in range(above, noun)):
            return None
        noun = above
    nodes = [*tree.auxiliaries(clause), clause]
    plural = tree.labels[clause] == "relcl" and any(
        tree.lower[n] in ("were", "are", "have") or tree.tags[n] == "VBP" for n in nodes
    )
    if plural and tree.tags[noun] in ("NN", "NNP"):
        return None
    title = title_of(tree, noun)
    gone = tree.subtree(clause) | tree.brackets | set(title.words if title else ())
    gone = gone.union(*(tree.subtree(c) for c in tree.of(noun, "appos") if tree.follows_comma(c)))
    return defined(tree, tree.trim(n for n in noun_phrase(tree, noun) if n not in gone))


def defined(tree: Tree, phrase: Iterable[int]) -> Items:
    """A noun phrase of which more is said: "the" for "a"."""
    return tuple("the" if tree.lower[n] in ("a", "an") else n for n in phrase)


def subject_phrase(tree: Tree, subject: int) -> list[int] | None:
    """The subject of a clause, to be said again with another verb; None where it cannot be."""
    if tree.labels[subject] in ("csubj", "csubjpass", "expl"):
        return None
    return tree.trim(without_modifiers(tree, tree.subtree(subject)) - tree.brackets)


def title_of(tree: Tree, name: int) -> Title | None:
    """The title before a name of at least two words, for instance "Chelsea captain John Terry"."""
    if tree.tags[name] != "NNP" or tree.labels[name] == "compound":
        return None
    labels = ("compound", "amod", "det", "poss", "nmod", "nummod", "advmod")
    left = sorted(n for c in tree.of(name, *labels) if c < name for n in tree.subtree(c))
    words = [*left, name]
    cut = name
    while cut > words[0] and tree.tags[cut - 1] == "NNP":
        cut -= 1
    title, named = list(range(words[0], cut)), list(range(cut, name + 1))
    if not title or len(named) < 2 or not all(map(tree.is_capital, named)):
        return None
    last = tree.words[title[-1]]
    if tree.tags[title[-1]] != "NN" or not last.islower() or "-" in last:
        return None
    if last in words_of("no_titles") or not tree.is_agent(title[-1]):
        return None
    return Title(title, named)


# What a name says in passing

_NATIONALITY = re.compile("(an|ese|ish|ch|i|ic)$")
_QUARTERS = ("south", "north", "new")


def said_by_title(tree: Tree, title: Title, is_past: bool) -> Draft:
    """ "Chelsea captain John Terry": John Terry is Chelsea captain."""
    first, last = title.words[0], tree.lower[title.words[-1]]
    unique = tree.is_name(first) and last in words_of("unique_titles")
    owned = any(tree.tags[w] == "POS" or tree.lower[w] in ("'s", "’s") for w in title.words)
    words = title.words[tree.lower[first] == "the" and not unique :]
    described = unique or owned or tree.tags[words[0]] in ("DT", "PRP$")
    put_in = () if described else (article(tree.words[words[0]]),)
    items = (*title.name, be(is_past, False), *put_in, *words)
    return Draft(items, frozenset((*title.name, *title.words)))


def said_of_name(tree: Tree, noun: int, is_past: bool) -> Iterator[Draft]:
    """What a noun says of the name that it is, belongs to, or stands beside."""
    label = tree.labels[noun]
    for phrase in (p for p in tree.of(noun, "prep") if is_origin(tree, noun, p)):
        name, origin = noun_phrase(tree, noun), tree.trim(tree.subtree(phrase))
        name = [n for n in name if n not in tree.brackets]
        yield Draft((*name, be(is_past, False), *origin), frozenset((*name, *origin)))
    if label == "attr":
        yield from _nationality(tree, noun)
    elif label in ("nsubj", "nsubjpass"):
        yield from _birth(tree, noun)
    elif label in ("pobj", "appos", "npadvmod"):
        yield from _place(tree, noun)


def _nationality(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "X is an American actor": X is American."""
    verb = tree.heads[noun]
    subject = tree.subject(verb)
    if tree.lower[verb] not in ("is", "was") or subject is None:
        return
    who = subject_phrase(tree, subject)
    if not who or tree.tags[subject] not in ("NNP", "PRP"):
        return
    for word in tree.of(noun, "amod", "compound"):
        if words := nationality_of(tree, word):
            yield Draft((*who, verb, *words), frozenset((*who, *words)))


def nationality_of(tree: Tree, word: int) -> range | None:
    """The words of a nationality that ends with a word, such as "South Korean"; None where it is
    none, or no nationality alone, as in "South African-born" or "American English"."""
    text, before = tree.words[word], word - 1
    first = before if tree.is_capital(before) and tree.lower[before] in _QUARTERS else word
    beside = [n for n in (first - 1, word + 1) if 0 < n < len(tree)]
    if (first == word and tree.tags[word] != "JJ") or not tree.is_capital(word) or "-" in text:
        return None
    if not _NATIONALITY.search(text) or any(map(tree.is_capital, beside)):
        return None
    return range(first, word + 1)


def _birth(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "X (born on a day in a place)": when X was born, and where."""
    opening = noun + 1
    if tree.lower[opening : opening + 2] != ["(", "born"] or not tree.is_name(noun):
        return
    born = opening + 1
    end = next((n for n in range(born, len(tree)) if tree.words[n] in ");–—-"), born)
    name = tree.trim(n for n in noun_phrase(tree, noun) if n not in tree.brackets)
    places = [n for n in range(born + 2, end) if tree.lower[n] == "in"]
    cut = places[0] if places else end
    for part in (range(born + 1, cut), range(cut, end)):
        words = tree.trim(part)
        if not words or not _is_when_or_where(tree, words[0]):
            continue
        put_in: tuple[str, ...] = ()
        if tree.is_year_or_month(words[-1]) and tree.tags[words[0]] != "IN":
            put_in = ("on",) if len(words) > 1 else ("in",)
        items: tuple[int | str, ...] = (*name, "was", born, *put_in, *words)
        yield Draft(items, frozenset((*name, born, *words)))


def _is_when_or_where(tree: Tree, index: int) -> bool:
    return tree.is_year_or_month(index) or tree.tags[index] in ("IN", "CD")


def _place(tree: Tree, noun: int) -> Iterator[Draft]:
    """ "in Rosario, Argentina": Rosario is in Argentina."""
    located = noun
    while tree.labels[located] in ("appos", "npadvmod"):
        located = tree.heads[located]
    if tree.labels[located] != "pobj" or tree.lower[tree.heads[located]] != "in":
        return
    left = [n for n in sorted(tree.subtree(noun)) if n <= noun]
    if tree.of(noun, "conj", "det") or noun in tree.hypothetical:
        return
    for other in tree.of(noun, "appos", "npadvmod"):
        right = [n for n in sorted(tree.subtree(other)) if n <= other]
        beside = tree.words[noun + 1] == "," and right[0] == noun + 2
        is_date = tree.is_year_or_month(other) or tree.of(other, "conj")
        if beside and not is_date and all(map(tree.is_name, (*left, *right))):
            yield Draft((*left, "is", "in", *right), frozenset((*left, *right)))
