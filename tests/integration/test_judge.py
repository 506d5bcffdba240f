"""`scripts/judge` makes pairs with labels that hold, and learns from them, in small."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizer

from claimscore import minilm
from claimscore.pipeline.encoders import embedded
from scripts.judge import calibration, claim_calibration, training, verification
from scripts.judge import pairs as made
from scripts.judge.examples import (
    LABEL2ID,
    NOT_ENTAILED,
    NOT_ENTAILED_ID,
    NLIBatch,
    NLIExamples,
    read_pairs,
    sample_plan,
)
from scripts.judge.model import blend
from scripts.judge.train import phases
from scripts.judge.training import Phase, evaluate, pair_loss, shared, train
from tests.support.embedded_models import needs_backbone

WORDS = ("room", "clean", "dirty", "not", "the", "is", "a", "dog", "cat", "runs", "sleeps", "quiet")
SENTENCES = (
    "{name} was born in Lisbon in 1962 and moved to Porto with her family.",
    "{name} joined the orchestra in Vienna and praised the conductor in a letter.",
    "In 1994 {name} won the Silver Bow and did not accept the prize.",
)
CLAIMS = (
    ["{name} was born in Lisbon.", "{name} was born in 1962."],
    ["{name} joined the orchestra.", "{name} praised the conductor."],
    ["{name} won the Silver Bow in 1994."],
)


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random BERT of two small layers, accepted in place of the real one by its digest."""
    folder = tmp_path / "backbone"
    folder.mkdir()
    vocabulary = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n"
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings = BertConfig(
        vocab_size=5 + len(WORDS), intermediate_size=32, max_position_embeddings=64, **sizes
    )
    settings.save_pretrained(folder)
    torch.manual_seed(0)
    save_file(BertModel(settings).state_dict(), folder / "model.safetensors")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    digest = minilm.file_sha256(folder / "model.safetensors")
    monkeypatch.setattr(minilm, "SHA256", digest)
    return folder


@pytest.fixture
def phase(backbone: Path, tmp_path: Path) -> Phase:
    data = tmp_path / "data"
    data.mkdir()
    for seed, name in enumerate(("train", "dev_snli", "dev_other")):
        random_pairs(96 if seed == 0 else 24, seed).write_parquet(data / f"{name}.parquet")
    small = {"samples": 48, "batch_size": 8, "max_length": 32, "checkpoint_every": 2}
    return Phase((data,), tmp_path / "adapter.safetensors", backbone=backbone, **small)


def random_pairs(count: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(2, 9))) for _ in range(2 * count)]
    labels = [list(LABEL2ID)[i] for i in rng.integers(0, 3, size=count)]
    sides = {"premise": texts[:count], "hypothesis": texts[count:], "label": labels}
    return pl.DataFrame(sides).with_columns(source=pl.lit("random"))


def test_a_stopped_phase_goes_on_to_the_same_bytes_and_the_next_starts_from_it(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(replace(phase, out=tmp_path / "whole.safetensors"))
    batches: list[int] = []

    def stop(*given: object) -> NLIBatch:
        batches.append(1)
        if len(batches) == 5:
            raise KeyboardInterrupt
        return make_batch(*given)

    make_batch = training.make_batch
    monkeypatch.setattr(training, "make_batch", stop)
    with pytest.raises(KeyboardInterrupt):
        train(phase)
    with pytest.raises(SystemExit, match="other settings or data"):
        train(replace(phase, head_lr=0.5))
    assert train(phase).read_bytes() == whole.read_bytes()
    assert len(batches) == 5 + 2  # four steps were in the checkpoint
    train(phase)
    assert len(batches) == 7, "a finished phase is left as it is"
    assert not list(tmp_path.glob("*.checkpoint*"))
    second = replace(phase, start=phase.out, out=tmp_path / "second.safetensors", frozen_layers=0)
    layers = [layers_of(path) for path in (phase.out, train(second))]
    assert layers == [{"1"}, {"0", "1"}]
    assert train(replace(second, seed=7)).read_bytes() != whole.read_bytes()
    dev = evaluate(second.out, phase.data, phase.backbone)
    assert dev.select("set", "pairs").rows() == [("dev_other", 24), ("dev_snli", 24)]
    assert float(embedded.read_adapter(second.out).metadata["temperature"]) > 0


def test_a_blend_lies_between_its_two_adapters(phase: Phase, tmp_path: Path) -> None:
    first = train(phase)
    second = train(replace(phase, start=first, out=tmp_path / "second.safetensors"))
    blend(first, second, 0.7, out := tmp_path / "blend.safetensors")
    one, two, between = (
        embedded.unpack(embedded.read_adapter(path).tensors)["head.f2.weight"]
        for path in (first, second, out)
    )
    assert torch.allclose(between, 0.3 * one + 0.7 * two, atol=1e-3)
    assert not torch.allclose(one, two, atol=1e-3)


def layers_of(adapter: Path) -> set[str]:
    names = embedded.read_adapter(adapter).tensors
    assert not any("embeddings" in name for name in names)
    return {name.split(".")[3] for name in names if ".encoder.layer." in name}


def test_calibration_by_hand() -> None:
    """Confidences .8 .8 .6 .9; right, wrong, right, right. ln 9 / T must be ln 3."""
    four = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.05, 0.9, 0.05]]
    wanted = (2 * abs(0.8 - 0.5) + abs(0.6 - 1) + abs(0.9 - 1)) / 4
    assert calibration.expected_calibration_error(four, [0, 2, 2, 1]) == pytest.approx(wanted)
    nll = -np.log([0.8, 0.1, 0.6, 0.9]).mean()
    assert calibration.negative_log_likelihood(four, [0, 2, 2, 1]) == pytest.approx(nll)
    rows = [[0.9, 0.1]] * 4
    assert calibration.best_temperature(rows, [0, 0, 0, 1]) == pytest.approx(2, abs=1e-4)
    assert calibration.best_temperature(rows, [0, 0, 0, 0]) is None


