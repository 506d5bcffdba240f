"""The clauses of a sentence that are said to be true each by itself: they are read one by one."""

from __future__ import annotations

from typing import NamedTuple

from claimscore.baseline import modifiers
from claimscore.baseline.conjuncts import shares_object
from claimscore.baseline.doubts import is_doubtful_beside, is_doubtful_word
from claimscore.baseline.tree import Tree, words_of

_CONTRASTS = ("although", "though", "whereas")
_TIMES = ("while", "whilst", "since", "as")


class Clause(NamedTuple):
    """The head of a clause, and what it shares with the one before: a subject, and verbs."""

    root: int
    subject: list[int] | None = None
    verbs: tuple[int, ...] = ()


def separate(tree: Tree) -> list[Clause]:
    """Cut a tree between its clauses, and return what it falls into, in order.

    Cut are coordinated clauses and predicates, clauses joined by a comma alone, contrasts and
    reasons. The conjunctions no longer count as words of the clauses.
    """
    roots = [index for index in range(len(tree)) if tree.heads[index] == index]
    clauses = [Clause(root) for root in roots if tree.labels[root] != "punct"]
    waiting = [
        c
        for c in clauses
        if tree.is_verb(c.root) and all(tree.lower[m] == "so" for m in tree.of(c.root, "mark"))
    ]
    while waiting:
        above = waiting.pop()
        head, subject = above.root, tree.subject(above.root)
        shared = above.subject if subject is None else modifiers.subject_phrase(tree, subject)
        if subject is None and shared is None:
            continue
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
    return sorted(clauses)


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
        inner = [c for c in tree.of(child, "conj") if tree.labels[child] in ("acomp", "attr")]
        child = inner[-1] if inner else child
        before = min(tree.subtree(child)) - 1
        joined = tree.lower[before]
        if tree.labels[before] != "cc" or joined not in ("and", "but", "yet"):
            return none
        if _is_correlated(tree, head) or _lists_without(tree, head, child, before):
            return none
    if tree.of(head, "neg") and joined == "and":
        return child, None
    if tree.lower[child - 1] == "there" or tree.subject(child) is not None:
        return child, None
    if not _is_at_an_end(tree, head, child):
        return child, None
    if tree.is_verb(child) and tree.is_finite(child):
        return child, () if _is_other_verb(tree, head, child) else None
    verbs = [c for c in tree.auxiliaries(head) if c < head]
    if tree.lower[head] in words_of("be"):
        verbs.append(head)
    elif not tree.of(head, "auxpass") or not (
        tree.tags[child][:2] == "JJ" or (tree.tags[child] == "RB" and tree.of(child, "prep"))
    ):
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
        return bool(placed) and "NN" not in kinds
    return tag == "NN" and tree.has_article(word) and "JJ" in kinds


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
    beside = ("punct", "cc", "conj", "advcl", "ccomp", "neg")
    behind = [c for c in tree.children[head] if c > head and tree.labels[c] not in beside]
    if tree.lower[head] in words_of("be") and not behind:
        return False  # "this is because", and what is read as a part of the next subject
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
        return before == "," and tree.lower[first + 1] != "that"
    denied = bool(tree.of(head, "neg")) and not _states(tree, head)
    if mark == "because":
        return not denied
    if mark not in _TIMES:
        return False
    is_state = _states(tree, clause) or bool(tree.of(clause, "auxpass"))
    set_off = before == "," and (first > 0 or "," in tree.words[max(tree.subtree(clause)) + 1 :])
    perfect = any(tree.lower[a] in ("has", "have", "had") for a in tree.auxiliaries(head))
    if mark in ("while", "whilst"):
        return tree.tags[clause] != "VBG" and (set_off or is_state or perfect)
    return is_state and set_off and first > 0 and not denied
