"""BERTScore: precision, recall and F1 of greedily matched token embeddings.

Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020. As in their package:
embeddings of one layer, made unit length; special tokens take no part in the averages but remain
candidates of the matching; no idf weights. Numbers equal those of bert-score 0.3.13.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.encoders.batching import (
    Batch,
    BudgetedRunner,
    RowOutOfMemoryError,
    distinct,
    longest_first,
    pad,
)
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    Source,
    find_model,
    free_memory,
    is_out_of_memory,
    load_config,
    load_tokenizer,
    load_weights,
    resolve_device,
    resolve_dtype,
    token_limit,
)
from claimscore.pipeline.encoders.token_layers import LayerReader, TokenLayers

DATA = Path(__file__).parent / "data"
logger = logging.getLogger("claimscore")

PUBLISHED_PATH = DATA / "bert_score_baselines.json"
EMBEDDED_BASELINE_PATH = DATA / "bertscore_baseline.json"
EMBEDDED_LAYER = 6

#: Owners under which the hub keeps models that bert-score knows by their bare names.
_OWNERS = (
    "FacebookAI",
    "google-bert",
    "distilbert",
    "albert",
    "xlnet",
    "google-t5",
)
#: Tokenizers to which bert-score gives each text with a space in front.
_SPACE_IN_FRONT = ("RobertaTokenizer", "GPT2Tokenizer")
#: Tokens whose embeddings may be held at once: 1 GiB at 1,024 dimensions.
WINDOW_TOKENS = 262_144

Baseline = tuple[float, float, float]


class Similarity(NamedTuple):
    """BERTScore of a candidate against a reference."""

    precision: float
    recall: float
    f1: float


class EncodedText(NamedTuple):
    """Token ids of one text, and which of them count in the averages (1) or not (0)."""

    ids: list[int]
    weights: list[int]


class Published(NamedTuple):
    """What bert-score's authors published: layer of each model, baselines of each layer."""

    layers: dict[str, int]
    baselines: dict[str, list[Baseline]]


def bertscore_from_embeddings(
    candidate: Tensor, reference: Tensor, candidate_weights: Tensor, reference_weights: Tensor
) -> Similarity:
    """Return P, R and F1 for unit-length embeddings ``[tokens, dim]`` and their weights.

    P is the weighted mean over candidate tokens of the largest cosine with any reference token, R
    the same with the roles exchanged; F1 is their harmonic mean, 0 where both are 0. A token of
    weight 0 can still be another's best match. Averages are taken in float64.
    """
    cosine = candidate @ reference.T
    precision = _weighted_mean(cosine.amax(dim=1), candidate_weights)
    recall = _weighted_mean(cosine.amax(dim=0), reference_weights)
    total = precision + recall
    return Similarity(precision, recall, 2 * precision * recall / total if total else 0.0)


def _weighted_mean(values: Tensor, weights: Tensor) -> float:
    weights = weights.double()
    total = float(weights.sum())
    if not total > 0:
        raise ValueError("a text without tokens of its own has no BERTScore")
    return float((values.double() * weights).sum()) / total


