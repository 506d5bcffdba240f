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
from claimscore.pipeline.encoders.backbone import BatchedModel, PaddedModel, refuse_nan
from claimscore.pipeline.encoders.distinct import Pair, distinct
from claimscore.pipeline.encoders.loading import LoadedModel, ModelLoader
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.encoders.tokenizing import (
    EncodedTexts,
    TextTokenizer,
    TokenBatch,
    WholeRows,
    alone,
    ragged,
    refuse_bare,
)

#: Logits that may be held at once: 1 GiB in float32.
MOST_LOGITS = 2**28


class TextWindow(NamedTuple):
    """Tokens ``start`` to ``stop`` go through the model, those from ``first`` on are scored."""

    start: int
    stop: int
    first: int


def sliding_windows(n_tokens: int, limit: int) -> Iterator[TextWindow]:
    """Yield windows of at most ``limit`` tokens that score every token after the first once.

    A window begins ``limit // 2`` tokens after the one before, so that a scored token has at
    least half a window in front of it, or all that there is.
    """
    first = 1
    for start in range(0, n_tokens, max(limit // 2, 1)):
        stop = min(start + limit, n_tokens)
        if first < stop:
            yield TextWindow(start, stop, first)
        if stop == n_tokens:
            return
        first = stop


class Likelihood(BatchedModel):
    """The base of both kinds: one model on one device, and batches that fit into its memory.

    ``logits`` is the model's forward; a budget allows for `MOST_LOGITS` at most.
    """

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[..., Tensor],
        tokenizer: Any,  # transformers' tokenizers: untyped
        *,
        limit: int,
        device: torch.device,
        batch_tokens: int | None = None,
    ) -> None:
        # A model without a padding token never sees the id in its place: it is masked.
        pad_id, most = int(tokenizer.pad_token_id or 0), MOST_LOGITS // len(tokenizer)
        super().__init__(info, device, padded=True, batch_tokens=batch_tokens, at_most=most)
        self.window = limit
        self._tokenizer = tokenizer
        self._logits = PaddedModel(logits, device=device, pad_id=pad_id)

    def _log_probability(self, logits: Tensor, targets: NDArray[np.integer]) -> float:
        """The sum of log p of each target by the row of logits that predicts it."""
        wanted = torch.from_numpy(targets.astype(np.int64)).to(logits.device)
        loss = F.cross_entropy(logits.float(), wanted, reduction="none").double().sum()
        return -float(refuse_nan(loss, self.info))


class CausalLikelihood(Likelihood):
    """Log-probabilities of texts under a causal language model."""

    def truncates(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return ``[n]``, all false: a long text is windowed and read whole."""
        return np.zeros(len(texts), dtype=bool)

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
        with alone(self._tokenizer):
            ids = [list(self._tokenizer(text, verbose=False)["input_ids"]) for text in unique.items]
        refuse_bare(list(map(len, ids)), unique.items, self.info, unique.positions)
        windows = [
            (text, window)
            for text, row in enumerate(ids)
            for window in sliding_windows(len(row), self.window)
        ]
        rows = WholeRows(ragged(ids[text][window.start : window.stop] for text, window in windows))

        def forward(places: list[int], batch: TokenBatch) -> Iterator[float]:
            logits = self._logits(batch)
            for i, (place, row) in enumerate(zip(places, batch.split(), strict=True)):
                _, window = windows[place]
                first = window.first - window.start
                yield self._log_probability(logits[i, first - 1 : len(row) - 1], row[first:])

        owners = np.array([text for text, _ in windows], dtype=np.int64)
        output = self._each(unique, rows, forward, on_batch, owners=owners)
        numbers = np.array([(0.0, len(row) - 1) for row in ids]).reshape(-1, 2)
        np.add.at(numbers[:, 0], owners, output)
        return numbers[unique.inverse]


class Seq2SeqLikelihood(Likelihood):
    """Log-probabilities of target texts given source texts."""

    @property
    def limit(self) -> int:
        """The most tokens of a text: a longer one is cut."""
        return self.window

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
        to the model's limit.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources, but {len(targets)} targets")
        pairs = distinct(list(zip(sources, targets, strict=True)))
        given, wanted = self._encoded(pairs.items)
        for place, encoded in enumerate((given, wanted)):
            texts = [pair[place] for pair in pairs.items]
            refuse_bare(encoded.lengths.tolist(), texts, self.info, pairs.positions)

        def forward(places: list[int], batch: TokenBatch) -> Iterator[float]:
            rows = [wanted.ids.row(place) for place in places]
            logits = self._logits(batch, labels=self._logits.filled(rows))
            for i, row in enumerate(rows):
                yield self._log_probability(logits[i, : len(row)], row)

        lengths = given.lengths + wanted.lengths
        output = self._each(pairs, given.rows, forward, on_batch, lengths=lengths)
        numbers = np.stack([np.array(output, dtype=np.float64), wanted.lengths], axis=1)
        return numbers[pairs.inverse]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each (source, target) whether one of them is cut, ``[n]``."""
        given, wanted = self._encoded(pairs)
        return given.truncated | wanted.truncated

    def _encoded(self, pairs: Sequence[Pair]) -> tuple[EncodedTexts, EncodedTexts]:
        """Sources and targets, cut to the model's limit by the tokenizer itself."""
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        as_target = TextTokenizer(self._tokenizer, self.limit, role="text_target")
        return TextTokenizer(self._tokenizer, self.limit).encode(sources), as_target.encode(targets)


def load_causal(config: EncoderConfig) -> CausalLikelihood:
    """Load the language model that ``config.causal_lm`` names; `ConfigError` where it is none."""
    from transformers import AutoModelForCausalLM

    assert config.causal_lm is not None, "check_named"
    loaded, options = load_language_model(config, config.causal_lm, AutoModelForCausalLM)

    def logits(**inputs: Tensor) -> Tensor:
        output: Tensor = loaded.model(**inputs, use_cache=False).logits
        return output

    _refuse_looking_ahead(loaded.info.model, logits, options["device"])
    return CausalLikelihood(loaded.info, logits, loaded.tokenizer, **options)


def load_seq2seq(config: EncoderConfig) -> Seq2SeqLikelihood:
    """Load the model that ``config.seq2seq_lm`` names; `ConfigError` where it is none."""
    from transformers import AutoModelForSeq2SeqLM

    assert config.seq2seq_lm is not None, "check_named"
    loaded, options = load_language_model(config, config.seq2seq_lm, AutoModelForSeq2SeqLM)
    model = loaded.model
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        raise ConfigError(
            f"{loaded.info.model} does not say how its decoder begins; name another "
            "--seq2seq-lm, such as a BART or a T5"
        )

    def logits(labels: Tensor, **inputs: Tensor) -> Tensor:
        begun = model.prepare_decoder_input_ids_from_labels(labels=labels)
        output: Tensor = model(**inputs, decoder_input_ids=begun, use_cache=False).logits
        return output

    return Seq2SeqLikelihood(loaded.info, logits, loaded.tokenizer, **options)


def load_language_model(
    config: EncoderConfig, name: str, auto_class: Any
) -> tuple[LoadedModel, dict[str, Any]]:
    """A language model, and the options of the likelihoods under it."""
    loader = ModelLoader(config)
    loaded = loader.load(loader.find(name), auto_class, needs_padding=False)
    options = {"device": loader.device, "batch_tokens": config.batch_tokens}
    return loaded, {"limit": loaded.limit, **options}


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
