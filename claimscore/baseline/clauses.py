"""The clauses of a sentence that are said to be true each by itself: they are read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from claimscore.baseline import modifiers
from claimscore.baseline.conjuncts import shares_object
from claimscore.baseline.doubts import is_doubtful_beside, is_doubtful_word
from claimscore.baseline.surface import be
from claimscore.baseline.tree import FINITE, Tree, words_of

_CONTRASTS = ("although", "though", "whereas")
_OPENINGS = ("additionally", "also", "but", "however")
_TIMES = ("while", "whilst", "since", "as")


class Clause(NamedTuple):
    """The head of a clause, and what it shares with the one before: a subject, and verbs."""

    root: int
    subject: Sequence[int | str] | None = None
    verbs: tuple[int | str, ...] = ()


def separate(tree: Tree) -> list[Clause]:
    """Cut a tree between its clauses, and return what it falls into, in order.

    Cut are coordinated clauses and predicates, clauses joined by a comma alone, contrasts and
    reasons. The conjunctions no longer count as words of the clauses.
    """
    roots = [index for index in range(len(tree)) if tree.heads[index] == index]
    clauses = [Clause(root) for root in roots if tree.labels[root] != "punct"]
    if len(clauses) == 1:
        clauses = _described(tree, clauses[0].root) or clauses
    judged = next(filter(None, (_judged(tree, word) for word in range(1, len(tree) - 2))), None)
    if judged:
        verb, predicate, base = judged
        tree.cut(verb, [verb - 1])
        tree.cut(predicate, [])
    waiting = [
        c
        for c in clauses
        if tree.is_verb(c.root) and all(tree.lower[m] == "so" for m in tree.of(c.root, "mark"))
    ]
    while waiting:
        above = waiting.pop()
        head, subject = above.root, tree.subject(above.root)
        shared = above.subject if subject is None else modifiers.subject_phrase(tree, subject)
        for child in reversed(list(tree.children[head])):
            clause = Clause(child)
            if not _is_separate(tree, head, child):
                child, verbs = _predicate(tree, head, child)
                if verbs is None or not shared:
                    continue
                clause = Clause(child, shared, verbs)
            tree.cut(child, _conjunctions(tree, head, child))
            clauses.append(clause)
            waiting += [clause] if tree.is_verb(child) else []
        for more in (_accompanied(tree, head), _lacked(tree, head)):
            clauses += [more._replace(subject=more.subject or shared)] if more else []
    if judged:
        before = tree.trim(tree.subtree([base, *tree.ancestors(base)][-1]))
        while tree.labels[before[0]] in ("cc", "punct") or tree.lower[before[0]] in _OPENINGS:
            before.pop(0)
        clauses.append(Clause(predicate, ("that", *before), (tree.lower[verb],)))
    return sorted(clauses, key=lambda clause: clause.root)


def _described(tree: Tree, root: int) -> list[Clause]:
    """What a sentence without a verb says of its nouns: of "A clean and large room with a good
    bed, that is new" that the room is clean, large and new, and has a bed; none where it says
    anything else."""
    nouns = [root]
    described: list[tuple[int, list[int], Clause]] = []
    for noun in nouns:
        nouns += [n for n in tree.of(noun, "conj") if not tree.is_verb(n)]
        adjectives = [a for a in tree.of(noun, "amod") if a < noun]
        members = [m for a in adjectives for m in (a, *tree.of(a, "conj"))]
        plural = tree.tags[noun] == "NNS"
        if (
            tree.tags[noun] not in ("NN", "NNS")
            or not (adjectives or tree.of(noun, "relcl"))
            or any(tree.tags[m] not in ("JJ", "VBN") for m in members)
            or any(tree.lower[m] in words_of("attributive") for m in members)
        ):
            return []
        words = {noun}.union(*map(tree.subtree, tree.of(noun, "compound")))
        of_noun: list[tuple[int, list[int], tuple[str, ...]]] = []
        articles = tree.of(noun, "det") if tree.has_article(noun) else []
        known = {*articles, *adjectives, *nouns, *tree.of(noun, "compound", "punct", "cc")}
        for child in (c for c in tree.children[noun] if c not in known):
            low, below = tree.lower[child], tree.of(child, "pobj")
            if low in ("at", "in", "on") and below and _is_place(tree, below[0]):
                words |= tree.subtree(child)
            elif low == "with" and len(below) == 1 and _is_thing_had(tree, below[0]):
                of_noun.append((below[0], [child], ("have" if plural else "has",)))
            elif _is_said_of_nouns(tree, noun, child):
                described.append((child, _conjunctions(tree, noun, child), Clause(child)))
            elif tree.subject(child) == (word := modifiers.relative_word(tree, child)) is not None:
                of_noun.append((child, [word], ()))
            else:
                return []
        of_noun += [(adjective, [], (be(False, plural),)) for adjective in adjectives]
        described += [(n, gone, Clause(n, ("the", *sorted(words)), v)) for n, gone, v in of_noun]
    for index, gone, _ in described:
        tree.cut(index, gone)
    return [clause for *_, clause in described]


def _is_place(tree: Tree, noun: int) -> bool:
    return bool(tree.of(noun, "det")) and not tree.of(noun, "relcl")


def _is_said_of_nouns(tree: Tree, noun: int, verb: int) -> bool:
    """Whether a clause with a subject follows nouns, as in "Nice room, as it is large"."""
    subject = tree.subject(verb)
    if not tree.is_verb(verb) or not tree.is_finite(verb) or subject is None or verb < noun:
        return False
    marks = {tree.lower[m] for m in tree.of(verb, "mark")}
    known = tree.labels[verb] in ("advcl", "conj") and verb not in tree.unsure
    return known and marks <= {"although", "as", "because", "though", "so"}


_HAVE = {"is": "has", "are": "have", "was": "had", "were": "had"}


def _accompanied(tree: Tree, verb: int) -> Clause | None:
    """The noun of "with a good bed" behind "is" and an adjective, which the subject has."""
    forms = [n for n in (verb, *tree.of(verb, "auxpass")) if tree.lower[n] in _HAVE]
    subject = tree.subject(verb)
    tag = tree.tags[subject] if subject is not None else ""
    if not forms or tag[:3] == "NNP":
        return None
    qualities = [*tree.of(verb, "acomp"), *([] if forms[0] == verb else [verb])]
    qualities += [m for quality in qualities for m in tree.of(quality, "conj")]
    takes = any(tree.lower[m] in words_of("taking_with") or tree.tags[m] != "JJ" for m in qualities)
    if not qualities and tag in ("NN", "NNS", "DT"):
        qualities = [n for n in tree.of(verb, "attr") if tree.has_article(n)]
        takes = any(map(tree.is_agent, qualities))
    for phrase in [p for n in {verb, *qualities} for p in tree.of(n, "prep", "conj")]:
        nouns, before = tree.of(phrase, "pobj"), tree.labels[phrase - 1]
        is_joined = before == "cc" or tree.words[phrase - 1] == ","
        behind = tree.lower[phrase] == "with" and bool(qualities) and phrase >= max(qualities)
        if not behind or not (is_joined or not takes) or len(nouns) != 1:
            continue
        if _is_thing_had(tree, nouns[0]) and _ends(tree, phrase, verb):
            tree.cut(nouns[0], [phrase, *([phrase - 1] if before == "cc" else [])])
            who = [subject, *qualities] if subject is not None and tag == "DT" else None
            return Clause(nouns[0], who, (_HAVE[tree.lower[forms[0]]],))
    return None


def _ends(tree: Tree, phrase: int, verb: int) -> bool:
    """Whether nothing of a clause stands behind a phrase."""
    last = max(tree.subtree(phrase))
    return all(tree.labels[n] in ("punct", "cc") for n in tree.subtree(verb) if n > last)


def _is_thing_had(tree: Tree, noun: int) -> bool:
    """Whether what is "with" something is a thing it has: described, and not known before."""
    if not tree.has_article(noun) and (
        tree.of(noun, "det", "poss", "nummod") or not tree.of(noun, "acl", "relcl", "amod")
    ):
        return False
    words = tree.subtree(noun).difference(*map(tree.subtree, tree.of(noun, "relcl")))
    is_thing = tree.tags[noun] in ("NN", "NNS") and not tree.is_agent(noun)
    apart = tree.of(noun, "nsubj", "appos") or any(tree.tags[n] in FINITE for n in words)
    return is_thing and not apart


def _lacked(tree: Tree, verb: int) -> Clause | None:
    """What is not there: of "there is a bar but no pool" and "has a bar but no pool" the pool."""
    there = tree.of(verb, "expl")
    nouns = [n for n in tree.of(verb, "attr", "dobj") if n > verb]
    nouns += [m for n in nouns for p in tree.of(n, "prep") for m in tree.of(p, "pobj")]
    if tree.lower[verb] not in words_of("be") | {"has", "have", "had"}:
        return None
    for noun in [c for n in (verb, *nouns) for c in tree.of(n, "conj")]:
        first = min(tree.subtree(noun))
        denied = tree.lower[first] == "no" or (tree.lower[first] == "not" and there)
        joined = tree.tags[noun][:2] == "NN" and tree.labels[first - 1] == "cc"
        if nouns and denied and joined and _ends(tree, noun, verb):
            tree.cut(noun, [first - 1])
            form = be(tree.tags[verb] == "VBD", tree.tags[noun] == "NNS")
            return Clause(noun, there or None, (form,) if there else (verb,))
    return None


def _judged(tree: Tree, word: int) -> tuple[int, int, int] | None:
    """The head, the predicate and what is above of "which is very good" that ends a sentence and is
    about all that was said before."""
    verb = tree.heads[word]
    predicates, noun = tree.of(verb, "acomp", "attr"), tree.heads[verb]
    ends = set(tree.labels[max(tree.subtree(verb)) + 1 :]) <= {"punct"}
    if tree.lower[word] != "which" or tree.lower[verb] not in ("is", "was") or not ends:
        return None
    if verb != word + 1 or len(predicates) != 1 or tree.of(predicates[0], "conj"):
        return None
    if tree.lower[predicates[0]] not in words_of("judging") or noun > word:
        return None
    if tree.labels[verb] == "relcl" and modifiers.is_relative_claim(tree, noun, verb):
        return None
    return verb, predicates[0], noun


def _predicate(tree: Tree, head: int, child: int) -> tuple[int, tuple[int, ...] | None]:
    """A word that is the head of a predicate of the subject of `head`, and the verbs that the two
    share; None for the verbs where there is no such word."""
    none = child, None
    if child < head or (head in tree.hypothetical and not tree.of(head, "neg")):
        return none
    marks = [n for n in sorted(tree.subtree(child))[:2] if tree.labels[n] == "mark"]
    if marks:
        if tree.lower[marks[0]] not in _CONTRASTS[:2] or tree.labels[child] != "advcl":
            return none
        joined = "but"
    else:
        kinds = ("acomp", "attr", "prep")
        inner = [c for c in tree.of(child, "conj") if tree.labels[child] in kinds]
        child = inner[-1] if inner else child
        before = min(tree.subtree(child)) - 1
        joined = tree.lower[before]
        listed = joined == "," and tree.tags[head] == "VBN" and tree.tags[child] == "JJ"
        if listed and tree.of(child, "cc"):
            joined = "and"
        elif tree.labels[before] != "cc" or joined not in ("and", "but", "yet"):
            return none
        if _is_correlated(tree, head) or _lists_without(tree, head, child, before):
            return none
    if tree.of(head, "neg") and joined == "and":
        return child, None
    if tree.lower[child - 1] in ("then", "there") or tree.subject(child) is not None:
        return child, None
    if not _is_at_an_end(tree, head, child):
        return child, None
    if tree.is_verb(child) and tree.is_finite(child):
        return child, () if _is_other_verb(tree, head, child) else None
    verbs = [c for c in tree.auxiliaries(head) if c < head]
    if tree.lower[head] in words_of("be"):
        verbs.append(head)
    else:
        tag = tree.tags[child][:2]
        if not {tree.lower[v] for v in verbs} & words_of("be"):
            return child, None
        if tag == "IN" and tree.lower[child] in words_of("locatives") and tree.of(child, "pobj"):
            verbs.append(head)
        elif not (tag == "JJ" or (tag == "RB" and tree.of(child, "prep"))):
            is_noun = tag == "NN" and tree.has_article(child) and tree.tags[head] == "VBN"
            if not is_noun or tree.labels[before - 1] == "punct":
                return child, None
    return child, tuple(verbs) if _is_state(tree, head, child, joined) else None


def _lists_without(tree: Tree, head: int, last: int, conjunction: int) -> bool:
    """Whether a list before a word lacks a conjunction without the one before the word."""
    listed = [
        (tree.heads[n], n)
        for n in tree.subtree(head)
        if tree.labels[n] == "conj" and head < n < conjunction
    ]
    return tree.labels[tree.heads[last]] == "conj" or any(
        not {c for member in pair for c in tree.of(member, "cc")} - {conjunction} for pair in listed
    )


def _is_other_verb(tree: Tree, head: int, verb: int) -> bool:
    """Whether a coordinated verb says something of the subject by itself."""
    if tree.labels[verb] == "advcl":
        return True
    if tree.labels[verb] != "conj" or is_doubtful_word(tree, verb):
        return False
    if verb in tree.unsure and _may_be_of_another(tree, head, verb):
        return False
    return not shares_object(tree, head, verb) and not is_doubtful_beside(tree, verb, head)


def _is_state(tree: Tree, head: int, word: int, joined: str) -> bool:
    """Whether a word behind "is" and a conjunction says how the subject is."""
    tag, first = tree.tags[word][:2], tree.of(head, "acomp", "attr", "prep")
    if tree.lower[head] not in words_of("be"):
        return True
    predicates = [c for c in first if head < c < word]
    kinds = {tree.tags[c][:2] for c in predicates}
    if tag == "JJ" and not tree.of(word, "det"):
        described = "JJ" not in kinds and tree.of(word, "advmod", "prep")
        return joined != "and" or bool(described) or tree.heads[word] == head
    if tree.tags[word] == "VBN":
        degrees = [tree.lower[c] for c in tree.of(word, "advmod") if c == word - 1]
        return "JJ" in kinds or any(d == "well" or d.endswith("ly") for d in degrees)
    if tag == "IN":
        used = {tree.lower[n] for c in predicates for n in tree.subtree(c)}
        placed = tree.lower[word] in words_of("locatives") - used and tree.of(word, "pobj")
        apart = tree.words[min(tree.subtree(word)) - 2] == ","
        return bool(placed) and not ("NN" in kinds and apart)
    is_beside = tree.tags[min(tree.subtree(word)) - 2] == "JJ"
    return tag == "NN" and bool(tree.of(word, "det")) and "JJ" in kinds and is_beside


def _conjunctions(tree: Tree, head: int, child: int) -> list[int]:
    """The words that join a clause to its head: "but", "although", "so"."""
    first = min(tree.subtree(child))
    before = [c for c in (first - 1,) if c >= 0 and tree.labels[c] == "cc"]
    marks = [n for n in sorted(tree.subtree(child))[:2] if tree.labels[n] == "mark"]
    joining = ("even", "so", "yet", "though", "although")
    later = child if child > head else head
    start = min(tree.subtree(later) - tree.subtree(child)) if later == head else first
    openings = [c for c in tree.of(later, "advmod", "mark") if c <= start + 1]
    opening = [c for c in openings if tree.lower[c] in joining]
    return list(dict.fromkeys(before + marks + opening))


def _is_separate(tree: Tree, head: int, child: int) -> bool:
    label, subject = tree.labels[child], tree.subject(child)
    if label not in ("conj", "parataxis", "ccomp", "advcl"):
        return False
    if not tree.is_verb(child) or not tree.is_finite(child) or subject is None or subject > child:
        return False
    if tree.quoted_in(child) != tree.quoted_in(head) or not _is_at_an_end(tree, head, child):
        return False
    start = min(tree.subtree(child)) if child > head else max(tree.subtree(child)) + 1
    border = tree.lower[max(0, start - 2) : start + 2]
    linked = words_of("dropped_adverbs").intersection(border) or "so" in border
    if child in tree.unsure and not linked and _may_be_of_another(tree, head, child):
        return False
    if marks := [n for n in sorted(tree.subtree(child))[:2] if tree.labels[n] == "mark"]:
        return _is_asserted(tree, head, child, marks[0])
    if label == "advcl":
        return tree.lower[min(tree.subtree(child))] == "however"
    if label == "conj":
        joined = [tree.lower[c] for c in tree.of(head, "cc", "preconj")]
        if {"or", "nor", "either", "neither"}.intersection(joined):
            return False
        return not _is_correlated(tree, head)
    if label == "ccomp" and not _states(tree, head) and not linked:
        return False
    return tree.lower[child] not in words_of("speech") and "," in border


def _may_be_of_another(tree: Tree, head: int, child: int) -> bool:
    """Whether another finite verb stands between a clause and its head."""
    between = (tree.subtree(head) - tree.subtree(child)).intersection(range(head + 1, child))
    return any(
        tree.is_verb(n) and tree.is_finite(n) for n in between if tree.labels[n][:3] != "aux"
    )


def _is_at_an_end(tree: Tree, head: int, child: int) -> bool:
    """Whether a clause stands in one piece before or behind the rest of its head's."""
    nodes = tree.subtree(child)
    rest = tree.subtree(head) - nodes
    rest -= {n for n in rest if tree.labels[n] in ("punct", "cc")}
    return max(rest) < min(nodes) or min(rest) > max(nodes)