class BatchedTokenEncoder:
    """BERTScore from one layer of one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once (unless more than
    `WINDOW_TOKENS` tokens would have to be held), and never a score from a NaN. ``truncated``
    counts the distinct texts cut to the model's limit.
    """

    def __init__(
        self,
        info: ModelInfo,
        states: Callable[..., Tensor],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        layer: int,
        baseline: Baseline | None,
        limit: int,
        budget: int,
        device: torch.device,
        hidden: Callable[..., Sequence[Tensor]] | None = None,
    ) -> None:
        self.info = info
        self.layer = layer
        self.baseline = baseline
        self.limit = limit
        self.truncated = 0
        self.device = device
        self._states = states
        self._tokenizer = tokenizer
        self._space = " " if type(tokenizer).__name__.startswith(_SPACE_IN_FRONT) else ""
        self._pad_left = tokenizer.padding_side == "left"
        self._runner = BudgetedRunner(
            budget, is_out_of_memory=is_out_of_memory, free=partial(free_memory, device)
        )
        self._layers = LayerReader(
            info,
            hidden or (lambda **inputs: (states(**inputs),)),
            tokenizer,
            limit=limit,
            device=device,
            runner=self._runner,
            in_front=self._space,
        )

    def token_layers(
        self, texts: Sequence[str], n_layers: int, *, on_batch: OnBatch | None = None
    ) -> list[TokenLayers]:
        """Return the last ``n_layers`` layers of each text, up to `layer`: `LayerReader.read`."""
        return self._layers.read(texts, n_layers, on_batch=on_batch)

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
        encoded = self._encode(texts.items, sides)
        scores = np.full((n, 3), np.nan)
        lengths = np.array([len(text.ids) for text in encoded], dtype=np.int64)
        done = 0
        for window in windows(sides, lengths, WINDOW_TOKENS):
            for scored in self._score_window(window, sides, encoded, lengths, scores):
                done += scored
                if on_batch is not None:
                    on_batch(done)
        return scores

    def _encode(self, texts: Sequence[str], sides: NDArray[np.int64]) -> list[EncodedText]:
        encoded = [self._tokenize(text, verbose=False) for text in texts]
        for i, text in enumerate(encoded):
            if len(text.ids) > self.limit:
                encoded[i] = self._tokenize(texts[i], truncation=True, max_length=self.limit)
                self.truncated += 1
        bare = [i for i, text in enumerate(encoded) if not any(text.weights)]
        if bare:
            raise RejectedItemsError(
                f"the tokenizer of {self.info.model} leaves nothing of {texts[bare[0]]!r}",
                kind="no_tokens",
                indices=_pairs_with(bare, sides),
            )
        return encoded

    def _tokenize(self, text: str, **options: Any) -> EncodedText:
        row = self._tokenizer(self._space + text, return_special_tokens_mask=True, **options)
        return EncodedText(
            list(row["input_ids"]), [1 - special for special in row["special_tokens_mask"]]
        )

    def _score_window(
        self,
        window: range,
        sides: NDArray[np.int64],
        encoded: Sequence[EncodedText],
        lengths: NDArray[np.int64],
        scores: NDArray[np.float64],
    ) -> Iterator[int]:
        """Fill the window's rows of ``scores``; yield how many after each batch.

        A pair is matched as soon as both its texts are there, and embeddings that no pair waits
        for are dropped.
        """
        texts = np.unique(sides[window.start : window.stop])
        order = texts[longest_first(lengths[texts].tolist())]
        waiting: dict[int, set[int]] = defaultdict(set)
        for pair in window:
            for text in sides[pair].tolist():
                waiting[text].add(pair)
        held: dict[int, Tensor] = {}

        def forward(batch: Batch) -> None:
            places = order[batch.start : batch.stop].tolist()
            rows = self._embed([encoded[text].ids for text in places], batch.width)
            held.update(zip(places, rows, strict=True))

        def match(pair: int) -> None:
            candidate, reference = sides[pair].tolist()
            scores[pair] = bertscore_from_embeddings(
                held[candidate],
                held[reference],
                self._weights(encoded[candidate]),
                self._weights(encoded[reference]),
            )
            for text in {candidate, reference}:
                waiting[text].discard(pair)
                if not waiting[text]:
                    del held[text]

        try:
            for batch in self._runner.run(lengths[order].tolist(), forward):
                new = order[batch.start : batch.stop].tolist()
                ready = {p for t in new for p in waiting[t] if all(s in held for s in sides[p])}
                for pair in sorted(ready):
                    match(pair)
                yield len(ready)
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"a text of {exc.tokens} tokens does not fit into the memory of {self.device}",
                kind="out_of_memory",
                indices=_pairs_with([int(order[exc.row])], sides),
            ) from exc

    @torch.inference_mode()
    def _embed(self, ids: Sequence[list[int]], width: int) -> list[Tensor]:
        """Return the unit-length states of each row in float32, padding removed."""
        states = self._states(
            input_ids=self._tensor(ids, width, int(self._tokenizer.pad_token_id)),
            attention_mask=self._tensor([[1] * len(row) for row in ids], width, 0),
        ).float()
        own = [slice(width - len(r), width) if self._pad_left else slice(len(r)) for r in ids]
        rows = [F.normalize(states[i, part], dim=-1) for i, part in enumerate(own)]
        if not bool(torch.isfinite(torch.cat(rows)).all()):
            raise ConfigError(
                f"{self.info.model} gave numbers that are not finite in {self.info.dtype}; "
                "use --dtype float32, or another model if that is not the reason"
            )
        return rows

    def _weights(self, text: EncodedText) -> Tensor:
        return torch.tensor(text.weights, device=self.device)

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=self._pad_left)).to(self.device)


def windows(
    sides: NDArray[np.int64], lengths: NDArray[np.int64], most_tokens: int
) -> Iterator[range]:
    """Cut pairs into ranges whose distinct texts have at most ``most_tokens`` tokens.

    A single pair of more tokens is a range of its own.
    """
    start, tokens, seen = 0, 0, set[int]()
    for pair, texts in enumerate(sides.tolist()):
        new = set(texts) - seen
        tokens += sum(int(lengths[text]) for text in new)
        if tokens > most_tokens and pair > start:
            yield range(start, pair)
            start, seen = pair, set(texts)
            tokens = sum(int(lengths[text]) for text in seen)
        else:
            seen |= new
    if start < len(sides):
        yield range(start, len(sides))


