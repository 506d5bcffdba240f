"""`claimscore map`: one prompt over the rows of any table.

`settings` is what was asked for. `input_table` reads rows, `table_prompt` makes requests of rows
and columns of answers, `job` asks, and `map_files` has the unfinished work and the finished file.
The work lies in a run directory, with the run's manifest, repair, lock and copy in a store.
"""
