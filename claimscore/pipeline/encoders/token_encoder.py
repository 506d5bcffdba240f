"""Token embeddings: BERTScore of pairs of texts, and the upper layers of whole texts.

Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020. As in their package:
embeddings of one layer, made unit length; special tokens take no part in the averages but remain
candidates of the matching; no idf weights. Numbers equal those of bert-score 0.3.13, whose layers
and baselines are package data; those of the embedded encoder are ours.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.blocks import window_spans
from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import LoadedEncoder, TextModel, refuse_nan
from claimscore.pipeline.encoders.distinct import distinct, distinct_texts
from claimscore.pipeline.encoders.loading import EMBEDDED, ModelLoader
from claimscore.pipeline.encoders.protocols import (
    OnBatch,
    RejectedItemsError,
    TokenLayers,
)
from claimscore.pipeline.encoders.tokenizing import (
    EncodedTexts,
    TokenBatch,
    WholeRows,
    alone,
    ragged,
    refuse_bare,
)

logger = logging.getLogger("claimscore")

#: Tokenizers to which bert-score gives each text with a space in front.
_SPACE_IN_FRONT = ("RobertaTokenizer", "GPT2Tokenizer")
#: Tokens of pairs whose embeddings may be held at once: at most 1 GiB at 1,024 dimensions.
WINDOW_TOKENS = 262_144

DATA = Path(__file__).parent / "data"
PUBLISHED_PATH = DATA / "bert_score_baselines.json"
EMBEDDED_BASELINE_PATH = DATA / "bertscore_baseline.json"

#: Owners under which the hub keeps models that bert-score knows by their bare names.
_OWNERS = (
    "FacebookAI",
    "google-bert",
    "distilbert",
    "albert",
    "xlnet",
    "google-t5",
)

#: Precision, recall and F1 of texts that have nothing to do with one another.
Baseline = tuple[float, float, float]


class BatchedTokenEncoder(TextModel):
    """BERTScore from one layer of one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once (unless more than
    `WINDOW_TOKENS` tokens would have to be held), and never a score from a NaN.
    """

    def __init__(
        self,
        loaded: LoadedEncoder,
        *,
        layer: int,
        baseline: Baseline | None,
        batch_tokens: int | None = None,
    ) -> None:
        super().__init__(loaded, batch_tokens)
        self.layer, self.baseline = layer, baseline
        kind = type(loaded.tokenizer).__name__
        self._space = " " if kind.startswith(_SPACE_IN_FRONT) else ""

    def as_read(self, text: str) -> str:
        """A text as the tokenizer gets it: stripped, for some tokenizers with a space in front."""
        return self._space + text.strip()

    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """The last ``n_layers`` layers up to `layer` (fewer where there are fewer) of each text.

        A text is cut to the model's limit. Raises `ValueError` for a blank text,
        `RejectedItemsError` naming the texts of which the tokenizer leaves nothing or which do
        not fit into memory, `ConfigError` for a tokenizer that does not say where its tokens are.
        """
        unique = distinct_texts(texts, "it has no tokens")
        placed = [self._place_tokens(text) for text in unique.items]
        refuse_bare([len(text.own) for text in placed], unique.items, self.info, unique.positions)

        def forward(places: list[int], batch: TokenBatch) -> Iterator[TokenLayers]:
            states = torch.stack(self._backbone.layers(batch, n_layers))
            layers = refuse_nan(F.normalize(states, dim=-1), self.info).cpu().numpy()
            for i, row in zip(places, np.split(layers, batch.starts[1:], axis=1), strict=True):
                text = placed[i]
                yield TokenLayers(row[:, text.own], text.pieces, np.array(text.words))

        rows = WholeRows(ragged(text.ids for text in placed))
        layers = self._each(unique, rows, forward, on_batch)
        return [layers[i] for i in unique.inverse.tolist()]

    def bertscore(
        self,
        candidates: Sequence[str],
        references: Sequence[str],
        *,
        on_batch: OnBatch | None = None,
    ) -> NDArray[np.float64]:
        """Return ``[n, 3]`` raw P, R and F1.

        Raises `ValueError` for an empty text, and `RejectedItemsError` naming the pairs for texts
        of which the tokenizer leaves nothing or which do not fit into memory.
        """
        n = len(candidates)
        if len(references) != n:
            raise ValueError(f"{n} candidates, but {len(references)} references")
        stripped = [text.strip() for text in (*candidates, *references)]
        if "" in stripped:
            place = stripped.index("")
            side = "candidate" if place < n else "reference"
            raise ValueError(f"{side} {place % n} is empty: an empty text has no BERTScore")
        texts = distinct(stripped)
        sides = texts.inverse.reshape(2, n).T
        encoded = self._texts.encode(list(map(self.as_read, texts.items)))
        refuse_bare(encoded.n_own, texts.items, self.info, lambda *bare: _pairs_with(bare, sides))
        scores = np.full((n, 3), np.nan)
        sizes = encoded.lengths[sides].sum(axis=1).tolist()
        for window in window_spans(sizes, WINDOW_TOKENS):
            held = self._embeddings(window, sides, encoded, on_batch)
            for pair in window:
                (one, its), (other, others) = (held[text] for text in sides[pair].tolist())
                scores[pair] = bertscore_from_embeddings(one, other, its, others)
                if on_batch is not None:
                    on_batch(pair + 1)
        return scores

    def _embeddings(
        self,
        window: range,
        sides: NDArray[np.int64],
        encoded: EncodedTexts,
        on_batch: OnBatch | None,
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """The unit-length states and the weights of all texts of the window's pairs."""
        texts = np.unique(sides[window.start : window.stop]).tolist()

        def forward(places: list[int], batch: TokenBatch) -> tuple[Tensor, ...]:
            states = refuse_nan(F.normalize(self._backbone.states(batch), dim=-1), self.info)
            return torch.split(states, batch.lengths.tolist())

        rows = WholeRows(ragged(encoded.ids.row(text).tolist() for text in texts))
        tell = on_batch and (lambda done: on_batch(window.start))  # which may stop the work
        try:
            embeddings = self._each(distinct(texts), rows, forward, tell)
        except RejectedItemsError as exc:
            owners = _pairs_with([texts[place] for place in exc.indices], sides)
            raise RejectedItemsError(str(exc), exc.kind, owners) from exc
        return {
            text: (states, torch.from_numpy(encoded.own(text)).to(states.device))
            for text, states in zip(texts, embeddings, strict=True)
        }

    def _place_tokens(self, text: str) -> _PlacedTokens:
        if not getattr(self._tokenizer, "is_fast", False):
            raise ConfigError(
                f"the tokenizer of {self.info.model} does not say where its tokens stand in the "
                "text; name another token encoder"
            )
        whole = self.as_read(text)
        with alone(self._tokenizer):
            row = self._tokenizer(
                whole,
                truncation=True,
                max_length=self.limit,
                return_special_tokens_mask=True,
                return_offsets_mapping=True,
            )
        words, special = row.word_ids(), row["special_tokens_mask"]
        own = [i for i, word in enumerate(words) if not special[i] and word is not None]
        return _PlacedTokens(
            list(row["input_ids"]),
            own,
            [whole[slice(*row["offset_mapping"][i])].strip() for i in own],
            [int(words[i]) for i in own],
        )


