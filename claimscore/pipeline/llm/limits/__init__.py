"""Requests and tokens a minute: kept where they are known, found where they are not."""

from __future__ import annotations

from claimscore.pipeline.llm.limits.estimate import TokenEstimate
from claimscore.pipeline.llm.limits.flow import LimiterState, Permit
from claimscore.pipeline.llm.limits.limiter import Limiter

__all__ = ["Limiter", "LimiterState", "Permit", "TokenEstimate"]
