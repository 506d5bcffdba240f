"""Money: what a token costs, what a run has spent, and the caps that it never passes."""
