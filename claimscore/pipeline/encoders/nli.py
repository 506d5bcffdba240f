"""NLI over pairs of texts: any sequence-classification model that knows the three labels.

Every distinct pair is judged once, in batches of similar length, and the answers come back in the
order of the input. The label order is read from the model's config and never assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import (
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    RejectedItemsError,
)
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

Pair = tuple[str, str]

#: How models spell the three labels, in lower case.
LABEL_NAMES = {
    "entailment": "entailment",
    "entail": "entailment",
    "entails": "entailment",
    "entailed": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    "contradict": "contradiction",
    "contradicts": "contradiction",
    "contradictory": "contradiction",
}

#: Pairs on which putting texts together must equal the tokenizer's own pair encoding.
_PROBES: tuple[Pair, ...] = (
    ("The hotel was clean.", "It wasn't dirty, was it?"),
    ("a", "b"),
    ("  two spaces before", "and after  "),
    ("Café no. 12½ — naïve", "価格は¥3,000 😀"),
    ("line\nbreak\ttab", '"quoted" (and) [bracketed]'),
    ("", "the first is empty"),
    ("the second is empty", ""),
)
_TOKENIZE_TEXTS = 1024


class Row(NamedTuple):
    """The model's input for one pair."""

    ids: list[int]
    types: list[int]


class PairTemplate(NamedTuple):
    """The special tokens around and between two texts, and the token type of each part."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int, int, int, int]

    @property
    def n_special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, first: Sequence[int], second: Sequence[int]) -> Row:
        parts = (self.before, first, self.between, second, self.after)
        return Row(
            [token for part in parts for token in part],
            [kind for kind, part in zip(self.types, parts, strict=True) for _ in part],
        )


class EncodedPairs(NamedTuple):
    """Token lengths of pairs, and how to get the row of each."""

    lengths: NDArray[np.int64]
    row: Callable[[int], Row]
    truncated: NDArray[np.bool_]


class PairTokenizer:
    """Tokenises pairs; each distinct text once where that equals the tokenizer's own encoding.

    A sentence takes part in many pairs (15 to 57 in our data), so this is an order of magnitude
    faster. Whether it is equal is tried on probes for each tokenizer; if not, pairs are tokenised
    whole. Pairs longer than ``limit`` are always cut by the tokenizer itself, longest text first.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:  # transformers' tokenizers: untyped
        self.limit = limit
        self._tokenizer = tokenizer
        self.template = find_template(tokenizer)

    def encode(self, pairs: Sequence[Pair]) -> EncodedPairs:
        if self.template is None:
            rows = self._whole(pairs)
            lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
            get: Callable[[int], Row] = rows.__getitem__
        else:
            lengths, get = self._by_text(pairs, self.template)
        too_long = lengths > self.limit
        cut = {i: self._cut(pairs[i]) for i in np.flatnonzero(too_long).tolist()}
        for i, row in cut.items():
            lengths[i] = len(row.ids)
        return EncodedPairs(lengths, lambda i: cut[i] if i in cut else get(i), too_long)

    def _by_text(
        self, pairs: Sequence[Pair], template: PairTemplate
    ) -> tuple[NDArray[np.int64], Callable[[int], Row]]:
        texts = distinct([text for pair in pairs for text in pair])
        ids: list[list[int]] = []
        for start in range(0, len(texts.items), _TOKENIZE_TEXTS):
            part = texts.items[start : start + _TOKENIZE_TEXTS]
            ids += self._tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
        of_text = np.array([len(row) for row in ids], dtype=np.int64)
        places = texts.inverse.reshape(-1, 2)
        lengths = of_text[places].sum(axis=1) + template.n_special

        def row(i: int) -> Row:
            first, second = places[i].tolist()
            return template.join(ids[first], ids[second])

        return lengths, row

    def _whole(self, pairs: Sequence[Pair]) -> list[Row]:
        return [tokenize_pair(self._tokenizer, pair) for pair in pairs]

    def _cut(self, pair: Pair) -> Row:
        return tokenize_pair(
            self._tokenizer, pair, truncation="longest_first", max_length=self.limit
        )


