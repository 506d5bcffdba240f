"""Answers of one word: the probability of each label by its word, from log-probabilities.

Schick and Schütze 2021 (PET, EACL) call the map from labels to words a verbalizer. A label has the
probability of its word among the likeliest tokens where the answer says one of the words. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from claimscore.errors import ParseError
from claimscore.types import Completion

#: The likeliest tokens that are asked for: a word has several spellings, and some servers give no
#: more.
TOP_LOGPROBS = 5

#: Signs around a word: of tokenizers, of quotations, of tags.
_AROUND = " \n\t\"'.,<>▁Ġ"


def plain_word(token: str) -> str:
    """A word or token without case and the signs around it."""
    return token.strip(_AROUND).lower()


def label_probabilities(words: Mapping[str, str], completion: Completion) -> dict[str, float]:
    """The probability of each label, from 0 to 1; together at most 1 but for rounding.

    That is the sum over the spellings of its word among the likeliest tokens at the first place
    whose token is one of the words. Raises `ParseError` where the answer says none of them, and
    where there are no log-probabilities of it alone: some servers give none, and after reasoning
    they are of the thoughts too.
    """
    if completion.reasoning or not completion.logprobs:
        raise ParseError(
            "the server gave no log-probabilities of the answer, and the prompt's [label_words] "
            "are read from them"
        )
    labels = {plain_word(word): label for label, word in words.items()}
    for place in completion.logprobs:
        if plain_word(place.token) in labels:
            sums = dict.fromkeys(words, 0.0)
            for token, logprob in dict([place[:2], *place.top]).items():
                if label := labels.get(plain_word(token)):
                    sums[label] += math.exp(min(logprob, 0.0))
            return {label: min(p, 1.0) for label, p in sums.items()}
    answer = completion.text.strip()[:80]
    raise ParseError(f"the answer is none of {', '.join(words.values())}: {answer!r}")
