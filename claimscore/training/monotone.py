"""Sentence pairs, made by rule, about what follows when a phrase is made narrower or wider.

Why: "Some nurses bought red roses" entails "Some nurses bought roses", "No nurse bought roses"
entails "No nurse bought red roses", and neither holds the other way round. The human-written
pairs hold few such cases, and a small model learns from the rest to answer by word overlap.

A context marks each of its two places as upward (wider follows), downward (narrower follows) or
neither (MacCartney and Manning 2007, https://aclanthology.org/W07-1431/). Labels follow from the
mark and the direction of the change alone: ``entailment`` or ``neutral``. The words are our own
and come from no evaluation set.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

SOURCE = "monotone_rule"

# past, base form, objects as (narrower, wider), adjectives, adjuncts
SCENES: tuple[tuple[str, str, tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]], ...]
SCENES = (
    (
        "bought",
        "buy",
        (
            ("roses", "flowers"),
            ("sofas", "furniture"),
            ("jeans", "clothes"),
            ("laptops", "computers"),
            ("sedans", "cars"),
            ("rings", "jewelry"),
            ("hammers", "tools"),
        ),
        ("red", "cheap", "expensive", "new", "used", "beautiful"),
        ("in the market", "yesterday", "for a friend", "on the internet", "with cash"),
    ),
    (
        "ate",
        "eat",
        (
            ("apples", "fruit"),
            ("carrots", "vegetables"),
            ("salmon", "fish"),
            ("cookies", "sweets"),
            ("almonds", "nuts"),
            ("noodles", "food"),
            ("beef", "meat"),
        ),
        ("fresh", "hot", "organic", "cold", "delicious", "spicy"),
        ("for breakfast", "at the party", "in the kitchen", "before the meeting", "with a spoon"),
    ),
    (
        "saw",
        "see",
        (
            ("poodles", "dogs"),
            ("sparrows", "birds"),
            ("lions", "animals"),
            ("oaks", "trees"),
            ("trucks", "vehicles"),
            ("bees", "insects"),
            ("yachts", "boats"),
        ),
        ("white", "young", "huge", "small", "old", "strange"),
        ("in the park", "near the river", "last summer", "at night", "from the train"),
    ),
    (
        "watched",
        "watch",
        (
            ("comedies", "films"),
            ("tennis matches", "sports events"),
            ("operas", "performances"),
            ("cartoons", "videos"),
            ("soap operas", "television shows"),
        ),
        ("funny", "boring", "foreign", "famous", "long", "silent"),
        ("on Sunday", "with the children", "at home", "in the afternoon", "before dinner"),
    ),
    (
        "read",
        "read",
        (
            ("novels", "books"),
            ("newspapers", "papers"),
            ("poems", "texts"),
            ("recipes", "instructions"),
            ("biographies", "books"),
            ("emails", "messages"),
        ),
        ("short", "German", "interesting", "modern", "difficult", "popular"),
        ("in bed", "on the bus", "every morning", "during the holidays", "in the library"),
    ),
    (
        "visited",
        "visit",
        (
            ("castles", "buildings"),
            ("cathedrals", "churches"),
            ("villages", "places"),
            ("museums", "attractions"),
            ("bakeries", "shops"),
            ("hospitals", "institutions"),
        ),
        ("old", "famous", "remote", "quiet", "crowded", "pretty"),
        ("in Spain", "last year", "by bike", "with a guide", "in winter"),
    ),
    (
        "carried",
        "carry",
        (
            ("suitcases", "luggage"),
            ("guitars", "instruments"),
            ("knives", "weapons"),
            ("bricks", "material"),
            ("umbrellas", "things"),
            ("backpacks", "bags"),
        ),
        ("heavy", "black", "wooden", "broken", "light", "leather"),
        ("up the stairs", "to the station", "through the rain", "at work", "across the street"),
    ),
    (
        "drank",
        "drink",
        (
            ("beer", "alcohol"),
            ("espresso", "coffee"),
            ("lemonade", "soft drinks"),
            ("milk", "beverages"),
            ("whisky", "liquor"),
        ),
        ("cold", "warm", "strong", "sweet", "cheap", "local"),
        ("in the evening", "after lunch", "in the bar", "at the wedding", "without ice"),
    ),
)
# narrower and wider, each singular and plural
PEOPLE = (
    (("nurse", "nurses"), ("person", "people")),
    (("student", "students"), ("person", "people")),
    (("girl", "girls"), ("child", "children")),
    (("boy", "boys"), ("child", "children")),
    (("violinist", "violinists"), ("musician", "musicians")),
    (("surgeon", "surgeons"), ("doctor", "doctors")),
    (("plumber", "plumbers"), ("worker", "workers")),
    (("goalkeeper", "goalkeepers"), ("athlete", "athletes")),
    (("novelist", "novelists"), ("writer", "writers")),
    (("uncle", "uncles"), ("relative", "relatives")),
)
PERSON_ADJECTIVES = ("tall", "young", "old", "foreign", "friendly", "rich", "tired")
PERSON_MODIFIERS = ("from the north", "with a hat", "in the village", "at the hotel", "in a hurry")
NAMES = ("Anna", "Peter", "Maria", "The teacher", "My neighbor", "She", "He", "They", "We", "I")

UP, DOWN, NEITHER = 1, -1, 0
# template, number of the subject, mark of the subject's place, mark of the predicate's place
CONTEXTS: tuple[tuple[str, int, int, int], ...] = (
    ("Some {s} {past} {o}.", 1, UP, UP),
    ("A certain {s} {past} {o}.", 0, UP, UP),
    ("Several {s} {past} {o}.", 1, UP, UP),
    ("At least three {s} {past} {o}.", 1, UP, UP),
    ("More than five {s} {past} {o}.", 1, UP, UP),
    ("There were {s} who {past} {o}.", 1, UP, UP),
    ("No {s} {past} {o}.", 0, DOWN, DOWN),
    ("No {s} {past} {o}.", 1, DOWN, DOWN),
    ("Few {s} {past} {o}.", 1, DOWN, DOWN),
    ("Hardly any {s} {past} {o}.", 1, DOWN, DOWN),
    ("At most two {s} {past} {o}.", 1, DOWN, DOWN),
    ("Less than six {s} {past} {o}.", 1, DOWN, DOWN),
    ("Not a single {s} {past} {o}.", 0, DOWN, DOWN),
    ("There was no {s} who {past} {o}.", 0, DOWN, DOWN),
    ("Every {s} {past} {o}.", 0, DOWN, UP),
    ("All {s} {past} {o}.", 1, DOWN, UP),
    ("Each {s} {past} {o}.", 0, DOWN, UP),
    ("Every {s} who {past} {o} was satisfied.", 0, DOWN, DOWN),
    ("Some {s} who {past} {o} were satisfied.", 1, UP, UP),
    ("No {s} who {past} {o} was satisfied.", 0, DOWN, DOWN),
    ("Every {s} who did not {base} {o} was satisfied.", 0, DOWN, UP),
    ("Most {s} {past} {o}.", 1, NEITHER, UP),
    ("Exactly four {s} {past} {o}.", 1, NEITHER, NEITHER),
    ("Only seven {s} {past} {o}.", 1, NEITHER, NEITHER),
)
# template, mark of the predicate's place
NAMED_CONTEXTS: tuple[tuple[str, int], ...] = (
    ("{n} {past} {o}.", UP),
    ("{n} {past} {o}.", UP),
    ("{n} managed to {base} {o}.", UP),
    ("{n} went out and {past} {o}.", UP),
    ("It is true that {n} {past} {o}.", UP),
    ("{n} did not {base} {o}.", DOWN),
    ("{n} didn't {base} {o}.", DOWN),
    ("{n} never {past} {o}.", DOWN),
    ("{n} could not {base} {o}.", DOWN),
    ("{n} can't {base} {o}.", DOWN),
    ("{n} won't {base} {o}.", DOWN),
    ("{n} refused to {base} {o}.", DOWN),
    ("{n} hardly ever {past} {o}.", DOWN),
    ("It is not true that {n} {past} {o}.", DOWN),
    ("Nobody {past} {o}.", DOWN),
    ("Nobody there {past} {o}.", DOWN),
    ("Everybody {past} {o}.", UP),
    ("If you {base} {o}, you will be late.", DOWN),
    ("If {n} {past} {o}, the others will know.", DOWN),
    ("{n} was surprised that anyone {past} {o}.", NEITHER),
    ("Nobody failed to {base} {o}.", UP),
)


@dataclass(frozen=True)
class Change:
    """A wider and a narrower filling of one place of a context."""

    wide: str
    narrow: str


def monotone_pairs(count: int, seed: int) -> pl.DataFrame:
    """Return ``count`` distinct labelled pairs, the same for the same seed."""
    rng = random.Random(seed)
    rows: dict[tuple[str, str], str] = {}
    while len(rows) < count:
        make: Callable[[random.Random], tuple[str, str, str]]
        make = _subject_pair if rng.random() < 0.25 else _predicate_pair
        premise, hypothesis, label = make(rng)
        rows.setdefault((premise, hypothesis), label)
    return pl.DataFrame(
        [(premise, hypothesis, label, SOURCE) for (premise, hypothesis), label in rows.items()],
        schema={
            "premise": pl.String,
            "hypothesis": pl.String,
            "label": pl.String,
            "source": pl.String,
        },
        orient="row",
    )


def _subject_pair(rng: random.Random) -> tuple[str, str, str]:
    """Change who: an adjective, a modifier or a narrower word for the subject."""
    template, number, mark, _ = rng.choice(CONTEXTS)
    past, base, objects, adjectives, adjuncts = rng.choice(SCENES)
    phrase = _decorated(rng, rng.choice(rng.choice(objects)), adjectives, adjuncts)
    change = _subject_change(rng, number)
    return _ordered(
        rng, change, mark, lambda s: template.format(s=s, past=past, base=base, o=phrase)
    )


def _predicate_pair(rng: random.Random) -> tuple[str, str, str]:
    """Change what: an adjective, an adjunct, an alternative or a narrower word in the predicate."""
    past, base, objects, adjectives, adjuncts = rng.choice(SCENES)
    if rng.random() < 0.5:
        template, number, _, mark = rng.choice(CONTEXTS)
        subject = _subject_change(rng, number)
        words = {"s": rng.choice((subject.wide, subject.narrow)), "past": past, "base": base}
    else:
        template, mark = rng.choice(NAMED_CONTEXTS)
        name = rng.choice(NAMES)
        inside = name in ("The teacher", "My neighbor", "She", "He", "They", "We")
        starts = template.startswith("{n}")
        words = {"n": name.lower() if inside and not starts else name, "past": past, "base": base}
    change = _object_change(rng, objects, adjectives, adjuncts, mark)
    return _ordered(rng, change, mark, lambda o: template.format(**words, o=o))


def _ordered(
    rng: random.Random, change: Change, mark: int, fill: Callable[[str], str]
) -> tuple[str, str, str]:
    """Return premise, hypothesis and label for a change in one of its two directions."""
    wide, narrow = fill(change.wide), fill(change.narrow)
    widens = rng.random() < 0.5
    holds = mark == (UP if widens else DOWN)
    first, second = (narrow, wide) if widens else (wide, narrow)
    return first, second, "entailment" if holds else "neutral"


def _subject_change(rng: random.Random, number: int) -> Change:
    narrow, wide = (forms[number] for forms in rng.choice(PEOPLE))
    kind = rng.random()
    if kind < 0.4:
        return Change(wide, narrow)
    noun = rng.choice((narrow, wide))
    if kind < 0.7:
        return Change(noun, f"{rng.choice(PERSON_ADJECTIVES)} {noun}")
    return Change(noun, f"{noun} {rng.choice(PERSON_MODIFIERS)}")


def _object_change(
    rng: random.Random,
    objects: tuple[tuple[str, str], ...],
    adjectives: tuple[str, ...],
    adjuncts: tuple[str, ...],
    mark: int,
) -> Change:
    narrow, wide = rng.choice(objects)
    noun = rng.choice((narrow, wide))
    kind = rng.random()
    if kind < 0.3:
        tail = f" {rng.choice(adjuncts)}" if rng.random() < 0.3 else ""
        head = f"{rng.choice(adjectives)} " if rng.random() < 0.2 else ""
        return Change(f"{head}{wide}{tail}", f"{head}{narrow}{tail}")
    if kind < 0.55:
        return Change(noun, f"{rng.choice(adjectives)} {noun}")
    if kind < 0.8:
        return Change(noun, f"{noun} {rng.choice(adjuncts)}")
    other = rng.choice([pair for pair in objects if pair != (narrow, wide)])[0]
    if mark == UP and rng.random() < 0.5:
        return Change(noun, f"{noun} and {other}")
    return Change(f"{noun} or {other}", rng.choice((noun, other)))


def _decorated(
    rng: random.Random, noun: str, adjectives: tuple[str, ...], adjuncts: tuple[str, ...]
) -> str:
    head = f"{rng.choice(adjectives)} " if rng.random() < 0.3 else ""
    tail = f" {rng.choice(adjuncts)}" if rng.random() < 0.3 else ""
    return f"{head}{noun}{tail}"
