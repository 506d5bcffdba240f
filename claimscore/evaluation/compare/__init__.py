"""Two runs that share ids: which scores moved, which claims changed, which labels flipped.

`source` reads, `statistics` and `matching` compute, `comparison` puts them together, `sections`,
`display` and `output` show.
"""
