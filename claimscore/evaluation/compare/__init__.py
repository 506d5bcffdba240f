"""Two runs that share ids: which scores moved, and which claims changed.

`run_differences` and `claim_changes` compare two runs; `comparison` puts them together and judges
gates; `comparison_tables` shows them.
"""
