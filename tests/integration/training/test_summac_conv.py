"""Training of SummaC-Conv on tables that can be told apart; the classifier is a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray

from claimscore.errors import ConfigError, InputError
from claimscore.metrics import load_metric, summac_conv
from claimscore.metrics.summac.convolution import bin_edges, load_weights
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.passes import PassInput
from claimscore.pipeline.passes.pair_nli import BLOCK_NLI_PASS
from claimscore.records.columns import in_first_half
from claimscore.runs import RunDirectory
from claimscore.tables import TABLES
from claimscore.training.labelled_records import ConvExample, FirstHalf, pad_examples, read_labelled
from claimscore.training.loop import TrainingProgress
from claimscore.training.recipes import SummaCTrainingConfig
from claimscore.training.summac_conv import ConvModel, cut_pass, fit, train_summac_conv
from tests.support.rated_tables import write_jsonl


class WordClassifier:
    """Entailment is the share of the hypothesis's words that the premise has."""

    def __init__(self, model: str = "words") -> None:
        self.info = ModelInfo(model, "r1", "float32")
        self.pairs = 0

    def classify(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        self.pairs += len(pairs)
        shares = [len(set(p.split()) & set(h.split())) / len(set(h.split())) for p, h in pairs]
        entailment = np.array(shares, dtype=np.float32)
        return np.stack([entailment, (1 - entailment) / 2, (1 - entailment) / 2], axis=1)


class StoredWords(WordClassifier):
    """One whose results can be stored."""

    facts: ClassVar = {"words": "1"}

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        return np.zeros(len(pairs), dtype=bool)


WORDS = ("room", "clean", "dirty", "garden", "quiet", "noisy", "beach", "pool", "staff", "cold")


def rows(count: int, seed: int = 0) -> list[dict[str, object]]:
    """Half of the summaries repeat sentences of the document, half have other words."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        sentences = [" ".join(rng.choice(WORDS, 4)).capitalize() + "." for _ in range(6)]
        others = [f"Nobody saw thing number {i} there."] * 2
        summary = sentences[:2] if i % 2 else [sentences[0], others[0]]
        made.append({"source": "\n".join(sentences), "summary": "\n".join(summary), "label": i % 2})
    return made


@pytest.fixture
def config(tmp_path: Path) -> SummaCTrainingConfig:
    table = str(write_jsonl(tmp_path / "table.jsonl", rows(120)))
    return SummaCTrainingConfig(tables=(table,), out=tmp_path / "out", epochs=30)


def accuracy(weights: Path, table: list[dict[str, object]]) -> float:
    """How often the metric's side of 0.5 is the label."""
    classifier, metric = WordClassifier(), load_metric(f"summac-conv:weights={weights}")
    bins = dict(metric.facts)["bins"]
    right = []
    for row in table:
        document, summary = (str(row[name]).split("\n") for name in ("source", "summary"))
        pairs = [(d, s) for d in document for s in summary]
        image = classifier.classify(pairs).reshape(len(document), len(summary), 3)
        value = summac_conv(image, weights, bins=bins)
        assert value is not None
        right.append((value > 0.5) == bool(row["label"]))
    return float(np.mean(right))


def test_a_table_that_can_be_told_apart_is_learnt(config: SummaCTrainingConfig) -> None:
    result = train_summac_conv(config, classifier=WordClassifier())
    assert (result.examples, result.validation_examples, result.without_image) == (108, 12, 0)
    assert result.validation_loss is not None
    assert result.validation_loss < 0.3
    assert accuracy(result.weights, rows(60, seed=9)) > 0.95


def test_the_weights_know_how_they_were_trained(config: SummaCTrainingConfig) -> None:
    changed = replace(
        config, labels="ec", bins="even20", aggregate="all", variant="paper", epochs=2
    )
    result = train_summac_conv(changed, classifier=WordClassifier())
    settings = load_weights(result.weights).settings
    assert settings["nli"] == "words@r1"
    facts = dict(load_metric(f"summac-conv:weights={result.weights}").facts)
    assert (facts["labels"], facts["bins"]) == ("ec", "even20")
    assert (facts["aggregate"], facts["variant"]) == ("all", "paper")
    kept = sorted(path.name for path in (config.out / "epochs").iterdir())
    assert kept == ["epoch-001.safetensors", "epoch-002.safetensors"]
    assert {p.suffix for p in config.out.rglob("*") if p.is_file()} == {".safetensors"}


def test_a_pair_is_judged_once(config: SummaCTrainingConfig) -> None:
    short, classifier = replace(config, epochs=1), StoredWords()
    first = train_summac_conv(short, classifier=classifier).weights.read_bytes()
    asked = classifier.pairs
    assert 0 < asked <= 120 * 6 * 2
    train_summac_conv(replace(short, bins="percentile"), classifier=classifier)
    assert train_summac_conv(short, classifier=classifier).weights.read_bytes() == first
    assert classifier.pairs == asked
    train_summac_conv(replace(short, granularity="2sents"), classifier=classifier)
    assert classifier.pairs > asked


def test_a_validation_table_chooses_the_epoch(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    other = str(write_jsonl(tmp_path / "other.jsonl", rows(20, seed=5)))
    seen: list[TrainingProgress] = []
    result = train_summac_conv(
        replace(config, validation=(other,), epochs=4), seen.append, WordClassifier()
    )
    assert (result.examples, result.validation_examples) == (120, 20)
    assert [p.step for p in seen if p.stage == "epochs"] == [1, 2, 3, 4]
    assert {p.stage for p in seen} == {"images", "validation-images", "epochs"}
    last = train_summac_conv(replace(config, holdout=0.0, epochs=3), classifier=WordClassifier())
    assert (last.epoch, last.validation_loss, last.examples) == (3, None, 120)


def test_negatives_stand_in_for_labels(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    table = tmp_path / "good.csv"
    texts = [f"There were {i} rooms.\nThey are clean and quiet." for i in range(20)]
    pl.DataFrame({"source": [f"{t}\nOf 77 rooms." for t in texts], "summary": texts}).write_csv(
        table
    )
    made = replace(config, tables=(str(table),), make_negatives=True, epochs=1)
    result = train_summac_conv(made, classifier=WordClassifier())
    assert result.examples + result.validation_examples == 40


@pytest.mark.parametrize("aggregate", ["mean", "min", "max", "all"])
@pytest.mark.parametrize("variant", ["code", "paper"])
def test_the_model_is_the_metrics_function(
    config: SummaCTrainingConfig, aggregate: str, variant: str
) -> None:
    rng = np.random.default_rng(0)
    images = [rng.random((4, n, 3)) for n in (1, 12, 3)]
    chosen = replace(config, bins="percentile", aggregate=aggregate, variant=variant, epochs=1)
    found = [ConvExample(_counts(image), i % 2) for i, image in enumerate(images)]
    (epoch,) = fit(chosen, found, [])
    padded = pad_examples(found, 23, 10 if variant == "code" else None)
    model = ConvModel(23, aggregate)
    state = {name: torch.from_numpy(value) for name, value in epoch.weights._state().items()}
    model.load_state_dict(state)
    logits = model(torch.from_numpy(padded.counts), torch.from_numpy(padded.used))
    for image, probability in zip(images, logits.softmax(dim=1)[:, 1].tolist(), strict=True):
        expected = summac_conv(image, epoch.weights, aggregate=aggregate, variant=variant)
        assert probability == pytest.approx(expected, abs=1e-5)


def _counts(image: NDArray[np.float64]) -> NDArray[np.int64]:
    edges = bin_edges("percentile")
    columns = [np.histogram(image[:, j, 0], bins=edges)[0] for j in range(image.shape[1])]
    return np.stack(columns).astype(np.int64)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([{"source": "a", "summary": "b"}], "line 1: no column label"),
        ([{"summary": "b", "label": 1}], "line 1: no column source"),
        ([{"source": "a", "summary": "b", "label": "maybe"}], "label must be 1"),
        ([{"source": 3, "summary": "b", "label": 1}], "source must be text"),
        ([], "no row to train on"),
        (
            [{"source": "It is a long text.", "summary": "It is a long text.", "label": 1}] * 3,
            "every label is 1",
        ),
        ([{"source": " ", "summary": " ", "label": 1}], "nothing to train on"),
    ],
)
def test_tables_that_cannot_be_trained_on(
    config: SummaCTrainingConfig, tmp_path: Path, table: list[dict[str, object]], message: str
) -> None:
    path = str(write_jsonl(tmp_path / "bad.jsonl", table))
    with pytest.raises(InputError, match=message):
        train_summac_conv(replace(config, tables=(path,), holdout=0.0), classifier=WordClassifier())


def test_one_half_is_trained_on(config: SummaCTrainingConfig, tmp_path: Path) -> None:
    table = [{**row, "article": f"a{i // 4}", "empty": ""} for i, row in enumerate(rows(120))]
    path = str(write_jsonl(tmp_path / "t.jsonl", table))
    half = [row for row in table if in_first_half(row["article"], 7)]
    read = read_labelled([path], half=FirstHalf("article", 7))
    assert read["summary"].to_list() == [row["summary"] for row in half]
    changed = replace(
        config, tables=(path,), split_by="article", split_seed=7, holdout=0.0, epochs=1
    )
    result = train_summac_conv(changed, classifier=WordClassifier())
    assert 0 < result.examples == len(half) < 120
    run = write_run(tmp_path / "run", run_rows())
    of_run = train_summac_conv(
        replace(config, tables=(run,), split_by="source", holdout=0.0, epochs=1)
    )
    drawn = [row for row in run_rows() if in_first_half(row["source"], 0)]
    assert 0 < of_run.examples == len(drawn) < 40
    for column, message in (("other", "no column other"), ("empty", "needs a value")):
        with pytest.raises(InputError, match=message):
            read_labelled([path], half=FirstHalf(column, 0))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"bins": "odd"}, "--bins is percentile or evenN"),
        ({"labels": "x"}, "--labels is one of e, c"),
        ({"granularity": "page"}, "--granularity is one of sentence"),
        ({"holdout": 1.0}, "--holdout is a share below 1"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"seed": -1}, "--seed must be at least 0"),
        ({"split_by": "even"}, "--split-by names a column"),
    ],
)
def test_wrong_settings_are_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SummaCTrainingConfig(tables=("t",), out=Path("o"), **setting)  # type: ignore[arg-type]


