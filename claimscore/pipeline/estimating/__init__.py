"""What a run would ask for and cost, without asking: requests, tokens, dollars, hours.

The requests are the real ones, made as the run makes them and looked up in the cache, so how
many are missing is counted, not guessed. What is guessed stands in `assumptions`: how many
tokens a text has, how long answers will be, how fast a server is.
"""

from claimscore.pipeline.estimating.beforehand import estimate_left
from claimscore.pipeline.estimating.figures import Estimate
from claimscore.pipeline.estimating.requests import estimate_requests
from claimscore.pipeline.estimating.run import estimate_run

__all__ = ["Estimate", "estimate_left", "estimate_requests", "estimate_run"]
