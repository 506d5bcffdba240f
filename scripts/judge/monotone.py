"""Sentence pairs, made by rule, about what follows when a phrase is made narrower or wider.

Why: "Some nurses bought red roses" entails "Some nurses bought roses", "No nurse bought roses"
entails "No nurse bought red roses", and neither holds the other way round. The human-written
pairs hold few such cases, and a small model learns from the rest to answer by word overlap.

A context marks each of its two places as upward (wider follows), downward (narrower follows) or
neither (MacCartney and Manning 2007, https://aclanthology.org/W07-1431/). Labels follow from the
mark and the direction of the change alone: ``entailment`` or ``neutral``. Words and contexts
stand in ``monotone.toml``.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

SOURCE = "monotone_rule"

#: Subjects that are written in lower case inside a sentence.
_LOWERED = ("The teacher", "My neighbor", "She", "He", "They", "We")

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class PhraseChange(NamedTuple):
    """A wider and a narrower filling of one place of a context."""

    wide: str
    narrow: str


def monotone_pairs(count: int, seed: int) -> pl.DataFrame:
    """Return ``count`` distinct labelled pairs, the same for the same seed."""
    rng = random.Random(seed)
    rows: dict[tuple[str, str], str] = {}
    while len(rows) < count:
        make = _subject_pair if rng.random() < 0.25 else _predicate_pair
        premise, hypothesis, label = make(rng)
        rows.setdefault((premise, hypothesis), label)
    return pl.DataFrame(
        [(premise, hypothesis, label, SOURCE) for (premise, hypothesis), label in rows.items()],
        schema=dict.fromkeys(("premise", "hypothesis", "label", "source"), pl.String),
        orient="row",
    )


def _subject_pair(rng: random.Random) -> tuple[str, str, str]:
    """Change the subject: an adjective, a modifier or a narrower word for it."""
    template, number, mark, _ = rng.choice(_WORDS["contexts"])
    scene = rng.choice(_WORDS["scenes"])
    phrase = rng.choice(rng.choice(scene["objects"]))
    head = f"{rng.choice(scene['adjectives'])} " if rng.random() < 0.3 else ""
    tail = f" {rng.choice(scene['adjuncts'])}" if rng.random() < 0.3 else ""
    verb = {"past": scene["past"], "base": scene["base"], "o": f"{head}{phrase}{tail}"}
    change = _subject_change(rng, number)
    return _ordered(rng, change, mark, lambda subject: template.format(s=subject, **verb))


def _predicate_pair(rng: random.Random) -> tuple[str, str, str]:
    """Change the predicate: an adjective, an adjunct, an alternative or a narrower word."""
    scene = rng.choice(_WORDS["scenes"])
    words = {"past": scene["past"], "base": scene["base"]}
    if rng.random() < 0.5:
        template, number, _, mark = rng.choice(_WORDS["contexts"])
        subject = _subject_change(rng, number)
        words["s"] = rng.choice((subject.wide, subject.narrow))
    else:
        template, mark = rng.choice(_WORDS["named_contexts"])
        name = rng.choice(_WORDS["names"])
        inside = name in _LOWERED and not template.startswith("{n}")
        words["n"] = name.lower() if inside else name
    change = _object_change(rng, scene, mark)
    return _ordered(rng, change, mark, lambda phrase: template.format(**words, o=phrase))


def _ordered(
    rng: random.Random, change: PhraseChange, mark: str, fill: Callable[[str], str]
) -> tuple[str, str, str]:
    """Return premise, hypothesis and label for a change in one of its two directions."""
    wide, narrow = fill(change.wide), fill(change.narrow)
    widens = rng.random() < 0.5
    holds = mark == ("up" if widens else "down")
    first, second = (narrow, wide) if widens else (wide, narrow)
    return first, second, "entailment" if holds else "neutral"


def _subject_change(rng: random.Random, number: int) -> PhraseChange:
    narrow, wide = (forms[number] for forms in rng.choice(_WORDS["people"]))
    kind = rng.random()
    if kind < 0.4:
        return PhraseChange(wide, narrow)
    noun = rng.choice((narrow, wide))
    if kind < 0.7:
        return PhraseChange(noun, f"{rng.choice(_WORDS['person_adjectives'])} {noun}")
    return PhraseChange(noun, f"{noun} {rng.choice(_WORDS['person_modifiers'])}")


def _object_change(rng: random.Random, scene: Mapping[str, Any], mark: str) -> PhraseChange:
    objects: Sequence[Sequence[str]] = scene["objects"]
    chosen = rng.choice(objects)
    narrow, wide = chosen
    noun = rng.choice((narrow, wide))
    kind = rng.random()
    if kind < 0.3:
        tail = f" {rng.choice(scene['adjuncts'])}" if rng.random() < 0.3 else ""
        head = f"{rng.choice(scene['adjectives'])} " if rng.random() < 0.2 else ""
        return PhraseChange(f"{head}{wide}{tail}", f"{head}{narrow}{tail}")
    if kind < 0.55:
        return PhraseChange(noun, f"{rng.choice(scene['adjectives'])} {noun}")
    if kind < 0.8:
        return PhraseChange(noun, f"{noun} {rng.choice(scene['adjuncts'])}")
    other = rng.choice([pair for pair in objects if pair != chosen])[0]
    if mark == "up" and rng.random() < 0.5:
        return PhraseChange(noun, f"{noun} and {other}")
    return PhraseChange(f"{noun} or {other}", rng.choice((noun, other)))
