"""Splits at the level of clauses: openers, semicolons, "A, and B", "Although A, B"."""

from __future__ import annotations

from claimscore.baseline.grammar import (
    adjectives_end,
    has_finite,
    is_adjective,
    is_finite,
    is_noun,
    low_at,
    main_verb,
)
from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.words import (
    BE,
    CONDITIONS,
    CONJUNCTIONS,
    DETERMINERS,
    HAVE,
    MODALS,
    OPENERS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    SUBJECT_PRONOUNS,
    Token,
    Tokens,
    is_adverb,
    is_word,
    join,
    word_class,
    word_set,
)

CLAUSE_WORDS = word_class("clause_words")
_WEAK = word_set("so since as while whilst yet")
_AFTER_CONNECTIVE = word_set("also then therefore thus overall however even though ,")
_LEADING = word_set("although though while whilst whereas because since as even")
_STARTS = DETERMINERS | POSSESSIVES | SUBJECT_PRONOUNS
_REPORTING = word_class("reporting")
_NOT_BEFORE_AS = word_set("such same known far soon long well much just so as")
_PLURAL_VERBS = word_set("are were have do 're")
_OPENING, _CLOSING, _QUOTES = "([{“«", ")]}”»", '"'


def free_places(tokens: Tokens) -> list[bool]:
    """For each token whether it stands outside brackets and quotation marks."""
    paired_quotes = sum(token.low == '"' for token in tokens) % 2 == 0
    depth, quoted, free = 0, False, []
    for token in tokens:
        if token.low in _CLOSING:
            depth = max(0, depth - 1)
        if token.low == _QUOTES and paired_quotes:
            quoted = not quoted
        free.append(depth == 0 and not quoted)
        if token.low in _OPENING:
            depth += 1
    return free


_NOT_IN_SUBJECT = word_set("if unless because although though while whilst when but")


def own_clause(tokens: Tokens, start: int) -> bool:
    """Whether a clause with a subject of its own begins at `start`."""
    right = tokens[start:]
    verb = main_verb(right)
    if not verb or verb > 14:
        return False
    head = right[:verb]
    first = head[0].low
    if (
        first in PREPOSITIONS
        or first in CONJUNCTIONS
        or first == "to"
        or first in RELATIVES - {"that"}
    ):
        return False
    if any(token.low in _NOT_IN_SUBJECT for token in head) or _second_subject(head):
        return False
    if any(not is_word(token) and token.low not in ("'s", "'", "-", "&") for token in head):
        return False
    return _is_subject(head) and _joint_subject_agrees(head, right[verb].low)


def _second_subject(head: Tokens) -> bool:
    """ "Saturday evenings there was": the subject is not what the words begin with."""
    return any(token.low in _PERSONAL for token in head[1:])


_PERSONAL = word_set("i you he she it we they there")


def _is_subject(head: Tokens) -> bool:
    last = next((token for token in reversed(head) if not is_adverb(token.low)), None)
    if last is None:
        return False
    named = any(is_noun(token.low) for token in head)
    return (named or head[0].low in _STARTS or last.low in SUBJECT_PRONOUNS) and not (
        last.low in DETERMINERS - SUBJECT_PRONOUNS or last.low in PREPOSITIONS
    )


def _joint_subject_agrees(head: Tokens, verb: str) -> bool:
    """ "the food and staff were": one subject; "a gym and the staff was": two phrases."""
    places = [i for i, token in enumerate(head) if token.low in ("and", "but", "or", "as")]
    if not places:
        return True
    return is_noun(low_at(head, places[0] - 1)) and verb in _PLURAL_VERBS


def opener(tokens: Tokens) -> list[Tokens] | None:
    """ "Overall, A" and "Also A" -> A."""
    lows = [token.low for token in tokens[:6]]
    for phrase in _OPENER_WORDS:
        size = len(phrase)
        if lows[:size] != phrase or size >= len(tokens):
            continue
        if tokens[size].low == ",":
            return [tokens[size + 1 :]]
        if own_clause(tokens, size) and (lows[0] != "however" or low_at(tokens, size) in _STARTS):
            return [tokens[size:]]
    return None


_OPENER_WORDS = sorted((entry.split("_") for entry in OPENERS), key=len, reverse=True)


