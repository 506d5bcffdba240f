"""The column `truncated`: which inputs the models read in part only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import embedder, nli, token_encoder
from tests.support.tiny_models import save_tiny_encoder, save_tiny_nli
from tests.unit.pipeline.passes.test_model_pass import claims, run_nli, run_pass

LONG = "the room was clean and the staff was rude and the pool was warm and the food was good"
RECORDS = pl.DataFrame({"id": ["r1", "r2"], "summary_a": ["clean", LONG], "summary_b": ["a", "b"]})


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EncoderConfig:
    folder = tmp_path_factory.mktemp("models")
    encoder = str(save_tiny_encoder(folder / "encoder", max_tokens=16))
    return EncoderConfig(
        nli=str(save_tiny_nli(folder / "nli", max_tokens=16)),
        embedder=encoder,
        token_encoder=encoder,
        token_layer=1,
        rescale_with_baseline=False,
        device="cpu",
        offline=True,
    )


def test_a_cut_pair_is_marked_in_nli(config: EncoderConfig) -> None:
    """Each pair by itself, in both directions."""
    table = claims(r1_a=["clean", LONG], r1_b=["quiet"])
    result = run_pass("nli", nli.load(config), pl.DataFrame({"id": ["r1"]}), claims=table)
    found = result.rows["nli"].select("premise_index", "hypothesis_index", "truncated").rows()
    assert found == [(0, 0, False), (1, 0, True), (0, 0, False), (0, 1, True)]


def test_a_model_that_does_not_tell_gives_null() -> None:
    """A server, or a model of one's own: not known is not false."""
    rows, _, _ = run_nli(claims(r1_a=["x"], r1_b=["y"]), ["r1"])
    assert rows["truncated"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("kind", "over", "table"),
    [
        ("block_nli", ("a.document", "b.document"), "block_nli"),
        ("text_similarities", ("a.text", "b.text"), "similarities"),
        ("token_scores", ("a", "b"), "token_scores"),
        ("mover_score", ("a", "b"), "text_scores"),
    ],
)
def test_the_other_passes_mark_them_too(
    config: EncoderConfig, kind: str, over: tuple[str, ...], table: str
) -> None:
    """One of the two texts is enough."""
    load = {"block_nli": nli.load, "text_similarities": embedder.load}.get(kind, token_encoder.load)
    rows = run_pass(kind, load(config), RECORDS, over=over).rows[table]
    assert set(rows.select("id", "truncated").rows()) == {("r1", False), ("r2", True)}


@pytest.mark.parametrize("load", [nli.load, embedder.load, token_encoder.load])
def test_a_text_of_the_limit_is_whole_and_one_token_more_is_cut(
    config: EncoderConfig, load: object
) -> None:
    """Before the model has read them and after; nothing is told of no items."""
    model = load(config)  # type: ignore[operator]  # one of three loaders
    room = model.limit - (3 if load is nli.load else 2)
    texts: Sequence[str] = ["clean", LONG, "clean " * room, "clean " * (room + 1)]
    items = [(text, "") for text in texts] if load is nli.load else texts
    for _ in range(2):
        assert model.truncates(items).tolist() == [False, True, False, True]
        if load is nli.load:
            model.classify(items)
        else:
            model.embed(texts) if load is embedder.load else model.bertscore(texts, texts)
    assert len(model.truncates([])) == 0


def test_perplexity_reads_long_texts_whole(tmp_path: Path) -> None:
    """Windows: nothing is cut."""
    from claimscore.pipeline.encoders import language_models
    from tests.support.tiny_models import save_tiny_causal

    path = str(save_tiny_causal(tmp_path / "causal", max_tokens=16))
    model = language_models.load_causal(EncoderConfig(causal_lm=path, device="cpu", offline=True))
    assert model.truncates([LONG]).tolist() == [False]
