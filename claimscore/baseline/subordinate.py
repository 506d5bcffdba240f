"""Splits inside a clause: relative clauses, "a hotel located in ...", "the hotel's free ..."."""

from __future__ import annotations

from claimscore.baseline.clauses import free_places
from claimscore.baseline.grammar import (
    adjectives_end,
    has_finite,
    is_adjective,
    is_finite,
    is_noun,
    is_participle,
    low_at,
    main_verb,
)
from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.rewriting import article_for
from claimscore.baseline.words import (
    CONJUNCTIONS,
    DETERMINERS,
    FINITE_BE,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    Tokens,
    is_adverb,
    is_word,
    join,
    make,
    word_set,
)

_INDEFINITE = word_set("a an some another one two three four several many few any")
_SINGULAR_VERBS = word_set("is was has does 's")
_PLURAL_VERBS = word_set("are were have do")


def relative_clause(tokens: Tokens) -> list[Tokens] | None:
    """ "..., which is useful" -> a claim about what stands before the comma."""
    free = free_places(tokens)
    for i in range(2, len(tokens) - 1):
        if tokens[i].low not in ("which", "who") or not free[i]:
            continue
        verb = i + 1
        while verb < len(tokens) - 1 and is_adverb(tokens[verb].low):
            verb += 1
        if is_finite(tokens, verb):
            return _relative(tokens, i, verb)
    return None


def _relative(tokens: Tokens, i: int, verb: int) -> list[Tokens] | None:
    comma = tokens[i - 1].low == ","
    end = i - 1 if comma else i
    start = _antecedent_start(tokens, end)
    if (
        start is None
        and comma
        and is_adjective(tokens[end - 1].low)
        and tokens[verb].low in _SINGULAR_VERBS
    ):
        return [tokens[:end], join(make("This"), tokens[i + 1 :])]
    if start is None or not (comma or tokens[start].low in _INDEFINITE):
        return None
    stop = len(tokens)
    if not has_finite(tokens[:end]):
        stop = _closing_comma(tokens, i) if comma else -1
    if stop < 0:
        return None
    subject = _antecedent(tokens[start:end], tokens[i].low, tokens[verb].low)
    main = join(tokens[:end], tokens[stop + 1 :])
    return [main, join(subject, tokens[i + 1 : stop])]


def _closing_comma(tokens: Tokens, i: int) -> int:
    for j in range(i + 2, len(tokens) - 1):
        if tokens[j].low == "," and has_finite(tokens[j + 1 :]):
            return j
    return -1


def _antecedent_start(tokens: Tokens, end: int) -> int | None:
    """Where the noun phrase that ends before `end` begins."""
    if end < 1 or not is_noun(tokens[end - 1].low):
        return None
    i = end
    while i > 0:
        low = tokens[i - 1].low
        if low in DETERMINERS or low in POSSESSIVES:
            return i - 1
        if _ends_phrase(tokens, i - 1):
            break
        i -= 1
    return i if i < end else None


def _ends_phrase(tokens: Tokens, i: int) -> bool:
    low = tokens[i].low
    mark = not is_word(tokens[i]) and low not in ("'s", "-")
    boundary = low in PREPOSITIONS | CONJUNCTIONS | RELATIVES or low == "to"
    return mark or boundary or is_finite(tokens, i)


def _antecedent(phrase: Tokens, relative: str, verb: str) -> Tokens:
    """The subject of the new claim; "This" where the number says the whole clause is meant."""
    plural = lexicon().is_plural(phrase[-1].low)
    if relative == "which" and verb in (_SINGULAR_VERBS if plural else _PLURAL_VERBS):
        return make("This")
    if phrase[0].low in _INDEFINITE:
        return join(make("The"), phrase[1:])
    definite = phrase[0].low in DETERMINERS | POSSESSIVES or phrase[0].text[0].isupper()
    return phrase if definite else join(make("The"), phrase)


def located_in(tokens: Tokens) -> list[Tokens] | None:
    """ "This is a hotel located in X" -> "This is a hotel", "The hotel is located in X"."""
    verb = main_verb(tokens)
    if (
        verb is None
        or tokens[verb].low not in FINITE_BE
        or low_at(tokens, verb + 1) not in DETERMINERS
    ):
        return None
    for i in range(verb + 3, len(tokens) - 1):
        if not is_word(tokens[i]) or tokens[i].low in PREPOSITIONS | RELATIVES | CONJUNCTIONS:
            return None
        if is_participle(tokens[i].low) and low_at(tokens, i + 1) in PREPOSITIONS:
            return _reduced(tokens, verb, i)
    return None


def _reduced(tokens: Tokens, verb: int, participle: int) -> list[Tokens] | None:
    end = participle
    while end > verb and is_adverb(tokens[end - 1].low):
        end -= 1
    head = _head_start(tokens, verb + 1, end)
    if head is None:
        return None
    be = make({"'s": "is", "'re": "are", "'m": "is"}.get(tokens[verb].low, tokens[verb].text))
    return [tokens[:end], join(make("The"), tokens[head:end], be, tokens[end:])]


def _head_start(tokens: Tokens, start: int, end: int) -> int | None:
    """Where the nouns before `end` begin ("beach resort")."""
    head = end
    while head - 1 > start and is_noun(tokens[head - 1].low) and is_word(tokens[head - 1]):
        head -= 1
    return head if head < end else None


def offered_thing(tokens: Tokens) -> list[Tokens] | None:
    """ "The hotel's free breakfast was good" -> it offers one, and it was good."""
    verb = main_verb(tokens)
    mark = next((i for i, token in enumerate(tokens) if token.low == "'s"), None)
    if verb is None or mark is None or not 0 < mark < verb - 2 or tokens[verb].low not in FINITE_BE:
        return None
    owner, phrase = tokens[:mark], tokens[mark + 1 : verb]
    if phrase[0].low not in lexicon().offered or len(phrase) > 3 or adjectives_end(phrase, 1) > 1:
        return None
    if any(not is_noun(token.low) for token in phrase[1:]):
        return None
    article = make(article_for(phrase[-1].low, phrase[0].low))
    offer = join(owner, make("offers"), article, phrase)
    return [offer, join(make("The"), phrase[1:], tokens[verb:])]
