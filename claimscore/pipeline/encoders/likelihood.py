"""How probable a language model finds a text, alone (causal) or given another (seq2seq).

Sums of log-probabilities (natural logarithm) and the number of tokens they are over, so that a
mean, a perplexity or any other weight can be had from one pass. Log-softmax in float32, sums in
float64; every distinct text or pair is computed once, in batches of similar length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import budgeted_runner, refuse_nan
from claimscore.pipeline.encoders.base import (
    CountsTruncated,
    ModelInfo,
    OnBatch,
    RejectedItemsError,
)
from claimscore.pipeline.encoders.batching import Distinct, distinct, pad
from claimscore.pipeline.encoders.budgets import DEFAULT_TOKENS
from claimscore.pipeline.encoders.loading import (
    find_model,
    load_config,
    load_tokenizer,
    load_weights,
    resolve_device,
    resolve_dtype,
    token_limit,
)
from claimscore.pipeline.encoders.paces import Paced, paced
from claimscore.pipeline.encoders.text_ids import alone

#: Logits that may be held at once: 1 GiB in float32.
MOST_LOGITS = 2**28


class Window(NamedTuple):
    """Tokens ``start`` to ``stop`` go through the model, those from ``first`` on are scored."""

    start: int
    stop: int
    first: int


def sliding_windows(n_tokens: int, limit: int) -> Iterator[Window]:
    """Yield windows of at most ``limit`` tokens that score every token after the first once.

    A window begins ``limit // 2`` tokens after the one before, so that a scored token has at
    least half a window in front of it, or all that there is.
    """
    first = 1
    for start in range(0, n_tokens, max(limit // 2, 1)):
        stop = min(start + limit, n_tokens)
        if first < stop:
            yield Window(start, stop, first)
        if stop == n_tokens:
            return
        first = stop


class _Likelihood(CountsTruncated, Paced):
    """What both kinds share: one model on one device, and batches that fit into its memory."""

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[..., Tensor],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        limit: int,
        budget: int,
        device: torch.device,
    ) -> None:
        self.info = info
        self.limit = limit
        self.device = device
        self._logits = logits
        self._tokenizer = tokenizer
        # A model without a padding token never sees what is put in its place: it is masked.
        self._pad_id = int(tokenizer.pad_token_id or 0)
        self._runner = budgeted_runner(budget, device, padded=True)

    def _sums(
        self,
        lengths: NDArray[np.int64],
        owners: NDArray[np.int64],
        unique: Distinct[Any],
        compute: Callable[[list[int], int], list[float]],
        on_batch: OnBatch | None,
    ) -> NDArray[np.float64]:
        """Sum what ``compute`` gives for each row into the item that owns the row."""
        found = np.zeros(len(lengths))
        rows_left = np.bincount(owners, minlength=len(unique.items))
        counts, done = unique.counts, 0

        def forward(places: NDArray[np.int64]) -> None:
            found[places] = compute(places.tolist(), int(lengths[places].max()))

        for places in self._runner.run_or_reject(
            lengths, forward, item="a text", owners=lambda row: unique.positions(int(owners[row]))
        ):
            items = owners[places]
            np.subtract.at(rows_left, items, 1)
            finished = np.unique(items[rows_left[items] == 0])
            done += int(counts[finished].sum())
            if on_batch is not None:
                on_batch(done)
        sums = np.zeros(len(unique.items))
        np.add.at(sums, owners, found)
        return sums

    def _tokenize(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        """The tokenizer's own ids, its special tokens included."""
        with alone(self._tokenizer):
            rows = [self._tokenizer(text, verbose=False, **options)["input_ids"] for text in texts]
        return [list(row) for row in rows]

    def _refuse_empty(
        self, ids: Sequence[Sequence[int]], texts: Sequence[str], unique: Distinct[Any]
    ) -> None:
        bare = [i for i, row in enumerate(ids) if not row]
        if bare:
            raise RejectedItemsError(
                f"the tokenizer of {self.info.model} leaves nothing of {texts[bare[0]]!r}",
                kind="no_tokens",
                indices=unique.positions(*bare),
            )

    def _log_probability(self, logits: Tensor, targets: Sequence[int]) -> float:
        """The sum of log p of each target by the row of logits that predicts it."""
        wanted = torch.tensor(targets, device=logits.device)
        loss = F.cross_entropy(logits.float(), wanted, reduction="none").double().sum()
        return -float(refuse_nan(loss, self.info))

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=False)).to(self.device)

    def _inputs(self, rows: Sequence[Sequence[int]], width: int) -> dict[str, Tensor]:
        return {
            "input_ids": self._tensor(rows, width, self._pad_id),
            "attention_mask": self._tensor([[1] * len(row) for row in rows], width, 0),
        }