class _PlacedTokens(NamedTuple):
    """A text's ids, the places of its own tokens among them, and of those the text and the word."""

    ids: list[int]
    own: list[int]
    pieces: list[str]
    words: list[int]


def load(config: EncoderConfig) -> BatchedTokenEncoder:
    """Load the encoder that ``config.token_encoder`` names, up to the layer that is asked for.

    The layers above are never loaded. Without ``config.rescale_with_baseline`` it has no baseline;
    where one was asked for and there is none, a warning says that scores stay as the model gives
    them.
    """
    loader = ModelLoader(config)
    source = loader.find(config.token_encoder)
    settings = loader.settings(source)
    default = published().layers.get(published_name(source.name))
    n_layers = getattr(settings, "num_hidden_layers", None)
    layer = keep_layers(source.name, settings, config.token_layer, default)
    loaded = loader.backbone(source, settings, has_last_layer=layer == n_layers)
    baseline = published_baseline(source.name, layer)
    if baseline is None and config.rescale_with_baseline:
        logger.warning(
            "no published baseline for %s, layer %d: its BERTScore is not rescaled",
            config.token_encoder,
            layer,
        )
    return BatchedTokenEncoder(
        loaded,
        layer=layer,
        baseline=baseline if config.rescale_with_baseline else None,
        batch_tokens=config.batch_tokens,
    )


