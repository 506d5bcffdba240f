"""The column `truncated`: which inputs the models read in part only."""

from typing import Any

import polars as pl
import pytest

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import load_model
from tests.support.pass_doubles import run_pass
from tests.support.tiny_models import Folders

LONG = "the room was clean and the staff was rude and the pool was warm and the food was good"
RECORDS = pl.DataFrame({"id": ["r1", "r2"], "summary_a": ["clean", LONG], "summary_b": ["a", "b"]})


@pytest.fixture(scope="module")
def config(tiny: Folders) -> EncoderConfig:
    encoder = str(tiny(max_tokens=16))
    return EncoderConfig(
        nli=str(tiny("bert", "nli", max_tokens=16)),
        embedder=encoder,
        token_encoder=encoder,
        token_layer=1,
        rescale_with_baseline=False,
        device="cpu",
        offline=True,
    )


@pytest.mark.parametrize(
    ("kind", "role", "over", "table"),
    [
        ("block_nli", "nli", ("a.document", "b.document"), "block_nli"),
        ("text_similarities", "embedder", ("a.text", "b.text"), "similarities"),
        ("token_scores", "token_encoder", ("a", "b"), "token_scores"),
        ("mover_score", "token_encoder", ("a", "b"), "text_scores"),
    ],
)
def test_the_other_passes_mark_them_too(
    config: EncoderConfig, kind: str, role: str, over: tuple[str, ...], table: str
) -> None:
    rows = run_pass(kind, load_model(role, config), RECORDS, over=over).rows[table]
    assert set(rows.select("id", "truncated").rows()) == {("r1", False), ("r2", True)}


@pytest.mark.parametrize("role", ["nli", "embedder", "token_encoder"])
def test_a_text_of_the_limit_is_whole_and_one_token_more_is_cut(
    config: EncoderConfig, role: str
) -> None:
    model: Any = load_model(role, config)
    room = model.limit - (3 if role == "nli" else 2)
    texts = ["clean", LONG, "clean " * room, "clean " * (room + 1)]
    items: list[Any] = [(text, "") for text in texts] if role == "nli" else texts
    for _ in range(2):
        assert model.truncates(items).tolist() == [False, True, False, True]
        if role == "nli":
            model.classify(items)
        else:
            model.embed(texts) if role == "embedder" else model.bertscore(texts, texts)
    assert len(model.truncates([])) == 0