def _states(tree: Tree, verb: int) -> bool:
    """Whether a verb says how something is, and not who says or thinks it."""
    return tree.lower[verb] in words_of("be") | {"has", "have", "had"}


def _is_correlated(tree: Tree, head: int) -> bool:
    """Whether a clause says "not only", which the next one takes up."""
    return any(tree.lower[n : n + 2] == ["not", "only"] for n in tree.subtree(head))


def _is_asserted(tree: Tree, head: int, clause: int, conjunction: int) -> bool:
    """Whether a clause with a conjunction is a contrast or a reason that is said to be true."""
    mark, first = tree.lower[conjunction], min(tree.subtree(clause))
    if conjunction != first and tree.lower[first] != "even":
        return False
    before = tree.lower[first - 1] if first else ","
    if first and tree.tags[first - 1].startswith("RB"):
        return False  # "just because", "as though"
    if mark in _CONTRASTS:
        return True
    if mark == "so":
        purpose = any(tree.tags[a] == "MD" for a in tree.auxiliaries(clause)) and before != ","
        return not purpose and tree.lower[first + 1] != "that"
    denied = bool(tree.of(head, "neg")) and not _states(tree, head)
    if mark == "because":
        return not denied
    is_state = _states(tree, clause) or bool(tree.of(clause, "auxpass"))
    if mark == "as" and first > 0 and _states(tree, head) and not denied:
        compared = {"as", "so", "such", "same", "just", "exactly"}
        return is_state and not compared & set(tree.lower[:first])
    set_off = before == "," and (first > 0 or "," in tree.words[max(tree.subtree(clause)) + 1 :])
    perfect = any(tree.lower[a] in ("has", "have", "had") for a in tree.auxiliaries(head))
    if mark in ("while", "whilst"):
        return tree.tags[clause] != "VBG" and (set_off or is_state or perfect)
    return is_state and set_off and first > 0 and not denied
