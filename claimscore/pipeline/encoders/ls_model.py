"""LS_Score's model at work: log-probabilities of a summary's tokens, and [CLS] cosines.

Wu et al. 2020. Both texts are cut to the model's limit less two (510 word pieces) and
stand between [CLS] and [SEP], each alone, segment 0, nothing masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import (
    LoadedEncoder,
    TextModel,
    encoder_backbone,
    refuse_nan,
)
from claimscore.pipeline.encoders.distinct import Distinct, distinct
from claimscore.pipeline.encoders.loading import ModelLoader
from claimscore.pipeline.encoders.ls_checkpoint import (
    Head,
    HeadKind,
    LinearHead,
    LinguisticHead,
    read_checkpoint,
)
from claimscore.pipeline.encoders.protocols import ModelInfo, OnBatch
from claimscore.pipeline.encoders.throughput import metered, padded_tokens, tokens_of_each
from claimscore.pipeline.encoders.token_rows import TokenBatch, WholeRows, ragged


class PairNumbers(NamedTuple):
    """The model's scores of each pair of document and summary; arrays ``[n]``.

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


class LSModel(TextModel):
    """A backbone and LS_Score's head on one device.

    Guarantees: numbers in the order of the pairs, each distinct text encoded once a call, never
    more than `LOGIT_BYTES` of logits at once, and never a number from a NaN.
    """

    def __init__(self, loaded: LoadedEncoder, head: Head, batch_tokens: int | None) -> None:
        super().__init__(loaded, batch_tokens)
        self._head = head

    @property
    def head(self) -> HeadKind:
        return self._head.kind

    @metered(tokens_of_each)
    def score(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None
    ) -> PairNumbers:
        """Return the numbers of each (document, summary).

        Raises `RejectedItemsError` naming the pairs with a text of which the tokenizer leaves
        nothing or which does not fit into memory. ``on_batch`` as in `PairClassifier`.
        """
        documents = distinct([document for document, _ in pairs])
        summaries = distinct([summary for _, summary in pairs])
        document_ids, summary_ids = self._encoded(documents), self._encoded(summaries)

        def first_states(places: list[int], batch: TokenBatch) -> Tensor:
            return refuse_nan(self._backbone.first(batch), self.info)

        def states_and_means(places: list[int], batch: TokenBatch) -> Iterator[_Summary]:
            if not isinstance(self._head, LinguisticHead):
                yield from (_Summary(state) for state in first_states(places, batch))
                return
            states = refuse_nan(self._backbone.states(batch), self.info)
            first = states[torch.from_numpy(batch.starts).to(states.device)]
            values = np.split(self._log_probs(states, batch.ids), batch.starts[1:])
            for state, own in zip(first, values, strict=True):
                yield _Summary(state, own.mean(), own[1:-1].mean())

        half = _half(on_batch, 0), _half(on_batch, len(pairs))
        read = self._each(documents, document_ids.rows, first_states, half[0])
        scored = self._each(summaries, summary_ids.rows, states_and_means, half[1])
        left = _stacked(read, documents)
        right = _stacked([summary.state for summary in scored], summaries)
        means = np.array([summary[1:] for summary in scored]).reshape(-1, 2)[summaries.inverse]
        return PairNumbers(
            means[:, 0],
            means[:, 1],
            _cosines(left, right),
            self._linear(left, right),
            document_ids.lengths[documents.inverse],
            document_ids.n_cut[documents.inverse],
            summary_ids.lengths[summaries.inverse],
            summary_ids.n_cut[summaries.inverse],
        )

    @metered(padded_tokens)
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
        encoded = self._encoded(texts)
        pad_id = int(self._tokenizer.pad_token_id)
        filled = np.full((len(texts.items), self.limit), pad_id)
        for i, row in enumerate(filled):
            row[: encoded.lengths[i]] = encoded.ids.row(i)

        def summed(places: list[int], batch: TokenBatch) -> NDArray[np.float64]:
            """All positions have states; a text's own alone are attended to."""
            states = self._backbone.states(batch, read=encoded.lengths[places])
            values = self._log_probs(states, batch.ids).reshape(len(places), -1)
            found: NDArray[np.float64] = values.sum(axis=1)
            return found

        sums = np.array(self._each(texts, WholeRows(ragged(filled)), summed, on_batch), dtype=float)
        return np.stack([sums, encoded.lengths], axis=1)[texts.inverse]

    def _log_probs(self, states: Tensor, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The log-probability of each id at its own place, ``[tokens]``."""
        assert isinstance(self._head, LinguisticHead)
        tokens = torch.from_numpy(ids).to(states.device)
        values = self._head.in_pieces(states, tokens).double()
        found: NDArray[np.float64] = refuse_nan(values, self.info).cpu().numpy()
        return found

    @torch.inference_mode()
    def _linear(self, document: Tensor, summary: Tensor) -> NDArray[np.float64]:
        if not isinstance(self._head, LinearHead) or not len(summary):
            return np.full(len(summary), np.nan)
        scores: NDArray[np.float64] = self._head(document, summary).double().cpu().numpy()
        return scores


def load(config: EncoderConfig) -> LSModel:
    """Load the checkpoint that ``config.ls_model`` names; `ConfigError` where it names none."""
    assert config.ls_model is not None, "check_named"
    loader = ModelLoader(config)
    folder = Path(config.ls_model).expanduser()
    checkpoint = read_checkpoint(folder, offline=config.offline, device=loader.device)
    model, tokenizer = checkpoint.backbone.model, checkpoint.backbone.tokenizer
    loaded = LoadedEncoder(
        ModelInfo(config.ls_model, checkpoint.revision, loader.config.dtype),
        encoder_backbone(model, tokenizer, dtype=loader.dtype),
        tokenizer,
        checkpoint.settings.max_tokens,
    )
    return LSModel(loaded, checkpoint.head, config.batch_tokens)


class _Summary(NamedTuple):
    """A summary's first state, and the means of its tokens' log-probabilities, whole and inner."""

    state: Tensor
    mean: float = np.nan
    inner: float = np.nan


def _stacked(vectors: list[Tensor], texts: Distinct[str]) -> Tensor:
    if not vectors:
        return torch.zeros(0, 1)
    rows = torch.stack(vectors)
    return rows[torch.from_numpy(texts.inverse).to(rows.device)]


def _cosines(left: Tensor, right: Tensor) -> NDArray[np.float64]:
    """Cosines of rows, in float64; the product of the norms counts as 1e-6 at least."""
    a, b = left.double().cpu().numpy(), right.double().cpu().numpy()
    norms = np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-6)
    cosines: NDArray[np.float64] = np.clip((a * b).sum(axis=1) / norms, -1.0, 1.0)
    return cosines


def _half(on_batch: OnBatch | None, before: int) -> OnBatch | None:
    """A listener for one of two texts of each pair, after ``before`` texts of pairs."""
    return None if on_batch is None else lambda done: on_batch((before + done) // 2)