def semicolon(tokens: Tokens) -> list[Tokens] | None:
    """ "A; B", and "A - B" where B is a clause."""
    free = free_places(tokens)
    for i, token in enumerate(tokens):
        if not free[i] or not 0 < i < len(tokens) - 1:
            continue
        dash = token.low in "-–—" and token.gap and own_clause(tokens, i + 1)
        ended = token.low in "!?" and tokens[i + 1].gap and tokens[i + 1].text[0].isupper()
        if token.low == ";" or ended or (dash and has_finite(tokens[:i])):
            return [tokens[:i], tokens[i + 1 :]]
    return None


def leading_clause(tokens: Tokens) -> list[Tokens] | None:
    """ "Although A, B" -> A, B; "Although small, the room was clean" -> two claims."""
    if low_at(tokens, 0) not in _LEADING:
        return None
    start = 2 if low_at(tokens, 0) == "even" else 1
    if start == 2 and low_at(tokens, 1) != "though":
        return None
    for i, token in enumerate(tokens):
        if token.low != "," or not own_clause(tokens, i + 1):
            continue
        first, rest = tokens[start:i], tokens[i + 1 :]
        if own_clause(first, 0):
            return [first, rest]
        return _verbless(first, rest)
    return None


def _verbless(first: Tokens, rest: Tokens) -> list[Tokens] | None:
    verb = main_verb(rest)
    if verb is None or rest[verb].low not in BE or adjectives_end(first, 0) != len(first):
        return None
    return [join(rest[: verb + 1], first), rest]


def full_clauses(tokens: Tokens) -> list[Tokens] | None:
    """ "A and B", "A, but B", "A because B", "A, it B": both with subjects of their own."""
    free = free_places(tokens)
    for i in range(1, len(tokens) - 1):
        if not free[i] or not (tokens[i].low in CLAUSE_WORDS or tokens[i].low == ","):
            continue
        start = _after_connective(tokens, i + 1)
        if _is_clause_break(tokens, i, start):
            return [_left(tokens, i), tokens[start:]]
    return None


def _after_connective(tokens: Tokens, i: int) -> int:
    while i < len(tokens) - 1 and tokens[i].low in _AFTER_CONNECTIVE:
        i += 1
    return i


def _left(tokens: Tokens, i: int) -> Tokens:
    while i and tokens[i - 1].low in (",", "even", "and", "but", "-"):
        i -= 1
    return tokens[:i]


def _is_clause_break(tokens: Tokens, i: int, start: int) -> bool:
    word, first = tokens[i].low, low_at(tokens, start)
    if word == "," and (first in CLAUSE_WORDS or first not in _STARTS):
        return False
    if word in _WEAK and not _weak_break(tokens, i, start):
        return False
    if not own_clause(tokens, start):
        return False
    left = _left(tokens, i)
    if word == "and" and _is_reported(left):
        return False
    if any(token.low in CONDITIONS for token in left) and word not in ("but", "although", "though"):
        return False
    return _is_finished(left) or (word in ("but", "however") and _is_fragment(left))


def _is_fragment(left: Tokens) -> bool:
    """ "Decent hotel, however ...": a noun phrase that stands for a clause."""
    ended = bool(left) and is_noun(left[-1].low)
    return ended and not has_finite(left) and adjectives_end(left, 0) > 0


def _is_reported(left: Tokens) -> bool:
    """ "He said A and B": B may be said too."""
    verb = main_verb(left)
    return verb is not None and left[verb].low in _SAYING and has_finite(left[verb + 1 :])


_SAYING = word_set("say said says claim claims claimed told hoped wish wished")


def _weak_break(tokens: Tokens, i: int, start: int) -> bool:
    word, first = tokens[i].low, low_at(tokens, start)
    if first not in _STARTS or (first == "that" and word == "so"):
        return False
    earlier = {token.low for token in tokens[max(0, i - 4) : i]}
    if word == "as":
        return not earlier & {"as", "so"} and low_at(tokens, i - 1) not in _NOT_BEFORE_AS
    return not (word == "since" and {t.low for t in tokens[:i]} & (HAVE | {"been"}))


def _is_finished(left: Tokens) -> bool:
    """Whether a clause can end here: it has its verb, and "When we came" does not count."""
    verb = main_verb(left)
    if verb is None:
        return False
    leading = low_at(left, 0) in _LEADING | CONDITIONS | {
        "when",
        "whenever",
        "after",
        "before",
        "once",
        "until",
    }
    if leading and not any(t.low == "," for t in left[:verb]):
        return False
    return left[-1].low not in PREPOSITIONS - {"in", "out", "up", "off", "on", "around", "about"}


