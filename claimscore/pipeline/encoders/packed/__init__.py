"""A forward pass without padding for BERT, RoBERTa, XLM-R, ALBERT and their like.

Rows of any length lie one after another in one sequence; stock layers of transformers run on it,
with an attention that keeps rows apart. Numbers are those of the stock model on one row at a time,
up to the order of float32 sums.
"""

from __future__ import annotations

from claimscore.pipeline.encoders.packed.families import FAMILIES, Family, family_of
from claimscore.pipeline.encoders.packed.model import PackedBackbone

__all__ = ["FAMILIES", "Family", "PackedBackbone", "family_of"]