# Finished runs in the place of files


def run_rows(n: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{i}",
            "source": f"Room {i // 2} is clean and quiet.\nStaff of floor {i // 2} is kind.",
            "summary": [f"Room {i // 2} is clean and quiet.", "Nobody liked the cold pool."][i % 2],
            "label": 1 - i % 2,
        }
        for i in range(n)
    ]


def write_run(
    path: Path, table: list[dict[str, Any]], model: str = "words", *, finished: bool = True
) -> str:
    """A run of two chunks with the NLI of sentences; `finished` False: of the first chunk only."""
    need = cut_pass(SummaCTrainingConfig(("t",), Path("o")).settings())
    half = len(table) // 2
    with RunDirectory(path) as run:
        run.check_settings({"records": {"count": len(table)}, "chunk_records": half})
        for chunk in (0, 1):
            records = pl.DataFrame(table[chunk * half : (chunk + 1) * half])
            run.write_parts(chunk, "records", {"records": records})
            if chunk and not finished:
                continue
            given = PassInput(
                model=WordClassifier(model),
                need=need,
                records=records,
                read=lambda name: TABLES[name].empty(),
                broken=frozenset(),
                listen=lambda pairs: lambda done: None,
            )
            run.write_parts(chunk, need.step, BLOCK_NLI_PASS.compute(given).rows)
    return str(path)


