"""The rows of the table: which model over which texts, who does it, and what must come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workloads import (
    BASE,
    DEBERTA,
    LARGE,
    MINILM,
    MODERNBERT,
    Shape,
    block,
    read_pairs,
    read_texts,
    spread,
)

Options = Mapping[str, Any]

OWN = "claimscore"
FP32: Options = {"dtype": "float32"}
BF16: Options = {"dtype": "bfloat16"}
AUTO: Options = {"dtype": "auto"}
#: What stock models one pair at a time may differ by, in probability, in fp32.
NLI_BOUND = 2e-5


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A client with settings: `job` when it loads, `options` of each order.

    `tune` is an option and the values to try; the fastest is used, `options` has its default.
    """

    name: str
    client: str
    options: Options = dataclasses.field(default_factory=dict)
    job: Options = dataclasses.field(default_factory=lambda: FP32)
    tune: tuple[str, tuple[int, ...]] | None = None

    @property
    def worker(self) -> tuple[str, ...]:
        """Variants with the same one share a loaded model."""
        return (self.client, *(f"{name}={value}" for name, value in sorted(self.job.items())))


class Target(NamedTuple):
    """How many times as fast as a peer claimscore must be, with one thread and with two; or which
    share of the peak it must reach. None: the figure is told."""

    one: float | None = None
    two: float | None = None


ANY, SAME = Target(), Target(1.0, 1.0)


def w1(folder: Path, n: int) -> Sequence[Any]:
    return spread(read_pairs(folder, "w1"), n)


def w2(folder: Path, n: int) -> Sequence[Any]:
    return block(read_texts(folder), n)


