"""A seeded half of a table, for those who have labels for one split only."""

from __future__ import annotations

import hashlib


def in_first_half(value: str, seed: int) -> bool:
    """Whether the rows of this value are in the first half: one bit of a hash of value and seed.

    It depends neither on the order of the rows nor on which others there are, so that training
    and evaluation agree on it. The halves are therefore only about equally large.
    """
    digest = hashlib.sha256(f"{seed}\n{value}".encode("utf-8", "surrogatepass")).digest()
    return digest[0] < 128
