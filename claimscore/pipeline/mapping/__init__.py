"""`claimscore map`: the engine for any table and any prompt.

`table` reads, `questions` asks and understands, `chunks` are on their way, `parts` keeps what
is unfinished, `finished` is what stays, `job` puts them together.
"""

from __future__ import annotations

from claimscore.pipeline.mapping.chunks import MapProgress
from claimscore.pipeline.mapping.config import MapConfig, MapResult
from claimscore.pipeline.mapping.job import PlannedMap, map, planned_map

__all__ = ["MapConfig", "MapProgress", "MapResult", "PlannedMap", "map", "planned_map"]
