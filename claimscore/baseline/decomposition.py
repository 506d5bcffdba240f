"""Decompose: one sentence into single claims, by rules tried in a fixed order.

Each rule takes the tokens of a sentence (without its end mark) and gives smaller
sentences, or None. A split is taken only where every part is shorter than the whole and
no content word is lost, so the work ends and a claim that is single stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from claimscore.baseline.clauses import (
    CLAUSE_WORDS,
    carried_subject,
    full_clauses,
    leading_clause,
    opener,
    own_clause,
    semicolon,
)
from claimscore.baseline.coordination import (
    coordinated_objects,
    coordinated_predicates,
    fragments,
    located_in,
    offered_thing,
    paired_conjunction,
    relative_clause,
    repeated_preposition,
)
from claimscore.baseline.grammar import has_content, is_finite
from claimscore.baseline.words import (
    Tokens,
    capitalised,
    is_content,
    is_word,
    render,
    tokenise,
    word_count,
)

Rule = Callable[[Tokens], list[Tokens] | None]

RULES: tuple[Rule, ...] = (
    opener,
    semicolon,
    leading_clause,
    full_clauses,
    relative_clause,
    carried_subject,
    paired_conjunction,
    located_in,
    offered_thing,
    coordinated_predicates,
    coordinated_objects,
    repeated_preposition,
    fragments,
)

#: Longer sentences are first cut where a clause begins; what stays longer is one claim.
MAX_WORDS = 80
_WINDOW = 14
_END_MARKS = frozenset(".!?…")
_EDGE_MARKS = frozenset(",;:-–—")


def decompose(sentence: str) -> list[str]:
    """The single claims of one sentence, each a sentence; the sentence itself where it is single.

    No content word is lost, no claim is empty; a text without a word has no claims.
    """
    tokens = tokenise(sentence)
    if not any(map(is_word, tokens)):
        return []
    body, mark = _without_end(tokens)
    if "?" in mark or not body:
        return [whole(sentence)]
    parts = [part for chunk in _chunks(body) for part in _singles(chunk)]
    if parts == [body]:
        return [whole(sentence)]
    return [_sentence(part) for part in parts]


def decompose_text(text: str, decompose: Callable[[str], list[str]] = decompose) -> list[str]:
    """The claims of a whole text, sentence by sentence."""
    from claimscore.text import split_sentences

    return [c for s in split_sentences(text, splitter="rules") for c in decompose(s)]


def _singles(tokens: Tokens) -> Iterator[Tokens]:
    """Depth first, so the claims come in the sentence's order."""
    waiting = [tokens]
    while waiting:
        part = waiting.pop()
        smaller = _split(part)
        if smaller is None:
            yield part
        else:
            waiting.extend(reversed(smaller))


def _split(tokens: Tokens) -> list[Tokens] | None:
    if word_count(tokens) > MAX_WORDS:
        return None
    for rule in RULES:
        parts = rule(tokens)
        if parts is not None:
            trimmed = [_trim(part) for part in parts]
            if _is_sound(tokens, trimmed):
                return trimmed
    return None


def _is_sound(whole: Tokens, parts: list[Tokens]) -> bool:
    size = word_count(whole)
    if not all(has_content(part) and word_count(part) < size for part in parts):
        return False
    if _is_balanced(whole) and not all(map(_is_balanced, parts)):
        return False
    kept = {token.low for part in parts for token in part}
    return all(token.low in kept for token in whole if is_content(token))


def _is_balanced(tokens: Tokens) -> bool:
    marks = [token.low for token in tokens if not is_word(token)]
    pairs = (("(", ")"), ("[", "]"), ("“", "”"), ('"', '"'))
    return all(
        marks.count(a) % 2 == 0 if a == b else marks.count(a) == marks.count(b) for a, b in pairs
    )


def _trim(tokens: Tokens) -> Tokens:
    start, end = 0, len(tokens)
    while start < end and tokens[start].low in _EDGE_MARKS:
        start += 1
    while end > start and tokens[end - 1].low in _EDGE_MARKS | _END_MARKS:
        end -= 1
    return tokens[start:end]


def _without_end(tokens: Tokens) -> tuple[Tokens, str]:
    end = len(tokens)
    while end and set(tokens[end - 1].low) <= _END_MARKS:
        end -= 1
    return tokens[:end], "".join(token.low for token in tokens[end:])


def _chunks(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens whole, or cut before clauses where they are too many (in one pass)."""
    if word_count(tokens) <= MAX_WORDS:
        yield tokens
        return
    start, seen_verb = 0, False
    for i, token in enumerate(tokens):
        if token.low in ";.!?" or token.low in CLAUSE_WORDS or token.low == ",":
            window = tokens[i + 1 : i + 1 + _WINDOW]
            hard = token.low in ";.!?"
            if (hard or (seen_verb and own_clause(window, 0))) and _worth(tokens, start, i):
                yield _trim(tokens[start:i])
                start, seen_verb = i + 1, False
                continue
        seen_verb = seen_verb or is_finite(tokens[max(start, i - 3) : i + 2], min(i - start, 3))
    last = _trim(tokens[start:])
    if any(map(is_word, last)):
        yield last if start else tokens


def _worth(tokens: Tokens, start: int, end: int) -> bool:
    return any(is_content(token) for token in tokens[start:end]) and any(
        is_word(token) for token in tokens[end + 1 : end + 1 + _WINDOW]
    )


def _sentence(tokens: Tokens) -> str:
    return capitalised(render(tokens)) + "."


def whole(sentence: str) -> str:
    """A sentence as one claim, with a capital and an end mark."""
    text = capitalised(sentence.strip())
    closed = text.rstrip("\"'”’)]»")
    return text if closed[-1:] in _END_MARKS else text + "."
