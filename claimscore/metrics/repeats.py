"""Claims that a side has more than once: whether each time counts, or the first only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from claimscore.metrics.base import option
from claimscore.text import claim_key

T = TypeVar("T")

EACH, ONCE = "each", "once"


def repeats_option(default: str) -> Any:
    """The field `repeats` of a metric's options, with one of `each` and `once` as its default."""
    said = "Whether a claim or fact that its side has more than once counts each time or once."
    return option(default, said, (EACH, ONCE))


class Counted(NamedTuple):
    """The places of the claims that count, how many claims there are and how many repeat others."""

    places: list[int]
    n: int
    n_repeats: int

    def by_claim(self, values: Sequence[T]) -> list[T | None]:
        """A value for every claim, from those of the claims that count; None for the others."""
        found = dict(zip(self.places, values, strict=True))
        return [found.get(place) for place in range(self.n)]


def counted(texts: Sequence[str], repeats: str) -> Counted:
    """Which of a side's claims count; the claims of all its texts stand together.

    A claim is a repeat where its `claim_key` is that of an earlier one. With `once` a repeat does
    not count, neither by itself nor as something that others are compared with.
    """
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(claim_key(text), place)
    places = list(first.values()) if repeats == ONCE else list(range(len(texts)))
    return Counted(places, len(texts), len(texts) - len(first))
