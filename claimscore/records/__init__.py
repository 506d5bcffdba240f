"""Records: what goes in. Validated once as a stream, then read again chunk by chunk."""

from __future__ import annotations

from claimscore.records.dataset import (
    Dataset,
    MissingColumnsError,
    Prepared,
    Selection,
    keep,
    prepare,
    recall,
)

__all__ = [
    "Dataset",
    "MissingColumnsError",
    "Prepared",
    "Selection",
    "keep",
    "prepare",
    "recall",
]
