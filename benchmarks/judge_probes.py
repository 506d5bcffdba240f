"""What an adapter of the embedded NLI model knows of claims: the table of its model card.

    python -m benchmarks.judge_probes --data FOLDER [--adapter FILE] [--share 0.1] [--only PARTS]

``FOLDER`` holds ``nli``, ``decomposition``, ``claim_support``, ``caspr``, ``summac_benchmark`` and
``verification``. Texts are read as a run reads them: claims of summaries by the built-in claim
maker, and of a source the sentences that bear on a claim. A figure is a line of JSON: part, probe,
value, standard error (documents are resampled) and n. *word overlap* is the mean share of a claim's
content words in those sentences. Planted errors and copies are always taken whole. A share of .1
takes about five minutes of CPU time.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import claimscore
from benchmarks.planted_errors import MARGIN, TRUE, planted_records
from claimscore.baseline import parser
from claimscore.config import EncoderConfig
from claimscore.evidence import N_BEST, ranked, shared_words
from claimscore.metrics import load_metric
from claimscore.metrics.caspr import caspr_from_labels, pair_labels
from claimscore.metrics.support import FAITHFUL, WAYS, threshold_of
from claimscore.pipeline.encoders import embedded, load_model
from claimscore.pipeline.encoders.results import open_store
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.support import SUPPORT_PASS
from claimscore.records.columns import in_first_half
from claimscore.stats.agreement import best_threshold, weighted_accuracy, weighted_auc
from claimscore.stats.bootstrap import WeightedMeasure, resamples
from claimscore.tables import CLAIMS, SUPPORT
from claimscore.text import content_words, normal_form, split_sentences, word_tokens
from scripts.judge.changes import reword, swap_roles
from scripts.judge.examples import read_pairs
from scripts.judge.pairs import human_documents, is_development

Array = NDArray[np.float64]

#: Roles are exchanged between these, by verbs that no training pair has.
SIDES = "Wales:Fiji Amy:Daniel Google:IBM Denver:Miami Ruth:Leo Cuba:Peru Nora:Felix Leeds:Hull"
VERBS = """thrashed hired rescued scolded outran insulted robbed photographed dismissed mentored
    edged_past lied_to knocked_out voted_against borrowed_from"""

#: The toys of the CASPR paper (Table 1) with their values.
TOYS = {
    "agreeing": (("The hotel is sparkly clean.", "The hotel was kept very tidy."), 0),
    "contradicting": (("The hotel is clean.", "The hotel is not clean."), 100),
}
ORDER = ("syn_low", "ref_similar", "ref_contrastive", "syn_high")

#: The place of entailment among a model's probabilities.
ENTAILMENT = 0

SAMPLES = 200


class Judged(NamedTuple):
    """Of each (source, claim): support, contradiction by the evidence, share of its words."""

    support: Array
    contradiction: Array
    overlap: Array

    @property
    def product(self) -> Array:
        return self.support * (1 - self.contradiction)


class Scored(NamedTuple):
    """Summaries: way of scoring -> scores; the claims, and whether each is supported."""

    ways: dict[str, Array]
    claims: list[list[str]]
    supported: list[NDArray[np.bool_]]


class Probes:
    """The model, the data, and the figures that are printed."""

    def __init__(self, adapter: Path, data: Path, share: float, labels: Path | None) -> None:
        embedded.ADAPTER_PATH = adapter
        model: Any = load_model("nli", EncoderConfig(dtype="bfloat16"))
        self.folder = tempfile.TemporaryDirectory()  # a pair of several parts is judged once
        self.model: Any = open_store(Path(self.folder.name)).around(model)
        self.threshold = threshold_of(self.model)
        self.data, self.share, self.labels = data, share, labels
        self.part = ""

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Entailment, neutral, contradiction of pairs."""
        return np.asarray(self.model.classify(pairs), dtype=np.float64)

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> Array:
        best: NDArray[np.intp] = self.judge(pairs).argmax(axis=1)
        return np.where(best == ENTAILMENT, 1.0, 0.0)

    def support(self, rows: Sequence[tuple[str, str]]) -> Judged:
        """Judge claims by sources in the pass ``support``, as a run does."""
        by_source: dict[str, list[str]] = {}
        for source, claim in dict.fromkeys(rows):
            by_source.setdefault(source, []).append(claim)
        names = {str(place): source for place, source in enumerate(by_source)}
        claims: list[dict[str, object]] = [
            {"id": name, "side": "summary", "text": claim}
            for name, source in names.items()
            for claim in by_source[source]
        ]
        records = pl.DataFrame(
            {"id": list(names), "source": list(by_source)},
            {"id": pl.String, "source": pl.String},
        )
        tables = {CLAIMS.name: CLAIMS.frame(claims)}
        (need,) = load_metric("faithfulness").requires.passes
        given = PassInput(
            self.model, need, records, tables.__getitem__, frozenset(), lambda n: lambda done: None
        )
        judged = SUPPORT_PASS.compute(given).rows[SUPPORT.name]
        values = {
            (names[name], claim): (probability, contradiction)
            for name, claim, probability, contradiction in judged.select(
                "id", "claim", "probability", "contradiction"
            ).iter_rows()
        }
        words = {
            (source, claim): share
            for source, of_source in by_source.items()
            for claim, share in zip(of_source, overlaps(source, of_source), strict=True)
        }
        found = [(*values[row], words[row]) for row in rows]
        return Judged(*np.array(found, dtype=np.float64).reshape(-1, 3).T)

    def show(self, probe: str, measure: WeightedMeasure, documents: Sequence[Any]) -> None:
        """Print a measure with its standard error over documents."""
        codes = np.unique(np.array([str(d) for d in documents]), return_inverse=True)[1]
        if not len(codes):
            return
        weights = np.concatenate(list(resamples(codes.max() + 1, SAMPLES, 0)))
        value = measure(np.ones((1, len(codes))))[0]
        figure = {
            "part": self.part,
            "probe": probe,
            "value": round(float(value), 4),
            "se": round(float(np.nanstd(measure(weights[:, codes]))), 4),
            "n": len(codes),
        }
        print(json.dumps(figure), flush=True)

    def mean(self, probe: str, values: Any, documents: Sequence[Any] | None = None) -> None:
        array = np.asarray(values, dtype=np.float64)
        docs = range(len(array)) if documents is None else documents
        self.show(probe, lambda weights: weights @ array / weights.sum(axis=1), docs)

    def apart(self, probe: str, scores: Array, labels: Any, documents: Sequence[Any]) -> None:
        """AUC, and balanced accuracy by the best threshold of the other half of the documents."""
        positive = np.asarray(labels) == 1
        if positive.all() or not positive.any():
            return
        self.show(f"{probe}: AUC", weighted_auc(scores, positive), documents)
        first = np.array([in_first_half(str(d), 0) for d in documents])
        predicted = np.zeros(len(scores), dtype=bool)
        for half in (first, ~first):
            if positive[half].all() or not positive[half].any():
                return
            predicted[~half] = scores[~half] > best_threshold(scores[half], positive[half])
        measure = weighted_accuracy(predicted, positive)
        self.show(f"{probe}: balanced accuracy", measure, documents)

    def scored(self, rows: Sequence[tuple[str, str]]) -> Scored:
        """Score summaries by their sources, NaN where there is no claim."""
        claims = claims_of([summary for _, summary in rows])
        flat = [(source, c) for (source, _), cs in zip(rows, claims, strict=True) for c in cs]
        judged = self.support(flat)
        cuts = np.cumsum([len(cs) for cs in claims])[:-1]

        def by_summary(values: Array, reduce: Callable[[Array], float]) -> Array:
            parts = np.split(values, cuts)
            return np.array([reduce(part) if len(part) else np.nan for part in parts])

        ways = {
            name: by_summary(judged.product if WAYS[name].net else judged.support, WAYS[name].join)
            for name in ("mean", FAITHFUL)
        }
        ways["word overlap"] = by_summary(judged.overlap, WAYS["mean"].join)
        return Scored(ways, claims, np.split(judged.support >= self.threshold, cuts))

    def tell_apart(self, name: str, scored: Scored, labels: Any, documents: Sequence[Any]) -> None:
        """Tell supported summaries from others; of the supported ones how many claims pass."""
        known = np.array([bool(cs) for cs in scored.claims])
        labels, documents = np.asarray(labels)[known], np.asarray(documents)[known]
        for way, values in scored.ways.items():
            self.apart(f"{name}, {way}", values[known], labels, documents)
        self.confirmed(name, scored, known.nonzero()[0][labels == 1], documents[labels == 1])

    def confirmed(
        self, name: str, scored: Scored, places: Iterable[int], documents: Sequence[Any]
    ) -> None:
        """The share of the claims of true summaries that are supported."""
        pairs = zip(places, documents, strict=True)
        of_claims = [(v, doc) for at, doc in pairs for v in scored.supported[int(at)]]
        values, docs = zip(*of_claims, strict=True) if of_claims else ((), ())
        self.mean(f"{name}: claims of true summaries supported", values, docs)

    def sample(self, table: pl.DataFrame, n: float) -> pl.DataFrame:
        """So many rows at a share of 1, always the same ones."""
        n = max(8, round(n * self.share))
        return table if n >= table.height else table.sample(n, seed=0)

    def balanced(self, table: pl.DataFrame, n: float) -> pl.DataFrame:
        """The same, half of them supported if there are so many."""
        return pl.concat([self.sample(table.filter(label=label), n / 2) for label in (0, 1)])


