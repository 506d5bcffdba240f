"""Say the opposite by another word: everyone -> no one, close -> far away, clean -> dirty."""

from __future__ import annotations

from claimscore.baseline.grammar import (
    adjectives_end,
    is_adjective,
    is_noun,
    is_participle,
    likely_verb,
    low_at,
    main_verb,
    takes_not,
)
from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.rewriting import replaced, with_article
from claimscore.baseline.words import (
    BE,
    CONJUNCTIONS,
    DETERMINERS,
    FINITE_BE,
    HAVE,
    MODALS,
    POSSESSIVES,
    Tokens,
    is_adverb,
    join,
    make,
    word_set,
)


def quantifier(tokens: Tokens) -> Tokens | None:
    """ "Everyone liked it" -> "No one liked it"; "All the rooms" -> "Not all the rooms"."""
    verb = likely_verb(tokens)
    for i in range(verb if verb is not None else 0):
        low = tokens[i].low
        if low in _PRONOUN_COMPLEMENTS:
            return replaced(tokens, i, i + 1, _PRONOUN_COMPLEMENTS[low])
        if low in _SUBJECT_QUANTIFIERS and i == 0 and _quantifies(tokens, i):
            return replaced(tokens, i, i + 1, _SUBJECT_QUANTIFIERS[low])
    return _adverb_of_time(tokens, verb)


_PRONOUN_COMPLEMENTS = {
    "everyone": "no one",
    "everybody": "nobody",
    "everything": "nothing",
    "someone": "no one",
    "somebody": "nobody",
    "something": "nothing",
}
_SUBJECT_QUANTIFIERS = {
    "all": "not all",
    "every": "not every",
    "each": "not every",
    "most": "few",
    "many": "few",
    "few": "many",
    "some": "no",
    "several": "no",
}
_TIMES = {
    "always": "never",
    "often": "rarely",
    "usually": "rarely",
    "frequently": "rarely",
    "sometimes": "never",
    "rarely": "often",
    "seldom": "often",
    "constantly": "never",
    "everywhere": "nowhere",
}


def _quantifies(tokens: Tokens, i: int) -> bool:
    following = low_at(tokens, i + 1)
    if tokens[i].low in ("some", "several", "most", "many", "few") and following == "of":
        return tokens[i].low in ("most", "many", "few")
    determined = following in DETERMINERS | POSSESSIVES | {"of"}
    return determined or is_noun(following) or is_adjective(following)


def _adverb_of_time(tokens: Tokens, verb: int | None) -> Tokens | None:
    if verb is None:
        return None
    start, end = verb, verb + 1
    while start and is_adverb(tokens[start - 1].low):
        start -= 1
    while is_adverb(low_at(tokens, end)) or low_at(tokens, end) in BE:
        end += 1
    for i in range(start, end):
        if tokens[i].low in _TIMES and not (i > verb and _is_comparison(tokens, i)):
            return replaced(tokens, i, i + 1, _TIMES[tokens[i].low])
    return None


def _is_comparison(tokens: Tokens, i: int) -> bool:
    return low_at(tokens, i - 1) in ("more", "less", "most", "least", "as", "so", "too")


def existence(tokens: Tokens) -> Tokens | None:
    """ "There is a pool" -> "There is no pool"."""
    verb = main_verb(tokens)
    if verb is None or not verb or tokens[verb - 1].low != "there":
        return None
    last = verb
    while low_at(tokens, last + 1) in BE or _is_loose_adverb(tokens, last + 1):
        last += 1
    if tokens[last].low not in BE and not is_adverb(tokens[last].low):
        return None
    at = last + 1
    if low_at(tokens, at) in ("a", "an", "some", "any"):
        return replaced(tokens, at, at + 1, "no")
    for phrase in _PLENTY:
        if [token.low for token in tokens[at : at + len(phrase)]] == phrase:
            return replaced(tokens, at, at + len(phrase), "no")
    if is_noun(low_at(tokens, at)) or is_adjective(low_at(tokens, at)):
        return join(tokens[:at], make("no"), tokens[at:])
    return None


