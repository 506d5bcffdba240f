"""NLI over claims and over blocks of text: every text of one list with every one of another; and
of each claim whether the sentence that it was made from entails it.

Pairs grow with the square of the texts: two sides with 500 claims each are half a million. So
pairs, what a model makes of them and their rows are made for the records that have `PAIRS_AT_ONCE`
together, or for one that has more. A chunk with fewer is one call of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.blocks import find_cut, window_spans
from claimscore.metrics.support import threshold_of
from claimscore.pipeline.encoders.distinct import Pair
from claimscore.pipeline.encoders.protocols import (
    NLI_LABELS,
    PairClassifier,
    RejectedItemsError,
)
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassInput,
    PassResult,
    asked,
    pass_result,
    truncated,
    typed_rows,
    without_rejected,
)
from claimscore.pipeline.tasks.base import context_of, side_texts
from claimscore.tables import BLOCK_NLI, CLAIM_CHECKS, FAILURES, NLI, SIDE_COLUMNS, Table
from claimscore.text import content_words, split_sentences

#: 64 pairs of summaries with 32 claims a side have as many. About 100 MB of texts, tokens and
#: results.
PAIRS_AT_ONCE = 2**17


class PairGrid(NamedTuple):
    """All pairs of one record and direction: every premise with every hypothesis."""

    id: str
    premises: Sequence[str]
    hypotheses: Sequence[str]
    premise_side: str
    hypothesis_side: str

    @property
    def n_pairs(self) -> int:
        return len(self.premises) * len(self.hypotheses)

    def pairs(self) -> Iterator[Pair]:
        """Premise by premise."""
        return product(self.premises, self.hypotheses)


class Pairs(Protocol):
    """The pairs of one record, made when they are asked for."""

    @property
    def n_pairs(self) -> int: ...

    def pairs(self) -> Iterator[Pair]: ...


def nli_pass(given: PassInput) -> PassResult:
    """Every claim of one side with every claim of the other, in both directions."""
    first, second = given.need.sides
    by_side: dict[tuple[str, str], list[str]] = {}
    claims = given.claims.select("id", "side", "text")
    for record, side, text in claims.iter_rows():
        by_side.setdefault((record, side), []).append(text)
    grids = []
    for record in given.records["id"]:
        one, other = by_side.get((record, first)), by_side.get((record, second))
        if one and other and record not in given.broken:
            grids.append(PairGrid(record, one, other, first, second))
            grids.append(PairGrid(record, other, one, second, first))
    direction = pl.concat_str("premise_side", pl.lit("_to_"), "hypothesis_side")
    return _judge(given, grids, NLI, direction=direction)


def block_nli_pass(given: PassInput) -> PassResult:
    """Every block of the first item of `over` as premise, every one of the second as hypothesis.

    The premise side is the document: of it SummaC's code reads the first blocks only. Several
    documents of one record are cut one by one, and their blocks follow each other. A record
    without blocks on a side has no rows.
    """
    (first, first_cut), (second, second_cut) = (over.split(".", 1) for over in given.need.over)
    premise_cut, hypothesis_cut = find_cut(first_cut), find_cut(second_cut)
    texts: dict[tuple[str, str], list[str]] = {}
    for item in side_texts(given.records, (first, second)):
        texts.setdefault((item.id, item.side), []).append(item.text)
    grids = []
    for record in given.records["id"]:
        premises = premise_cut.document_blocks(texts.get((record, first), []))
        summaries = texts.get((record, second), [])
        hypotheses = [block for text in summaries for block in hypothesis_cut.blocks(text)]
        if premises and hypotheses:
            grids.append(PairGrid(record, premises, hypotheses, first, second))
    cuts = {
        "premise_cut": pl.lit(premise_cut.name),
        "hypothesis_cut": pl.lit(hypothesis_cut.name),
    }
    return _judge(given, grids, BLOCK_NLI, **cuts)


def _judge(
    given: PassInput, grids: Sequence[PairGrid], table: Table, **columns: pl.Expr
) -> PassResult:
    """Ask the model about all pairs, grid by grid and premise by premise."""

    def ask(left: list[PairGrid]) -> pl.DataFrame:
        return pl.concat(list(_frames(given, left, table, columns)))

    judged = without_rejected(given.need.kind, grids, ask)
    return PassResult({table.name: judged.answer}, FAILURES.frame(judged.failures))


def _frames(
    given: PassInput, grids: Sequence[PairGrid], table: Table, columns: dict[str, pl.Expr]
) -> Iterator[pl.DataFrame]:
    """A frame for each call of the model."""
    of_grids = pl.DataFrame(
        [(grid.id, grid.premise_side, grid.hypothesis_side) for grid in grids],
        schema=dict.fromkeys(("id", "premise_side", "hypothesis_side"), pl.String()),
        orient="row",
    )
    for judged in judged_pairs(given, grids):
        shapes = [(len(grids[i].premises), len(grids[i].hypotheses)) for i in judged.span]
        places = [np.indices(shape).reshape(2, -1) for shape in shapes]
        premises, hypotheses = np.concatenate([np.zeros((2, 0), dtype=np.int64), *places], axis=1)
        rows = of_grids[judged.owners].with_columns(
            pl.Series("premise_index", premises),
            pl.Series("hypothesis_index", hypotheses),
            *(pl.Series(name, judged.values[:, i]) for i, name in enumerate(NLI_LABELS)),
            judged.truncated,
        )
        yield typed_rows(table, rows, given.model.info, **columns)


class JudgedPairs(NamedTuple):
    """What one call of the model said about the items of a `span`: of each pair the item that
    `owns` it ``[n]``, the probabilities ``[n, 3]``, and whether it was cut (null where the model
    does not tell)."""

    span: range
    owners: NDArray[np.int64]
    values: NDArray[np.float32]
    truncated: pl.Series


def judged_pairs(given: PassInput, items: Sequence[Pairs]) -> Iterator[JudgedPairs]:
    """All pairs in order, of whole items at a time; of rejected ones the indices are those of the
    items."""
    classifier: PairClassifier = given.model
    sizes = [item.n_pairs for item in items]
    on_batch, before = given.listen(sum(sizes)), 0
    for span in window_spans(sizes, PAIRS_AT_ONCE) or [range(0)]:
        pairs = [pair for i in span for pair in items[i].pairs()]
        owners = np.repeat(np.array(span, dtype=np.int64), [sizes[i] for i in span])

        def tell(done: int, before: int = before) -> None:
            on_batch(before + done)

        values = np.empty((0, len(NLI_LABELS)), dtype=np.float32)
        try:
            if pairs:
                values = classifier.classify(pairs, on_batch=tell)
        except RejectedItemsError as exc:
            rejected = tuple({int(owners[index]): None for index in exc.indices})
            raise RejectedItemsError(str(exc), exc.kind, rejected) from exc
        yield JudgedPairs(span, owners, values, truncated(classifier, pairs))
        before += len(pairs)


class _Claim(NamedTuple):
    id: str
    sentence_index: int | None
    claim_index: int
    pair: tuple[str, str]


def claim_entailment_pass(given: PassInput) -> PassResult:
    """A row for each claim of one side that the sentence it was made from does not entail.

    A check (`claim_checks`), made where a metric needs the NLI model anyway. It fails no record: a
    claim that the model refuses, or cannot read whole beside its sentence, has no row. A claim that
    is its sentence is entailed without a question. One with words of its sentence and others is
    judged by the sentence among its neighbours, one of a whole text by that text.
    """
    classifier: PairClassifier = given.model
    claims, values, _ = asked(given, _claims(given), classifier.classify, lambda claim: claim.pair)
    threshold = threshold_of(classifier)
    cut = truncated(classifier, [claim.pair for claim in claims])
    rows: list[dict[str, object]] = [
        {
            "id": claim.id,
            "side": given.need.sides[0],
            "sentence_index": claim.sentence_index,
            "claim_index": claim.claim_index,
            "check": "not_entailed",
            "value": float(value[0]),
        }
        for claim, value, is_cut in zip(claims, values, cut, strict=True)
        if value[0] < threshold and not is_cut
    ]
    return pass_result(CLAIM_CHECKS, CLAIM_CHECKS.frame(rows), [], classifier.info)


def _claims(given: PassInput) -> list[_Claim]:
    (side,) = given.need.sides
    columns = ("id", "sentence_index", "claim_index", "sentence", "text")
    rows = given.claims.filter(side=side).select(columns)
    has_text = SIDE_COLUMNS.get(side) in given.records.columns
    whole = dict(given.records.select("id", SIDE_COLUMNS[side]).iter_rows()) if has_text else {}
    claims, split = [], functools.cache(split_sentences)
    for record, index, claim_index, sentence, claim in rows.iter_rows():
        text = whole.get(record) if sentence is None else sentence
        words, known = content_words(claim).keys(), content_words(sentence or "").keys()
        if words - known and words & known and record in whole:
            context = context_of(split(whole[record]), index)
            text = " ".join((context["before"], sentence, context["after"])).strip()
        if text and text.strip() not in ("", claim):
            claims.append(_Claim(record, index, claim_index, (text, claim)))
    places = {record: place for place, record in enumerate(given.records["id"])}
    return sorted(claims, key=lambda claim: places[claim.id])


#: One claim entails another from this probability on: far above `threshold_of`, since claims of
#: one text share names and words, which a model takes for entailment too often.
ENTAILED = 0.9


def entailed_claims_pass(given: PassInput) -> PassResult:
    """A row for each claim of one side that another claim of the side entails: `--dedupe entailed`.

    The claims of several texts of a side stand together, as for `repeats=once`. A pair that the
    model cannot read whole is not entailed.
    """
    (side,) = given.need.sides
    claims = given.claims.filter(side=side).select(
        *("id", "side", "sentence_index", "claim_index", "text"),
        claim_position=pl.int_range(pl.len()).over("id"),
        check=pl.lit("entailed"),
    )
    of_records = claims.rows_by_key("id", named=True, include_key=True)
    grids = []
    for record in given.records["id"]:
        texts = [claim["text"] for claim in of_records.get(record, ())]
        if len(texts) > 1 and record not in given.broken:
            grids.append(PairGrid(record, texts, texts, side, side))

    def ask(left: list[PairGrid]) -> list[NDArray[np.float32]]:
        of_all = [
            np.where(judged.truncated.fill_null(False), 0, judged.values[:, 0])
            for judged in judged_pairs(given, left)
        ]
        sizes = [len(grid.premises) for grid in left]
        parts = np.split(np.concatenate(of_all), np.cumsum([n * n for n in sizes], dtype=int))
        return [part.reshape(n, n) for part, n in zip(parts, sizes, strict=False)]

    judged = without_rejected(given.need.kind, grids, ask, side=side)
    rows = [
        of_records[grid.id][place] | {"value": value}
        for grid, cells in zip(judged.items, judged.answer, strict=True)
        for place, value in entailed(cells).items()
    ]
    return pass_result(CLAIM_CHECKS, CLAIM_CHECKS.frame(rows), judged.failures, given.model.info)


def entailed(probabilities: NDArray[np.float32]) -> dict[int, float]:
    """The places of claims that a claim which stays entails, each with the highest probability.

    `probabilities` are those of entailment ``[premise, hypothesis]``. Of two claims that entail
    each other the earlier stays; where claims follow one another in a circle, the earliest.
    """
    entails = probabilities >= ENTAILED
    beats = entails & (~entails.T | np.triu(np.ones_like(entails), 1))
    np.fill_diagonal(beats, False)
    stays, left = np.zeros(len(beats), dtype=bool), np.ones(len(beats), dtype=bool)
    while left.any():
        unbeaten = left & ~beats[left].any(axis=0)
        if not unbeaten.any():
            unbeaten[left.argmax()] = True
        stays |= unbeaten
        left &= ~(unbeaten | beats[unbeaten].any(axis=0))
    best = np.where(beats & stays[:, None], probabilities, 0).max(axis=0)
    return {int(place): float(best[place]) for place in np.flatnonzero(~stays)}


NLI_PASS = ModelPass("nli", "nli", nli_pass, after=("decompose",))
BLOCK_NLI_PASS = ModelPass("block_nli", "nli", block_nli_pass)
CLAIM_ENTAILMENT_PASS = ModelPass(
    "claim_entailment", "nli", claim_entailment_pass, after=("decompose",)
)
ENTAILED_CLAIMS_PASS = ModelPass(
    "entailed_claims", "nli", entailed_claims_pass, after=("decompose",)
)
