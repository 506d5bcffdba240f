"""What the embedded NLI model knows of claims: the table of its model card.

    python -m benchmarks.judge_probes --data FOLDER [--adapter FILE] [--share 0.2] [--development]

``FOLDER`` holds ``nli``, ``decomposition``, ``claim_support`` and ``caspr``. ``--development``
leaves out the sets that are for measuring only. ``--share`` takes a random part of the large sets.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch
from scipy.stats import rankdata

from claimscore.baseline import parser
from claimscore.metrics.caspr import caspr_from_labels
from claimscore.pipeline.encoders.embedded import ADAPTER_PATH
from claimscore.text import split_sentences
from scripts.judge.changes import reword, swap_roles
from scripts.judge.examples import make_batch, read_pairs, tokenize, training_files
from scripts.judge.model import load_embedded_nli
from scripts.judge.pairs import claim_pairs, human_documents, is_development
from scripts.judge.training import pieces

#: Roles are exchanged between these, by verbs that no training pair has.
SIDES = "Wales:Fiji Amy:Daniel Google:IBM Denver:Miami Ruth:Leo Cuba:Peru Nora:Felix Leeds:Hull"
VERBS = """thrashed hired rescued scolded outran insulted robbed photographed dismissed mentored
    edged_past lied_to knocked_out voted_against borrowed_from"""
#: Pairs of labels by which a set is told from another: the share of entailed ones is wanted.
ENTAILED = 2


class Judge:
    """The model, and the probabilities (contradiction, neutral, entailment) of pairs."""

    def __init__(self, adapter: Path) -> None:
        self.model, self.tokenizer = load_embedded_nli(adapter=adapter)

    @torch.inference_mode()
    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        rows = pl.DataFrame(
            [(*pair, "neutral", "") for pair in pairs],
            schema=["premise", "hypothesis", "label", "source"],
            orient="row",
        )
        examples = tokenize(rows, self.tokenizer, 512)
        order = np.argsort(examples.lengths, kind="stable")
        found = np.zeros((len(order), 3))
        for begin in range(0, len(order), 64):
            for indices in pieces(order[begin : begin + 64], examples.lengths):
                batch = make_batch(examples, indices, self.tokenizer, 512)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
                found[indices] = logits.double().softmax(dim=-1).numpy()
        return found

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> float:
        return float((self(pairs).argmax(axis=1) == ENTAILED).mean())


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve: the share of (positive, negative) pairs in order."""
    ranks = rankdata(scores)
    positive = labels == 1
    n, m = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def balanced_accuracy(scores: np.ndarray, labels: np.ndarray, documents: Sequence[str]) -> float:
    """Balanced accuracy, each half of the documents at the other half's best threshold."""
    half = np.array([is_development(f"{d}*") or is_development(f"{d}+") for d in documents])
    predicted = np.zeros(len(scores), dtype=bool)
    for side in (half, ~half):
        values = np.unique(np.quantile(scores[side], np.linspace(0, 1, 101)))
        best = max(values, key=lambda t: _balanced(scores[side] >= t, labels[side]))
        predicted[~side] = scores[~side] >= best
    return _balanced(predicted, labels)