def _is_loose_adverb(tokens: Tokens, i: int) -> bool:
    """ "also", "definitely": adverbs of the sentence, not the degree of a description."""
    return is_adverb(low_at(tokens, i)) and not is_adjective(low_at(tokens, i + 1))


_PLENTY = [["a", "lot", "of"], ["lots", "of"], ["plenty", "of"], ["many"], ["several"]]


def nearness(tokens: Tokens) -> Tokens | None:
    """ "is close to", "is near" -> "is far away from"."""
    verb = main_verb(tokens)
    if verb is None:
        return None
    for i in range(verb + 1, min(verb + 5, len(tokens))):
        low = tokens[i].low
        degree = all(is_adverb(t.low) or is_participle(t.low) for t in tokens[verb + 1 : i])
        if low == "far" and degree:
            end = i + 1 + (low_at(tokens, i + 1) == "away")
            if low_at(tokens, end) == "from":
                return replaced(tokens, i, end + 1, "close to")
        if low in ("close", "near") and degree:
            end = i + 1 + (low_at(tokens, i + 1) == "to")
            if low == "close" and end == i + 1:
                return (
                    None
                    if low_at(tokens, end) == "enough"
                    else replaced(tokens, i, end, "far away")
                )
            return replaced(tokens, i, end, "far away from")
    return None


def antonym(tokens: Tokens) -> Tokens | None:
    """ "The room is clean" -> "The room is dirty", "has a great view" -> "has a terrible view"."""
    verb = main_verb(tokens)
    start = 0 if verb is None else verb + 1
    if verb is not None and (tokens[verb].low in MODALS or _is_perfect(tokens, verb)):
        return None
    if (
        verb is not None
        and tokens[verb].low not in FINITE_BE | HAVE
        and not _may_keep_verb(tokens, verb)
    ):
        return None
    at = _described_at(tokens, start)
    if at is None:
        return None
    opposite = lexicon().antonyms.get(tokens[at].low)
    known = opposite or lexicon().adverb_antonyms.get(tokens[at].low)
    if known is None or low_at(tokens, at + 1) == "enough" or low_at(tokens, at - 1) == "too":
        return None
    following = low_at(tokens, at + 1)
    if tokens[at].low in _ALONE and (following == "to" or is_noun(following)):
        return None
    return with_article(replaced(tokens, at, at + 1, known), at)


#: Words whose antonym does not fit before a noun or "to": "a full kitchen", "perfect to walk".
_ALONE = word_set("full free open right perfect complete new old big other")


def _is_perfect(tokens: Tokens, verb: int) -> bool:
    return (
        tokens[verb].low in HAVE and low_at(tokens, verb + 1) != "been" and takes_not(tokens, verb)
    )


def _may_keep_verb(tokens: Tokens, verb: int) -> bool:
    bases = {form.base for form in lexicon().verb_forms.get(tokens[verb].low, ())}
    return bool(bases & (lexicon().linking | _GIVING))


_GIVING = word_set("offer provide serve make have get feature include enjoy receive")
_SKIPPED = (
    DETERMINERS | POSSESSIVES | {"been", "being", "be", "of", "located", "situated", "in", "at"}
)


def _described_at(tokens: Tokens, start: int) -> int | None:
    """The one description after the verb; None where several are joined or none is there."""
    i = start
    while i < len(tokens) and (tokens[i].low in _SKIPPED or is_adverb(tokens[i].low)):
        if tokens[i].low in lexicon().adverb_antonyms and is_participle(low_at(tokens, i + 1)):
            return i
        i += 1
    if not is_adjective(low_at(tokens, i)):
        return None
    end = adjectives_end(tokens, i)
    joined = (
        low_at(tokens, end) in CONJUNCTIONS | {",", "&"}
        and adjectives_end(tokens, end + 1) > end + 1
    )
    return None if joined or end - i > 1 else i


def verb_antonym(tokens: Tokens) -> Tokens | None:
    """ "We loved it" -> "We hated it"."""
    verb = main_verb(tokens)
    if verb is None:
        return None
    for form in lexicon().verb_forms.get(tokens[verb].low, ()):
        opposite = lexicon().verb_antonyms.get(form.base)
        if opposite and form.kind != "ing":
            return replaced(tokens, verb, verb + 1, lexicon().verb(opposite, form.kind))
    return None