def overlaps(source: str, claims: Sequence[str]) -> list[float]:
    """Of each claim the share of its content words in the sentences that it is judged by."""
    sentences = [normal_form(sentence) for sentence in split_sentences(source)]
    best = (ranked(near)[:N_BEST] for near in shared_words(sentences, claims).T)
    shares = []
    for claim, places in zip(claims, best, strict=True):
        words = content_words(claim)
        known = content_words(" ".join(sentences[place] for place in places))
        shares.append(sum(n for word, n in words.items() if word in known) / max(1, words.total()))
    return shares


def claims_of(texts: Sequence[str]) -> list[list[str]]:
    """The claims that a run makes of texts without a language model."""
    claims: list[list[str]] = [[] for _ in texts]
    made = claimscore.decompose(texts).filter(pl.col("claim").is_not_null())
    for text, claim in made.filter(pl.col("left_out").is_null())["text", "claim"].iter_rows():
        claims[text].append(claim)
    return claims


def nli(probes: Probes) -> None:
    """Accuracy on the dev sets; a part of CAD that training has is named so."""
    folder = probes.data / "nli"
    sets = {file.stem: read_pairs([file]) for file in sorted(folder.glob("dev_*.parquet"))}
    train = read_pairs([folder / "train.parquet"])
    sets["cad_dev (in the training data)"] = train.filter(source="cad_dev")
    for name, table in sets.items():
        rows = table.sample(fraction=min(1.0, probes.share * 2), seed=0)
        places = probes.judge(list(rows["premise", "hypothesis"].iter_rows())).argmax(axis=1)
        labels = np.array(["entailment", "neutral", "contradiction"])[places]
        probes.mean(name, labels == rows["label"].to_numpy())


