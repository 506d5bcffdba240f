"""Support: every claim of one side against every text of another, sentence by sentence and whole.

A text is read by its sentences and by windows of several: a sentence alone is what NLI models are
trained on, and a window holds what a claim takes from several. The largest probability of support
counts. Of a longer text each claim has the premises of its best sentences, unless all are asked for
(`claimscore.evidence`). The verifier reads normal forms. A claim that a sentence says word for word
is supported without a question.

A window has as many tokens as the verifier reads, less those of the record's longest claim, for
which a quarter is kept in any case. A sentence that is longer than a window is read in parts, and
the first one of a verifier is told.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimscore.calibration import Calibration
from claimscore.config import LLM_VERIFIER, EncoderConfig
from claimscore.evidence import Span, copies, premises, ranked, shared_words
from claimscore.metrics.support import (
    BEST,
    BOTH,
    MODEL,
    SENTENCES,
    SUPPORTED,
    UNSURE,
    WINDOWS,
    Row,
    by_claim,
    joined,
    members_of,
    threshold_of,
    uncertainty,
    verdicts,
)
from claimscore.pipeline.encoders.distinct import Pair
from claimscore.pipeline.encoders.protocols import OnBatch, Verifier
from claimscore.pipeline.passes.model_pass import (
    ModelPass,
    PassAnswer,
    PassInput,
    PassResult,
    failed_side,
    texts_of,
    without_rejected,
)
from claimscore.pipeline.passes.pair_nli import judged_pairs
from claimscore.tables import FAILURES, OPINIONS, SUPPORT
from claimscore.text import normal_form, split_sentences

logger = logging.getLogger("claimscore")

#: Tokens of a pair that are of neither text: special ones, and the words of a prompt.
SPECIAL_TOKENS = 8

#: Tokens of a pair where the verifier does not say how many it reads: half an NLI model's.
UNKNOWN_LIMIT = 256

#: Words of English a token, where the verifier does not count its own.
WORDS_A_TOKEN = 0.75

_ENTAILMENT, _CONTRADICTION = 0, 2


@dataclasses.dataclass(frozen=True)
class _ReadText:
    """One text with the claims that are looked for in it.

    `sentences` are as the verifier reads them, each with its place and as it stands in the text.
    `copies` has the place of the sentence that says a claim word for word, `premises` has those of
    each other claim, and `near` how many of its words each sentence shares ``[sentences]``.
    """

    id: str
    place: int
    whole: Sequence[str]
    claims: Sequence[str]
    sentences: Sequence[str]
    shown: Sequence[tuple[int, str]]
    copies: Mapping[int, int]
    premises: Mapping[int, Sequence[Span]]
    near: Mapping[int, NDArray[np.float64]]

    @property
    def n_pairs(self) -> int:
        return sum(map(len, self.premises.values()))

    def pairs(self) -> Iterator[Pair]:
        """Of each claim its premises, one after the other."""

        @functools.cache
        def text(span: Span) -> str:
            return " ".join(self.sentences[place] for place in span)

        for claim, spans in self.premises.items():
            hypothesis = normal_form(self.claims[claim])
            yield from ((text(span), hypothesis) for span in spans)


def support_pass(given: PassInput, encoders: EncoderConfig | None = None) -> PassResult:
    """A row for each claim of the second side with each text of the first.

    Of several verifiers it is that of their votes, or, where the language model is asked after this
    pass, that of the first one. A second one is asked about all claims or those that the first one
    is unsure of. A record that one of them cannot take has no rows.
    """
    encoders = encoders or EncoderConfig()
    over, side = given.need.over
    source_side, asked, evidence = f"{over}.{BEST}".split(".")[:3]
    of_need = {"side": side, "source_side": source_side, "read": f"{asked}.{evidence}"}
    is_last = not encoders.llm_is_second
    votes: dict[str, list[Row]] = {name: [] for name in encoders.verifiers}
    if is_last and LLM_VERIFIER in votes:
        votes[LLM_VERIFIER] = given.read(OPINIONS.name).filter(**of_need).to_dicts()
    failures, n_before = list[dict[str, Any]](), 0
    for name, model in zip(encoders.judges, members_of(given.model), strict=True):
        first = votes[encoders.verifiers[0]] if encoders.second_opinion == "unsure" else []
        sure = {
            (row["id"], row["source_index"], row["claim_position"])
            for row in first
            if row["uncertainty"] < UNSURE
        }
        judged = _judged_by(given, model, of_need, sure, n_before)
        n_before += sum(text.n_pairs for text in judged.items)
        votes[name] = judged.answer
        failures += judged.failures
    left_out = given.broken.union(row["id"] for row in failures)
    joint = [joined(of_claim) for of_claim in by_claim([*chain(*votes.values())]).values()]
    table = SUPPORT if is_last else OPINIONS
    rows = table.frame([row for row in joint if row["id"] not in left_out])
    return PassResult({table.name: rows}, FAILURES.frame(failures))


def _judged_by(
    given: PassInput,
    model: Verifier,
    of_need: Mapping[str, str],
    sure: Container[tuple[str, int, int]],
    n_before: int,
) -> PassAnswer[_ReadText, list[Row]]:
    """The votes of one verifier on the claims that are not `sure` yet; `n_before` pairs were judged
    by others."""
    asked, evidence = of_need["read"].split(".")
    side, source_side = of_need["side"], of_need["source_side"]
    read = _read_by(model) if asked == MODEL else asked
    texts = texts_of(given.records, source_side)
    claims: dict[str, list[str]] = {}
    mine = given.claims.filter(side=side).select("id", "text")
    for record, text in mine.iter_rows():
        claims.setdefault(record, []).append(text)
    split = [
        (record, index or 0, split_sentences(text))
        for record in given.records["id"]
        if record in claims and record not in given.broken
        for index, text in texts.get(record, ())
    ]
    sizes = _Sizes(
        model, (*chain(*(sentences for *_, sentences in split)), *chain(*claims.values()))
    )
    every = [
        _read_text(record, index, sentences, claims[record], (read, evidence), sizes, sure)
        for record, index, sentences in split
    ]

    def listen(n_pairs: int) -> OnBatch:
        hear = given.listen(n_before + n_pairs)
        return lambda done: hear(n_before + done)

    def ask(left: list[_ReadText]) -> list[Row]:
        rows = _rows(dataclasses.replace(given, model=model, listen=listen), left)
        of_model = {**of_need, "verifier": model.kind, **model.info._asdict()}
        return [row | of_model for row in rows]

    return without_rejected("support", every, ask, side=failed_side(given.need.sides))


def _read_by(verifier: Verifier) -> str:
    """NLI models know sentences; those of two labels were trained on documents."""
    return BOTH if verifier.kind == "nli" else WINDOWS


class _Sizes:
    """How many tokens texts have in their normal forms, and how many a window may have; ``texts``
    are counted at once."""

    def __init__(self, model: Any, texts: Iterable[str]) -> None:
        self.model = model
        self._count = getattr(model, "text_lengths", None) or _estimated
        distinct = list(dict.fromkeys(texts))
        sizes = map(int, self._count(list(map(normal_form, distinct))))
        self._known = dict(zip(distinct, sizes, strict=True))

    def __call__(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = int(self._count([normal_form(text)])[0])
        return self._known[text]

    def most(self, claims: Sequence[str]) -> int:
        """The most tokens of a window beside these claims."""
        limit = getattr(self.model, "limit", None) or UNKNOWN_LIMIT
        quarter = limit // 4
        return max(1, quarter, limit - SPECIAL_TOKENS - max(quarter, *map(self, claims)))


def _estimated(texts: Sequence[str]) -> list[int]:
    """About the tokens of each text: by its words, by its characters where they are not ASCII."""
    return [
        max(ceil(len(text.split()) / WORDS_A_TOKEN), sum(not c.isascii() for c in text))
        for text in texts
    ]


def _read_text(
    record: str,
    index: int,
    whole: Sequence[str],
    claims: list[str],
    how: tuple[str, str],
    sizes: _Sizes,
    sure: Container[tuple[str, int, int]],
) -> _ReadText:
    most, (read, evidence) = sizes.most(claims), how
    shown = list[tuple[int, str]]()
    for place, sentence in enumerate(whole):
        if sizes(sentence) > most and not getattr(sizes.model, "told_of_parts", False):
            sizes.model.told_of_parts = True
            logger.warning(
                "record %s: sentence %d of text %d has %s tokens, of which the verifier reads %s "
                "at once: such sentences are read in parts",
                *(record, place + 1, index + 1, f"{sizes(sentence):,}", f"{most:,}"),
            )
        shown += [(place, part) for part in _parts(sentence, most, sizes)]
    sentences = [normal_form(part) for _, part in shown]
    known = copies(whole, claims)
    places = (claim for claim in range(len(claims)) if (record, index, claim) not in sure)
    asked = [claim for claim in places if claim not in known]
    near = dict(zip(asked, shared_words(sentences, [claims[at] for at in asked]).T, strict=True))
    make = functools.partial(
        premises,
        [sizes(part) for _, part in shown],
        most,
        alone=read != WINDOWS,
        joined=read != SENTENCES,
    )
    if evidence == BEST:
        spans = {claim: make(order=ranked(near[claim])) for claim in asked}
    else:
        spans = dict.fromkeys(asked, make())
    return _ReadText(record, index, whole, claims, sentences, shown, known, spans, near)


def _parts(text: str, most: int, sizes: _Sizes) -> list[str]:
    """The text, halved at words, else at characters, until each part has at most so many tokens."""
    if sizes(text) <= most or len(text) < 2:
        return [text]
    words, between = text.split(), " "
    if len(words) == 1:
        words, between = list(text), ""
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    return [part for half in halves for part in _parts(between.join(half), most, sizes)]


def _rows(given: PassInput, texts: Sequence[_ReadText]) -> list[dict[str, Any]]:
    """A row for each text and claim, text by text."""
    calls = list(judged_pairs(given, texts))
    values = np.concatenate([call.values for call in calls])
    cut = pl.concat([call.truncated for call in calls])
    threshold, rows, start = given.threshold, list[Row](), 0
    threshold = threshold_of(given.model) if threshold is None else threshold
    for text in texts:
        for claim in sorted({*text.copies, *text.premises}):
            row: Row = {"id": text.id, "claim_position": claim, "claim": text.claims[claim]}
            row |= {"source_index": text.place, "verbatim": claim in text.copies}
            if claim in text.copies:
                contradiction = 0.0 if given.model.kind == "nli" else None
                row |= {"verdict": SUPPORTED, "probability": 1.0, "contradiction": contradiction}
                index = text.copies[claim]
                row |= {"evidence_index": index, "evidence": text.whole[index], "truncated": False}
            else:
                stop = start + len(text.premises[claim])
                row |= _judged(text, claim, values[start:stop], threshold)
                of_claim = cut[start:stop]
                row["truncated"] = None if of_claim[0] is None else of_claim.any()
                start = stop
            sure = {"uncertainty": uncertainty(row["probability"]), "threshold": threshold}
            rows.append(row | sure)
    return rows


def _judged(
    text: _ReadText, claim: int, values: NDArray[np.float32], threshold: float
) -> dict[str, Any]:
    """The verdict on a claim from the probabilities of its premises ``[premises, 3]``."""
    support = values[:, _ENTAILMENT]
    place, sentence = _evidence(text.premises[claim], text.near[claim], support, threshold)
    contradiction = values[place, _CONTRADICTION]
    (verdict,) = verdicts([support.max()], [contradiction], threshold)
    index, evidence = text.shown[sentence]
    return {
        "verdict": verdict,
        "probability": float(support.max()),
        "contradiction": None if np.isnan(contradiction) else float(contradiction),
        "evidence_index": index,
        "evidence": evidence,
    }


def _evidence(
    spans: Sequence[Span],
    near: NDArray[np.float64],
    support: NDArray[np.float32],
    threshold: float,
) -> tuple[int, int]:
    """The place of the premise behind the verdict on a claim, a sentence where those are read, and
    the sentence of it that shares most of the claim's words.

    Of a supported claim that with the most support; where only a window supports it, the sentence
    in it that shares most of its words. Of another claim the premise that shares most of its words.
    Of equal ones that with the most support.
    """
    best = int(support.argmax())
    nearest = [max(span, key=near.__getitem__) for span in spans]
    pool = [i for i, span in enumerate(spans) if len(span) == 1]
    if len(pool) < len(set(chain(*spans))):
        pool = list(range(len(spans)))
    by_itself = False
    if support[best] >= threshold:
        pool = [i for i in pool if spans[i][0] in spans[best]]
        by_itself = max(support[pool]) >= threshold
    place = max(pool, key=lambda i: (0 if by_itself else near[nearest[i]], support[i]))
    return place, nearest[place]


SUPPORT_PASS = ModelPass("support", "verifier", support_pass, after=("decompose",))


def pass_of(encoders: EncoderConfig) -> ModelPass:
    """The pass as this run does it: it joins the votes of several verifiers, after the language
    model where that is asked first."""
    if len(encoders.verifiers) == 1:
        return SUPPORT_PASS
    first = () if encoders.llm_is_second or LLM_VERIFIER not in encoders.verifiers else ("verify",)
    compute = functools.partial(support_pass, encoders=encoders)
    return dataclasses.replace(SUPPORT_PASS, compute=compute, after=(*SUPPORT_PASS.after, *first))


def calibrated_pass(model_pass: ModelPass, calibration: Calibration) -> ModelPass:
    """The pass of one verifier, with the threshold of a calibration and its probabilities."""
    compute = functools.partial(_calibrated, compute=model_pass.compute, calibration=calibration)
    return dataclasses.replace(model_pass, compute=compute)


def _calibrated(
    given: PassInput, compute: Callable[[PassInput], PassResult], calibration: Calibration
) -> PassResult:
    before = float(calibration.map.inverse(calibration.threshold))
    made = compute(dataclasses.replace(given, threshold=before))
    rows = calibration.applied(made.rows[SUPPORT.name].to_dicts())
    return PassResult({SUPPORT.name: SUPPORT.frame(rows)}, made.failures)
