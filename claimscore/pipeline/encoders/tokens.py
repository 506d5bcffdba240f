"""BERTScore: precision, recall and F1 of greedily matched token embeddings.

Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020. As in their package:
embeddings of one layer, made unit length; special tokens take no part in the averages but remain
candidates of the matching; no idf weights. Numbers equal those of bert-score 0.3.13.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import Backbone, RunsInBudget, refuse_nan
from claimscore.pipeline.encoders.base import CountsTruncated, ModelInfo, OnBatch, TokenLayers
from claimscore.pipeline.encoders.batching import BudgetedRunner, distinct
from claimscore.pipeline.encoders.bert_score_layers import (
    Baseline,
    choose_layer,
    published,
    published_baseline,
    published_name,
    read_embedded_baseline,
)
from claimscore.pipeline.encoders.loaded import Loaded, Target
from claimscore.pipeline.encoders.loading import EMBEDDED, Source, find_model, load_config
from claimscore.pipeline.encoders.paces import Paced, paced
from claimscore.pipeline.encoders.token_layers import LayerReader
from claimscore.pipeline.encoders.token_matching import bertscore_from_embeddings, windows
from claimscore.pipeline.encoders.token_rows import TokenBatch
from claimscore.pipeline.encoders.tokenizing import EncodedTexts, TextTokenizer, refuse_bare

logger = logging.getLogger("claimscore")

#: Tokenizers to which bert-score gives each text with a space in front.
_SPACE_IN_FRONT = ("RobertaTokenizer", "GPT2Tokenizer")
#: Tokens whose embeddings may be held at once: 1 GiB at 1,024 dimensions.
WINDOW_TOKENS = 262_144


class BatchedTokenEncoder(RunsInBudget, CountsTruncated, Paced):
    """BERTScore from one layer of one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once (unless more than
    `WINDOW_TOKENS` tokens would have to be held), and never a score from a NaN. ``truncated``
    counts the distinct texts cut to the model's limit.
    """

    def __init__(
        self,
        info: ModelInfo,
        backbone: Backbone,
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        layer: int,
        baseline: Baseline | None,
        limit: int,
        runner: BudgetedRunner,
    ) -> None:
        self.info = info
        self.layer = layer
        self.baseline = baseline
        self.limit = limit
        self._backbone = backbone
        self._tokenizer = TextTokenizer(tokenizer, limit)
        self._space = " " if type(tokenizer).__name__.startswith(_SPACE_IN_FRONT) else ""
        self._runner = runner
        self._layers = LayerReader(
            info, backbone, tokenizer, limit=limit, runner=runner, in_front=self._space
        )

    def as_read(self, text: str) -> str:
        """A text as the tokenizer gets it: stripped, for some tokenizers with a space in front."""
        return self._space + text.strip()

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each text whether it is longer than the model reads, ``[n]``."""
        unique = distinct([text.strip() for text in texts])
        given = [self.as_read(text) for text in unique.items]
        return self._tokenizer.truncates(given)[unique.inverse]

    @paced
    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """Return the last ``n_layers`` layers of each text, up to `layer`: `LayerReader.read`."""
        return self._layers.read(texts, n_layers, on_batch=on_batch)

    @paced
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
        encoded = self._tokenizer.encode([self.as_read(text) for text in texts.items])
        refuse_bare(encoded, texts.items, self.info, lambda *bare: _pairs_with(bare, sides))
        self.count_truncated(int(encoded.truncated.sum()))
        scores = np.full((n, 3), np.nan)
        done = 0
        for window in windows(sides, encoded.lengths, WINDOW_TOKENS):
            for scored in self._score_window(window, sides, encoded, scores):
                done += scored
                if on_batch is not None:
                    on_batch(done)
        return scores

    def _score_window(
        self,
        window: range,
        sides: NDArray[np.int64],
        encoded: EncodedTexts,
        scores: NDArray[np.float64],
    ) -> Iterator[int]:
        """Fill the window's rows of ``scores``; yield how many after each batch.

        A pair is matched as soon as both its texts are there, and embeddings that no pair waits
        for are dropped.
        """
        texts = np.unique(sides[window.start : window.stop])
        waiting: dict[int, set[int]] = defaultdict(set)
        for pair in window:
            for text in sides[pair].tolist():
                waiting[text].add(pair)
        held: dict[int, Tensor] = {}
        rows = encoded.rows

        def build(places: NDArray[np.int64]) -> TokenBatch:
            return rows.batch(texts[places])

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            held.update(zip(texts[places].tolist(), self._embed(batch), strict=True))

        def match(pair: int) -> None:
            candidate, reference = sides[pair].tolist()
            weights = [
                torch.from_numpy(encoded.own(text)).to(self._backbone.device)
                for text in (candidate, reference)
            ]
            scores[pair] = bertscore_from_embeddings(held[candidate], held[reference], *weights)
            for text in {candidate, reference}:
                waiting[text].discard(pair)
                if not waiting[text]:
                    del held[text]

        for places in self._runner.run_or_reject(
            encoded.lengths[texts],
            forward,
            build=build,
            item="a text",
            owners=lambda row: _pairs_with([int(texts[row])], sides),
        ):
            new = texts[places].tolist()
            ready = {p for t in new for p in waiting[t] if all(s in held for s in sides[p])}
            for pair in sorted(ready):
                match(pair)
            yield len(ready)

    @torch.inference_mode()
    def _embed(self, batch: TokenBatch) -> list[Tensor]:
        """Return the unit-length states of each row in float32."""
        states = refuse_nan(F.normalize(self._backbone.states(batch), dim=-1), self.info)
        return list(torch.split(states, batch.lengths.tolist()))


