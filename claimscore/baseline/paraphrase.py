"""Say a sentence in other words: synonyms of the lexicon, then small changes of form.

Only what keeps the meaning: no negation, number, name or quotation is touched, and a word
of two meanings is changed only where its neighbours show which one is meant.
"""

from __future__ import annotations

from collections.abc import Callable

from claimscore.baseline.clauses import free_places, opener
from claimscore.baseline.grammar import (
    cased,
    is_adjective,
    is_finite,
    is_noun,
    low_at,
    with_article,
)
from claimscore.baseline.lexicon import VerbKind, comparative, lexicon, third_person
from claimscore.baseline.words import (
    AUXILIARIES,
    BE,
    DETERMINERS,
    NEGATIONS,
    POSSESSIVES,
    SUBJECT_PRONOUNS,
    Token,
    Tokens,
    capitalised,
    is_adverb,
    is_word,
    join,
    render,
    tokenise,
)

_LONGEST_PHRASE = 4


def paraphrase(sentence: str) -> str:
    """The sentence in other words; unchanged where no rule fits."""
    tokens = tokenise(sentence)
    changed = _with_synonyms(tokens)
    if changed == tokens:
        changed = next((new for form in FORMS if (new := form(tokens)) is not None), tokens)
    return sentence if changed == tokens else render(changed)


def _with_synonyms(tokens: Tokens) -> Tokens:
    free = free_places(tokens)
    changed: list[Token] = []
    i = 0
    while i < len(tokens):
        found = _change_at(tokens, i) if free[i] and not _is_name(tokens, i) else None
        if found is None:
            changed.append(tokens[i])
            i += 1
            continue
        size, text = found
        changed.extend(_as(tokens[i], text))
        _fit_article(changed, len(changed) - len(tokenise(text)))
        i += size
    return tuple(changed)


def _as(model: Token, text: str) -> Tokens:
    whole = len(model.text) > 1 and model.text.isupper()
    words = tokenise(text.upper() if whole else cased(text, model.text))
    return (words[0]._replace(gap=model.gap), *words[1:])


def _fit_article(tokens: list[Token], i: int) -> None:
    tokens[:] = with_article(tuple(tokens), i) if i and tokens[i - 1].low in ("a", "an") else tokens


def _is_name(tokens: Tokens, i: int) -> bool:
    """A capital inside a sentence that is not all in capitals; a hyphen counts as none."""
    text = tokens[i].text
    if not text[:1].isupper() or (len(text) > 1 and text.isupper()):
        return False
    if i == 0 or tokens[i - 1].low in (".", "!", "?", ":"):
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        return following[:1].isupper()
    return True


def _change_at(tokens: Tokens, i: int) -> tuple[int, str] | None:
    for size in range(_LONGEST_PHRASE, 1, -1):
        phrase = " ".join(token.low for token in tokens[i : i + size])
        text = lexicon().phrase_synonyms.get(phrase)
        if text is not None and len(tokens) >= i + size and _may_stand(tokens, i + size, text):
            return size, text
    for rule in WORD_RULES:
        text = rule(tokens, i)
        if text is not None:
            return 1, text
    return None


def _may_stand(tokens: Tokens, end: int, text: str) -> bool:
    """ "near" needs what is near behind it."""
    return (end < len(tokens) and is_word(tokens[end])) or text not in ("near", "beside", "to")


_DESCRIBED_AFTER = DETERMINERS | POSSESSIVES | BE | {",", "and", "but", "or", "with", "of", "not"}


def _adjective(tokens: Tokens, i: int) -> str | None:
    low = tokens[i].low
    text, ending = _adjective_synonym(low)
    if text is None or not _is_described_place(tokens, i):
        return None
    return _compared(text, ending)


def _adjective_synonym(low: str) -> tuple[str | None, str]:
    synonyms = lexicon().adjective_synonyms
    if low in synonyms:
        return synonyms[low], ""
    for ending in ("er", "est"):
        for stem in (
            low[: -len(ending)],
            low[: -len(ending)] + "e",
            low[: -len(ending) - 1],
            low[: -len(ending) - 1] + "y",
        ):
            if low.endswith(ending) and stem in synonyms and comparative(stem, ending) == low:
                return synonyms[stem], ending
    return None, ""


def _compared(text: str, ending: str) -> str | None:
    return comparative(text, ending) if ending else text


