"""`claimscore map`: one prompt over the rows of any table.

`settings` is what was asked for. `input_table` reads rows, `table_prompt` makes requests of rows
and columns of answers, `job` asks, `map_parts` is the unfinished work and `map_files` the finished
file; `estimate` counts beforehand. The work lies in a run directory, with the run's manifest,
repair, lock and storage.
"""