def _balanced(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float((predicted[labels == 1].mean() + (~predicted[labels == 0]).mean()) / 2)


def half_scrambled(rng: random.Random, sentence: str) -> str:
    words = sentence.split()
    return " ".join(rng.sample(words, len(words) // 2))


def sentence_probes(judge: Judge, name: str, texts: Sequence[str], seed: int) -> dict[str, float]:
    """Identity, rewording, order of words and roles on the sentences of some texts."""
    rng = random.Random(seed)
    sentences = [s for text in texts for s in split_sentences(text) if len(s.split()) > 3]
    long = [s for s in sentences if len(s.split()) > 5]
    reworded = [(s, r) for s in sentences if (r := reword(rng, s)) != s]
    trees = [(s, parser.load().parse(s)) for s in sentences[:400]]
    turned = [(s, r) for s, tree in trees if tree and (r := swap_roles(rng, tree))]
    return {
        f"{name}: sentence, itself": judge.entailed([(s, s) for s in sentences]),
        f"{name}: sentence, reworded": judge.entailed(reworded),
        f"{name}: text, itself": judge.entailed([(t, t) for t in texts]),
        f"{name}: text, its sentence": judge.entailed(
            [(t, s) for t in texts for s in split_sentences(t)[:1]]
        ),
        f"{name}: half its words": judge.entailed([(s, half_scrambled(rng, s)) for s in long]),
        f"{name}: roles swapped": judge.entailed(turned),
    }


def role_probe(judge: Judge) -> dict[str, float]:
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
    return {"made sentences: roles swapped": judge.entailed(pairs)}


def best_part(judge: Judge, rows: Sequence[tuple[str, str]], words: int) -> np.ndarray:
    """Of each (document, text): the mean over its sentences of the highest entailment by any part
    of the document, parts being runs of sentences of at most so many words (or one sentence)."""
    pairs: list[tuple[str, str]] = []
    places: list[tuple[int, int]] = []
    for number, (document, text) in enumerate(rows):
        parts = parts_of(document, words)
        for k, sentence in enumerate(split_sentences(text)):
            pairs += [(part, sentence) for part in parts]
            places += [(number, k)] * len(parts)
    distinct = list(dict.fromkeys(pairs))
    known = dict(zip(distinct, judge(distinct)[:, ENTAILED], strict=True))
    best: dict[tuple[int, int], float] = {}
    for pair, place in zip(pairs, places, strict=True):
        best[place] = max(best.get(place, 0.0), known[pair])
    sums = [[v for (n, _), v in best.items() if n == number] for number in range(len(rows))]
    return np.array([np.mean(values) if values else 0.0 for values in sums])


def parts_of(document: str, words: int) -> list[str]:
    parts: list[str] = []
    for sentence in split_sentences(document):
        if parts and len(parts[-1].split()) + len(sentence.split()) <= words:
            parts[-1] += " " + sentence
        else:
            parts.append(sentence)
    return parts


def support_probes(judge: Judge, folder: Path, share: float, words: int) -> dict[str, float]:
    found: dict[str, float] = {}
    rows = pl.read_parquet(folder / "realsumm.parquet").sample(fraction=min(1.0, share), seed=0)
    scores = judge(list(rows.select("summary", "scu").iter_rows()))[:, ENTAILED]
    labels, docs = rows["label"].to_numpy(), rows["doc_id"].to_list()
    found["REALSumm: AUC"] = auc(scores, labels)
    found["REALSumm: balanced accuracy"] = balanced_accuracy(scores, labels, docs)
    rows = pl.read_parquet(folder / "bump.parquet")
    rows = rows.sample(min(len(rows), round(1000 * share)), seed=0)
    both = list(rows.select("article", "reference_summary").iter_rows())
    both += list(rows.select("article", "edited_summary").iter_rows())
    scores = best_part(judge, both, words)
    n = len(rows)
    found["BUMP: AUC"] = auc(scores, np.repeat([1, 0], n))
    found["BUMP: in order"] = float((scores[:n] > scores[n:]).mean())
    docs_table = pl.read_parquet(folder / "summedits_docs.parquet").select("doc_id", "document")
    rows = pl.read_parquet(folder / "summedits.parquet").join(docs_table, on="doc_id")
    rows = rows.sample(min(len(rows), round(4000 * share)), seed=0)
    scores = best_part(judge, list(rows.select("document", "summary").iter_rows()), words)
    found["SummEdits: AUC"] = auc(scores, rows["label"].to_numpy())
    found["SummEdits: balanced accuracy"] = balanced_accuracy(
        scores, rows["label"].to_numpy(), rows["doc_id"].to_list()
    )
    return found


def caspr_probes(judge: Judge, folder: Path, share: float) -> dict[str, float]:
    """Mean CASPR of the comparisons and of identical texts, whole sentences as claims."""
    found: dict[str, float] = {}
    rows = pl.read_ndjson(folder / "comparisons.jsonl")
    texts = [(r["comparison"], r["text_a"], r["text_b"]) for r in rows.iter_rows(named=True)]
    texts += [("identical", a, a) for name, a, _ in texts if name == "ref_similar"]
    if share < 1:
        texts = [row for k, row in enumerate(texts) if k % 48 < 24]
    for name in dict.fromkeys(row[0] for row in texts):
        scores = []
        zs = []
        for kind, a, b in texts:
            if kind == name:
                one, two = split_sentences(a), split_sentences(b)
                rows_ = judge(
                    [(p, h) for p in one for h in two] + [(p, h) for p in two for h in one]
                )
                rows_ = rows_[:, ::-1]
                half = len(one) * len(two)
                forward = rows_[:half].reshape(len(one), len(two), 3)
                scores.append(
                    caspr_from_labels(forward, rows_[half:].reshape(len(two), len(one), 3))
                )
                zs.append(forward[:, :, 0].max(axis=0).mean())
        found[f"CASPR: {name}"] = float(np.mean(scores))
        if name == "identical":
            found["SummaC-ZS: identical"] = float(np.mean(zs))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--adapter", type=Path, default=ADAPTER_PATH)
    options.add_argument("--share", type=float, default=1.0)
    options.add_argument("--development", action="store_true")
    options.add_argument("--words", type=int, default=120)
    options.add_argument("--pairs", type=Path)
    given = options.parse_args()
    judge = Judge(given.adapter)
    share = given.share

    def show(found: dict[str, float]) -> None:
        for name, value in found.items():
            print(json.dumps({"probe": name, "value": round(value, 4)}), flush=True)

    for file in sorted((given.data / "nli").glob("dev_*.parquet")):
        rows = read_pairs([file]).sample(fraction=min(1.0, share * 2), seed=0)
        found = judge(list(rows.select("premise", "hypothesis").iter_rows())).argmax(axis=1)
        labels = rows["label"].replace_strict({"contradiction": 0, "neutral": 1, "entailment": 2})
        show({file.stem: float((found == labels.to_numpy()).mean())})
    if given.pairs:
        made = pl.read_parquet(given.pairs)
    else:
        known = read_pairs(training_files([given.data / "nli"]))
        made = claim_pairs(given.data / "decomposition", known, seed=1, development=True)
    made = made.sample(fraction=min(1.0, share), seed=0)
    found = judge(list(made.select("premise", "hypothesis").iter_rows())).argmax(axis=1)
    names = np.array(["contradiction", "neutral", "entailment"])[found]
    table = (
        made.with_columns(found=pl.Series(names))
        .group_by("source", "label")
        .agg(
            right=(pl.col("label") == pl.col("found")).mean(),
            entailed=(pl.col("found") == "entailment").mean(),
            n=pl.len(),
        )
    )
    for row in table.sort("source", "label").iter_rows(named=True):
        show(
            {
                f"{row['source']} ({row['label']}, n={row['n']}): right": row["right"],
                f"{row['source']} ({row['label']}): entailed": row["entailed"],
            }
        )
    show(role_probe(judge))
    human = [d for d in human_documents(given.data / "decomposition") if is_development(d.name)]
    texts = [" ".join(d.sentences[:6]) for d in human if len(d.sentences) > 1]
    show(sentence_probes(judge, "FActScore", texts[: round(200 * share) + 20], 5))
    if given.development:
        return
    rose = pl.read_parquet(given.data / "decomposition" / "rose_acu.parquet")
    show(sentence_probes(judge, "RoSE", rose["reference"].to_list()[: round(413 * share)], 5))
    show(caspr_probes(judge, given.data / "caspr", share))
    show(support_probes(judge, given.data / "claim_support", share, given.words))


if __name__ == "__main__":
    main()
