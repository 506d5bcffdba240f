"""The experiment of the CASPR paper, from annotated pairs to its tables and its figure."""
