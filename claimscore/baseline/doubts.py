"""What is not cut, because parsers often read it wrong, or because its parts would not be true."""

from __future__ import annotations

from claimscore.baseline.tree import Tree, words_of


def is_doubtful(tree: Tree) -> bool:
    """Whether a sentence stays whole: a question, an unclear one, one that parsers get wrong."""
    return (
        "?" in tree.words[-3:]
        or "respectively" in tree.lower
        or ("first" in tree.lower and "then" in tree.lower[tree.lower.index("first") :])
        or _says_the_same(tree)
        or any(tree.tags[k] == "CC" and _is_unlike(tree, k) for k in range(len(tree) - 3))
        or tree.has_stray_quote()
        or not tree.is_closed
        or _is_glued(tree)
    )


def is_doubtful_word(tree: Tree, index: int) -> bool:
    """Whether a word is one that parsers get wrong, so that its clause stays whole."""
    word, low, label = tree.words[index], tree.lower[index], tree.labels[index]
    head = tree.heads[index]
    if label.startswith("csubj"):
        return True
    if word in ("-", "–", "—", "--"):
        return index not in tree.brackets
    if low in ("*", "no.") or low.startswith("..") or (low == "no" and index >= len(tree) - 2):
        return True
    if low == "however" and tree.labels[index + 1 : index + 2] != ["punct"]:
        return min(tree.subtree(head)) < index  # another clause begins there
    if tree.tags[index] in ("VBD", "VBP", "VBZ") and label in ("ROOT", "conj"):
        return bool(tree.of(index, "compound", "det", "amod", "poss", "nummod"))  # a noun
    if label == "ccomp" and index < head:
        return tree.quoted_in(index) is None and tree.lower[head] not in words_of("speech")
    return _is_cleft(tree, index)


def _is_unlike(tree: Tree, conjunction: int) -> bool:
    """Whether what follows is no member like the others: "and nothing else", "and, finally, his
    wife", or has no verb: "and pillows soft."."""
    after, tags = tree.lower[conjunction + 1], tree.tags[conjunction + 1 : conjunction + 4]
    has_no_verb = tags[0] in ("NN", "NNS") and tags[1:] == ["JJ", "."]
    return after in (",", "nothing") or has_no_verb


def _says_the_same(tree: Tree) -> bool:
    """Whether all is said of something else again: "and so was the bar"."""
    return any(
        low == "so" and verb.startswith(("VB", "MD")) and subject.startswith(("NN", "DT", "PR"))
        for low, verb, subject in zip(tree.lower, tree.tags[1:], tree.tags[2:], strict=False)
    )


def _is_glued(tree: Tree) -> bool:
    """Whether a sentence goes on behind a quotation in which another one ends."""
    return any(
        tree.words[closing] == "'" and closing + 1 < len(tree) and tree.is_capital(closing + 1)
        for _, closing in tree.quotes
    )


def _is_cleft(tree: Tree, index: int) -> bool:
    """Whether a word is the "it" of "it was in 1990 that"."""
    head = tree.heads[index]
    if tree.lower[index] != "it" or tree.lower[head] not in words_of("be") or index > head:
        return False
    clauses = tree.of(head, "ccomp", "advcl", "relcl")
    return any(tree.is_verb(c) and tree.is_finite(c) for c in clauses)


def is_doubtful_beside(tree: Tree, verb: int, first: int) -> bool:
    """Whether it is unclear how a verb shares the subject and auxiliaries of the one before."""
    auxiliaries = [c for c in tree.auxiliaries(verb) if c < verb]
    start, tag = min(tree.subtree(verb)), tree.tags[verb]
    if start and tree.tags[start - 1][:2] in ("NN", "PR", "CD", "DT"):
        return True  # that is its subject, read as part of the clause before
    if tree.of(first, "acomp") and tag == "VBD" and tree.lower[verb].endswith("ed"):
        return not tree.of(verb, "dobj", "attr", "acomp", "npadvmod", "xcomp", "ccomp")
    if tree.of(first, "auxpass") and not auxiliaries:
        perfect = any(tree.lower[a] == "been" for a in tree.auxiliaries(first))
        if tag == "VBD" and perfect:
            return True
        if tree.lower[verb] in words_of("naming"):
            return tag == "VBD" or not tree.of(verb, "oprd", "dobj", "prep")
        return tag == "VBN" and bool(tree.of(verb, "dobj"))
    if not any(tree.tags[a] == "MD" for a in tree.auxiliaries(first)):
        return False
    return tag in ("VBD", "VBN") or tree.is_past(verb)


def is_universal(tree: Tree, noun: int) -> bool:
    """Whether a noun is said to be all or none, which its phrases narrow."""
    narrowing = tree.of(noun, "det", "predet", "amod", "neg")
    return any(tree.lower[c] in ("all", "every", "any", "no", "each", "only") for c in narrowing)
