"""Sentences and their claims, as the tests of the rules and of the parser write them."""

from __future__ import annotations


def cut_sentences(table: str) -> dict[str, list[str]]:
    """Each sentence with its claims, which stand indented below it with `|` between them."""
    found: dict[str, list[str]] = {}
    claims: list[str] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            claims += [claim.strip() for claim in line.split("|") if claim.strip()]
        else:
            claims = found[line] = []
    return found
