"""Take a negation out: "is not clean" -> "is clean", "does not have" -> "has"."""

from __future__ import annotations

from claimscore.pipeline.llm.rules.grammar import is_noun, low_at, main_verb
from claimscore.pipeline.llm.rules.lexicon import VerbKind, lexicon
from claimscore.pipeline.llm.rules.rewriting import like, replaced
from claimscore.pipeline.llm.rules.subordinate import article_for
from claimscore.pipeline.llm.rules.words import (
    HAVE,
    PREPOSITIONS,
    RELATIVES,
    SUBORDINATORS,
    Token,
    Tokens,
    is_adverb,
    join,
    word_set,
)

_REPLACEMENTS = {
    "never": "always",
    "nobody": "everybody",
    "nothing": "everything",
    "none": "all",
    "nowhere": "everywhere",
    "cannot": "can",
    "neither": "both",
    "nor": "and",
}
_DROPPED = word_set("hardly barely scarcely")
_DO: dict[str, VerbKind] = {"does": "third", "did": "past", "do": "base"}
_FULL = {"ca": "can", "wo": "will", "sha": "shall"}


def affirm(tokens: Tokens) -> Tokens | None:
    """The main clause without its negation; None where it has none."""
    stop = _scope(tokens)
    for i in range(stop):
        low = tokens[i].low
        if low in ("not", "n't"):
            return None if low_at(tokens, i + 1) == "only" else _without_not(tokens, i)
        if low == "no":
            return _without_no(tokens, i)
        if low == "neither":
            return _both(tokens, i)
        if low in _REPLACEMENTS:
            return replaced(tokens, i, i + 1, _REPLACEMENTS[low])
        if low in _DROPPED:
            return (*tokens[:i], *tokens[i + 1 :])
    return None


def _scope(tokens: Tokens) -> int:
    """Where the main clause ends: "We love that it is not noisy" has no negation in it."""
    verb = main_verb(tokens)
    if verb is None:
        return len(tokens)
    closing = (RELATIVES | SUBORDINATORS | {",", ";", "but"}) - {"so", "even", "once", "as"}
    for i in range(verb + 1, len(tokens)):
        if tokens[i].low in closing and not _is_near(tokens, i, verb):
            return i
    return len(tokens)


def _is_near(tokens: Tokens, i: int, verb: int) -> bool:
    return i == verb + 1 and tokens[i].low == "that"


def _without_not(tokens: Tokens, i: int) -> Tokens:
    rest = tokens[i + 1 :]
    if rest and rest[0].low in ("any", "yet"):
        rest = (like(rest[0], "some" if rest[0].low == "any" else "already"), *rest[1:])
    rest = _some_for_any(rest)
    if i == 0:
        return rest
    verb = tokens[i - 1]
    before = tokens[: i - 1]
    if verb.low in _FULL:
        return (*before, like(verb, _FULL[verb.low]), *rest)
    if verb.low in _DO:
        done = _without_do(before, verb, rest)
        if done is not None:
            return done
    return (*tokens[:i], *rest)


def _without_do(before: Tokens, verb: Token, rest: Tokens) -> Tokens | None:
    """ "does not really offer" -> "really offers"."""
    at = next((j for j, token in enumerate(rest) if not is_adverb(token.low)), None)
    forms = lexicon().verb_forms.get(rest[at].low, ()) if at is not None else ()
    if at is None or not any(form.kind == "base" for form in forms):
        return None
    form = lexicon().verb(rest[at].low, _DO[verb.low])
    if _DO[verb.low] == "base" and not before:
        first = like(verb, rest[0].text)
        return (first, *rest[1:])
    return join(before, rest[:at], (like(rest[at], form),), _some_for_any(rest[at + 1 :]))


def _some_for_any(tokens: Tokens) -> Tokens:
    return tuple(like(t, _POSITIVE[t.low]) if t.low in _POSITIVE else t for t in tokens)


_POSITIVE = {"any": "some", "anything": "something", "anyone": "someone", "anywhere": "somewhere"}


def _without_no(tokens: Tokens, i: int) -> Tokens:
    following = low_at(tokens, i + 1)
    if following == "one":
        return replaced(tokens, i, i + 2, "everyone")
    if following == "longer":
        return replaced(tokens, i, i + 2, "still")
    end = i + 1
    while end < len(tokens) - 1 and not _is_phrase_end(tokens, end):
        end += 1
    article = article_for(low_at(tokens, end), following) if following else ""
    if i == 0 and main_verb(tokens) is not None and lexicon().is_plural(low_at(tokens, end)):
        article = "some"
    if not article:
        first = like(tokens[i], tokens[i + 1].text) if i + 1 < len(tokens) else tokens[i]
        return (*tokens[:i], first, *tokens[i + 2 :])
    return replaced(tokens, i, i + 1, article)


def _is_phrase_end(tokens: Tokens, i: int) -> bool:
    """Whether the noun at `i` is the last of its phrase."""
    if not is_noun(tokens[i].low):
        return False
    following = low_at(tokens, i + 1)
    return following in PREPOSITIONS | HAVE or not (is_noun(following) and following[0].isalpha())


def _both(tokens: Tokens, i: int) -> Tokens:
    """ "neither clean nor quiet" -> "both clean and quiet"."""
    changed = replaced(tokens, i, i + 1, "both")
    nor = next((j for j in range(i, len(changed)) if changed[j].low == "nor"), None)
    return changed if nor is None else replaced(changed, nor, nor + 1, "and")