def load(config: EncoderConfig) -> BatchedTokenEncoder:
    """Load the encoder that ``config.token_encoder`` names, up to the layer that is asked for.

    Without ``config.rescale_with_baseline`` it has no baseline; where one was asked for and
    there is none, a warning says that scores stay as the model gives them.
    """
    target = Target.of(config)
    embedded = config.token_encoder == EMBEDDED
    encoder = _load_embedded(target) if embedded else _load_stock(target)
    if not config.rescale_with_baseline:
        encoder.baseline = None
    elif encoder.baseline is None:
        logger.warning(
            "no published baseline for %s, layer %d: its BERTScore is not rescaled",
            config.token_encoder,
            encoder.layer,
        )
    return encoder


def _load_embedded(target: Target) -> BatchedTokenEncoder:
    from claimscore.pipeline.encoders.embedded import BACKBONE_SHA256, find_backbone, load_backbone

    default, baselines = read_embedded_baseline()
    model, tokenizer = load_backbone(find_backbone(offline=target.config.offline))
    layer = choose_layer(EMBEDDED, target.config.token_layer, default, len(model.encoder.layer))
    model.encoder.layer = model.encoder.layer[:layer]
    model.config.num_hidden_layers = layer
    loaded = target.take(model, tokenizer, BACKBONE_SHA256[:12])
    return _encoder(loaded, layer, baselines.get(layer))


def _load_stock(target: Target) -> BatchedTokenEncoder:
    source = find_model(target.config.token_encoder, offline=target.config.offline)
    settings = load_config(source)
    default = published().layers.get(published_name(source.name))
    layer = _keep_layers(source, settings, target.config.token_layer, default)
    loaded = target.load_encoder(source, settings)
    return _encoder(loaded, layer, published_baseline(source.name, layer))


def _encoder(loaded: Loaded, layer: int, baseline: Baseline | None) -> BatchedTokenEncoder:
    backbone = loaded.backbone()
    return BatchedTokenEncoder(
        loaded.info,
        backbone,
        loaded.tokenizer,
        layer=layer,
        baseline=baseline,
        limit=loaded.limit,
        runner=loaded.runner(backbone.states),
    )


def _keep_layers(source: Source, settings: Any, asked: int | None, default: int | None) -> int:
    """Shorten the config to the layer to read, so that the layers above are never loaded."""
    n_layers = getattr(settings, "num_hidden_layers", None)
    if n_layers is None or getattr(settings, "is_encoder_decoder", False):
        raise ConfigError(f"{source.name} is not a plain encoder; name another token encoder")
    layer = choose_layer(source.name, asked, default, int(n_layers))
    if getattr(settings, "layer_types", None):
        settings.layer_types = settings.layer_types[:layer]
    settings.num_hidden_layers = layer
    return layer


def _pairs_with(texts: Sequence[int], sides: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.isin(sides, texts).any(axis=1)).tolist())
