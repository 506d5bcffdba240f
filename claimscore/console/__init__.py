"""Everything that people see in a terminal.

Progress goes to standard error, results to standard output.
"""