class CausalLikelihood(_Likelihood):
    """Log-probabilities of texts under a causal language model."""

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return ``[n]``, all false: a long text is windowed and read whole."""
        return np.zeros(len(texts), dtype=bool)

    @paced
    def log_likelihoods(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """Return ``[n, 2]``: Σ log p(token | tokens before it), and the number of tokens scored.

        Token ids are the tokenizer's own, with a start token where it adds one. The first id has
        nothing before it and is not scored: a text of one token has the sum 0 over 0 tokens. A
        text longer than the model's limit goes through in `sliding_windows`. `RejectedItemsError`
        for texts of which the tokenizer leaves nothing or which do not fit into memory.
        """
        unique = distinct(texts)
        ids = self._tokenize(unique.items)
        self._refuse_empty(ids, unique.items, unique)
        windows = [
            (text, window)
            for text, row in enumerate(ids)
            for window in sliding_windows(len(row), self.limit)
        ]
        owners = np.array([text for text, _ in windows], dtype=np.int64)
        lengths = np.array([w.stop - w.start for _, w in windows], dtype=np.int64)

        def compute(places: list[int], width: int) -> list[float]:
            chosen = [windows[place] for place in places]
            return self._forward([(ids[text], window) for text, window in chosen], width)

        sums = self._sums(lengths, owners, unique, compute, on_batch)
        scored = np.array([len(row) - 1 for row in ids], dtype=np.float64)
        return np.stack([sums, scored], axis=1)[unique.inverse].reshape(-1, 2)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[tuple[list[int], Window]], width: int) -> list[float]:
        logits = self._logits(**self._inputs([ids[w.start : w.stop] for ids, w in rows], width))
        return [
            self._log_probability(
                logits[i, w.first - w.start - 1 : w.stop - w.start - 1], ids[w.first : w.stop]
            )
            for i, (ids, w) in enumerate(rows)
        ]


class Seq2SeqLikelihood(_Likelihood):
    """Log-probabilities of target texts given source texts."""

    @paced
    def log_likelihoods(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        on_batch: OnBatch | None = None,
    ) -> NDArray[np.float64]:
        """Return ``[n, 2]``: Σ log p(target token | target tokens before it, source), and their
        number.

        All ids that the tokenizer gives the target are scored, its special tokens included, the
        first given the decoder's start token (as in Yuan et al. 2021's code). Both texts are cut
        to the model's limit; ``truncated`` counts the distinct pairs in which one was.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources, but {len(targets)} targets")
        pairs = distinct(list(zip(sources, targets, strict=True)))
        given = self._cut([source for source, _ in pairs.items], "text")
        wanted = self._cut([target for _, target in pairs.items], "text_target")
        for rows, place in ((given, 0), (wanted, 1)):
            self._refuse_empty(rows.ids, [pair[place] for pair in pairs.items], pairs)
        self.count_truncated(int((given.cut | wanted.cut).sum()))
        lengths = np.array(
            [len(one) + len(other) for one, other in zip(given.ids, wanted.ids, strict=True)],
            dtype=np.int64,
        )

        def compute(places: list[int], _width: int) -> list[float]:
            return self._forward([given.ids[i] for i in places], [wanted.ids[i] for i in places])

        owners = np.arange(len(pairs.items))
        sums = self._sums(lengths, owners, pairs, compute, on_batch)
        scored = np.array([len(row) for row in wanted.ids], dtype=np.float64)
        return np.stack([sums, scored], axis=1)[pairs.inverse].reshape(-1, 2)

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        """Return for each (source, target) whether one of them is cut, ``[n]``."""
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        either: NDArray[np.bool_] = (
            self._cut(sources, "text").cut | self._cut(targets, "text_target").cut
        )
        return either

    def _cut(self, texts: Sequence[str], role: str) -> _Cut:
        """The ids of each text, cut to the model's limit by the tokenizer itself."""
        once = distinct(texts)
        ids: list[list[int]] = []
        cut: list[bool] = []
        for text in once.items:
            with alone(self._tokenizer):
                row = list(self._tokenizer(**{role: text}, verbose=False)["input_ids"])
                cut.append(len(row) > self.limit)
                if cut[-1]:
                    options = {role: text, "truncation": True, "max_length": self.limit}
                    row = list(self._tokenizer(**options)["input_ids"])
            ids.append(row)
        inverse = once.inverse.tolist()
        return _Cut([ids[i] for i in inverse], np.array([cut[i] for i in inverse], dtype=bool))

    @torch.inference_mode()
    def _forward(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        logits = self._logits(
            **self._inputs(sources, max(map(len, sources))),
            labels=self._tensor(targets, max(map(len, targets)), self._pad_id),
        )
        return [self._log_probability(logits[i, : len(row)], row) for i, row in enumerate(targets)]


class _Cut(NamedTuple):
    """Token ids of texts, and which texts were cut."""

    ids: list[list[int]]
    cut: NDArray[np.bool_]


def load_causal(config: EncoderConfig) -> CausalLikelihood:
    """Load the language model that ``config.causal_lm`` names; `ConfigError` where it is none."""
    from transformers import AutoModelForCausalLM

    if config.causal_lm is None:
        raise ConfigError(
            "perplexity needs a causal language model; name one with --causal-lm, as in "
            "--causal-lm openai-community/gpt2"
        )
    model, tokenizer, options = _load(config, config.causal_lm, AutoModelForCausalLM)

    def logits(**inputs: Tensor) -> Tensor:
        found: Tensor = model(**inputs, use_cache=False).logits
        return found

    _refuse_looking_ahead(options["info"].model, logits, options["device"])
    return CausalLikelihood(logits=logits, tokenizer=tokenizer, **options)


def load_seq2seq(config: EncoderConfig) -> Seq2SeqLikelihood:
    """Load the model that ``config.seq2seq_lm`` names; `ConfigError` where it is none."""
    from transformers import AutoModelForSeq2SeqLM

    if config.seq2seq_lm is None:
        raise ConfigError(
            "bart-score needs a sequence-to-sequence model; name one with --seq2seq-lm, as in "
            "--seq2seq-lm facebook/bart-large-cnn"
        )
    model, tokenizer, options = _load(config, config.seq2seq_lm, AutoModelForSeq2SeqLM)
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        raise ConfigError(
            f"{options['info'].model} does not say how its decoder begins; name another "
            "--seq2seq-lm, such as a BART or a T5"
        )

    def logits(labels: Tensor, **inputs: Tensor) -> Tensor:
        begun = model.prepare_decoder_input_ids_from_labels(labels=labels)
        found: Tensor = model(**inputs, decoder_input_ids=begun, use_cache=False).logits
        return found

    return Seq2SeqLikelihood(logits=logits, tokenizer=tokenizer, **options)


def _load(config: EncoderConfig, name: str, auto_class: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The model, its tokenizer, and what else a `_Likelihood` is made with."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    source = find_model(name, offline=config.offline)
    settings = load_config(source)
    tokenizer = load_tokenizer(source, needs_padding=False)
    model = load_weights(source, auto_class, settings, device=device, dtype=dtype)
    tokens = DEFAULT_TOKENS[device.type] if config.batch_tokens is None else config.batch_tokens
    options = {
        "info": ModelInfo(source.name, source.revision, config.dtype),
        "limit": token_limit(tokenizer, settings, model),
        "budget": max(1, min(tokens, MOST_LOGITS // len(tokenizer))),
        "device": device,
    }
    return model, tokenizer, options


@torch.inference_mode()
def _refuse_looking_ahead(name: str, logits: Callable[..., Tensor], device: torch.device) -> None:
    """An encoder such as BERT loads as a language model, but sees the token that it predicts."""
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]], device=device)
    one, other = logits(input_ids=ids, attention_mask=torch.ones_like(ids))[:, 0].float()
    if not torch.allclose(one, other, atol=1e-2, rtol=1e-2, equal_nan=True):
        raise ConfigError(
            f"{name} is not a causal language model: it sees the tokens that follow; name another "
            "--causal-lm"
        )
