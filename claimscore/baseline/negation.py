"""Negate a single claim, and join negated claims again.

The ways of the CASPR paper, in this order: a negation in the claim is taken out; a
quantifier becomes its complement (everyone -> no one); a description becomes its antonym
(close -> far away), both in `opposites`; else "not" is put in, with "do" where English asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from claimscore.baseline.grammar import (
    adjectives_end,
    article_for,
    is_adjective,
    is_finite,
    is_noun,
    is_participle,
    like,
    likely_verb,
    low_at,
    main_verb,
    replaced,
    takes_not,
    with_article,
)
from claimscore.baseline.lexicon import VerbKind, lexicon
from claimscore.baseline.words import (
    BE,
    CONJUNCTIONS,
    DETERMINERS,
    FINITE_BE,
    HAVE,
    MODALS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    SUBJECT_PRONOUNS,
    SUBORDINATORS,
    Token,
    Tokens,
    capitalised,
    is_adverb,
    is_word,
    join,
    make,
    render,
    tokenise,
    word_map,
    word_set,
)

Rule = Callable[[Tokens], Tokens | None]
_END_MARKS = frozenset(".!?…")


def negate(claim: str) -> str:
    """The claim's negation; never the claim itself. Blank text is given back."""
    tokens = tokenise(claim)
    if not any(map(is_word, tokens)):
        return claim
    end = len(tokens)
    while end and set(tokens[end - 1].low) <= _END_MARKS:
        end -= 1
    body, mark = tokens[:end], tokens[end:]
    for rule in RULES:
        changed = rule(body)
        if changed is not None and changed != body and any(map(is_word, changed)):
            return capitalised(render((*changed, *mark)))
    return f"It is not true that {_lower_first(claim)}"


def insert_not(tokens: Tokens) -> Tokens | None:
    """ "is" -> "is not", "has a pool" -> "does not have a pool", "can" -> "cannot"."""
    verb = likely_verb(tokens)
    if verb is None:
        return None
    low = tokens[verb].low
    if low == "can" and not _is_question(tokens, verb):
        return replaced(tokens, verb, verb + 1, "cannot")
    if low in FINITE_BE or low in MODALS or takes_not(tokens, verb):
        at = _behind_subject(tokens, verb) if _is_question(tokens, verb) else verb + 1
        return join(tokens[:at], make("not"), _any_for_some(tokens[at:]))
    return _with_do(tokens, verb)


def _is_question(tokens: Tokens, verb: int) -> bool:
    return verb == 0 and low_at(tokens, 1) in SUBJECT_PRONOUNS | DETERMINERS | POSSESSIVES


def _behind_subject(tokens: Tokens, verb: int) -> int:
    at = verb + 1
    if low_at(tokens, at) in SUBJECT_PRONOUNS - {"this", "that", "these", "those"}:
        return at + 1
    at += 1
    while at < len(tokens) - 1 and is_noun(tokens[at].low):
        at += 1
    return at


_DO: dict[VerbKind, str] = {"third": "does not", "past": "did not", "base": "do not"}


def _with_do(tokens: Tokens, verb: int) -> Tokens | None:
    for kind, words in _DO.items():
        for form in lexicon().verb_forms.get(tokens[verb].low, ()):
            if form.kind == kind:
                at = verb
                base = make(form.base)
                return join(tokens[:at], make(words), base, _any_for_some(tokens[verb + 1 :]))
    return None


def _any_for_some(tokens: Tokens) -> Tokens:
    return tuple(like(t, "any") if t.low == "some" else t for t in tokens)


def command(tokens: Tokens) -> Tokens | None:
    """ "Bring a coat" -> "Do not bring a coat"."""
    first = _command_start(tokens)
    forms = lexicon().verb_forms.get(low_at(tokens, first), ())
    listed = low_at(tokens, first) in lexicon().nouns or is_adjective(low_at(tokens, first))
    if (
        likely_verb(tokens[first:]) is not None
        or listed
        or not any(f.kind == "base" for f in forms)
    ):
        return None
    verb = tokens[first]._replace(text=tokens[first].text.lower())
    return join(tokens[:first], make("do not"), (verb, *tokens[first + 1 :]))