def carried_subject(tokens: Tokens) -> list[Tokens] | None:
    """ "The room was clean and had a kitchen" -> the subject is said again."""
    free = free_places(tokens)
    for i in range(1, len(tokens) - 1):
        if not free[i] or tokens[i].low not in ("and", "but", "yet", ",", "though", "although"):
            continue
        start = _after_connective(tokens, i + 1)
        if tokens[i].low == "," and low_at(tokens, start) in CLAUSE_WORDS:
            continue
        left = _left(tokens, i)
        prefix = _carried(left, tokens, start)
        if prefix:
            return [left, join(prefix, tokens[i + 1 + _dropped(tokens, i + 1) :])]
    return None


def _dropped(tokens: Tokens, i: int) -> int:
    """How many words behind the connective only connect ("but also had")."""
    return int(low_at(tokens, i) in (",", "then", "therefore", "thus", "however"))


def _carried(left: Tokens, tokens: Tokens, start: int) -> Tokens | None:
    verb = main_verb(left)
    if verb is None or _opens_otherwise(left, verb):
        return None
    at = start
    while at < len(tokens) - 1 and (is_adverb(tokens[at].low) or tokens[at].low == "not"):
        at += 1
    subject = _subject(left, verb)
    if not subject:
        return None
    if _is_predicate_start(tokens, start, at):
        return subject
    return _carried_base(left, verb, tokens[at].low, subject)


def _is_predicate_start(tokens: Tokens, start: int, at: int) -> bool:
    """Whether the words from `start` go on with a finite verb (at `at`)."""
    low = tokens[at].low
    if low in ("that", "'s") or (low in _PLURAL_VERBS and at != start):
        return False
    rest: tuple[Token, ...] = tokens[start:]
    if own_clause(tokens, start):
        return False
    return is_finite(rest, at - start) or _is_active_past(tokens, at)


def _is_active_past(tokens: Tokens, at: int) -> bool:
    """ "exceeded expectations": a past form with an object, not a participle that describes."""
    kinds = {form.kind for form in lexicon().verb_forms.get(tokens[at].low, ())}
    following = low_at(tokens, at + 1)
    return (
        "past" in kinds
        and not is_adjective(tokens[at].low)
        and bool(following)
        and (is_noun(following) or is_adjective(following))
        and not is_adverb(following)
    )


def _opens_otherwise(left: Tokens, verb: int) -> bool:
    """Clauses whose subject must not be carried: "There is", "I think", conditions, relatives."""
    lows = [token.low for token in left]
    if lows[0] in {"there", "here", "what", "how", "who", "when", "if"} | CONDITIONS | _LEADING:
        return True
    if lows[verb] in _REPORTING and has_finite(left[verb + 1 :]):
        return True
    return any(low in RELATIVES - {"that"} | CONDITIONS | {"because"} for low in lows[verb + 1 :])


def _subject(left: Tokens, verb: int) -> Tokens:
    start = max((i + 1 for i, token in enumerate(left[:verb]) if token.low == ","), default=0)
    if any(token.low in RELATIVES for token in left[:verb]):
        start = 0
    while verb > start and is_adverb(left[verb - 1].low):
        verb -= 1
    subject = left[start:verb]
    if not subject or subject[0].low in PREPOSITIONS | CONJUNCTIONS or subject[0].low == "to":
        return ()
    return subject


def _carried_base(left: Tokens, verb: int, low: str, subject: Tokens) -> Tokens | None:
    """ "They can rest and use the pool", "They serve wine and offer tours"."""
    forms = lexicon().verb_forms.get(low, ())
    if not any(form.kind == "base" for form in forms) or low in lexicon().nouns:
        return None
    if left[verb].low in ("are", "'re", "have", "were"):
        return None if is_adjective(low) else subject
    after = {token.low for token in left[verb + 1 :]}
    if after & {"to", "n't", "not", "let", "help"} or has_finite(left[verb + 1 :]):
        return None
    if left[verb].low in MODALS:
        return left[: verb + 1]
    plain = any(f.kind == "base" for f in lexicon().verb_forms.get(left[verb].low, ()))
    return subject if plain else None
