"""Splits of what is coordinated inside one clause: predicates, objects, places, fragments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from claimscore.baseline.clauses import free_places, own_clause
from claimscore.baseline.grammar import (
    adjectives_end,
    article_for,
    has_finite,
    is_adjective,
    is_finite,
    is_noun,
    is_participle,
    is_plain,
    low_at,
    main_verb,
    starts_noun_phrase,
)
from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.words import (
    BE,
    CONDITIONS,
    CONJUNCTIONS,
    DETERMINERS,
    DO,
    FINITE_BE,
    MODALS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    Tokens,
    is_adverb,
    is_word,
    join,
    make,
    word_class,
    word_set,
)

_TOGETHER = word_class("together")
_PLACES = word_set("in on at near close next within opposite by beside right just from")
_ADVERSATIVE = word_set("but yet though although while albeit")
_NEGATIVE = word_set("not n't never")


class Break(NamedTuple):
    """A place where two coordinated parts meet: the left one ends, the right one starts."""

    end: int
    start: int
    word: str


def breaks(tokens: Tokens, first: int, words: frozenset[str]) -> Iterator[Break]:
    """Commas, the conjunctions in `words`, "as well as", outside brackets, from `first` on."""
    free = free_places(tokens)
    i = first
    while i < len(tokens) - 1:
        if free[i]:
            start = _behind(tokens, i, words)
            if start and start < len(tokens):
                yield Break(i, start, _word(tokens, i, start))
                i = start - 1
        i += 1


def _behind(tokens: Tokens, i: int, words: frozenset[str]) -> int:
    """The place behind the connective at `i`, 0 where there is none."""
    start = i
    if tokens[start].low == ",":
        start += 1
    if [token.low for token in tokens[start : start + 3]] == ["as", "well", "as"]:
        return start + 3
    if low_at(tokens, start) in words:
        start += 1
        while low_at(tokens, start) in ("also", "even", "then"):
            start += 1
    return start if start > i else 0


def _word(tokens: Tokens, i: int, start: int) -> str:
    lows = [token.low for token in tokens[i:start]]
    return "as well as" if "well" in lows else next((low for low in lows if low != ","), ",")


def paired_conjunction(tokens: Tokens) -> list[Tokens] | None:
    """ "both A and B" -> "A and B"; "not only A but also B" -> "A and B"."""
    lows = [token.low for token in tokens]
    for i, low in enumerate(lows[:-2]):
        if low == "both" and _pairs_up(tokens, i + 1):
            return [join(tokens[:i], tokens[i + 1 :])]
        if lows[i : i + 2] == ["not", "only"] and "but" in lows[i + 3 :] and i:
            but = lows.index("but", i + 3)
            rest = but + 1 + (low_at(tokens, but + 1) == "also")
            if not is_finite(tokens, i + 2):
                return [join(tokens[:i], tokens[i + 2 : but], make("and"), tokens[rest:])]
    return None


def _pairs_up(tokens: Tokens, first: int) -> bool:
    """Whether "both" at `first` - 1 holds two parts of the same kind together."""
    lows = [token.low for token in tokens[first : first + 8]]
    if "and" not in lows[1:-1]:
        return False
    left, right = lows[0], lows[lows.index("and", 1) + 1]
    kinds = (DETERMINERS, PREPOSITIONS)
    return (is_adjective(left) and is_adjective(right)) or any(
        left in kind and right in kind for kind in kinds
    )


def copula(tokens: Tokens) -> int | None:
    """The verb that links the subject with a description: "is", "has been", "looks"."""
    verb = main_verb(tokens)
    if verb is None:
        return None
    if tokens[verb].low in FINITE_BE:
        return verb
    for i in range(verb + 1, min(verb + 4, len(tokens))):
        if tokens[i].low in BE and (tokens[verb].low in MODALS or tokens[i].low == "been"):
            return i
    last = min(verb + 3, len(tokens)) if tokens[verb].low in MODALS | DO else verb + 1
    return next((i for i in range(verb, last) if _links(tokens, i)), None)


def _links(tokens: Tokens, i: int) -> bool:
    bases = {form.base for form in lexicon().verb_forms.get(tokens[i].low, ())}
    return bool(bases & lexicon().linking) and adjectives_end(tokens, i + 1) > i + 1


_PREDICATE_WORDS = word_set("and but yet though although while albeit &")


def coordinated_predicates(tokens: Tokens) -> list[Tokens] | None:
    """ "is clean but small and noisy" -> three claims; "not" goes with "and", not with "but"."""
    link = copula(tokens)
    if link is None or "there" in (low_at(tokens, link - 1), low_at(tokens, 0)):
        return None
    for place in breaks(tokens, link + 2, _PREDICATE_WORDS):
        left = tokens[link + 1 : place.end]
        if not _can_be_parted(left) or not _is_predicate(tokens, place.start, left):
            continue
        prefix = _predicate_prefix(tokens, link, place)
        if prefix is not None:
            return [tokens[: place.end], join(prefix, tokens[place.start :])]
    return None


def _can_be_parted(left: Tokens) -> bool:
    lows = {token.low for token in left}
    words = [token for token in left if is_word(token) and not is_adverb(token.low)]
    return bool(words) and not lows & (_TOGETHER | CONDITIONS)


_BITS = frozenset(("little", "bit", "lot"))


def _is_predicate(tokens: Tokens, start: int, left: Tokens) -> bool:
    at = start
    if low_at(tokens, at) == "a" and low_at(tokens, at + 1) in _BITS:
        at += 1
        while low_at(tokens, at) in _BITS:
            at += 1
    while at < len(tokens) - 1 and (is_adverb(tokens[at].low) or tokens[at].low == "not"):
        at += 1
    low = low_at(tokens, at)
    if low in _PLACES and low in PREPOSITIONS:
        described = is_adjective(left[0].low) or is_participle(left[0].low)
        return (described or left[0].low in PREPOSITIONS) and not has_finite(tokens[start:])
    end = adjectives_end(tokens, at)
    if end == at and is_participle(low):
        end = at + 1
    if end == at or own_clause(tokens, start):
        return False
    return is_plain(tokens, end) and not is_finite(tokens, end) if end < len(tokens) else True


def _predicate_prefix(tokens: Tokens, link: int, place: Break) -> Tokens | None:
    """Subject and verb to say again, with or without their negation."""
    prefix = tokens[: link + 1]
    inside = [i for i, token in enumerate(prefix) if token.low in _NEGATIVE]
    behind = link + 1
    while low_at(tokens, behind) in _NEGATIVE:
        behind += 1
    if place.word in _ADVERSATIVE:
        if any(token.low in ("ca", "wo", "sha") for token in prefix) and inside:
            return None
        return tuple(token for i, token in enumerate(prefix) if i not in inside)
    if inside and low_at(tokens, behind) == "more":
        return None  # "could not have been more helpful": praise
    repeated = low_at(tokens, place.start) == "not"
    return prefix if repeated else tokens[:behind]


_OBJECT_WORDS = frozenset(("and", "plus", "&"))


def coordinated_objects(tokens: Tokens) -> list[Tokens] | None:
    """ "close to the beach and the airport", "has a pool, a bar and a great gym"."""
    verb = main_verb(tokens)
    if verb is None:
        return None
    for place in breaks(tokens, verb + 2, _OBJECT_WORDS):
        if not _is_object(tokens, place) or has_finite(tokens[place.start :]):
            continue
        governor = _governor(tokens, verb, place)
        between = {token.low for token in tokens[verb : place.end]}
        if governor is not None and not between & (_TOGETHER | CONDITIONS | RELATIVES):
            return [tokens[: place.end], join(tokens[: governor + 1], tokens[place.start :])]
    return None


def _is_object(tokens: Tokens, place: Break) -> bool:
    if not is_noun(low_at(tokens, place.end - 1)):
        return False
    rest = tokens[place.start :]
    if place.word == "," and not any(token.low in _OBJECT_WORDS for token in rest):
        return False  # an apposition rather than a list
    if [token.low for token in rest[:2]] == ["a", "half"]:
        return False
    return starts_noun_phrase(tokens, place.start) or (
        place.word == "as well as" and is_noun(low_at(tokens, place.start))
    )


def _governor(tokens: Tokens, verb: int, place: Break) -> int | None:
    """The verb or preposition that the right part hangs on, as the left one does."""
    first = low_at(tokens, place.start)
    determined = first in DETERMINERS | POSSESSIVES
    loose = place.word == "as well as" or not determined
    found = [i for i in range(verb, place.end - 1) if _governs(tokens, i, verb)]
    found = [i for i in found if starts_noun_phrase(tokens, i + 1) or is_noun(tokens[i + 1].low)]
    if not found:
        return None
    if first in ("a", "an") and tokens[found[-1]].low in ("with", "of", "for", "in", "on", "at"):
        direct = [i for i in found if low_at(tokens, i + 1) in ("a", "an", "the")]
        if direct and tokens[direct[0]].low not in PREPOSITIONS:
            return direct[0]
    last = found[-1]
    alike = loose or starts_noun_phrase(tokens, last + 1) or tokens[last].low == "with"
    return last if alike else None


def _governs(tokens: Tokens, i: int, verb: int) -> bool:
    low = tokens[i].low
    if i == verb or low == "to" or low in PREPOSITIONS - {"as", "than", "like"}:
        return True
    return low in BE or (low in lexicon().verb_forms and low_at(tokens, i - 1) == "to")


def repeated_preposition(tokens: Tokens) -> list[Tokens] | None:
    """ "great for couples and for families": the same preposition twice."""
    verb = main_verb(tokens)
    if verb is None:
        return None
    for place in breaks(tokens, verb + 2, _OBJECT_WORDS):
        low = low_at(tokens, place.start)
        if (low not in PREPOSITIONS and low != "to") or has_finite(tokens[place.start :]):
            continue
        same = [i for i in range(verb + 1, place.end - 1) if tokens[i].low == low]
        between = {token.low for token in tokens[verb : place.end]}
        if same and place.word != "," and not between & (_TOGETHER | CONDITIONS):
            return [tokens[: place.end], join(tokens[: same[-1]], tokens[place.start :])]
    return None


_FRAGMENT_WORDS = frozenset(("and", "but", "&", "plus"))


def fragments(tokens: Tokens) -> list[Tokens] | None:
    """ "Great location, friendly staff and a clean room" without a verb: one each."""
    if has_finite(tokens) or not _is_described(tokens, 0):
        return None
    for place in breaks(tokens, 2, _FRAGMENT_WORDS):
        ended = is_noun(low_at(tokens, place.end - 1))
        if ended and _is_described(tokens, place.start):
            left = {token.low for token in tokens[: place.end]}
            if not left & (_TOGETHER | CONDITIONS | PREPOSITIONS | {"to"}):
                return [tokens[: place.end], tokens[place.start :]]
    return None


def _is_described(tokens: Tokens, start: int) -> bool:
    """Adjectives with a noun behind them, maybe after a determiner."""
    start += low_at(tokens, start) in DETERMINERS | POSSESSIVES
    end = adjectives_end(tokens, start)
    return end > start and end < len(tokens) and is_noun(low_at(tokens, end))


# -- relative clauses, "a hotel located in ...", "the hotel's free ..."


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
