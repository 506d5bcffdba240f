"""The model stage: NLI probabilities and BERTScore, in batches, from pinned models.

Importing this is cheap: torch and transformers are imported by the loaders when called.
"""

from __future__ import annotations

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders.base import PairClassifier, TokenEncoder


def load_pair_classifier(config: EncoderConfig) -> PairClassifier:
    """Load the NLI model that ``config.nli`` names: "embedded", HF_ID[@REV], or a folder."""
    from claimscore.pipeline.encoders.nli import load

    return load(config)


def load_token_encoder(config: EncoderConfig) -> TokenEncoder:
    """Load the model that ``config.token_encoder`` names: "embedded", HF_ID[@REV], or a folder."""
    from claimscore.pipeline.encoders.tokens import load

    return load(config)
