"""Everything that claimscore raises, as one tree. The class is the decision.

ClaimscoreError
├── ConfigError            stop: wrong setting, option, prompt, model (exit 2)
│   ├── InputError         stop: a record or input file that cannot be used
│   ├── AuthenticationError  stop: the server refused the key (401, 403)
│   └── UnknownModelError  stop: the server or the disk has no such model
├── StoppedEarly           stop: run the same command to go on (exit 75)
│   └── QuotaError         the account has nothing left
├── TransientError         retry: connection, timeout, 5xx, broken body
│   └── RateLimitError     retry after `retry_after_s`; heard by all tasks
├── RejectedError          a failure row: this request is refused for its content
└── ParseError             a new sample, then a failure row
"""

from __future__ import annotations


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


class TransientError(ClaimscoreError):
    """Asking the same again may succeed: connection, timeout, 5xx, truncated body."""


class RateLimitError(TransientError):
    """The server asks for patience; `retry_after_s` is its own figure where it gave one."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RejectedError(ClaimscoreError):
    """The server refused this one request for its content; `kind` says why."""

    def __init__(self, message: str, kind: str = "rejected") -> None:
        super().__init__(message)
        self.kind = kind


class ParseError(ClaimscoreError):
    """An answer that is not what the prompt's output schema asks for."""