def _is_described_place(tokens: Tokens, i: int) -> bool:
    """Where an adjective is meant: not "pretty" in "pretty fast", not "clean" in "they clean"."""
    previous, following = low_at(tokens, i - 1), low_at(tokens, i + 1)
    if is_adverb(tokens[i].low) and (is_adjective(following) or is_adverb(following)):
        return False
    if previous in AUXILIARIES - BE or previous == "to" or following == "enough":
        return False
    if tokens[i].low in lexicon().verb_forms and is_finite(tokens, i):
        return False
    placed = not previous or previous in _DESCRIBED_AFTER or is_adverb(previous)
    linked = any(f.base in lexicon().linking for f in lexicon().verb_forms.get(previous, ()))
    before_noun = is_noun(following) and previous not in SUBJECT_PRONOUNS
    return placed or linked or before_noun


def _noun(tokens: Tokens, i: int) -> str | None:
    low = tokens[i].low
    synonyms = lexicon().noun_synonyms
    previous, following = low_at(tokens, i - 1), low_at(tokens, i + 1)
    if is_finite(tokens, i) or previous == "to" or previous in SUBJECT_PRONOUNS - DETERMINERS:
        return None
    if previous == "-" or following == "-" or (is_noun(previous) and is_noun(following)):
        return None
    if low in synonyms:
        return synonyms[low]
    for base in (low[:-1], low[:-2], low[:-3] + "y"):
        if base in synonyms and third_person(base) == low:
            return third_person(synonyms[base])
    return None


def _verb(tokens: Tokens, i: int) -> str | None:
    """Only finite verbs, verbs after "to" or a modal verb, and passives."""
    previous = low_at(tokens, i - 1)
    after_auxiliary = previous in AUXILIARIES | BE | {"to", "n't", "not"}
    for form in lexicon().verb_forms.get(tokens[i].low, ()):
        synonym = lexicon().verb_synonyms.get(form.base)
        if synonym is None or " " in synonym:
            continue
        kind = _kind_here(form.kind, previous, after_auxiliary, is_finite(tokens, i))
        if kind is not None:
            return lexicon().verb(synonym, kind)
    return None


def _kind_here(kind: VerbKind, previous: str, after: bool, finite: bool) -> VerbKind | None:
    if kind in ("third", "past") and finite:
        return kind
    if kind == "base" and (finite or (after and previous not in BE)):
        return kind
    return kind if kind == "participle" and after and previous not in ("to", "not", "n't") else None


def _adverb(tokens: Tokens, i: int) -> str | None:
    low = tokens[i].low
    text = lexicon().adverb_synonyms.get(low)
    if text is None or low in NEGATIONS:
        return None
    if low == "near" and low_at(tokens, i + 1) in ("to", "by", ""):
        return None
    if low in ("while", "since"):
        return None
    if low == "because" and low_at(tokens, i + 1) == "of":
        return None
    return text


WORD_RULES: tuple[Callable[[Tokens, int], str | None], ...] = (_adjective, _noun, _verb, _adverb)


def _expanded(tokens: Tokens) -> Tokens | None:
    """ "It's clean" -> "It is clean", "They're" -> "They are"."""
    for i, token in enumerate(tokens):
        full = {"'s": "is", "'re": "are", "'m": "am", "'ve": "have", "'ll": "will"}.get(token.low)
        if full and (token.low != "'s" or _is_is(tokens, i)):
            return (*tokens[:i], Token(full, full, " "), *tokens[i + 1 :])
    return None


def _is_is(tokens: Tokens, i: int) -> bool:
    """ "It's clean", not "it's been" nor "the hotel's"."""
    return is_finite(tokens, i) and low_at(tokens, i + 1) not in ("been", "got", "had")


def _opener_behind(tokens: Tokens) -> Tokens | None:
    """ "Overall, it was good." -> "It was good overall."."""
    if low_at(tokens, 0) != "overall" or opener(tokens) is None:
        return None
    end = len(tokens)
    while end and not is_word(tokens[end - 1]):
        end -= 1
    rest = tokens[1 + (tokens[1].low == ",") : end]
    if not rest:
        return None
    first = rest[0]._replace(text=capitalised(rest[0].text), gap="")
    return (*join((first, *rest[1:]), (Token("overall", "overall", " "),)), *tokens[end:])


FORMS: tuple[Callable[[Tokens], Tokens | None], ...] = (_opener_behind, _expanded)
