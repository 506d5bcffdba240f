"""The requests, tokens, dollars and hours of a run or a map, without asking anything.

The requests are the real ones: the LLM stage makes them, and an engine that sends nothing looks
them up in the cache and counts those that are missing. What is guessed stands in `assumptions`:
how many tokens a text has, how long answers will be, how fast a server is.
"""

from claimscore.pipeline.estimate.figures import Estimate
from claimscore.pipeline.estimate.stage import estimate_left, estimate_run

__all__ = ["Estimate", "estimate_left", "estimate_run"]