class BatchedPairClassifier:
    """Probabilities of entailment, neutral and contradiction from one model on one device.

    Guarantees: rows in the order of the input, each distinct pair computed once, softmax in
    float32, and never a score from a NaN. ``truncated`` counts the pairs cut to the model's limit.
    """

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[..., Tensor],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        columns: tuple[int, int, int],
        limit: int,
        budget: int,
        device: torch.device,
        with_types: bool,
    ) -> None:
        self.info = info
        self.truncated = 0
        self.device = device
        self._logits = logits
        self._tokens = PairTokenizer(tokenizer, limit)
        self._columns = list(columns)
        self._pad_id = int(tokenizer.pad_token_id)
        self._pad_left = tokenizer.padding_side == "left"
        self._with_types = with_types
        self._runner = BudgetedRunner(
            budget, is_out_of_memory=is_out_of_memory, free=partial(free_memory, device)
        )

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for a pair that fits nowhere."""
        unique = distinct(pairs)
        counts = unique.counts
        encoded = self._tokens.encode(unique.items)
        self.truncated += int(counts[encoded.truncated].sum())
        order = longest_first(encoded.lengths.tolist())
        found = np.empty((len(order), 3), dtype=np.float32)

        def forward(batch: Batch) -> None:
            places = order[batch.start : batch.stop]
            found[places] = self._probabilities([encoded.row(int(i)) for i in places], batch.width)

        done = 0
        try:
            for batch in self._runner.run(encoded.lengths[order].tolist(), forward):
                done += int(counts[order[batch.start : batch.stop]].sum())
                if on_batch is not None:
                    on_batch(done)
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"a pair of {exc.tokens} tokens does not fit into the memory of {self.device}",
                kind="out_of_memory",
                indices=unique.positions(int(order[exc.row])),
            ) from exc
        return found[unique.inverse]

    @torch.inference_mode()
    def _probabilities(self, rows: Sequence[Row], width: int) -> NDArray[np.float32]:
        ids = [row.ids for row in rows]
        inputs = {
            "input_ids": self._tensor(ids, width, self._pad_id),
            "attention_mask": self._tensor([[1] * len(row) for row in ids], width, 0),
        }
        if self._with_types:
            inputs["token_type_ids"] = self._tensor([row.types for row in rows], width, 0)
        logits = self._logits(**inputs).float()
        if not bool(torch.isfinite(logits).all()):
            raise ConfigError(
                f"{self.info.model} gave numbers that are not finite in {self.info.dtype}; "
                "use --dtype float32, or another model if that is not the reason"
            )
        probabilities = torch.softmax(logits, dim=-1)[:, self._columns]
        array: NDArray[np.float32] = probabilities.cpu().numpy()
        return array

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=self._pad_left)).to(self.device)


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the classifier that ``config.nli`` names; `ConfigError` where it cannot judge NLI."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    if config.nli == EMBEDDED:
        return _load_embedded(config, device, dtype)
    return _load_stock(config, device, dtype)


def label_columns(model: str, id2label: Mapping[Any, str]) -> tuple[int, int, int]:
    """Return the model's columns of entailment, neutral and contradiction.

    Refuses a model whose labels are not exactly the three, such as LABEL_0: guessing an order
    would turn every score round.
    """
    named = {LABEL_NAMES.get(str(name).strip().lower()): int(i) for i, name in id2label.items()}
    if len(id2label) != 3 or set(named) != set(NLI_LABELS):
        shown = ", ".join(str(name) for name in list(id2label.values())[:6])
        raise ConfigError(
            f"{model} is not an NLI model: its labels are {shown}; it needs "
            "entailment, neutral and contradiction in its config's id2label"
        )
    return named["entailment"], named["neutral"], named["contradiction"]


def find_template(tokenizer: Any) -> PairTemplate | None:  # transformers' tokenizers: untyped
    """Return how the tokenizer joins two texts, or None where joining is not that simple."""
    whole = tokenizer(*_PROBES[0], return_special_tokens_mask=True, return_token_type_ids=True)
    positions = range(len(whole["input_ids"]))
    runs = [
        (bool(special), list(run))
        for special, run in groupby(positions, key=whole["special_tokens_mask"].__getitem__)
    ]
    if [special for special, _ in runs] != [True, False, True, False, True]:
        return None
    parts = [[whole["input_ids"][i] for i in run] for _, run in runs]
    kinds = tuple(whole["token_type_ids"][run[0]] for _, run in runs)
    template = PairTemplate(tuple(parts[0]), tuple(parts[2]), tuple(parts[4]), kinds)
    for pair in _PROBES:
        texts = tokenizer(list(pair), add_special_tokens=False)["input_ids"]
        if template.join(*texts) != tokenize_pair(tokenizer, pair):
            return None
    return template


def tokenize_pair(tokenizer: Any, pair: Pair, **options: Any) -> Row:
    """Return the tokenizer's own encoding of a pair.

    Asked as a list of one pair: asked alone, it takes an empty second text for no second text.
    """
    first, second = pair
    encoded = tokenizer([first], [second], return_token_type_ids=True, verbose=False, **options)
    return Row(list(encoded["input_ids"][0]), list(encoded["token_type_ids"][0]))


def _load_embedded(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedPairClassifier:
    from claimscore.pipeline.encoders.embedded import find_backbone, load_embedded_nli

    model, tokenizer = load_embedded_nli(find_backbone(offline=config.offline))
    encoder: Any = model.bert  # transformers wraps `to` in a type that cannot be called
    encoder.to(dtype)  # the head computes in float32 whatever the encoder does
    model.to(device).eval()
    return BatchedPairClassifier(
        ModelInfo(EMBEDDED, model.revision, config.dtype),
        model,
        tokenizer,
        columns=label_columns(EMBEDDED, model.id2label),
        limit=token_limit(tokenizer, model.bert.config, model),
        budget=config.batch_tokens,
        device=device,
        with_types=True,
    )


def _load_stock(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype
) -> BatchedPairClassifier:
    from transformers import AutoModelForSequenceClassification

    source = find_model(config.nli, offline=config.offline)
    settings = load_config(source)
    columns = label_columns(source.name, settings.id2label)
    tokenizer = load_tokenizer(source)
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = tokenizer.pad_token_id
    model = load_weights(
        source, AutoModelForSequenceClassification, settings, device=device, dtype=dtype
    )
    return BatchedPairClassifier(
        ModelInfo(source.name, source.revision, config.dtype),
        lambda **inputs: model(**inputs).logits,
        tokenizer,
        columns=columns,
        limit=token_limit(tokenizer, settings, model),
        budget=config.batch_tokens,
        device=device,
        with_types=_takes_types(tokenizer, settings, model),
    )


def _takes_types(tokenizer: Any, settings: Any, model: Any) -> bool:
    """Whether the model tells the two texts apart by token types (RoBERTa and others do not)."""
    return (
        "token_type_ids" in tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(model.forward).parameters
        and getattr(settings, "type_vocab_size", 2) > 1
    )