def conditional_command(tokens: Tokens) -> Tokens | None:
    """ "If it rains, take a taxi" -> "If it rains, do not take a taxi"."""
    return command(tokens) if _command_start(tokens) > 1 else None


def _command_start(tokens: Tokens) -> int:
    """Behind "If you need quiet," and "please"."""
    comma = next((i for i, token in enumerate(tokens) if token.low == ","), 0)
    start = comma + 1 if comma and tokens[0].low in ("if", "when", "unless") else 0
    return start + (low_at(tokens, start) == "please")


def fragment(tokens: Tokens) -> Tokens | None:
    """ "Free parking" -> "No free parking", "A clean room" -> "Not a clean room"."""
    if main_verb(tokens) is not None or _may_have_verb(tokens):
        return None
    first = tokens[0]
    rest = (_uncapitalised(first), *tokens[1:])
    if first.low in DETERMINERS | POSSESSIVES | PREPOSITIONS or not _ends_in_noun(tokens):
        return join(make("Not"), rest)
    return join(make("No"), rest)


def _may_have_verb(tokens: Tokens) -> bool:
    """ "The tiles outside impress": a definite start and a form that could be its verb."""
    if tokens[0].low not in DETERMINERS | POSSESSIVES - {"a", "an"}:
        return False
    forms = (form for t in tokens[2:] for form in lexicon().verb_forms.get(t.low, ()))
    return any(form.kind in ("third", "past", "base") for form in forms)


def _ends_in_noun(tokens: Tokens) -> bool:
    end = adjectives_end(tokens, 0)
    return end < len(tokens) and is_noun(tokens[end].low)


def rejoin(claims: Sequence[str]) -> str:
    """The claims of one sentence as a complex sentence: "A, and b, and c."."""
    bodies = [claim.strip() for claim in claims if any(map(is_word, tokenise(claim)))]
    if len(bodies) < 2:
        return bodies[0] if bodies else ""
    opened = [body.rstrip(".!…").rstrip() for body in bodies[:-1]]
    first, *rest = (*opened, bodies[-1])
    return capitalised(", and ".join((first, *map(_lower_first, rest))))


def _lower_first(claim: str) -> str:
    tokens = tokenise(claim)
    return render((_uncapitalised(tokens[0]), *tokens[1:]))


def _uncapitalised(token: Token) -> Token:
    """Lower-case where the word is surely no name."""
    if token.low == "i" or token.text[1:] != token.text[1:].lower():
        return token
    return token._replace(text=token.text.lower()) if _is_common(token.low) else token


def _is_common(low: str) -> bool:
    lex = lexicon()
    closed = (
        DETERMINERS | POSSESSIVES | SUBJECT_PRONOUNS | PREPOSITIONS | {"not", "it", "no", "there"}
    )
    listed = low in lex.nouns or low in lex.verb_forms or is_adjective(low) or is_adverb(low)
    plural = low.endswith("s") and low[:-1] in lex.nouns
    return low in closed or listed or plural or is_finite((Token(low, low, ""),), 0)


_REPLACEMENTS = word_map("without_negation")
_DROPPED = word_set("hardly barely scarcely")
_DO_FORMS: dict[str, VerbKind] = {"does": "third", "did": "past", "do": "base"}
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
    if verb.low in _DO_FORMS:
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
    form = lexicon().verb(rest[at].low, _DO_FORMS[verb.low])
    if _DO_FORMS[verb.low] == "base" and not before:
        first = like(verb, rest[0].text)
        return (first, *rest[1:])
    return join(before, rest[:at], (like(rest[at], form),), _some_for_any(rest[at + 1 :]))


def _some_for_any(tokens: Tokens) -> Tokens:
    return tuple(like(t, _POSITIVE[t.low]) if t.low in _POSITIVE else t for t in tokens)


_POSITIVE = word_map("positive")


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


# -- the opposite by another word: everyone -> no one, close -> far away, clean -> dirty


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


_PRONOUN_COMPLEMENTS = word_map("pronoun_complements")
_SUBJECT_QUANTIFIERS = word_map("subject_quantifiers")
_TIMES = word_map("times")


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


RULES: tuple[Rule, ...] = (
    conditional_command,
    affirm,
    quantifier,
    existence,
    nearness,
    antonym,
    verb_antonym,
    insert_not,
    command,
    fragment,
)
