"""`claimscore map`: one prompt over the rows of any table.

`table` reads rows, `questions` turns rows into requests and answers into columns, `job` asks,
`parts` is the unfinished work and `files` the finished file, `estimate` counts beforehand. The work
lies in a run directory, with the run's manifest, repair, lock and storage.
"""

from __future__ import annotations

from claimscore.pipeline.map.estimate import estimate_map
from claimscore.pipeline.map.files import map_status
from claimscore.pipeline.map.job import MapConfig, MapProgress, MapResult, map

__all__ = ["MapConfig", "MapProgress", "MapResult", "estimate_map", "map", "map_status"]
