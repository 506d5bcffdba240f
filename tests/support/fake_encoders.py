"""Fake models behind the real padded path, for tests that need no transformer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from claimscore.pipeline.encoders.backbone import PaddedBackbone, PaddedModel

CPU = torch.device("cpu")


def padded_call(call: Callable[..., Any], tokenizer: Any, *, left: bool = False) -> PaddedModel:
    """A function of ``input_ids`` and ``attention_mask`` that takes token batches."""
    return PaddedModel(call, device=CPU, pad_id=int(tokenizer.pad_token_id), pad_left=left)


def states_of(call: Callable[..., Tensor], tokenizer: Any, *, left: bool = False) -> PaddedBackbone:
    """A backbone whose states are what the function gives."""
    return PaddedBackbone(
        padded_call(
            lambda **inputs: SimpleNamespace(last_hidden_state=call(**inputs)),
            tokenizer,
            left=left,
        )
    )
