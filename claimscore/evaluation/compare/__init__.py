"""Two runs that share ids: which scores moved, and which claims changed.

`compared_run` reads a run; `run_differences`, `claim_matching` and `nli_cells` compare scores,
claims and labels; `comparison` puts them together; `comparison_tables` and `comparison_json`
show them.
"""
