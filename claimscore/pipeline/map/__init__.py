"""`claimscore map`: one prompt over the rows of any table.

`input_table` reads rows, `table_prompt` makes requests of rows and columns of answers, `job` asks
or counts beforehand, `map_parts` is the unfinished work and `map_files` the finished file.
The work lies in a run directory, with the run's manifest, repair, lock and storage.
"""

from __future__ import annotations

from claimscore.pipeline.map.job import MapConfig, MapProgress, MapResult, estimate_map, map
from claimscore.pipeline.map.map_files import map_status

__all__ = ["MapConfig", "MapProgress", "MapResult", "estimate_map", "map", "map_status"]
