"""The model of `--verifier`: judges whether a text supports a claim; see `Verifier`."""

from __future__ import annotations

import dataclasses

from claimscore.config import EncoderConfig
from claimscore.pipeline.encoders import nli
from claimscore.pipeline.encoders.protocols import Verifier


def load(config: EncoderConfig) -> Verifier:
    """Load the model that ``config.verifier`` names; `ConfigError` where it cannot judge."""
    return nli.load(dataclasses.replace(config, nli=config.verifier))
