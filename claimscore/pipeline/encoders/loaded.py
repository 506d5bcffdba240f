"""What the loaders of all roles do: a model onto a device, with its limit and its batch loop.

What is read of a model, and which head is put on it, is the business of each role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.backbone import (
    Backbone,
    budgeted_runner,
    encoder_backbone,
    weights_dtype,
)
from claimscore.pipeline.encoders.base import ModelInfo
from claimscore.pipeline.encoders.batching import BudgetedRunner
from claimscore.pipeline.encoders.budgets import Probe
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    Source,
    load_tokenizer,
    load_weights,
    resolve_device,
    resolve_dtype,
    token_limit,
)
from claimscore.pipeline.encoders.packed import family_of
from claimscore.pipeline.encoders.token_rows import TokenBatch


class Target(NamedTuple):
    """Where the models of a config are to be, and in what arithmetic they compute."""

    config: EncoderConfig
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, config: EncoderConfig) -> Target:
        """`ConfigError` for a device or a dtype that is not there."""
        device = resolve_device(config.device)
        return cls(config, device, resolve_dtype(config.dtype, device))

    def load(
        self,
        source: Source,
        settings: Any,
        tokenizer: Any,
        auto_class: Any,
        may_lack: Callable[[str], bool] = lambda name: False,
    ) -> Loaded:
        """Load a found model's weights, as in `load_weights`."""
        model = load_weights(
            source,
            auto_class,
            settings,
            device=self.device,
            dtype=weights_dtype(settings, self.dtype),
            may_lack=may_lack,
        )
        limit = token_limit(tokenizer, settings, model)
        info = ModelInfo(source.name, source.revision, self.config.dtype)
        return Loaded(self, info, model, tokenizer, settings, limit)

    def load_encoder(self, source: Source, settings: Any) -> Loaded:
        """Load an encoder with its tokenizer, without the head that the checkpoint may have."""
        from transformers import AutoModel

        # The pooler is a first-token output, which is not read here.
        return self.load(
            source, settings, load_tokenizer(source), AutoModel, lambda name: "pooler" in name
        )

    def take(self, model: Any, tokenizer: Any, revision: str) -> Loaded:
        """Take over an encoder that comes with the package."""
        model.to(self.device).eval()
        limit = token_limit(tokenizer, model.config, model)
        info = ModelInfo(EMBEDDED, revision, self.config.dtype)
        return Loaded(self, info, model, tokenizer, model.config, limit)


class Loaded(NamedTuple):
    """A model on its target with its tokenizer and config (transformers': untyped).

    ``limit`` is how many tokens it can read.
    """

    target: Target
    info: ModelInfo
    model: Any
    tokenizer: Any
    settings: Any
    limit: int

    def backbone(self, *, with_types: bool = False) -> Backbone:
        """Return the states of an encoder: `encoder_backbone`, which takes the model over."""
        return encoder_backbone(
            self.model, self.tokenizer, dtype=self.target.dtype, with_types=with_types
        )

    def runner(
        self, forward: Callable[[TokenBatch], object], *, limit: int | None = None
    ) -> BudgetedRunner:
        """Return the loop over batches for ``forward``, by `budgeted_runner`.

        ``limit`` is the longest row where it is not the model's own.
        """
        return budgeted_runner(
            self.target.config.batch_tokens,
            self.target.device,
            padded=family_of(self.settings) is None,
            probe=Probe(self.info, limit or self.limit, self.settings, forward),
        )