def test_support_of_claims_by_hand() -> None:
    """A shift of ln 2 doubles the odds of entailment, a temperature of .5 squares all odds."""
    rows = np.log([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.5, 0.25, 0.25]])
    both = calibration.Claims(rows, np.array([0, 0, 1]), np.array([1, 0]), np.ones(2))
    fits = [calibration.Fit(1.0, np.log(2)), calibration.Fit(0.5, 0.0)]
    assert calibration.supported(both, calibration.Fit()) == pytest.approx([0.6, 0.5])
    assert calibration.supported(both, fits[0]) == pytest.approx([0.75, 2 / 3])
    assert calibration.supported(both, fits[1]) == pytest.approx([0.36 / 0.44, 2 / 3])
    assert calibration.supported(both.only([False, True]), fits[0]) == pytest.approx([2 / 3])
    wanted = (0.1 + abs(2.7 - 2)) / 4
    values, right = np.array([0.1, 0.9, 0.9, 0.9]), np.array([0, 1, 1, 0])
    assert calibration.reliability_error(values, right, np.ones(4)) == pytest.approx(wanted)
    spread = np.array([0.2, 0.4, 0.6, 0.8])
    assert calibration.best_threshold(spread, np.array([0, 0, 1, 1]), np.ones(4)) == 0.51


@pytest.mark.parametrize(("label", "most"), [(0, 2.0), (1, 0.5)], ids=["free", "ln 5/3 at most"])
def test_claims_are_fitted_as_far_as_pairs_allow(label: int, most: float) -> None:
    """Half of the claims hold where the model says .2: it should say .5."""
    rows = np.log(np.tile([0.2, 0.4, 0.4], (4, 1)))
    claims = calibration.Claims(rows, np.arange(4), np.array([0, 1, 0, 1]), np.ones(4))
    pairs = calibration.Pairs(np.log([[0.3, 0.5, 0.2]]), np.array([label]))
    fit = calibration.best_fit(claims, pairs)
    assert fit.shift <= most
    before, after = (calibration.supported(claims, one)[0] for one in (calibration.Fit(), fit))
    assert before == pytest.approx(0.2)
    assert 0.3 < after <= 0.5 + 1e-3


