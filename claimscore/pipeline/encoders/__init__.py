"""The model stage: NLI probabilities and BERTScore, in batches, from pinned models.

Importing this is cheap: torch and transformers are imported by the loaders when called.
"""

from __future__ import annotations

import importlib
from typing import cast

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.base import Model, PairClassifier, TokenEncoder
from claimscore.pipeline.encoders.paces import Meter, Paced, pace_key
from claimscore.pipeline.encoders.served import is_served
from claimscore.pipeline.encoders.served import load as load_served

#: What a model is asked for -> "module:function" that loads the one `EncoderConfig` names.
ROLES: dict[str, str] = {
    "nli": "claimscore.pipeline.encoders.nli:load",
    "embedder": "claimscore.pipeline.encoders.embedder:load",
    "token_encoder": "claimscore.pipeline.encoders.tokens:load",
    "ls_model": "claimscore.pipeline.encoders.ls:load",
    "causal_lm": "claimscore.pipeline.encoders.likelihood:load_causal",
    "seq2seq_lm": "claimscore.pipeline.encoders.likelihood:load_seq2seq",
}


def load_model(role: str, config: EncoderConfig) -> Model:
    """Load the model of a role; `ConfigError` where it cannot be had or used.

    How fast it is will be remembered (`paces`).
    """
    served = is_served(getattr(config, role) or "")
    model = load_served(role, config) if served else _load_here(role, config)
    if isinstance(model, Paced):
        model.meter = Meter(pace_key(role, config, served=served))
    return model


def _load_here(role: str, config: EncoderConfig) -> Model:
    module, _, function = ROLES[role].partition(":")
    model: Model = getattr(importlib.import_module(module), function)(config)
    return model


def load_pair_classifier(config: EncoderConfig) -> PairClassifier:
    """Load the model of ``config.nli``: "embedded", HF_ID[@REV], a folder, or one of a server."""
    return cast(PairClassifier, load_model("nli", config))


def load_token_encoder(config: EncoderConfig) -> TokenEncoder:
    """Load the model that ``config.token_encoder`` names: "embedded", HF_ID[@REV], or a folder."""
    from claimscore.pipeline.encoders.tokens import load

    return load(config)
