"""Records: what goes in. Validated once as a stream, then read again chunk by chunk."""

from __future__ import annotations

from claimscore.records.dataset import Dataset, Prepared, keep, prepare, recall

__all__ = ["Dataset", "Prepared", "keep", "prepare", "recall"]