def half_scrambled(rng: random.Random, sentence: str) -> str:
    words = sentence.split()
    return " ".join(rng.sample(words, len(words) // 2))


def sentences(probes: Probes) -> None:
    """Identity, rewording, order of words and roles on sentences."""
    pairs = [
        (f"{a} {verb} {b}.", f"{b} {verb} {a}.")
        for side in SIDES.split()
        for verb in VERBS.replace("_", " ").split("\n")[0].split()
        for a, b in [side.split(":")]
    ]
    pairs += [
        (f"{a} {v} {b}.", f"{b} {v} {a}.")
        for a, b in (("Spain", "Italy"), ("The fans", "the players"), ("Kenya", "Ghana"))
        for v in ("beat", "praised", "knocked out", "voted against", "lied to")
    ]
    probes.mean("made sentences: roles swapped entailed", probes.entailed(pairs))
    folder = probes.data / "decomposition"
    human = [d for d in human_documents(folder) if is_development(d.name)]
    facts = [" ".join(d.sentences[:6]) for d in human if len(d.sentences) > 1]
    rose = pl.read_parquet(folder / "rose_acu.parquet")["reference"].to_list()
    some = {
        "FActScore": facts[: round(200 * probes.share) + 20],
        "RoSE": rose[: round(413 * probes.share)],
    }
    for name, texts in some.items():
        rng = random.Random(5)
        lines = [s for text in texts for s in split_sentences(text) if len(s.split()) > 3]
        long = [s for s in lines if len(s.split()) > 5]
        trees = [(s, parser.load().parse(s)) for s in lines[:400]]
        for what, pairs in {
            "sentence, itself": [(s, s) for s in lines],
            "sentence, reworded": [(s, r) for s in lines if (r := reword(rng, s)) != s],
            "text, itself": [(t, t) for t in texts],
            "text, its sentence": [(t, s) for t in texts for s in split_sentences(t)[:1]],
            "half its words": [(s, half_scrambled(rng, s)) for s in long],
            "roles swapped": [(s, t) for s, tree in trees if tree and (t := swap_roles(rng, tree))],
        }.items():
            probes.mean(f"{name}: {what} entailed", probes.entailed(pairs))


def summac(probes: Probes) -> None:
    """The sets of the SummaC benchmark's validation part and QAGS: in place of AggreFact's."""
    every: list[pl.DataFrame] = []
    for file in sorted((probes.data / "summac_benchmark").glob("*.jsonl")):
        table = pl.read_ndjson(file)
        if "label" not in table.columns:
            table = table.with_columns(label=pl.col("fact_score") > 0.8)
        table = table.select("document", "claim", label=pl.col("label").cast(pl.Int64))
        rows = probes.balanced(table.unique(maintain_order=True), 400)
        every.append(rows.with_columns(dataset=pl.lit(file.stem.removesuffix("_val"))))
    rows = pl.concat(every)
    scored = probes.scored(list(rows["document", "claim"].iter_rows()))
    for way, values in scored.ways.items():
        table = rows.with_columns(score=pl.Series(values).fill_nan(None)).drop_nulls("score")
        for (name,), part in table.group_by("dataset", maintain_order=True):
            given = part["score"].to_numpy(), part["label"], part["document"].to_list()
            probes.apart(f"{name}, {way}", *given)
        within = pl.col("score").rank() / pl.len()
        ranked = table.with_columns(within.over("dataset"))
        given = ranked["score"].to_numpy(), ranked["label"], ranked["document"].to_list()
        probes.apart(f"seven sets by ranks, {way}", *given)
    true = (rows["label"] == 1).to_numpy().nonzero()[0]
    probes.confirmed("SummaC", scored, true, rows["document"].gather(true).to_list())


def bump(probes: Probes) -> None:
    """Twins: a faithful summary, and the same with one error that a person put in."""
    table = pl.read_parquet(probes.data / "claim_support" / "bump.parquet")
    rows = probes.sample(table.filter(task=1), 581)
    trios = list(rows["article", "reference_summary", "edited_summary"].iter_rows())
    scored = twins(probes, "BUMP", trios)
    docs = rows["article_id"].to_list() * 2
    probes.tell_apart("BUMP", scored, np.repeat([1, 0], len(rows)), docs)


def twins(probes: Probes, name: str, rows: Sequence[tuple[str, str, str]]) -> Scored:
    """Whether (source, true, false) come in order, and the verdicts on what was changed; the
    scores of the true and then of the false ones."""
    both = [(source, true) for source, true, _ in rows]
    scored = probes.scored(both + [(source, false) for source, _, false in rows])
    sources, n = [source for source, _, _ in rows], len(rows)
    for way, values in scored.ways.items():
        ordered = (np.sign(values[:n] - values[n:]) + 1) / 2
        known = (~np.isnan(ordered)).nonzero()[0]
        probes.mean(f"{name}, {way}: in order", ordered[known], [sources[at] for at in known])
    refused, only_it = [], []
    for old, new, supported in zip(
        scored.claims, scored.claims[n:], scored.supported[n:], strict=False
    ):
        kept = np.array([c in old for c in new], dtype=bool)
        refused.append(bool((~supported[~kept]).any()))
        only_it.append(refused[-1] and bool(supported[kept].all()))
    probes.mean(f"{name}: planted errors unsupported", refused, sources)
    probes.mean(f"{name}: the same with all other claims supported", only_it, sources)
    return scored


def planted(probes: Probes) -> None:
    """Errors planted by rule, 50 of a kind, and true changes, by which no score should fall."""
    records = planted_records(probes.data, 50)
    clean = {row["id"]: row for row in records if "twin" not in row}
    for kind in dict.fromkeys(row["kind"] for row in records if "twin" in row):
        rows = [row for row in records if row.get("kind") == kind]
        trios = [(r["source"], clean[r["twin"]]["summary"], r["summary"]) for r in rows]
        if not kind.startswith(TRUE):
            twins(probes, kind, trios)
            continue
        pairs = [(source, old) for source, old, _ in trios]
        pairs += [(source, new) for source, _, new in trios]
        for way, values in probes.scored(pairs).ways.items():
            old, new = np.split(values, 2)
            probes.mean(f"{kind}, {way}: falls", old - new > MARGIN)
    scored = probes.scored([(row["source"], row["summary"]) for row in clean.values()])
    probes.confirmed("clean summaries", scored, range(len(clean)), list(clean))


def summedits(probes: Probes) -> None:
    """Summaries that GPT edited, judged by people."""
    folder = probes.data / "claim_support"
    docs = pl.read_parquet(folder / "summedits_docs.parquet").select("doc_id", "document")
    rows = probes.sample(pl.read_parquet(folder / "summedits.parquet"), 2000)
    rows = rows.join(docs, on="doc_id", maintain_order="left")
    scored = probes.scored(list(rows["document", "summary"].iter_rows()))
    probes.tell_apart("SummEdits", scored, rows["label"], rows["doc_id"].to_list())


def realsumm(probes: Probes) -> None:
    """Units of the reference: does the summary carry them?"""
    table = pl.read_parquet(probes.data / "claim_support" / "realsumm.parquet")
    rows = probes.sample(table, 10000)
    judged = probes.support(list(rows["summary", "scu"].iter_rows()))
    labels, docs = rows["label"].to_numpy(), rows["doc_id"].to_list()
    ways = {"p": judged.support, "p(1-c)": judged.product, "word overlap": judged.overlap}
    for way, values in ways.items():
        probes.apart(f"REALSumm, {way}", values, labels, docs)
    supported = judged.support >= probes.threshold
    probes.show(
        "REALSumm, verdicts: balanced accuracy", weighted_accuracy(supported, labels == 1), docs
    )
    true = [d for d, label in zip(docs, labels, strict=True) if label == 1]
    false = [d for d, label in zip(docs, labels, strict=True) if label != 1]
    probes.mean("REALSumm: true units supported", supported[labels == 1], true)
    probes.mean("REALSumm: absent units unsupported", ~supported[labels != 1], false)
    for way in ("p", "p(1-c)"):
        probes.show(f"REALSumm, {way}: ECE", calibration_error(ways[way], labels), docs)


def calibration_error(scores: Array, labels: Array, bins: int = 15) -> WeightedMeasure:
    """The gap between probability and share of positives, in bins of equal width."""
    inside = np.eye(bins)[np.minimum((scores * bins).astype(int), bins - 1)]

    def measure(weights: Array) -> Array:
        gaps: Array = np.abs(weights @ (inside * (scores - labels)[:, None])).sum(axis=1)
        shares: Array = gaps / weights.sum(axis=1)
        return shares

    return measure


def ragtruth(probes: Probes) -> None:
    """Answers of language models: sentence by sentence and whole."""
    table = pl.read_parquet(probes.data / "verification" / "ragtruth_dev.parquet").with_columns(
        label=(pl.col("label") == "supported").cast(pl.Int64)
    )
    rows = probes.balanced(table.filter(level="response"), 400)
    scored = probes.scored(list(rows["premise", "claim"].iter_rows()))
    probes.tell_apart("RAGTruth responses", scored, rows["label"], rows["doc"].to_list())
    lines = table.filter((pl.col("level") == "sentence") & (pl.col("kind") != "meta"))
    lines = lines.join(rows, on=("source_id", "model"), how="semi")
    judged = probes.support(list(lines["premise", "claim"].iter_rows()))
    ways = {"p": judged.support, "p(1-c)": judged.product, "word overlap": judged.overlap}
    for way, values in ways.items():
        probes.apart(f"RAGTruth sentences, {way}", values, lines["label"], lines["doc"].to_list())
    true = (lines["label"] == 1).to_numpy()
    supported = judged.support >= probes.threshold
    for name, which, right in (
        ("true sentences supported", true, supported),
        ("wrong sentences unsupported", ~true, ~supported),
    ):
        probes.mean(f"RAGTruth: {name}", right[which], lines.filter(which)["doc"].to_list())


#: How a copy may differ from its source in typing alone.
COPIES: dict[str, Callable[[str], str]] = {
    "spaces": lambda s: s.replace(" ", "\u00a0 ").replace("£", "£ ").replace(",", " ,") + " ",
    "quotes": lambda s: s.replace("'", "’").replace(' "', " “").replace('" ', "” "),
    "dashes": lambda s: s.replace("-", "‑").replace(" – ", " -- "),
    "lower case": str.lower,
    "tokenised": lambda s: " ".join(word_tokens(s)).replace("(", "-LRB-").replace(")", "-RRB-"),
}


def copies(probes: Probes) -> None:
    """Sentences of a source as claims, typed in another way: the claim's, or the source's."""
    table = pl.read_parquet(probes.data / "claim_support" / "bump.parquet")
    for name, retype in COPIES.items():
        for side in ("claim", "source"):
            rows = []
            for article in table["article"].unique(maintain_order=True):
                lines = [s for s in split_sentences(article) if 5 < len(s.split()) < 40]
                signs = [s for s in lines if retype(s).strip() != s]
                marked = [s for s in signs if set("£$\"'()-") & set(s)] or signs
                for line in marked[:1]:
                    claim = retype(line) if side == "claim" else line
                    source = " ".join([*lines[:20], line])
                    rows.append((retype(source) if side == "source" else source, claim))
            supported = probes.support(rows[:50]).support >= probes.threshold
            probes.mean(f"{name}, {side} retyped: supported", supported)


def caspr(probes: Probes) -> None:
    """Mean CASPR of the comparisons and of identical texts, claims as a run makes them; the toys;
    and pairs of claims with their labels for people to read."""
    rows = pl.read_ndjson(probes.data / "caspr" / "comparisons.jsonl")
    some = rows["id"].unique(maintain_order=True)[: max(4, round(48 * min(1, probes.share)))]
    texts = [
        (r["comparison"], r["text_a"], r["text_b"])
        for r in rows.filter(pl.col("id").is_in(some.implode())).iter_rows(named=True)
    ]
    texts += [("identical", a, a) for name, a, _ in texts if name == "ref_similar"]
    texts += [(name, *pair) for name, (pair, _) in TOYS.items()]
    claims = claims_of([text for _, *both in texts for text in both])
    scores: dict[str, list[float]] = {}
    labelled: list[tuple[str, str, str]] = []
    for (name, _, _), one, two in zip(texts, claims[::2], claims[1::2], strict=True):
        pairs = [(p, h) for p in one for h in two] + [(p, h) for p in two for h in one]
        there, back = np.split(probes.judge(pairs), 2)
        forward = there.reshape(len(one), len(two), 3)
        backward = back.reshape(len(two), len(one), 3)
        score = caspr_from_labels(forward, backward)
        scores.setdefault(name, []).append(np.nan if score is None else score)
        if name in ("ref_contrastive", "ref_similar"):
            labels = [label for row in pair_labels(forward, backward) for label in row]
            labelled += [(*pair, label) for pair, label in zip(pairs, labels, strict=False)]
    for name, values in scores.items():
        probes.mean(f"CASPR: {name}", values)
    means = [float(np.mean(scores[name])) for name in ORDER]
    probes.mean("CASPR: in order", [sorted(means) == means])
    probes.mean("CASPR: toys right", [scores[name] == [value] for name, (_, value) in TOYS.items()])
    if probes.labels:
        rng = random.Random(0)
        rng.shuffle(labelled)
        with probes.labels.open("w", encoding="utf-8") as file:
            for label in ("contradiction", "entailment"):
                for a, b, _ in [row for row in labelled if row[2] == label][:20]:
                    file.write(f"{label}\t{a}\t{b}\n")


def cpu(probes: Probes) -> None:
    """CPU seconds of 1,000 pairs of a claim and a text of 40 sentences, in a run's dtype."""
    table = pl.read_parquet(probes.data / "claim_support" / "bump.parquet")
    table = table.unique("article", maintain_order=True)
    lines = [split_sentences(article) for article in table["article"]]
    claims = claims_of(table["reference_summary"].to_list())
    pairs = [
        (" ".join((mine + other)[:40]), made[0])
        for mine, other, made in zip(lines, [*lines[1:], lines[0]], claims, strict=True)
        if made and len(mine + other) >= 40
    ][: max(10, min(100, round(160 * probes.share)))]
    claimscore.verify(pairs[:1], model_store=False)
    start = time.process_time()
    claimscore.verify(pairs, model_store=False)
    taken = time.process_time() - start
    probes.mean("CPU seconds of 1,000 pairs", [1000 * taken / len(pairs)] * len(pairs))


PARTS = (
    *(nli, sentences, realsumm, bump, summedits, ragtruth),
    *(summac, planted, copies, caspr, cpu),
)


def main() -> None:
    names = [part.__name__ for part in PARTS]
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--adapter", type=Path, default=embedded.ADAPTER_PATH)
    options.add_argument("--share", type=float, default=1.0, help="0.1: about five CPU minutes")
    options.add_argument("--only", default=",".join(names), help=f"some of {', '.join(names)}")
    options.add_argument("--labels", type=Path, help="file for 40 pairs of claims of CASPR's part")
    given = options.parse_args()
    probes = Probes(given.adapter, given.data, given.share, given.labels)
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(names):
        options.error(f"unknown parts: {', '.join(sorted(unknown))}")
    for part in PARTS:
        if part.__name__ in chosen:
            probes.part = part.__name__
            start = time.process_time()
            part(probes)
            probes.mean(f"{part.__name__}: CPU seconds taken", [time.process_time() - start])


if __name__ == "__main__":
    main()
