"""The rows of the table: which model over which texts, who does it, and what must come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """One line: claimscore beside a variant, or (without one) its share of the peak."""

    what: str
    beside: str | None
    at_least: float | None = None
    stretch: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """`n` items through one model by all variants, in turns.

    `reference` gives the numbers that all are compared with; `bound` is what claimscore's may
    differ by, where there is a bound. `peak_ways` are the arithmetic that the row may use.
    """

    name: str
    task: str
    model: str
    shape: Shape
    items: Callable[[Path, int], Sequence[Any]]
    n: int
    unit: str
    variants: tuple[Variant, ...]
    comparisons: tuple[Comparison, ...]
    reference: Variant
    peak_ways: tuple[str, ...] = ("torch fp32", "oneDNN fp32")
    bound: float | None = None
    device: str = "cpu"
    more: Options = dataclasses.field(default_factory=dict)


def w1(folder: Path, n: int) -> Sequence[Any]:
    return spread(read_pairs(folder, "w1"), n)


def w2(folder: Path, n: int) -> Sequence[Any]:
    return block(read_texts(folder), n)


def w3(folder: Path, n: int) -> Sequence[Any]:
    """Neighbours of the second half of the file, the pairs of OpinSummEval: short texts."""
    pairs = read_pairs(folder, "w3")
    return block(pairs[len(pairs) // 2 :], n)


def st(name: str, job: Options = FP32, *, best: Sequence[int] = (), default: int = 32) -> Variant:
    """sentence-transformers at one batch size, or at the best of several."""
    tune = ("batch_size", tuple(best)) if best else None
    return Variant(name, "sentence-transformers", {"batch_size": default}, job, tune)


CE, CE_BEST = "CrossEncoder default", "CrossEncoder best"
ST, ST_BEST = "encode default", "encode best"
BEST_SIZES = (4, 8, 16, 32, 64)
ONE_BY_ONE = Variant("pipeline, batch 1", "pipeline", {"batch_size": 1})
BUDGETS = ("batch_tokens", (512, 1024, 2048))
BF16_WAYS = ("torch bf16", "oneDNN bf16")


def family(name: str, model: str, shape: Shape, what: str, bound: float = NLI_BOUND) -> Row:
    """Another family than RoBERTa on W1, as both are by default and at their best."""
    return Row(
        name=name,
        task="nli",
        model=model,
        shape=shape,
        items=w1,
        n=96,
        unit="pairs",
        variants=(Variant(OWN, OWN), st(CE), st(CE_BEST, best=BEST_SIZES), ONE_BY_ONE),
        comparisons=(
            Comparison(f"W1 {what} fp32", CE),
            Comparison(f"W1 {what} fp32", CE_BEST, 1.5),
            Comparison(f"W1 {what} fp32, share of the peak", None),
        ),
        reference=ONE_BY_ONE,
        bound=bound,
    )


ROWS: tuple[Row, ...] = (
    Row(
        name="w1",
        task="nli",
        model="roberta-base",
        shape=BASE,
        items=w1,
        n=192,
        unit="pairs",
        variants=(
            Variant(OWN, OWN),
            st(CE),
            st(CE_BEST, best=BEST_SIZES),
            ONE_BY_ONE,
            Variant("OpenVINO f32", "openvino", {"batch_tokens": 1024}, tune=BUDGETS),
            Variant("ONNX Runtime", "onnxruntime", {"batch_tokens": 1024}, tune=BUDGETS),
        ),
        comparisons=(
            Comparison("W1 NLI fp32", CE, 2.8, 3.1),
            Comparison("W1 NLI fp32", CE_BEST, 2.4, 2.7),
            Comparison("W1 NLI fp32", "pipeline, batch 1", 3.2, 3.6),
            Comparison("W1 NLI fp32, peer in our batches", "OpenVINO f32", 1.15, 1.25),
            Comparison("W1 NLI fp32, peer in our batches", "ONNX Runtime"),
            Comparison("W1 NLI fp32, share of the peak", None, 0.85, 0.95),
        ),
        reference=ONE_BY_ONE,
        bound=NLI_BOUND,
    ),
    family("w1-deberta", "deberta-v3-base", DEBERTA, "DeBERTa-v3-base"),
    # Random weights make its 22 layers amplify the last bits: CrossEncoder is as far off.
    family("w1-modernbert", "modernbert-base", MODERNBERT, "ModernBERT-base", 5e-5),
    Row(
        name="w1-auto",
        task="nli",
        model="roberta-base",
        shape=BASE,
        items=w1,
        n=192,
        unit="pairs",
        variants=(Variant(OWN, OWN, job={"dtype": "auto"}), st(CE), st(CE_BEST, best=BEST_SIZES)),
        comparisons=(
            Comparison("W1 NLI, --dtype auto, peer as it is by default: fp32", CE),
            Comparison("W1 NLI, --dtype auto, peer in fp32", CE_BEST),
        ),
        reference=ONE_BY_ONE,
        peak_ways=(*BF16_WAYS, "oneDNN fp32"),
    ),
    Row(
        name="w1-bf16",
        task="nli",
        model="roberta-base",
        shape=BASE,
        items=w1,
        n=192,
        unit="pairs",
        variants=(
            Variant(OWN, OWN, job=BF16),
            st("CrossEncoder bf16", BF16),
            st("CrossEncoder bf16 best", BF16, best=BEST_SIZES),
            Variant("OpenVINO bf16", "openvino", {"batch_tokens": 1024}, BF16, BUDGETS),
        ),
        comparisons=(
            Comparison("W1 NLI bf16", "CrossEncoder bf16", 1.4, 1.5),
            Comparison("W1 NLI bf16", "CrossEncoder bf16 best"),
            Comparison("W1 NLI bf16, peer in our batches", "OpenVINO bf16"),
            Comparison("W1 NLI bf16, share of the peak", None),
        ),
        reference=ONE_BY_ONE,
        peak_ways=BF16_WAYS,
    ),
    Row(
        name="w2",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        n=1200,
        unit="sentences",
        variants=(Variant(OWN, OWN), st(ST), st(ST_BEST, best=BEST_SIZES)),
        comparisons=(
            Comparison("W2 embeddings fp32", ST, 3.0, 3.4),
            Comparison("W2 embeddings fp32", ST_BEST),
            Comparison("W2 embeddings fp32, share of the peak", None),
        ),
        reference=st("encode, batch 1", default=1),
        bound=1e-6,
    ),
    Row(
        name="w2-bf16",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        n=1200,
        unit="sentences",
        variants=(Variant(OWN, OWN, job=BF16), st(ST), st("encode bf16", BF16)),
        comparisons=(
            Comparison("W2 embeddings bf16, peer as it is by default: fp32", ST, 4.5, 5.0),
            Comparison("W2 embeddings bf16", "encode bf16"),
            Comparison("W2 embeddings bf16, share of the peak", None),
        ),
        reference=st("encode, batch 1", default=1),
        peak_ways=BF16_WAYS,
        bound=2e-4,
    ),
    Row(
        name="w3",
        task="bertscore",
        model="roberta-base",
        shape=BASE._replace(layers=10),
        items=w3,
        n=64,
        unit="pairs",
        variants=(
            Variant(OWN, OWN),
            Variant("bert-score default", "bert-score", {"batch_size": 64}),
            Variant(
                "bert-score best",
                "bert-score",
                {"batch_size": 64},
                tune=("batch_size", (2, 4, 8, 16, 32)),
            ),
        ),
        comparisons=(
            Comparison("W3 BERTScore fp32", "bert-score default", 4.3, 5.0),
            Comparison("W3 BERTScore fp32", "bert-score best", 2.2, 2.5),
            Comparison("W3 BERTScore fp32, share of the peak", None),
        ),
        reference=Variant("bert-score default", "bert-score", {"batch_size": 64}),
        bound=1e-6,
        more={"layer": 10},
    ),
    Row(
        name="gpu-w1",
        task="nli",
        model="roberta-large",
        shape=LARGE,
        items=w1,
        n=17_634,
        unit="pairs",
        variants=(
            Variant(OWN, OWN, job=BF16),
            st(CE),
            st("CrossEncoder tuned, bf16", BF16, best=(64, 128, 256, 512, 1024)),
        ),
        comparisons=(
            Comparison("GPU: W1, roberta-large bf16", CE, 5.0),
            Comparison("GPU: W1, roberta-large bf16", "CrossEncoder tuned, bf16", 1.5),
            Comparison("GPU: W1, roberta-large bf16, share of the peak", None, 0.60, 0.70),
        ),
        reference=st("CrossEncoder, batch 1", default=1),
        peak_ways=("torch bf16",),
        device="cuda",
    ),
    Row(
        name="gpu-w2",
        task="embed",
        model="minilm",
        shape=MINILM,
        items=w2,
        n=10_888,
        unit="sentences",
        variants=(
            Variant(OWN, OWN, job=BF16),
            st(ST),
            st("encode tuned, bf16", BF16, best=(64, 256, 1024, 4096)),
        ),
        comparisons=(
            Comparison("GPU: W2 embeddings bf16", "encode tuned, bf16", 1.2),
            Comparison("GPU: W2 embeddings bf16", ST),
        ),
        reference=st("encode default", default=32),
        peak_ways=("torch bf16",),
        bound=2e-4,
        device="cuda",
    ),
)
