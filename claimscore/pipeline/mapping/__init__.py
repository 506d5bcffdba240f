"""`claimscore map`: the engine for any table and any prompt.

`table` reads, `questions` asks and understands, `chunks` are on their way, `parts` keeps what
is unfinished, `finished` is what stays, `job` puts them together, `estimate` counts beforehand,
`status` says how far it is.
"""

from __future__ import annotations

from claimscore.pipeline.mapping.chunks import MapProgress
from claimscore.pipeline.mapping.config import MapConfig, MapResult
from claimscore.pipeline.mapping.estimate import estimate_map
from claimscore.pipeline.mapping.job import map
from claimscore.pipeline.mapping.status import map_place, map_status, map_status_at

__all__ = [
    "MapConfig",
    "MapProgress",
    "MapResult",
    "estimate_map",
    "map",
    "map_place",
    "map_status",
    "map_status_at",
]