def keep_layers(name: str, settings: Any, asked: int | None, default: int | None) -> int:
    """Shorten a model's config to the layer to read, and return that: the one asked for, else the
    default; 0 is the embeddings.

    Raises `ConfigError` for a model that is no plain encoder, or has no such layer.
    """
    n_layers = getattr(settings, "num_hidden_layers", None)
    if n_layers is None or getattr(settings, "is_encoder_decoder", False):
        raise ConfigError(f"{name} is not a plain encoder; name another token encoder")
    layer = default if asked is None else asked
    if layer is None:
        raise ConfigError(
            f"{name} has no published layer for BERTScore; name one of its {n_layers} layers "
            "with --token-layer"
        )
    if not 0 <= layer <= n_layers:
        raise ConfigError(f"{name} has layers 0 to {n_layers}; --token-layer {layer} is not there")
    if getattr(settings, "layer_types", None):
        settings.layer_types = settings.layer_types[:layer]
    settings.num_hidden_layers = layer
    return layer


class BertScore(NamedTuple):
    """BERTScore of a candidate against a reference."""

    precision: float
    recall: float
    f1: float


def bertscore_from_embeddings(
    candidate: Tensor, reference: Tensor, candidate_weights: Tensor, reference_weights: Tensor
) -> BertScore:
    """Return P, R and F1 for unit-length embeddings ``[tokens, dim]`` and their weights.

    P is the weighted mean over candidate tokens of the largest cosine with any reference token, R
    the same with the roles exchanged; F1 is their harmonic mean, 0 where both are 0. A token of
    weight 0 can still be another's best match. Averages are taken in float64.
    """
    cosine = candidate @ reference.T
    precision = _weighted_mean(cosine.amax(dim=1), candidate_weights)
    recall = _weighted_mean(cosine.amax(dim=0), reference_weights)
    total = precision + recall
    return BertScore(precision, recall, 2 * precision * recall / total if total else 0.0)


def _weighted_mean(values: Tensor, weights: Tensor) -> float:
    weights = weights.double()
    total = float(weights.sum())
    if not total > 0:
        raise ValueError("a text without tokens of its own has no BERTScore")
    return float((values.double() * weights).sum()) / total


def _pairs_with(texts: Sequence[int], sides: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.isin(sides, texts).any(axis=1)).tolist())


class Published(NamedTuple):
    """The values of bert-score's authors, and ours of the embedded encoder: the layer of each
    model, and the baseline of a model and layer."""

    layers: dict[str, int]
    baselines: dict[tuple[str, int], Baseline]


@cache
def published() -> Published:
    """Return layers and English baselines, from package data."""
    content, ours = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (PUBLISHED_PATH, EMBEDDED_BASELINE_PATH)
    )
    baselines: dict[tuple[str, int], Baseline] = {
        (model, layer): (p, r, f)
        for model, rows in content["baselines"]["en"].items()
        for layer, (p, r, f) in enumerate(rows)
    }
    for layer, row in ours["layers"].items():
        baselines[EMBEDDED, int(layer)] = row["precision"], row["recall"], row["f1"]
    return Published(content["layers"] | {EMBEDDED: ours["default_layer"]}, baselines)


def published_name(name: str) -> str:
    """Return a hub model's name in bert-score's tables: no revision, no owner they left out."""
    name = name.partition("@")[0]
    owner, _, rest = name.partition("/")
    return rest if rest and owner in _OWNERS else name


def published_baseline(name: str, layer: int) -> Baseline | None:
    """Return the published baseline of a model's layer, or None where there is none."""
    return published().baselines.get((published_name(name), layer))
