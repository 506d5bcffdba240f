"""What members and the services say to each other: plain values only.

A letter is `(member, lane, number, ops)`: numbers go up by one in each of a member's two lanes,
and a letter that comes again is not obeyed again. An op is a tuple of its name and what it needs:

    quick lane, nothing is written but reservations:
      ("join", claims, holds)               who comes (back): the keys it asks for, what it was
                                            granted -> (whether there is a cap, seconds between
                                            beats, whether the cache can only be read)
      ("get", keys)                         -> {key: bytes}
      ("begin", key)                        -> bytes: stored; True: yours to ask; False: another's
      ("begin", key, True)                  the same where what is stored cannot be read
      ("end", key)                          the end of a claim whose answer was not put
      ("damaged", key)                      what was stored could not be read
      ("reserve", prompt, completion, pico) -> (number, pico); 0: ask again; str: no room
      ("lease", scope, kind, units, per_minute, depth_s)  -> seconds until they may be used
      ("give_back", scope, kind, units, per_minute)
      ("recall", scope) -> dict | None      ("remember", scope, dict)
      ("recall_fact", scope, name)          ("remember_fact", scope, name, dict)
      ("beat", stats)                       ("failed", stats, message)
      ("event", kind, fields)               ("stop", class, message)      ("leave", stats)
    keep lane, answered when all of the letter is on disk:
      ("put", key, bytes)                   an answer; the end of its claim
      ("spent", *Ended, pico)               what became of a request, and the most it could cost

A reply is `(status, stop, spacing_s, results)`. The status is "ok" or "join": the services do not
know the member, be it that they were started anew or that it was silent for too long. `stop` is
None or the reason why everybody stops. A result that is an error is `("error", class, message)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from claimscore import errors
from claimscore.errors import ClaimscoreError, StoppedEarly

Op: TypeAlias = tuple[Any, ...]
Lane: TypeAlias = Literal["quick", "keep"]
Letter: TypeAlias = tuple[str, Lane, int, list[Op]]
Reason: TypeAlias = tuple[str, str]
Reply: TypeAlias = tuple[Literal["ok", "join"], Reason | None, float, list[Any]]

#: Carries a letter there and the reply back; raises `Unreachable` where it did not arrive, or
#: nobody knows.
Carry: TypeAlias = Callable[[Letter], Awaitable[Reply]]

_ERROR = "error"


class Unreachable(Exception):
    """The services are not there now; the letter may or may not have been read."""


def reason_of(error: BaseException) -> Reason:
    """An error as plain text; one that is not ours keeps its name in the message."""
    if isinstance(error, ClaimscoreError):
        return type(error).__name__, str(error)
    return "ClaimscoreError", f"{type(error).__name__}: {error}"


def error_of(reason: Reason) -> ClaimscoreError:
    """The error that was put into words, of the same class."""
    name, message = reason
    kind = getattr(errors, name, StoppedEarly)
    return kind(message) if issubclass(kind, ClaimscoreError) else StoppedEarly(message)


def failed_op(error: Exception) -> Op:
    """A result that is raised where it was asked for."""
    return (_ERROR, *reason_of(error))


def checked(result: Any) -> Any:
    """A result, or the error that it is."""
    if type(result) is tuple and result and result[0] == _ERROR:
        raise error_of(result[1:])
    return result
