"""Coordinations: which of them can be said one member at a time, and the words of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from claimscore.baseline.modifiers import nationality_of, without_modifiers
from claimscore.baseline.surface import article
from claimscore.baseline.tree import SUBJECTS, Tree, Words, words_of

_FORMS = {"VBG": 0, "VB": 1, "VBP": 1, "VBZ": 2, "VBD": 3, "VBN": 3}
_BESIDE = ("cc", "conj", "punct")


class Coordination(NamedTuple):
    members: list[int]
    conjunctions: list[int]


#: Words that are put before a word: of the sentence by index, or new ones.
Inserts = dict[int, tuple[int | str, ...]]


def coordinations(tree: Tree, nodes: Words) -> Iterator[Coordination]:
    """The coordinations among some words of a tree, from the left."""
    for first in sorted(nodes):
        if tree.labels[first] == "conj" and tree.heads[first] in nodes:
            continue
        members, conjunctions, waiting = [first], [], [first]
        while waiting:
            for child in tree.children[waiting.pop()]:
                if child in nodes and tree.labels[child] == "conj":
                    members.append(child)
                    waiting.append(child)
                elif child in nodes and tree.labels[child] in ("cc", "preconj"):
                    conjunctions.append(child)
        if len(members) > 1:
            yield Coordination(sorted(members), conjunctions)


def is_distributive(tree: Tree, listed: Coordination, verb: int | None) -> bool:
    """Whether the sentence says of each member what it says of all; no where that is unsure."""
    members, conjunctions = listed
    first, second, last = members[0], members[1], members[-1]
    tags = {tree.tags[m] for m in members}
    if tree.labels[first] == "appos" and tree.tags[tree.heads[first]] in ("NNS", "NNPS"):
        return False
    if any(tree.words[n] == ":" for n in range(max(0, first - 3), first)):
        return False
    qualities = {"JJ", "VBN"} >= tags and tree.labels[first] in ("acomp", "amod", "oprd")
    if not qualities and tree.unsure.intersection(members) and _may_be_of_others(tree, members):
        return False
    if _shares_last_word(tree, members):
        return False
    described = tree.heads[first] if tree.labels[first] == "amod" else None
    if not any(members[-2] < c < last for c in conjunctions) or any(
        tree.lower[c] not in ("and", "both") for c in conjunctions
    ):
        return False
    if first in tree.hypothetical or not is_plain_list(tree, members):
        return False
    if any(tree.tags[c] == "WRB" for c in tree.of(first, "advmod")):
        return False  # "how nice and clean it is"
    if _is_in_subject(tree, first, verb) or _is_part_of_a_name(tree, members):
        return False
    if _may_modify_all(tree, members):
        return False
    if tree.tags[first].startswith("VB") and tree.labels[first] != "pobj":
        return _are_verbs_alike(tree, members)
    if any(tag.startswith("VB") for tag in tags):
        return False
    if tree.tags[first] == "IN":
        known = words_of("locatives")
        placed = all(tree.lower[m] in known and tree.of(m, "pobj") for m in members)
        alike = placed or len({tree.lower[m] for m in members}) == 1
        return alike and len({tree.is_time(m) for m in members}) == 1
    if tree.tags[first].startswith("JJ"):
        if described is not None and not _are_kinds(tree, members):
            return _has_each(tree, described, members)
        return tree.labels[first] in ("acomp", "amod", "attr", "conj", "oprd", "ROOT")
    if _may_be_another(tree, members):
        return False
    above = tree.heads[first]
    if tree.labels[first] == "pobj" and (
        _joins(tree, above)
        or ("CD" in map(tree.tags.__getitem__, tree.subtree(first)) and tree.of(last, "prep"))
    ):
        return False  # "with one on 7 % and another on 8 %"
    if tags <= {"CD"}:
        return all(tree.is_year_or_month(m) for m in members)
    if not tags <= {"NN", "NNS", "NNP", "NNPS", "JJ"}:
        return False
    if tree.labels[first] in ("compound", "nmod", "poss", "det", "nummod", "quantmod"):
        return _are_kinds(tree, members)
    if any(
        is_listing(tree, q) or tree.lower[q] == "like" for m in members for q in tree.of(m, "prep")
    ):
        return False
    if tree.labels[first] in SUBJECTS and not _does_each(tree, tree.heads[first], verb):
        return False
    bare = tree.tags[last] == "NN" and not tree.of(last, "det", "poss")
    bare = bare and (tags == {"NN"} or tree.tags[first] == "NNS")
    if bare and tree.is_agent(last) and not tree.is_agent(first):
        return False
    if len({tree.is_name(m) for m in members}) > 1 and (
        any(tree.of(m, "prep") for m in members[:-1])
        or not all(
            tree.is_name(m)
            or tree.of(m, "det", "poss", "nummod")
            or (tree.tags[m] == "NNS" and tree.labels[first] == "pobj")
            for m in members
        )
    ):
        return False
    return not (
        tree.of(first, "det")
        and len(members) == 2
        and tree.tags[first] == "NN"
        and not tree.of(second, "det")
        and len(own_words(tree, members)[0]) == 2
        and tree.of(second, "compound", "amod")
    )


def _may_be_of_others(tree: Tree, members: list[int]) -> bool:
    """Whether a noun stands between the verb and the members, or in the first one, that the others
    may be coordinated with as well."""
    first = members[0]
    if tree.labels[first] == "pobj" and is_listing(tree, tree.heads[first]):
        return False
    if tree.labels[first] not in ("dobj", "attr") or first < tree.heads[first]:
        return True
    if not tree.is_finite(tree.heads[first]):
        return True
    return any(
        n not in members
        and tree.tags[n][:2] in ("NN", "PR")
        and tree.labels[n] not in ("compound", "poss")
        for n in range(tree.heads[first] + 1, members[1])
    )


def _may_modify_all(tree: Tree, members: list[int]) -> bool:
    """Whether a word such as "former" may be said of all: without it the others would be false."""
    return any(
        tree.lower[a] in words_of("denying_adjectives") and not tree.of(m, "det", "poss", "amod")
        for a in tree.of(members[0], "amod")
        for m in members[1:]
    )


def _are_kinds(tree: Tree, members: list[int]) -> bool:
    """Whether words before a plural noun name kinds of it: "Telugu and Tamil films"."""
    noun = tree.heads[members[0]]
    return tree.tags[noun] == "NNS" and all(tree.is_capital(m) for m in members)


def _has_each(tree: Tree, noun: int, members: list[int]) -> bool:
    """Whether a noun has each of the qualities before it: "a clean and safe flat"."""
    is_any = tree.tags[noun] == "NNS" and not tree.of(noun, "det", "poss", "nummod", "predet")
    return (
        (is_any or (tree.has_article(noun) and tree.tags[noun] == "NN"))
        and all(n in tree.of(noun, "compound") for n in range(members[-1] + 1, noun))
        and tree.labels[tree.first_conjunct(noun)] in ("attr", "dobj", "pobj")
        and all(tree.tags[m] in ("JJ", "VBN", "VBG") and tree.words[m].islower() for m in members)
        and words_of("contrasting").isdisjoint(tree.lower[m] for m in members)
        and tree.of(noun, "amod") == members[:1]
    )


def _may_be_another(tree: Tree, members: list[int]) -> bool:
    """Whether the last of some nouns may be a verb, or coordinated with something before them."""
    first = members[0]
    if tree.tags[min(own_words(tree, members)[-1])] in ("VBN", "VBD"):
        return True
    others = any(tree.has_article(m) for m in members[1:])
    return tree.labels[first] == "pobj" and others and not tree.has_article(first)


def _shares_last_word(tree: Tree, members: list[int]) -> bool:
    """Whether the last noun may belong to all: "a reggae and dancehall artist"."""
    first, last = members[0], members[-1]
    return (
        tree.tags[first] in ("NN", "NNP")
        and not (tree.is_agent(first) and not tree.of(first, "poss"))
        and not any(tree.lower[c] != "'s" for c in tree.of(first, "compound"))
        and tree.tags[last] in ("NN", "NNS")
        and bool(tree.of(last, "compound"))
        and not tree.of(last, "det", "poss")
    )


def is_listing(tree: Tree, preposition: int) -> bool:
    """Whether a preposition is "including" or the "as" of "such as"."""
    if tree.labels[preposition] != "prep":
        return False
    such = any(tree.lower[child] == "such" for child in tree.children[preposition])
    return tree.lower[preposition] == "including" or (tree.lower[preposition] == "as" and such)


def _is_in_subject(tree: Tree, first: int, verb: int | None) -> bool:
    """Whether a coordination lies inside a subject without being it ("goals from A and B")."""
    if tree.labels[first] in SUBJECTS:
        return False
    for index in tree.ancestors(first):
        if index == verb:
            return False
        if tree.labels[index] in SUBJECTS:
            return True
    return False


def _is_part_of_a_name(tree: Tree, members: list[int]) -> bool:
    first = members[0]
    for left, right in itertools.pairwise(members):
        start = min(tree.subtree(right))
        if {f"{tree.lower[left]}-{w}" for w in tree.lower[start : right + 1]} & words_of("pairs"):
            return True
    if not tree.is_name(first) or tree.of(first, "amod"):
        return False  # no "free WiFi"
    words = own_words(tree, members)
    before = [n for n in range(min(words[0])) if n not in tree.quote_marks]
    if (before and tree.tags[before[-1]] == "NNS") or any(tree.tags[n] == "NNS" for n in words[0]):
        return True
    if tree.of(first, "det") and len(members) == 2 and not tree.of(members[1], "det", "poss"):
        return True
    others = any(tree.has_article(m) for m in members[1:])
    if tree.labels[first] == "oprd" or (others and not tree.has_article(first)):
        return True
    preposition = tree.heads[first]
    return tree.labels[first] == "pobj" and tree.is_name(tree.heads[preposition])


def shares_object(tree: Tree, verb: int, other: int) -> bool:
    """Whether a verb has its object behind another one: "wrote and directed the film"."""
    behind = any(c > verb and tree.labels[c] not in _BESIDE for c in tree.children[verb])
    auxiliaries = {tree.lower[a] for a in tree.auxiliaries(verb)}
    if tree.is_finite(other) and (auxiliaries | {tree.lower[other]}) & words_of("be"):
        return False
    return not behind and bool(tree.of(other, "dobj", "attr", "acomp"))


def _are_verbs_alike(tree: Tree, members: list[int]) -> bool:
    first = members[0]
    if shares_object(tree, first, members[-1]):
        return False
    modal = any(tree.tags[a] == "MD" for a in tree.auxiliaries(first))
    if modal and any(tree.tags[m] != tree.tags[first] or tree.is_finite(m) for m in members[1:]):
        return False
    if tree.labels[first] == "relcl" or len({_FORMS.get(tree.tags[m], 9) for m in members}) > 1:
        return False
    if tree.labels[first] in ("ccomp", "advcl") and tree.is_finite(first):
        main = tree.tags[tree.heads[first]]
        return not any(tree.subject(m) is None and tree.tags[m] == main for m in members[1:])
    last = members[-1]
    lacks = not any(c > first for c in tree.children[first] if tree.labels[c] not in _BESIDE)
    if lacks and tree.of(last, "prep") and tree.tags[last] in ("VB", "VBG"):
        return False  # "living and working in Rome"
    return all(tree.tags[m].startswith("VB") for m in members)


def _joins(tree: Tree, preposition: int) -> bool:
    """Whether a preposition takes its nouns together: between, a combination of."""
    low = tree.lower[preposition]
    head = tree.lower[tree.heads[preposition]]
    return low in ("between", "among", "amongst") or (low == "of" and head in words_of("groups"))


def _does_each(tree: Tree, head: int, verb: int | None) -> bool:
    """Whether each of several subjects does what all do."""
    if head != verb or tree.lower[head] in words_of("together"):
        return False
    if any(tree.tags[a] in ("NNS", "NNPS") for a in tree.of(head, "attr")[:1]):
        return False
    present = [n for n in [head, *tree.auxiliaries(head)] if tree.tags[n] == "VBP"]
    return not present or tree.lower[present[0]] in ("are", "have", "do")


def own_words(tree: Tree, members: list[int]) -> list[frozenset[int]]:
    """The words of each member without those of the others and without conjunctions."""
    shares = _shares(tree, members)
    return [shares[m].difference(tree.of(m, "cc", "punct", "preconj")) for m in members]


def is_plain_list(tree: Tree, members: list[int]) -> bool:
    """Whether the members follow each other with only commas and conjunctions between them."""
    words = own_words(tree, members)
    verbs = tree.tags[members[0]].startswith("VB")
    between: set[int] = set()
    for number in range(1, len(members)):
        end = max((n for n in words[number - 1] if n < members[number]), default=-1)
        start = min((n for n in words[number] if n > end), default=members[number])
        gap = [
            n for n in range(end + 1, start) if n not in tree.brackets and n not in tree.quote_marks
        ]
        between |= set(gap)
        if not gap or not all(tree.labels[n] == "cc" or tree.words[n] in (",", ";") for n in gap):
            return False
    inside = set(range(members[0], members[-1])) | without_modifiers(tree, words[-1])
    return verbs or not any(tree.words[n] == "," for n in inside - between - tree.brackets)


def choose(
    tree: Tree, nodes: set[int], listed: Coordination, member: int
) -> tuple[set[int], Inserts]:
    """Of some words those that are left where one member stands alone, and what it needs then:
    the article, the auxiliary or the subject that it shared with the first."""
    members, conjunctions = listed
    first = members[0]
    shares = _shares(tree, members)
    dropped = set(conjunctions).union(*(shares[m] for m in members if m != member))
    dropped |= {n for n in tree.of(member, "advmod") if tree.lower[n] in ("also", "even")}
    inserts: Inserts = {}
    for child in tree.children[first]:
        if child > max(members) and tree.labels[child] not in ("conj", "cc", "punct"):
            sure = tree.labels[child] == "prep"
            sure = sure and tree.lower[child] not in ("for", "to", "with")
            if member != members[-1] and not sure:
                dropped |= tree.subtree(child)  # it may be of the last alone
            elif member != first:
                dropped -= tree.subtree(child)
    if member != first:
        start = min(shares[member] & nodes, default=member)
        if tree.labels[first] == "amod":
            determiners = tree.of(tree.heads[first], "det")
            dropped |= set(determiners)
            if tree.lower[(determiners or [first])[0]] in ("a", "an"):
                inserts = {start: (article(tree.words[start]),)}
            else:
                inserts = {start: tuple(determiners)}
        elif tree.tags[first][:2] in ("NN", "JJ"):
            inserts = _shared_determiner(tree, first, member, start)
            adjective = _shared_adjective(tree, first, member)
            if adjective:
                articled = any(x in ("a", "an") for x in inserts.get(start, ()))
                before = (
                    (article(tree.words[adjective[0]]),) if articled else inserts.get(start, ())
                )
                inserts = {start: (*before, *adjective)}
        elif tree.tags[first].startswith("VB"):
            inserts = _shared_beginning(tree, nodes, first, member, start)
    opening = range(max(0, min(shares[first]) - 2), first)  # "both on stage and screen"
    dropped |= {n for n in opening if tree.lower[n] == "both"}
    end = max(max(words) for words in shares.values())
    if tree.labels[first] in SUBJECTS:
        head = tree.heads[first]
        behind = {*range(members[-1], head), *(n for n in tree.children[head] if n > members[-1])}
        dropped |= {n for n in behind if tree.lower[n] in ("all", "both")}
    commas = {
        n
        for n in nodes
        if tree.words[n] == "," and members[0] < n < end and tree.heads[n] in members
    }
    return nodes - dropped - commas, inserts


def _shares(tree: Tree, members: list[int]) -> dict[int, frozenset[int]]:
    """The words of each member without those of the others."""
    nodes = {m: tree.subtree(m) for m in members}
    return {
        m: words.difference(*(nodes[o] for o in members if o != m and o in words))
        for m, words in nodes.items()
    }


def _shared_determiner(tree: Tree, first: int, member: int, start: int) -> Inserts:
    determiners = [c for c in tree.of(first, "det", "poss") if c < first]
    of_member = [c for c in tree.of(member, "det", "poss", "nummod") if c < member]
    if not determiners or of_member or tree.tags[member][:2] not in ("NN", "JJ"):
        return {}
    shared = determiners[0]
    low = tree.lower[shared]
    is_mass = low in ("a", "an") and tree.lower[member] in words_of("mass")
    if is_mass or tree.lower[start] == "other":
        return {}
    if tree.tags[shared] == "PRP$" or low in ("these", "this", "those"):
        return {start: (shared,)}
    plural = tree.tags[member] == "NNS"
    if plural and tree.is_agent(member):
        plural = tree.lower[member].endswith("s")  # "planner" is read as a plural at times
    common = tree.tags[member] == "NN" or (tree.words[member].islower() and not plural)
    if low in ("a", "an") and common:
        return {start: (article(tree.words[start]),)}
    return {start: ("the",)} if low == "the" and tree.tags[member] in ("NN", "NNS") else {}


def _shared_adjective(tree: Tree, first: int, member: int) -> tuple[int, ...]:
    """The "Norwegian" of "a Norwegian singer and actor"."""
    if tree.tags[first] != tree.tags[member] or tree.of(member, "det", "poss", "amod", "nummod"):
        return ()
    persons = tree.is_agent(first) and tree.is_agent(member)
    for word in tree.of(first, "amod", "compound") if persons else ():
        if nationality := nationality_of(tree, word):
            return tuple(nationality)
    return ()


def _shared_beginning(tree: Tree, nodes: Words, first: int, member: int, start: int) -> Inserts:
    shared: list[int] = []
    if tree.of(first, *SUBJECTS) and not tree.of(member, *SUBJECTS):
        for child in tree.of(first, "mark", *SUBJECTS):
            shared += [n for n in tree.subtree(child) if n in nodes]
    auxiliaries = [c for c in tree.auxiliaries(member) if c < member]
    if not auxiliaries and tree.tags[member] == tree.tags[first]:
        shared += [c for c in tree.auxiliaries(first) if c < first]
    return {start: tuple(sorted(shared))} if shared else {}
