"""Everything that claimscore raises, as one tree. The class is the decision.

ClaimscoreError
├── ConfigError            stop: wrong setting, option, prompt, model (exit 2)
│   ├── InputError         stop: a record or input file that cannot be used
│   ├── AuthenticationError  stop: the server refused the key (401, 403)
│   └── UnknownModelError  stop: the server or the disk has no such model
├── StoppedEarly           stop: run the same command to go on (exit 75)
│   ├── QuotaError         the account has nothing left
│   ├── BudgetError        `--max-cost` or `--max-requests` is used up
│   ├── OutageError        the server did not come back within `--max-outage-s`
│   └── TooManyFailures    more than `--max-failures`
├── TransientError         retry: connection, timeout, 5xx, broken body
│   ├── RateLimitError     retry after `retry_after_s`; heard by the limiter
│   └── AskAgain           ask again at once: the provider has learnt how
├── RejectedError          a failure row: this request is refused for its content
└── ParseError             a new sample, then a failure row
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from claimscore.types import RateLimits

#: How an attempt came to nothing. `connect`: the server was not reached. `dropped`: the line
#: broke after the request was sent. `timeout`: no answer in time. `status`: an HTTP status
#: that asks to come again. `body`: a 200 whose body is broken. `rate_limit`: too fast.
TransientKind = Literal["connect", "dropped", "timeout", "status", "body", "rate_limit"]


class ClaimscoreError(Exception):
    """Base of all errors that claimscore raises on purpose; the message is for people."""


class ConfigError(ClaimscoreError):
    """A setting, option, prompt or model that cannot be used. Nothing was spent."""


class InputError(ConfigError):
    """A record or an input file that cannot be used; names file, line or row, and column."""


class AuthenticationError(ConfigError):
    """The server refused the key (401 or 403); asking again cannot help."""


class UnknownModelError(ConfigError):
    """The server or the disk does not have the named model."""


class StoppedEarly(ClaimscoreError):
    """The run stopped before the end and can be taken up again by the same command."""


class QuotaError(StoppedEarly):
    """The account's quota is spent; no retry can help until it is filled."""


class BudgetError(StoppedEarly):
    """The next request does not fit into `--max-cost` or `--max-requests`; it was not sent."""


class OutageError(StoppedEarly):
    """Nothing was answered for `--max-outage-s`, though it was tried again and again."""


class TooManyFailures(StoppedEarly):
    """More rows failed than `--max-failures` allows; something is wrong with all of them."""


class TransientError(ClaimscoreError):
    """Asking the same again may succeed.

    `retry_after_s` is the server's own figure where it gave one, `limits` what its headers
    said. `status` is the HTTP status of its refusal.
    """

    def __init__(
        self,
        message: str,
        kind: TransientKind = "status",
        *,
        retry_after_s: float | None = None,
        limits: RateLimits | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.limits = limits

    @property
    def may_be_billed(self) -> bool:
        """Whether the server may have done the work all the same."""
        return self.kind in ("dropped", "timeout", "body")


class RateLimitError(TransientError):
    """The server asks to go slower (429)."""

    def __init__(
        self,
        message: str,
        retry_after_s: float | None = None,
        limits: RateLimits | None = None,
    ) -> None:
        super().__init__(message, "rate_limit", retry_after_s=retry_after_s, limits=limits)


class AskAgain(TransientError):
    """The server refuses the way in which it was asked, and the provider has noted how it wants to
    be asked. It is a request that was sent, and says nothing against the question or the server.
    """


class RejectedError(ClaimscoreError):
    """The server refused this one request for its content; `kind` says why."""

    def __init__(self, message: str, kind: str = "rejected") -> None:
        super().__init__(message)
        self.kind = kind


class ParseError(ClaimscoreError):
    """An answer that is not what the prompt's output schema asks for."""
