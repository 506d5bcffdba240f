"""No limits at all: for providers that keep their own, such as batches."""

from __future__ import annotations

from claimscore.pipeline.llm.limits.flow import LimiterState, Permit
from claimscore.pipeline.llm.limits.limiter import Limiter, Tokens
from claimscore.types import RateLimits


class NoLimits(Limiter):
    """Lets everybody pass and hears nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._permit = self._flow.take(0, 0.0)

    def try_reserve(self, tokens: Tokens) -> Permit:
        return self._permit

    async def reserve(self, tokens: Tokens) -> Permit:
        return self._permit

    def answered(self, permit: Permit, used_tokens: int, limits: RateLimits | None) -> None:
        pass

    def refused(
        self, permit: Permit, retry_after_s: float | None, limits: RateLimits | None
    ) -> None:
        pass

    def failed(self, permit: Permit, *, counted: bool, limits: RateLimits | None = None) -> None:
        pass

    def state(self) -> LimiterState:
        return LimiterState(None, None, "none", 0.0, "")
