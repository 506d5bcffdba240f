"""What published papers report, measured again: a script a paper, on the public API."""
