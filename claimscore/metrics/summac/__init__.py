"""SummaC: NLI between the blocks of a document and the sentences of its summary."""

from __future__ import annotations

from claimscore.metrics.summac.convolution import summac_conv
from claimscore.metrics.summac.zero_shot import summac_zs, summac_zs_grid

__all__ = ["summac_conv", "summac_zs", "summac_zs_grid"]