def test_the_calibration_of_claims_is_written_to_the_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that says .2 of what is supported, and less of the rest."""

    class Judge(claim_calibration.Judge):
        def __init__(self, adapter: Path) -> None:
            """No model is loaded."""

        def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
            entailed = np.array([0.2 if "red" in text else 0.02 for text, _ in pairs])
            return np.log(np.stack([entailed, (1 - entailed) / 2, (1 - entailed) / 2], axis=1))

    monkeypatch.setattr(claim_calibration, "Judge", Judge)
    docs = [str(n) for n in range(60) if made.is_development(str(n))]
    rows = pl.DataFrame(
        {
            "premise": "The kettle is red. It boils." if n % 2 else "It boils. It is new.",
            **{"claim": "It is red.", "doc": doc, "kind": "", "source": "ragtruth_qa"},
            **{"label": "supported" if n % 2 else "unsupported", "level": "sentence"},
            **{"implicit_true": False, "due_to_null": False},
        }
        for n, doc in enumerate(docs)
    )
    folders = {name: tmp_path / name for name in ("verification", "nli", "claim_support")}
    for folder in folders.values():
        folder.mkdir()
    for name in ("ragtruth_dev", *claim_calibration.FILES):
        rows.write_parquet(folders["verification"] / f"{name}.parquet")
    pairs = pl.DataFrame({"premise": ["a"], "hypothesis": ["b"], "label": ["neutral"]})
    for name in training.CALIBRATION_SETS:
        pairs.write_parquet(folders["nli"] / f"{name}.parquet")
    decisions = rows.select(summary="premise", scu="claim", label=pl.col("label").eq("supported"))
    decisions.cast({"label": pl.Int64}).write_parquet(folders["claim_support"] / "realsumm.parquet")
    out = tmp_path / "fitted.safetensors"
    given = ["--adapter", str(embedded.ADAPTER_PATH), "--data", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["claim_calibration", *given])
    claim_calibration.main()
    shown = capsys.readouterr().out
    assert "not fitted on" in shown
    before, after = (embedded.read_adapter(path) for path in (embedded.ADAPTER_PATH, out))
    assert after.threshold is not None
    assert after.temperature != before.temperature
    moved = (after.tensors["head.f2.bias"] - before.tensors["head.f2.bias"]).float()
    assert moved[LABEL2ID["entailment"]] > 0
    assert moved.count_nonzero() == 1


# The pairs about claims


def biographies(families: str) -> pl.DataFrame:
    names = [
        f"{first} {last}" for first in ("Ana", "Eva", "Ida", "Mia") for last in families.split()
    ]
    return pl.DataFrame(
        {
            "name": name,
            "sentence_index": k,
            "sentence": text.format(name=name),
            "claims": [claim.format(name=name) for claim in CLAIMS[k]],
        }
        for name in names
        for k, text in enumerate(SENTENCES)
    )


@pytest.fixture
def human(tmp_path: Path) -> Path:
    """Files of the columns of FActScore, Factcheck-GPT and CaRB."""
    whole = biographies("Lopes Kern").select(
        "sentence_index", "sentence", topic="name", generator=pl.lit("G"), facts="claims"
    )
    shorter = whole.filter(pl.col("sentence_index") < 2).with_columns(generator=pl.lit("H"))
    pl.concat([whole, shorter]).write_parquet(tmp_path / "factscore.parquet")
    biographies("Weiss Holm").select(
        "sentence_index", "sentence", "claims", response_id="name"
    ).write_parquet(tmp_path / "factcheck_gpt.parquet")
    facts = [{"relation": "sold", "arguments": ["The baker", "3 loaves", "on Monday"]}]
    pl.DataFrame(
        {"sentence": ["The baker , a Dane , sold 3 loaves on Monday ."], "tuples": [facts]}
    ).write_parquet(tmp_path / "carb.parquet")
    return tmp_path


ARTICLE = (
    "The council met in Leeds on Monday. Ana Lopes praised the new library in a speech. "
    "The library {place} cost £ 40 million and opened in 2014. It has 12 rooms and a cafe. "
    "Critics in York said the money was not well spent. Rain fell all day in the north. "
)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """The files of `verification`, each with a true and a false claim about each of some texts."""
    folder = tmp_path / "verification"
    folder.mkdir()
    for name in verification.FILES:
        rows = [
            (ARTICLE.format(place=f"{name}{k}") * 4, claim, label, str(k), f"{name}{k}", name, kind)
            for k in range(8)
            for claim, label, kind in (
                ("The library cost £ 40 million .", "supported", ""),
                ("The library cost 50 million.", "contradicted", ""),
                *((f"The library has {n} pools.", "unsupported", "") for n in range(6)),
                *([("Left out.", "supported", "extractive")] if name == "fib" else []),
            )
        ]
        columns = ["premise", "claim", "label", "twin", "doc", "source", "kind"]
        pl.DataFrame(rows, schema=columns, orient="row").write_parquet(folder / f"{name}.parquet")
    return folder


def check_verified(pairs: pl.DataFrame) -> None:
    """Texts are shown in part and in normal form; twins have one name; noise is left out."""
    people = pairs.filter(pl.col("source").str.starts_with("verified_"))
    assert set(people["label"]) == {"entailment", "contradiction", NOT_ENTAILED}
    assert all("£40 million" in text and "£ " not in text for text in people["premise"][:20])
    assert max(len(text.split()) for text in people["premise"]) <= verification.WINDOW + 20
    groups = people.group_by("twin").agg(
        true=(pl.col("label") == "entailment").sum(), false=(pl.col("label") != "entailment").sum()
    )
    assert set(groups["true"]) == {1}
    assert set(groups["false"]) <= {verification.MOST_FALSE}
    assert not any(
        "Left out" in claim for claim in people.filter(source="verified_fib")["hypothesis"]
    )
    made_of_summaries = pairs.filter(pl.col("source").str.starts_with("made_"))
    assert {"made_true", "made_false"} == set(made_of_summaries["source"])
    assert any(source.startswith("document_") for source in pairs["source"])


def test_the_loss_of_twins_and_of_unnamed_labels_by_hand() -> None:
    """Entailment .5 of the true twin and .2 of the false one, whose label says not which of two."""
    logits = torch.tensor([[0.25, 0.25, 0.5], [0.3, 0.5, 0.2], [0.1, 0.8, 0.1]]).log()
    labels, groups = torch.tensor([2, NOT_ENTAILED_ID, 1]), torch.tensor([7, 7, 8])
    nothing = torch.zeros(3, 1)
    batch = NLIBatch(nothing, nothing, nothing, labels, groups)
    of_labels = -(np.log(0.5) + np.log(0.8) + np.log(0.8)) / 3
    of_twins = (2 - (0 - np.log(0.2 / 0.8))) / 3
    loss = float(pair_loss(logits, batch, margin=2.0, ranking=0.5))
    assert loss == pytest.approx(of_labels + 0.5 * of_twins, abs=1e-6)


def test_twins_stay_in_one_batch() -> None:
    groups = np.repeat(np.arange(40), 3)
    lengths = np.random.default_rng(0).integers(1, 40, len(groups))
    texts = [[0] * int(n) for n in lengths]
    zeros = np.zeros(120, dtype=np.int64)
    examples = NLIExamples(texts, texts, zeros, ["a"] * 120, groups, 2 * lengths + 3)
    plan = sample_plan(examples, (), batch_size=12, batches=10, seed=0)
    assert sorted(np.concatenate(plan)) == list(range(120))
    assert all(sorted(groups[batch])[::3] == sorted(set(groups[batch])) for batch in plan)
    two = Phase((), Path("out"), workers=2)
    for batch in plan:
        first, second = (shared(batch, groups, rank, two) for rank in (0, 1))
        assert len(first) == len(second) == 6
        assert sorted([*first, *second]) == sorted(batch)
        assert not set(groups[first]) & set(groups[second])


@needs_backbone
def test_the_phases_learn_from_pairs_of_every_rule_and_documents_are_kept_apart(
    human: Path, judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = made.Counts(60, 60, 60, 60)
    monkeypatch.setattr(made, "TRAINING", few)
    rows = [
        (f"A man in a red shirt sells {k} apples.", f"A man sells {k} apples.", "entailment")
        for k in range(2, 60)
    ]
    known = pl.DataFrame(rows, schema=["premise", "hypothesis", "label"], orient="row")
    known = known.with_columns(source=pl.lit("snli_dev_part"))
    data = tmp_path / "nli"
    data.mkdir()
    known.write_parquet(data / "train.parquet")
    monkeypatch.setattr(verification, "UNRELATED", 20)
    out = tmp_path / "judge.safetensors"
    *earlier, last = phases(data, human, judged, out)
    assert [phase.start for phase in (*earlier[1:], last)] == [phase.out for phase in earlier]
    assert phases(data, human, judged, out, start=out) == [replace(last, start=out)]
    monotone, claims, verified = (read_pairs([file]) for file in last.data[1:])
    check_verified(verified)
    assert set(monotone["label"]) == {"entailment", "neutral"}

    def of(kind: str, *labels: str) -> list[tuple[str, str]]:
        chosen = claims.filter(pl.col("label").is_in(labels), source=f"claim_{kind}")
        return chosen.select("premise", "hypothesis").rows()

    kinds = {"claim", "reworded", "paragraph", "unrelated", "name", "roles", "among", "turned"}
    assert {f"claim_{kind}" for kind in kinds} < set(claims["source"])
    assert all(claim in premise for premise, claim in of("identity", "entailment"))
    assert not of("scrambled", "entailment", "contradiction")
    assert not of("number", "entailment")
    assert any("was not born" in claim for _, claim in of("denied", "contradiction"))
    assert any("Silver Bow" in claim for _, claim in of("unsaid", "neutral"))
    assert all("Silver Bow" not in p for p, c in of("unsaid", "neutral") if "Silver Bow" in c)
    changed = of("replaced", "neutral", "contradiction")
    assert all(claim not in premise for premise, claim in changed)
    assert any(claim in premise for premise, claim in of("replaced", "entailment"))
    other = made.claim_pairs(human, known, counts=few, development=True)
    whole = pl.col("source").is_in(["claim_identity", "claim_paragraph"])
    assert not set(claims.filter(whole)["premise"]) & set(other.filter(whole)["premise"])