@pytest.fixture
def run_config(tmp_path: Path) -> SummaCTrainingConfig:
    run = write_run(tmp_path / "run", run_rows())
    return SummaCTrainingConfig((run,), tmp_path / "out", epochs=3)


def test_a_run_gives_the_weights_of_its_records(
    run_config: SummaCTrainingConfig, tmp_path: Path
) -> None:
    file = str(write_jsonl(tmp_path / "t.jsonl", run_rows()))
    asked = replace(run_config, tables=(file,), out=tmp_path / "asked")
    expected = train_summac_conv(asked, classifier=WordClassifier())
    found = train_summac_conv(run_config)
    assert found.weights.read_bytes() == expected.weights.read_bytes()
    assert replace(found, weights=expected.weights) == expected
    assert not (run_config.out / "images").exists()
    other = train_summac_conv(replace(run_config, out=tmp_path / "other", seed=1))
    assert other.weights.read_bytes() != found.weights.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"granularity": "2sents"}, "0 of 2 parts; run it to the end"),
        ({"split_by": "article"}, "no column article; there are: id"),
        ({"make_negatives": True}, "needs files of texts"),
    ],
)
def test_what_a_run_cannot_give(
    run_config: SummaCTrainingConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train_summac_conv(replace(run_config, **change))


def test_runs_that_do_not_fit(run_config: SummaCTrainingConfig, tmp_path: Path) -> None:
    part = write_run(tmp_path / "part", run_rows(), finished=False)
    with pytest.raises(ConfigError, match=r"part: NLI of .* for 1 of 2 parts"):
        train_summac_conv(replace(run_config, tables=(part,)))
    other = write_run(tmp_path / "other", run_rows(), model="others")
    with pytest.raises(ConfigError, match="different models: others@r1, words@r1"):
        train_summac_conv(replace(run_config, tables=(*run_config.tables, other)))
    with pytest.raises(ConfigError, match="--validation has NLI of others@r1, not of words@r1"):
        train_summac_conv(replace(run_config, validation=(other,)))
    with pytest.raises(InputError, match="name one kind"):
        train_summac_conv(replace(run_config, tables=(*run_config.tables, "t.jsonl")))
    with pytest.raises(ConfigError, match="not a run directory"):
        train_summac_conv(replace(run_config, tables=(str(tmp_path),)))