def w3(folder: Path, n: int) -> Sequence[Any]:
    """Neighbours of the second half of the file, the pairs of OpinSummEval: short texts."""
    pairs = read_pairs(folder, "w3")
    return block(pairs[len(pairs) // 2 :], n)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """`n` items through one model by all variants, in turns.

    `beside` are the peers that claimscore is compared with, `share` its share of the peak.
    `reference` gives the numbers that all are compared with; `bound` is what claimscore's may
    differ by, where there is a bound. `peak_ways` are the arithmetic that the row may use.
    """

    name: str
    what: str
    variants: tuple[Variant, ...]
    beside: Mapping[str, Target]
    reference: Variant
    n: int
    share: Target = ANY
    task: str = "nli"
    model: str = "roberta-base"
    shape: Shape = BASE
    items: Callable[[Path, int], Sequence[Any]] = w1
    peak_ways: tuple[str, ...] = ("torch fp32", "oneDNN fp32")
    bound: float | None = None
    device: str = "cpu"
    more: Options = dataclasses.field(default_factory=dict)


def own(job: Options = FP32) -> Variant:
    return Variant(OWN, OWN, job=job)


BEST_SIZES = (4, 8, 16, 32, 64)


def st(name: str, job: Options = FP32, *, best: Sequence[int] = (), default: int = 32) -> Variant:
    """sentence-transformers at one batch size, or at the best of several."""
    tune = ("batch_size", tuple(best)) if best else None
    return Variant(name, "sentence-transformers", {"batch_size": default}, job, tune)


def in_our_batches(name: str, client: str, job: Options = FP32) -> Variant:
    """An engine with padded batches as claimscore makes them, at its best budget of tokens."""
    return Variant(name, client, {"batch_tokens": 1024}, job, ("batch_tokens", (512, 1024, 2048)))


CE, CE_BEST = st("CrossEncoder default"), st("CrossEncoder best", best=BEST_SIZES)
CE_BF16_BEST = st("CrossEncoder bf16 best", BF16, best=BEST_SIZES)
ST, ST_BEST = st("encode default"), st("encode best", best=BEST_SIZES)
ONE_BY_ONE = Variant("pipeline, batch 1", "pipeline", {"batch_size": 1})
OPENVINO, ONNX = (
    in_our_batches("OpenVINO f32", "openvino"),
    in_our_batches("ONNX Runtime", "onnxruntime"),
)
OPENVINO_BF16 = in_our_batches("OpenVINO bf16", "openvino", BF16)
BERT_SCORE = Variant("bert-score default", "bert-score", {"batch_size": 64})
BERT_SCORE_BEST = dataclasses.replace(
    BERT_SCORE, name="bert-score best", tune=("batch_size", (2, 4, 8, 16, 32))
)
BEFORE = Variant("another checkout", "before", job=AUTO)
BF16_WAYS = ("torch bf16", "oneDNN bf16")

ROWS: tuple[Row, ...] = (
    Row(
        name="w1",
        what="W1 NLI fp32",
        variants=(own(), CE, CE_BEST, ONE_BY_ONE, OPENVINO, ONNX),
        beside={
            **{CE.name: SAME, CE_BEST.name: SAME, ONE_BY_ONE.name: ANY},
            **{OPENVINO.name: SAME, ONNX.name: SAME},
        },
        share=Target(0.85),
        n=192,
        reference=ONE_BY_ONE,
        bound=NLI_BOUND,
    ),
    Row(
        name="w1-deberta",
        what="W1 DeBERTa-v3-base fp32",
        model="deberta-v3-base",
        shape=DEBERTA,
        variants=(own(), CE, CE_BEST),
        beside={CE.name: ANY, CE_BEST.name: Target(1.5, 1.5)},
        n=96,
        reference=ONE_BY_ONE,
        bound=NLI_BOUND,
    ),
    Row(
        name="w1-modernbert",
        what="W1 ModernBERT-base fp32",
        model="modernbert-base",
        shape=MODERNBERT,
        variants=(own(), CE, CE_BEST),
        beside={CE.name: ANY, CE_BEST.name: Target(1.5, 1.5)},
        n=96,
        reference=ONE_BY_ONE,
        bound=5e-5,  # random weights of 22 layers amplify the last bits: CrossEncoder is as far off
    ),
    Row(
        name="w1-auto",
        what="W1 NLI, --dtype auto, peers in fp32",
        variants=(own(AUTO), CE, CE_BEST),
        beside={CE.name: ANY, CE_BEST.name: ANY},
        n=192,
        reference=ONE_BY_ONE,
        peak_ways=(*BF16_WAYS, "oneDNN fp32"),
    ),
    Row(
        name="w1-bf16",
        what="W1 NLI bf16",
        variants=(own(BF16), CE_BF16_BEST, OPENVINO_BF16),
        beside={CE_BF16_BEST.name: Target(2.5), OPENVINO_BF16.name: Target(2.0)},
        share=Target(0.45),
        n=192,
        reference=ONE_BY_ONE,
        peak_ways=BF16_WAYS,
    ),
    Row(
        name="w1-embedded",
        what="W1 embedded NLI, default settings",
        model="minilm",
        shape=MINILM,
        variants=(own(AUTO), BEFORE),
        beside={BEFORE.name: Target(1.2)},
        n=1200,
        reference=BEFORE,
        more={"embedded": True},
    ),
    Row(
        name="w2",
        what="W2 embeddings fp32",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        variants=(own(), ST, ST_BEST),
        beside={ST.name: ANY, ST_BEST.name: ANY},
        n=1200,
        reference=st("encode, batch 1", default=1),
        bound=1e-6,
    ),
    Row(
        name="w2-bf16",
        what="W2 embeddings bf16",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        variants=(own(BF16), ST, st("encode bf16", BF16)),
        beside={ST.name: ANY, "encode bf16": Target(3.0)},
        share=Target(0.30),
        n=1200,
        reference=st("encode, batch 1", default=1),
        peak_ways=BF16_WAYS,
        bound=2e-4,
    ),
    Row(
        name="w3",
        what="W3 BERTScore fp32",
        task="bertscore",
        shape=BASE._replace(layers=10),
        items=w3,
        variants=(own(), BERT_SCORE, BERT_SCORE_BEST),
        beside={BERT_SCORE.name: Target(2.0), BERT_SCORE_BEST.name: Target(1.3)},
        share=Target(0.90),
        n=64,
        reference=BERT_SCORE,
        bound=1e-6,
        more={"layer": 10},
    ),
    Row(
        name="gpu-w1",
        what="GPU: W1, roberta-large bf16",
        model="roberta-large",
        shape=LARGE,
        variants=(own(BF16), CE, st("CrossEncoder tuned", BF16, best=(64, 128, 256, 512, 1024))),
        beside={CE.name: Target(5.0), "CrossEncoder tuned": Target(1.5)},
        share=Target(0.60),
        n=17_634,
        reference=st("CrossEncoder, batch 1", default=1),
        peak_ways=("torch bf16",),
        device="cuda",
    ),
    Row(
        name="gpu-w2",
        what="GPU: W2 embeddings bf16",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        variants=(own(BF16), ST, st("encode tuned", BF16, best=(64, 256, 1024, 4096))),
        beside={"encode tuned": Target(1.2), ST.name: ANY},
        n=10_888,
        reference=ST,
        peak_ways=("torch bf16",),
        bound=2e-4,
        device="cuda",
    ),
)
