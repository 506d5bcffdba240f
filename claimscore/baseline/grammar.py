"""A shallow reading of a sentence: parts of speech in context, main verb, subject.

No tagger: closed classes, the lexicon, suffixes and the neighbouring words decide. Where
they do not, the answer is the one that leads to no split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from claimscore.baseline.lexicon import VerbForm, VerbKind, lexicon
from claimscore.baseline.words import (
    AUXILIARIES,
    BE,
    CONJUNCTIONS,
    DETERMINERS,
    DO,
    HAVE,
    MODALS,
    NEGATIONS,
    OBJECT_PRONOUNS,
    PLURAL_PRONOUNS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    SUBJECT_PRONOUNS,
    SUBORDINATORS,
    Token,
    Tokens,
    capitalised,
    is_adverb,
    is_content,
    is_word,
    tokenise,
    word_class,
    word_set,
)

Kinds = frozenset[VerbKind]

_OWNERS_OF_IS = word_set("it that there he she who what here this everything everyone where")
_SUFFIXES = ("ful", "ous", "able", "ible", "ive", "less", "ish", "esque", "-friendly", "-like")
_NEGATED = ("un", "in", "im", "non-", "over", "under", "well-", "super-")
_INDEFINITE_PRONOUNS = word_set("everything something everyone everybody someone anyone nobody")
_OBJECT_STARTS = DETERMINERS | POSSESSIVES | OBJECT_PRONOUNS | _INDEFINITE_PRONOUNS
_NOT_AFTER = (DETERMINERS | POSSESSIVES | PREPOSITIONS) - SUBJECT_PRONOUNS
_BEFORE_NONFINITE = MODALS | DO | BE | HAVE | {"to", "let", "help", "than"}
_CLAUSE_SUBJECTS = SUBJECT_PRONOUNS | RELATIVES
_PHRASE_STARTS = SUBJECT_PRONOUNS | DETERMINERS | POSSESSIVES
_MARKED_STARTS = CONJUNCTIONS | {","}
_NO_NOUN = (
    DETERMINERS
    | SUBJECT_PRONOUNS
    | OBJECT_PRONOUNS
    | PREPOSITIONS
    | RELATIVES
    | SUBORDINATORS
    | CONJUNCTIONS
    | AUXILIARIES
    | BE
    | NEGATIONS
    | {"to", "also", "too", "however", "not", "enough", "'s"}
)


@lru_cache(maxsize=65536)
def is_adjective(low: str) -> bool:
    """Whether a word describes: listed, or by its ending where the lists know no other use."""
    lex = lexicon()
    if low in lex.adjectives or low in lex.participles:
        return low not in _NO_NOUN
    if low in lex.nouns or low in lex.verb_forms or low in _NO_NOUN:
        return False
    if low.endswith(_SUFFIXES) and len(low) > 5:
        return True
    if "-" in low and low.endswith(("ed", "ing")):
        return True
    return any(low.startswith(p) and low[len(p) :] in lex.adjectives for p in _NEGATED)


@lru_cache(maxsize=65536)
def is_participle(low: str) -> bool:
    """Whether a word can stand after "is" as a passive: "cleaned", "included"."""
    forms = lexicon().verb_forms.get(low, ())
    if any(form.kind == "participle" for form in forms):
        return True
    return low.endswith("ed") and len(low) > 4 and low not in lexicon().nouns


def is_noun(low: str) -> bool:
    """Whether a word can be a noun: known as one, or no other part of speech is known."""
    if low in lexicon().nouns:
        return True
    known_other = low in _NO_NOUN or is_adjective(low) or is_adverb(low)
    return low[:1].isalpha() and not known_other


def before(tokens: Tokens, i: int) -> int:
    """The place before `i`, adverbs and negations left out; -1 at the start."""
    i -= 1
    while i >= 0 and (is_adverb(tokens[i].low) or tokens[i].low in ("not", "n't", "also")):
        i -= 1
    return i


def low_at(tokens: Tokens, i: int) -> str:
    return tokens[i].low if 0 <= i < len(tokens) else ""


def is_finite(tokens: Tokens, i: int) -> bool:
    """Whether the word at `i` is a verb that makes a clause ("has", "offers", "stayed in")."""
    low = tokens[i].low
    if low in AUXILIARIES:
        return _finite_auxiliary(tokens, i)
    if low in _NO_NOUN:
        return False
    forms = lexicon().verb_forms.get(low)
    if not forms:
        return False
    previous = before(tokens, i)
    before_low = low_at(tokens, previous)
    if before_low in _BEFORE_NONFINITE:
        return False
    kinds: Kinds = frozenset(form.kind for form in forms)
    return any(_FINITE[form.kind](tokens, i, before_low, form, kinds) for form in forms)


def _finite_auxiliary(tokens: Tokens, i: int) -> bool:
    low, previous = tokens[i].low, low_at(tokens, before(tokens, i))
    if low == "'s":
        return previous in _OWNERS_OF_IS
    if low in ("must", "might", "will", "can", "do"):
        return previous not in DETERMINERS and not (low == "do" and previous in _NONFINITE)
    if low == "may":
        return tokens[i].text != "May" or i == 0
    return low not in ("have", "had") or previous not in _NONFINITE


_NONFINITE = MODALS | DO | {"to"}


def _finite_third(tokens: Tokens, i: int, previous: str, form: VerbForm, kinds: Kinds) -> bool:
    if previous in _NOT_AFTER:
        return False
    following = low_at(tokens, i + 1)
    if previous in SUBJECT_PRONOUNS or previous in RELATIVES:
        return previous not in ("these", "those") or following in _OBJECT_STARTS
    if previous == "'s" or (is_adjective(previous) and not _is_known_noun(previous)):
        return False
    shy = form.base in lexicon().shy_verbs or form.base in lexicon().nouns
    if shy and (_links_on(tokens, i, form) or is_adverb(low_at(tokens, i - 1))):
        return True
    if shy:
        return following in _OBJECT_STARTS or (is_noun(previous) and _may_be_object(following))
    return _is_after_subject(previous)


def _finite_past(tokens: Tokens, i: int, previous: str, form: VerbForm, kinds: Kinds) -> bool:
    following = low_at(tokens, i + 1)
    if previous in _NOT_AFTER or previous == "'s":
        return False
    if "participle" not in kinds:
        return True
    if previous in _CLAUSE_SUBJECTS or form.base in lexicon().intransitive:
        return previous not in ("these", "those", "none", "one")
    if not _is_after_subject(previous):
        return False
    links = form.base in lexicon().linking and (is_adjective(following) or is_adverb(following))
    return following in _OBJECT_STARTS or links


def _finite_base(tokens: Tokens, i: int, previous: str, form: VerbForm, kinds: Kinds) -> bool:
    following = low_at(tokens, i + 1)
    low = tokens[i].low
    if previous in PLURAL_PRONOUNS or previous in ("who", "which", "that", "there"):
        return previous not in ("these", "those", "that") or following in _OBJECT_STARTS
    if not previous or not lexicon().is_plural(previous) or previous in _NO_NOUN:
        return False
    if form.base in lexicon().shy_verbs or low in lexicon().nouns or is_adjective(low):
        return following in _OBJECT_STARTS or _links_on(tokens, i, form)
    return True


def _may_be_object(low: str) -> bool:
    """ "offers parking", "features modern art": what follows is surely no verb."""
    known = _is_known_noun(low) or is_adjective(low) or low.endswith("ing")
    return bool(low) and (known or (is_noun(low) and low not in lexicon().verb_forms))


def _links_on(tokens: Tokens, i: int, form: VerbForm) -> bool:
    """ "looks dated": a linking verb with its description."""
    described = adjectives_end(tokens, i + 1) > i + 1 or low_at(tokens, i + 1) in ("like", "as")
    return form.base in lexicon().linking and (described or is_adverb(low_at(tokens, i + 1)))


def _never(tokens: Tokens, i: int, previous: str, form: VerbForm, kinds: Kinds) -> bool:
    return False


_FINITE: dict[VerbKind, Callable[[Tokens, int, str, VerbForm, Kinds], bool]] = {
    "third": _finite_third,
    "past": _finite_past,
    "base": _finite_base,
    "participle": _never,
    "ing": _never,
}


def _is_known_noun(low: str) -> bool:
    return low in lexicon().nouns or lexicon().is_plural(low)


def _is_after_subject(previous: str) -> bool:
    """At the start, after a conjunction or a mark, or after what can be a noun."""
    return not previous or previous in _MARKED_STARTS or is_noun(previous)


def has_finite(tokens: Tokens) -> bool:
    return any(is_finite(tokens, i) for i in range(len(tokens)))


def main_verb(tokens: Tokens) -> int | None:
    """The verb of the main clause: not that of a leading "Although ..., " or of "which ..."."""
    start = main_clause_start(tokens)
    relatives = 0
    for i in range(start, len(tokens)):
        if i > start and _is_relative(tokens, i):
            relatives += 1
        elif is_finite(tokens, i):
            if not relatives:
                return i
            relatives -= 1
    return None


def likely_verb(tokens: Tokens) -> int | None:
    """The main verb, or a word that could also be a noun where there is no other verb."""
    verb = main_verb(tokens)
    if verb is not None or low_at(tokens, 0) not in DETERMINERS | POSSESSIVES:
        return verb
    for i in range(2, len(tokens)):
        previous = low_at(tokens, before(tokens, i))
        wanted = "base" if lexicon().is_plural(previous) else "third"
        kinds = {form.kind for form in lexicon().verb_forms.get(tokens[i].low, ())}
        if tokens[i].low not in lexicon().nouns:
            kinds &= {"third", "past", "base"}
        else:
            kinds &= {wanted}
        if kinds and is_noun(previous) and not is_adjective(tokens[i].low):
            return i
    return None


_LEADING = word_class("clause_openers")


def main_clause_start(tokens: Tokens) -> int:
    if low_at(tokens, 0) not in _LEADING:
        return 0
    for i, token in enumerate(tokens):
        if token.low == "," and has_finite(tokens[i + 1 :]):
            return i + 1
    return 0


def _is_relative(tokens: Tokens, i: int) -> bool:
    low = tokens[i].low
    if low not in RELATIVES or is_finite(tokens, i - 1):
        return False
    if low != "that":
        return True
    following = low_at(tokens, i + 1)
    previous = low_at(tokens, i - 1)
    starts = following in _PHRASE_STARTS
    return (is_noun(previous) or is_adverb(previous)) and (
        starts or (i + 1 < len(tokens) and is_finite(tokens, i + 1))
    )


def starts_noun_phrase(tokens: Tokens, i: int) -> bool:
    """A determiner, or adjectives with a noun behind them, begins at `i`."""
    low = low_at(tokens, i)
    if low in DETERMINERS or low in POSSESSIVES:
        return True
    end = adjectives_end(tokens, i)
    return end > i and end < len(tokens) and is_noun(low_at(tokens, end))


def adjectives_end(tokens: Tokens, i: int) -> int:
    """Where the run of adverbs and adjectives at `i` ends; `i` where there is no adjective."""
    end, found = i, False
    while end < len(tokens):
        low = tokens[end].low
        if is_adjective(low):
            found = True
        elif not (is_adverb(low) or low == "not"):
            break
        end += 1
    return end if found else i


def is_plain(tokens: Tokens, i: int) -> bool:
    """No noun: the phrase before `i` cannot go on as a noun phrase with the word at `i`."""
    return i >= len(tokens) or not is_word(tokens[i]) or not is_noun(tokens[i].low)


def has_content(tokens: Tokens) -> bool:
    return any(map(is_content, tokens))


def takes_not(tokens: Tokens, verb: int) -> bool:
    """ "has been", "have stayed", "does offer": verbs that take "not" themselves."""
    low = tokens[verb].low
    if low in ("'ve", "'d", "'ll"):
        return True
    following = verb + 1
    while is_adverb(low_at(tokens, following)):
        following += 1
    word = low_at(tokens, following)
    forms = lexicon().verb_forms.get(word, ())
    if low in ("do", "does", "did"):
        return any(form.kind == "base" for form in forms)
    perfect = word == "been" or any(form.kind == "participle" for form in forms)
    nominal = is_noun(low_at(tokens, following + 1)) and is_adjective(word)
    return low in HAVE and perfect and not nominal


# -- putting words for words: case, articles


def like(token: Token, text: str) -> Token:
    """A token of another text with the case and the gap of `token`."""
    return Token(cased(text, token.text), text.lower(), token.gap)


def cased(text: str, model: str) -> str:
    """`text` in capitals or with a capital where `model` is."""
    if len(model) > 1 and model.isupper():
        return text.upper()
    return capitalised(text) if model[:1].isupper() else text


def replaced(tokens: Tokens, start: int, end: int, text: str) -> Tokens:
    """The tokens with those from `start` to `end` put as `text`; case and space are kept."""
    new = list(tokenise(text))
    new[0] = like(tokens[start], new[0].text)
    if len(tokens[start].text) > 1 and tokens[start].text.isupper():
        new[1:] = [token._replace(text=token.text.upper()) for token in new[1:]]
    return (*tokens[:start], *new, *tokens[end:])


def with_article(tokens: Tokens, i: int) -> Tokens:
    """The tokens with an "a" or "an" before `i` that fits the word at `i`."""
    if i < 1 or tokens[i - 1].low not in ("a", "an"):
        return tokens
    article = like(tokens[i - 1], indefinite(tokens[i].low))
    if tokens[i - 1].text == "A":
        article = article._replace(text=capitalised(article.low))
    return (*tokens[: i - 1], article, *tokens[i:])


def article_for(noun: str, first: str) -> str:
    """ "a", "an", or nothing before a plural or a mass noun."""
    if lexicon().is_plural(noun) or noun in lexicon().mass_nouns:
        return ""
    return indefinite(first)


def indefinite(word: str) -> str:
    """ "a" or "an" before a word, by its spelling."""
    low = word.lower()
    if low.startswith(("uni", "use", "usa", "eu", "one", "ut")) and not low.startswith(
        ("unin", "unim")
    ):
        return "a"
    return "an" if low.startswith(("a", "e", "i", "o", "u", "hour", "honest", "honor")) else "a"
