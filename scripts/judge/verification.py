"""Pairs of texts and claims that people judged, as a run shows them to the judge.

The files of `verification` (its README names sources, licences and noise) hold whole documents. A
run shows the judge a few sentences at a time: those that share most words with the claim, in the
order of the text. So do these pairs, with a random number of sentences, and now and then a window.

Where a set tells nothing between "not mentioned" and "contradicted", the label is
`NOT_ENTAILED`: neutral or contradiction. Twins, a true and a false version of one claim or
text, have one number in `twin`.

Beside them: claims that our own claim maker makes of true summaries, and of sentences of the
documents, with the changes of `pairs.twins`; and sentences of reviews that have nothing to do with
each other. A fifth of the documents (`doc`) is left for development.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from claimscore.baseline.provider import ClaimMaker
from claimscore.evidence import ranked, shared_words
from claimscore.text import content_words, normal_form, split_sentences
from scripts.judge.changes import CONTRADICTED, ENTAILED, NEUTRAL, contradict, denied
from scripts.judge.edits import entity_edits
from scripts.judge.examples import NOT_ENTAILED
from scripts.judge.pairs import Document, Maker, is_development, twins

LABELS = {"supported": ENTAILED, "contradicted": CONTRADICTED, "unsupported": NOT_ENTAILED}

#: Files, and the kinds that are left out as too noisy for single claims.
FILES = (
    *("attributionbench", "begin", "cg2c_doc", "check_covid", "condaqa", "defacto"),
    *("factcheck_gpt", "fever_symmetric", "fib", "fm2", "hans_mnli", "q2", "scitail"),
    *("scone", "tracie"),
)
NOISY = ("extractive", "mfma", "irrelevant")

#: At most so many false claims of one twin group.
MOST_FALSE = 4

#: Words of a window, and most words of a text that is shown whole.
WINDOW, WHOLE = 300, 110

#: Documents whose sentences become claims, and sentences of each.
DOCUMENTS, SENTENCES = 2200, 10

#: Pairs of unrelated review sentences, of the quoted ones and of the made ones.
UNRELATED = 5000

SCHEMA = dict.fromkeys(("premise", "hypothesis", "label", "source", "twin"), pl.String)


class Row(NamedTuple):
    premise: str
    hypothesis: str
    label: str
    source: str
    twin: str | None = None


def shown(rng: random.Random, sentences: Sequence[str], claim: str) -> str:
    """The sentences of a text that the judge is shown beside a claim.

    A short text mostly whole; of a long one mostly its best five sentences, else the best eight,
    or those around the best one.
    """
    words = [len(sentence.split()) for sentence in sentences]
    kind = rng.random()
    if sum(words) <= WHOLE and kind < 0.7:
        return " ".join(sentences)
    best = ranked(shared_words(sentences, [claim])[:, 0])
    if kind < 0.85:
        chosen, n_words = [], 0
        for place in best[: 5 if kind < 0.65 else 8]:
            n_words += words[place]
            if not chosen or n_words <= WINDOW:
                chosen.append(place)
        return " ".join(sentences[i] for i in sorted(chosen))
    first = last = best[0]
    room = rng.randint(WINDOW // 2, WINDOW)
    while sum(words[first : last + 1]) < room and (first > 0 or last + 1 < len(words)):
        if (rng.random() < 0.5 and first > 0) or last + 1 == len(words):
            first -= 1
        else:
            last += 1
    return " ".join(sentences[first : last + 1])


def judged_rows(folder: Path, *, development: bool) -> pl.DataFrame:
    """The rows of all files on one side of the split, in normal form."""
    frames = []
    for name in FILES:
        rows = pl.read_parquet(folder / f"{name}.parquet")
        rows = rows.filter(~pl.col("kind").is_in(NOISY))
        frames.append(rows.select("premise", "claim", "label", "twin", "doc", "source", "kind"))
    rows = pl.concat(frames).filter(pl.col("claim").str.len_chars() > 3)
    side = [is_development(doc) == development for doc in rows["doc"]]
    return rows.filter(pl.Series(side)).with_columns(
        pl.col("claim").map_elements(normal_form, return_dtype=pl.String)
    )


def judged_pairs(rng: random.Random, rows: pl.DataFrame) -> Iterator[Row]:
    """A pair a row; of a twin group at most ``MOST_FALSE`` false ones."""
    split: dict[str, list[str]] = {}
    n_false: dict[str, int] = {}
    order = list(range(rows.height))
    rng.shuffle(order)
    for row in rows[order].iter_rows(named=True):
        twin = row["twin"] and f"{row['source']} {row['twin']}"
        if twin and row["label"] != "supported":
            n_false[twin] = n_false.get(twin, 0) + 1
            if n_false[twin] > MOST_FALSE:
                continue
        premise = row["premise"]
        if premise not in split:
            split[premise] = [normal_form(s) for s in split_sentences(premise)]
        text = shown(rng, split[premise], row["claim"])
        yield Row(text, row["claim"], LABELS[row["label"]], f"verified_{row['source']}", twin)


def claims_of_true_summaries(rng: random.Random, rows: pl.DataFrame) -> Iterator[Row]:
    """What our claim maker makes of supported summaries, and each with a name or word changed."""
    true = rows.filter(
        (pl.col("label") == "supported")
        & pl.col("source").str.contains("^(defacto|fib|cg2c|attributionbench)")
    )
    claims = ClaimMaker().claims(true["claim"].to_list())
    for number, (premise, summary, made) in enumerate(
        zip(true["premise"], true["claim"], claims, strict=True)
    ):
        sentences = [normal_form(s) for s in split_sentences(premise)]
        for place, claim in enumerate(map(normal_form, made)):
            if len(made) == 1 and rng.random() < 0.5:
                continue
            twin = f"made {number} {place}"
            text = shown(rng, sentences, claim)
            yield Row(text, claim, ENTAILED, "made_true", twin)
            if made_false := false_version(rng, claim, premise, summary):
                false, label = made_false
                yield Row(shown(rng, sentences, false), false, label, "made_false", twin)


def false_version(
    rng: random.Random, claim: str, premise: str, summary: str
) -> tuple[str, str] | None:
    """A claim with another name or word, or denied, and its label; none where the name put in
    stands in the summary."""
    edits = entity_edits(claim, premise)
    if edits and rng.random() < 0.6:
        false = rng.choice(edits).apply(claim)
        is_said = content_words(false).keys() <= content_words(summary).keys()
        return None if is_said else (false, NOT_ENTAILED)
    if change := contradict(rng, claim, premise):
        return change.hypothesis, change.label
    return denied(rng, claim), CONTRADICTED


def claims_of_documents(rng: random.Random, rows: pl.DataFrame, seed: int) -> Iterator[Row]:
    """Claims of the sentences of documents beside their passages, kept and changed."""
    texts = rows.filter(pl.col("premise").str.len_chars() > 500)["premise"]
    texts = texts.unique(maintain_order=True).to_list()
    documents = []
    claim_maker = ClaimMaker()
    for text in rng.sample(texts, min(DOCUMENTS, len(texts))):
        sentences = [normal_form(s) for s in split_sentences(text) if 5 < len(s.split()) < 60]
        start = rng.randint(0, max(0, len(sentences) - SENTENCES))
        sentences = sentences[start : start + SENTENCES]
        claims = claim_maker.claims(sentences)
        documents.append(
            Document(text[:100], sentences, [[normal_form(c) for c in of] for of in claims])
        )
    maker = Maker(documents, seed)
    for document in documents:
        if len(document.sentences) > 1:
            for made in twins(maker, document):
                yield Row(made.premise, made.hypothesis, made.label, f"document_{made.kind}")


_QUOTED = re.compile(r"When asked about .*?, \w+ said, '(.*)'\.$")


def unrelated_reviews(rng: random.Random, pairs: pl.DataFrame) -> Iterator[Row]:
    """Two sentences of reviews without a word in common: neutral, whatever they feel."""
    quoted = [m[1].strip() for text in pairs["premise"] if (m := _QUOTED.match(text))]
    made = pairs.filter(pl.col("source") == "synthetic_review")["premise"].unique().sort()
    for texts, share in ((sorted(set(quoted)), 1.0), (made.to_list(), 0.6)):
        for _ in range(int(UNRELATED * share) if len(texts) > 1 else 0):
            one, other = rng.sample(texts, 2)
            first, second = (content_words(normal_form(t)).keys() for t in (one, other))
            if not first & second:
                yield Row(normal_form(one), normal_form(other), NEUTRAL, "unrelated_review")


def verification_pairs(
    folder: Path, pairs: pl.DataFrame, *, seed: int = 1, development: bool = False
) -> pl.DataFrame:
    """The pairs of ``folder``; of labelled ``pairs`` the review sentences are taken.

    Columns premise, hypothesis, label, source, twin. ``development`` asks for the people's
    judgements on the documents that are otherwise left out, with all that is shown of them.
    """
    rng = random.Random(seed)
    rows = judged_rows(folder, development=development)
    made = [*judged_pairs(rng, rows), *claims_of_true_summaries(rng, rows)]
    if not development:
        made += [*claims_of_documents(rng, rows, seed), *unrelated_reviews(rng, pairs)]
    return pl.DataFrame(made, schema=SCHEMA, orient="row").unique(
        ["premise", "hypothesis"], keep="first", maintain_order=True
    )
