"""The clauses of a sentence that are said to be true each by itself: they are read one by one."""

from __future__ import annotations

from collections.abc import Collection

from claimscore.baseline.doubts import is_doubtful_word
from claimscore.baseline.tree import Tree, words_of

_CONTRASTS = ("although", "though", "whereas")
_TIMES = ("while", "whilst", "since", "as")


def separate(tree: Tree) -> list[int]:
    """Cut a tree between its clauses, and return the heads of what it falls into, in order.

    Cut are coordinated clauses that have each a subject, those joined by a comma alone, contrasts
    and reasons. The conjunctions no longer count as words of the clauses.
    """
    roots = [index for index in range(len(tree)) if tree.heads[index] == index]
    waiting = [root for root in roots if tree.is_verb(root) and tree.subject(root) is not None]
    while waiting:
        head = waiting.pop()
        for child in reversed(list(tree.children[head])):
            if _is_separate(tree, head, child):
                _take_beginning(tree, head, child)
                tree.cut(child, _conjunctions(tree, head, child))
                roots.append(child)
                waiting.append(child)
            elif tree.labels[child] == "conj" and tree.is_verb(child):
                waiting.append(child)
    return sorted(root for root in roots if tree.labels[root] != "punct")


def _conjunctions(tree: Tree, head: int, child: int) -> list[int]:
    """The words that join a clause to its head: "but", "although", "so"."""
    first = min(tree.subtree(child))
    before = [c for c in tree.of(head, "cc") if c == first - 1]
    marks = [n for n in sorted(tree.subtree(child))[:2] if tree.labels[n] == "mark"]
    joining = ("even", "so", "yet", "though", "although")
    later = child if child > head else head
    start = min(tree.subtree(later) - tree.subtree(child)) if later == head else first
    opening = [c for c in tree.of(later, "advmod") if c <= start + 1 and tree.lower[c] in joining]
    return before + marks + opening


def _is_separate(tree: Tree, head: int, child: int) -> bool:
    label, subject = tree.labels[child], tree.subject(child)
    if label not in ("conj", "parataxis", "ccomp", "advcl"):
        return False
    if not tree.is_verb(child) or not tree.is_finite(child) or subject is None or subject > child:
        return False
    if tree.tags[subject] in ("WDT", "WP") or (label != "ccomp" and is_doubtful_word(tree, child)):
        return False
    if tree.quoted_in(child) != tree.quoted_in(head) or not _is_at_an_end(tree, head, child):
        return False
    if child in tree.unsure and _may_be_of_another(tree, head, child):
        return False
    if marks := [n for n in sorted(tree.subtree(child))[:2] if tree.labels[n] == "mark"]:
        return _is_asserted(tree, head, child, marks[0])
    if label == "advcl":
        return False
    if label == "conj":
        joined = [tree.lower[c] for c in tree.of(head, "cc", "preconj")]
        if {"or", "nor", "either", "neither"}.intersection(joined):
            return False
        return not _is_correlated(tree, head)
    if label == "ccomp" and child > head:
        return False
    start = min(tree.subtree(child)) if child > head else max(tree.subtree(child)) + 1
    border = tree.lower[max(0, start - 1) : start + 2]
    linked = words_of("dropped_adverbs").intersection(border) or "so" in border
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
    if len(nodes | _marks(tree, range(min(nodes), max(nodes)))) <= max(nodes) - min(nodes):
        return False
    rest = tree.subtree(head) - nodes
    rest -= {n for n in rest if tree.labels[n] in ("punct", "cc")}
    rest = rest.difference(*map(tree.subtree, _beginning(tree, head, child)))
    beside = ("punct", "cc", "conj", "advcl", "ccomp", "neg")
    said = [c for c in tree.children[head] if c > head and tree.labels[c] not in beside]
    if tree.lower[head] in words_of("be") and not said:
        return False  # "this is because", and what is read as a part of the next subject
    return max(rest) < min(nodes) or min(rest) > max(nodes)


def _beginning(tree: Tree, head: int, child: int) -> list[int]:
    """The phrases between "and" and a clause, which belong to it: "and in 1990 he left"."""
    joined = max((c for c in tree.of(head, "cc") if head < c < child), default=len(tree))
    labels = ("prep", "advmod", "npadvmod", "advcl")
    phrases = tree.of(head, *labels) if tree.labels[child] == "conj" else []
    return [n for n in phrases if joined < n < min(tree.subtree(child))]


def _take_beginning(tree: Tree, head: int, child: int) -> None:
    for phrase in _beginning(tree, head, child):
        tree.move(phrase, child)


def _marks(tree: Tree, nodes: Collection[int]) -> set[int]:
    return {n for n in nodes if tree.labels[n] == "punct"}


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
    if mark == "since":
        return is_state and not perfect and not denied
    return is_state and set_off and first > 0 and not denied
