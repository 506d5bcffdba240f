"""Putting words for words: case, articles."""

from __future__ import annotations

from claimscore.baseline.lexicon import lexicon
from claimscore.baseline.words import Token, Tokens, capitalised, tokenise


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
