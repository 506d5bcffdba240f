"""LS_Score's model at work: log-probabilities of a summary's tokens, and [CLS] cosines.

Wu et al. 2020. Both texts are cut to the model's limit less two (510 word pieces) and
stand between [CLS] and [SEP], each alone, segment 0, nothing masked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.base import ModelInfo, OnBatch, RejectedItemsError
from claimscore.pipeline.encoders.batching import (
    BudgetedRunner,
    Distinct,
    RowOutOfMemoryError,
    distinct,
    longest_first,
    pad,
)
from claimscore.pipeline.encoders.loading import (
    free_memory,
    is_out_of_memory,
    resolve_device,
    resolve_dtype,
)
from claimscore.pipeline.encoders.ls_head import (
    Checkpoint,
    HeadKind,
    LinearHead,
    LinguisticHead,
    read_checkpoint,
)

logger = logging.getLogger("claimscore")


class TextIds(NamedTuple):
    """The ids of one text with [CLS] and [SEP], and how many word pieces were cut off."""

    ids: list[int]
    cut: int


class TokenLogProbs(NamedTuple):
    """One text's ids, the log-probability at every position, and its [CLS] vector.

    With padding there are more positions than ids: at the others it is that of [PAD].
    """

    ids: list[int]
    log_probs: NDArray[np.float64]
    cls: NDArray[np.float64]


class PairNumbers(NamedTuple):
    """What the model says of each pair of document and summary; arrays ``[n]``.

    ``linguistic`` is the mean log-probability of the summary's tokens, ``linguistic_inner`` that
    without [CLS] and [SEP]; ``semantic`` the cosine; ``linear`` the score of a linear head (the
    others are then NaN). Tokens count the special ones, ``cut`` the word pieces cut off.
    """

    linguistic: NDArray[np.float64]
    linguistic_inner: NDArray[np.float64]
    semantic: NDArray[np.float64]
    linear: NDArray[np.float64]
    document_tokens: NDArray[np.int64]
    document_cut: NDArray[np.int64]
    summary_tokens: NDArray[np.int64]
    summary_cut: NDArray[np.int64]


def text_ids(tokenizer: Any, text: str, max_tokens: int) -> TextIds:
    """The first ``max_tokens − 2`` word pieces between [CLS] and [SEP]."""
    pieces = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    kept = pieces[: max_tokens - 2]
    ids = [tokenizer.cls_token_id, *kept, tokenizer.sep_token_id]
    return TextIds([int(i) for i in ids], len(pieces) - len(kept))


class LSModel:
    """A backbone and LS_Score's head on one device.

    Guarantees: numbers in the order of the pairs, each distinct text encoded once a call, never
    more than `LOGIT_BYTES` of logits at once, and never a number from a NaN. ``truncated`` counts
    the distinct texts that were cut.
    """

    def __init__(self, info: ModelInfo, checkpoint: Checkpoint, budget: int, device: torch.device):
        self.info = info
        self.max_tokens = checkpoint.settings.max_tokens
        self.truncated = 0
        self.device = device
        self._model = checkpoint.backbone.model
        self._tokenizer = checkpoint.backbone.tokenizer
        self._head = checkpoint.head
        self._runner = BudgetedRunner(
            budget, is_out_of_memory=is_out_of_memory, free=partial(free_memory, device)
        )

    @property
    def head(self) -> HeadKind:
        return self._head.kind

    def score(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> PairNumbers:
        """Return the numbers of each (document, summary).

        Raises `RejectedItemsError` naming the pairs with a text of which the tokenizer leaves
        nothing or which does not fit into memory. ``on_batch`` as in `PairClassifier`.
        """
        documents = distinct([document for document, _ in pairs])
        summaries = distinct([summary for _, summary in pairs])
        tell = _shares(on_batch, len(documents.items) + len(summaries.items), len(pairs))
        document_ids = self._tokenize(documents)
        summary_ids = self._tokenize(summaries)
        document_cls: dict[int, Tensor] = {}
        summary_cls: dict[int, Tensor] = {}
        means = np.full((len(summaries.items), 2), np.nan)

        def keep_document(places: list[int], states: Tensor, _ids: Tensor) -> None:
            document_cls.update(zip(places, states[:, 0].clone(), strict=True))

        def keep_summary(places: list[int], states: Tensor, ids: Tensor) -> None:
            summary_cls.update(zip(places, states[:, 0].clone(), strict=True))
            if isinstance(self._head, LinguisticHead):
                own = [len(summary_ids[place].ids) for place in places]
                for place, values in zip(places, self._own(states, ids, own), strict=True):
                    means[place] = values.mean(), values[1:-1].mean()

        for keep, texts, ids in (
            (keep_document, documents, document_ids),
            (keep_summary, summaries, summary_ids),
        ):
            for done in self._encode(texts, ids, None, keep):
                tell(done)
        left = _stacked(document_cls, documents)
        right = _stacked(summary_cls, summaries)
        return PairNumbers(
            means[summaries.inverse, 0],
            means[summaries.inverse, 1],
            _cosines(left, right),
            self._linear(left, right),
            *_counts(document_ids, documents),
            *_counts(summary_ids, summaries),
        )

    def padded_log_probs(
        self, summaries: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """Return ``[n, 2]``: the sum of log-probabilities over all ``max_tokens`` positions of
        the padded summary, where padded ones ask for [PAD], and its number of tokens.

        What the published code needs. Every padded position has a state and a normalising sum
        of its own, so nothing can be left out: it costs as much as a summary of 512 tokens.
        Raises as `score` does.
        """
        if not isinstance(self._head, LinguisticHead):
            raise ConfigError(f"{self.info.model} has a linear head, which gives no likelihood")
        texts = distinct(list(summaries))
        encoded = self._tokenize(texts)
        sums = np.full((len(texts.items), 2), np.nan)

        def keep(places: list[int], states: Tensor, ids: Tensor) -> None:
            rows = self._own(states, ids, [self.max_tokens] * len(places))
            for place, values in zip(places, rows, strict=True):
                sums[place] = values.sum(), len(encoded[place].ids)

        tell = _shares(on_batch, len(texts.items), len(summaries))
        for done in self._encode(texts, encoded, self.max_tokens, keep):
            tell(done)
        return sums[texts.inverse]

    @torch.inference_mode()
    def log_probs(self, text: str, *, padded: bool = False) -> TokenLogProbs:
        """One text as `claimscore.metrics.ls_score` takes it; ``padded`` for its `code` variant."""
        if not isinstance(self._head, LinguisticHead):
            raise ConfigError(f"{self.info.model} has a linear head, which gives no likelihood")
        ids = text_ids(self._tokenizer, text, self.max_tokens).ids
        width = self.max_tokens if padded else len(ids)
        states, tokens = self._states([ids], width)
        values = self._own(states, tokens, [width])[0]
        return TokenLogProbs(ids, values, states[0, 0].double().cpu().numpy())

    def _tokenize(self, texts: Distinct[str]) -> list[TextIds]:
        encoded = [text_ids(self._tokenizer, text, self.max_tokens) for text in texts.items]
        self.truncated += sum(text.cut > 0 for text in encoded)
        bare = [i for i, text in enumerate(encoded) if len(text.ids) == 2]
        if bare:
            raise RejectedItemsError(
                f"the tokenizer of {self.info.model} leaves nothing of {texts.items[bare[0]]!r}",
                kind="no_tokens",
                indices=_places(bare, texts),
            )
        return encoded

    def _encode(
        self,
        texts: Distinct[str],
        encoded: Sequence[TextIds],
        width: int | None,
        keep: Callable[[list[int], Tensor, Tensor], None],
    ) -> Any:
        """Give ``keep`` the states of each batch of texts; yield how many were in it."""
        lengths = [width or len(text.ids) for text in encoded]
        order = longest_first(lengths)

        @torch.inference_mode()
        def forward(batch: Any) -> None:
            places = order[batch.start : batch.stop].tolist()
            keep(places, *self._states([encoded[place].ids for place in places], batch.width))

        try:
            for batch in self._runner.run([lengths[i] for i in order], forward):
                yield batch.rows
        except RowOutOfMemoryError as exc:
            raise RejectedItemsError(
                f"a text of {exc.tokens} tokens does not fit into the memory of {self.device}",
                kind="out_of_memory",
                indices=_places([int(order[exc.row])], texts),
            ) from exc

    def _states(self, rows: Sequence[list[int]], width: int) -> tuple[Tensor, Tensor]:
        """The last layer's states ``[rows, width, hidden]`` in float32, and the padded ids."""
        ids = self._tensor(rows, width, int(self._tokenizer.pad_token_id))
        mask = self._tensor([[1] * len(row) for row in rows], width, 0)
        states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        if not bool(torch.isfinite(states[mask.bool()]).all()):
            raise ConfigError(
                f"{self.info.model} gave numbers that are not finite in {self.info.dtype}; "
                "use --dtype float32, or another model if that is not the reason"
            )
        return states, ids

    def _own(
        self, states: Tensor, ids: Tensor, lengths: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """The log-probability of each row's first ``lengths`` ids at their own places."""
        assert isinstance(self._head, LinguisticHead)
        kept = torch.arange(ids.shape[1], device=self.device) < torch.tensor(
            lengths, device=self.device
        ).unsqueeze(1)
        values = self._head.in_pieces(states[kept], ids[kept]).double().cpu().numpy()
        if not np.isfinite(values).all():
            raise ConfigError(f"the head of {self.info.model} gave numbers that are not finite")
        return np.split(values, np.cumsum(lengths)[:-1])

    @torch.inference_mode()
    def _linear(self, document: Tensor, summary: Tensor) -> NDArray[np.float64]:
        if not isinstance(self._head, LinearHead) or not len(summary):
            return np.full(len(summary), np.nan)
        scores: NDArray[np.float64] = self._head(document, summary).double().cpu().numpy()
        return scores

    def _tensor(self, rows: Sequence[Sequence[int]], width: int, value: int) -> Tensor:
        return torch.from_numpy(pad(rows, width, value, left=False)).to(self.device)


def load(config: EncoderConfig) -> LSModel:
    """Load the checkpoint that ``config.ls_model`` names; `ConfigError` where it names none."""
    if config.ls_model is None:
        raise ConfigError(
            "ls-score needs a trained model: name its folder with --ls-model, or make one with "
            "`claimscore train ls-score TABLE --out FOLDER`"
        )
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    folder = Path(config.ls_model).expanduser()
    checkpoint = read_checkpoint(folder, offline=config.offline, device=device, dtype=dtype)
    info = ModelInfo(config.ls_model, checkpoint.revision, config.dtype)
    return LSModel(info, checkpoint, config.batch_tokens, device)


def _stacked(vectors: dict[int, Tensor], texts: Distinct[str]) -> Tensor:
    if not vectors:
        return torch.zeros(0, 1)
    rows = torch.stack([vectors[i] for i in range(len(texts.items))])
    return rows[torch.from_numpy(texts.inverse).to(rows.device)]


def _cosines(left: Tensor, right: Tensor) -> NDArray[np.float64]:
    """Cosines of rows, in float64; the product of the norms counts as 1e-6 at least."""
    a, b = left.double().cpu().numpy(), right.double().cpu().numpy()
    norms = np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-6)
    cosines: NDArray[np.float64] = np.clip((a * b).sum(axis=1) / norms, -1.0, 1.0)
    return cosines


def _counts(
    encoded: Sequence[TextIds], texts: Distinct[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    counts = np.array([(len(text.ids), text.cut) for text in encoded], np.int64).reshape(-1, 2)
    return counts[texts.inverse, 0], counts[texts.inverse, 1]


def _places(items: Sequence[int], texts: Distinct[str]) -> tuple[int, ...]:
    return tuple(sorted(place for item in items for place in texts.positions(item)))


def _shares(on_batch: OnBatch | None, n_texts: int, n_items: int) -> Callable[[int], None]:
    """Turn texts done in a batch into items done so far."""
    texts_done = 0

    def tell(texts: int) -> None:
        nonlocal texts_done
        texts_done += texts
        if on_batch is not None:
            on_batch(n_items * texts_done // n_texts)

    return tell
