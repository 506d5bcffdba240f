"""`claimscore map`: one prompt over the rows of any table.

`table` reads rows, `questions` turns rows into requests and answers into columns, `job` asks and
writes, `files` knows the finished file and the unfinished work beside it, `status` tells how far
it is, `estimate` counts beforehand. The work lies in a run directory, with the run's manifest,
repair, lock and storage.
"""

from __future__ import annotations

from claimscore.pipeline.map.estimate import estimate_map
from claimscore.pipeline.map.job import MapConfig, MapProgress, MapResult, map
from claimscore.pipeline.map.status import map_status

__all__ = ["MapConfig", "MapProgress", "MapResult", "estimate_map", "map", "map_status"]