def load(config: EncoderConfig) -> BatchedTokenEncoder:
    """Load the encoder that ``config.token_encoder`` names, up to the layer that is asked for.

    Without ``config.rescale_with_baseline`` it has no baseline; where one was asked for and
    there is none, a warning says that scores stay as the model gives them.
    """
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    embedded = config.token_encoder == EMBEDDED
    encoder = (_load_embedded if embedded else _load_stock)(config, device, dtype)
    if not config.rescale_with_baseline:
        encoder.baseline = None
    elif encoder.baseline is None:
        logger.warning(
            "no published baseline for %s, layer %d: its BERTScore is not rescaled",
            config.token_encoder,
            encoder.layer,
        )
    return encoder


@cache
def published() -> Published:
    """Return bert-score's layers and English baselines, from package data."""
    content = json.loads(PUBLISHED_PATH.read_text(encoding="utf-8"))
    baselines = {
        model: [(p, r, f) for p, r, f in rows] for model, rows in content["baselines"]["en"].items()
    }
    return Published(content["layers"], baselines)


def published_name(name: str) -> str:
    """Return a hub model's name in bert-score's tables: no revision, no owner they left out."""
    name = name.partition("@")[0]
    owner, _, rest = name.partition("/")
    return rest if rest and owner in _OWNERS else name


def published_baseline(name: str, layer: int) -> Baseline | None:
    """Return the published baseline of a model's layer, or None where there is none."""
    rows = published().baselines.get(published_name(name), [])
    return rows[layer] if layer < len(rows) else None


def choose_layer(name: str, asked: int | None, default: int | None, n_layers: int) -> int:
    """Return the layer to read: the one asked for, else the default; 0 is the embeddings."""
    layer = default if asked is None else asked
    if layer is None:
        raise ConfigError(
            f"{name} has no published layer for BERTScore; name one of its {n_layers} layers "
            "with --token-layer"
        )
    if not 0 <= layer <= n_layers:
        raise ConfigError(f"{name} has layers 0 to {n_layers}; --token-layer {layer} is not there")
    return layer


def read_embedded_baseline(path: Path = EMBEDDED_BASELINE_PATH) -> tuple[int, dict[int, Baseline]]:
    """Return the default layer of the embedded encoder and the baselines by layer."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        layers = {
            int(layer): (float(row["precision"]), float(row["recall"]), float(row["f1"]))
            for layer, row in content.get("layers", content).items()
            if str(layer).isdigit()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigError(
            f"the baseline of the embedded token encoder, {path}, cannot be read ({exc}); "
            "install claimscore again, or name another token encoder"
        ) from exc
    return int(content.get("default_layer", EMBEDDED_LAYER)), layers


def _load_embedded(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedTokenEncoder:
    from claimscore.pipeline.encoders.embedded import BACKBONE_SHA256, find_backbone, load_backbone

    default, baselines = read_embedded_baseline()
    model: Any  # transformers wraps `to` in a type that cannot be called
    model, tokenizer = load_backbone(find_backbone(offline=config.offline))
    layer = choose_layer(EMBEDDED, config.token_layer, default, len(model.encoder.layer))
    model.encoder.layer = model.encoder.layer[:layer]
    model.to(device=device, dtype=dtype).eval()
    return BatchedTokenEncoder(
        ModelInfo(EMBEDDED, BACKBONE_SHA256[:12], config.dtype),
        lambda **inputs: model(**inputs).last_hidden_state,
        tokenizer,
        layer=layer,
        baseline=baselines.get(layer),
        limit=token_limit(tokenizer, model.config, model),
        budget=config.batch_tokens,
        device=device,
        hidden=lambda **inputs: model(**inputs, output_hidden_states=True).hidden_states,
    )


def _load_stock(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedTokenEncoder:
    from transformers import AutoModel

    source = find_model(config.token_encoder, offline=config.offline)
    settings = load_config(source)
    name = published_name(source.name)
    layer = _keep_layers(source, settings, config.token_layer, published().layers.get(name))
    tokenizer = load_tokenizer(source)
    model = load_weights(
        source,
        AutoModel,
        settings,
        device=device,
        dtype=dtype,
        may_lack=lambda weight: "pooler" in weight,  # first-token output, which is not read here
    )
    return BatchedTokenEncoder(
        ModelInfo(source.name, source.revision, config.dtype),
        lambda **inputs: model(**inputs).last_hidden_state,
        tokenizer,
        layer=layer,
        baseline=published_baseline(source.name, layer),
        limit=token_limit(tokenizer, settings, model),
        budget=config.batch_tokens,
        device=device,
        hidden=lambda **inputs: model(**inputs, output_hidden_states=True).hidden_states,
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
