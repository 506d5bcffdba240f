"""One HTTP response as it comes in. The only home of httptools.

httptools is Node's parser, in C: to read a response with a parser in Python costs more than
everything else that is done for a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import httptools

#: A larger head is a broken one.
MAX_HEAD_BYTES = 128 * 2**10


class Reply(NamedTuple):
    """A response, read to its end. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReplyReader:
    """Takes the bytes of one response, in whatever pieces they come; `max_body` bytes at most.

    `status` is None until its head is there; 100 and the like are passed over. Once it
    `is_whole` or `is_broken`, there is nothing more to read.
    """

    __slots__ = (
        "_ends_with_connection",
        "_headers",
        "_max_body",
        "_n_bytes",
        "_parser",
        "_parts",
        "is_broken",
        "is_whole",
        "may_follow",
        "status",
    )

    def __init__(self, max_body: int) -> None:
        self.status: int | None = None
        self.is_whole = False
        self.is_broken = False
        #: Whether the next response may come on the same connection.
        self.may_follow = False
        self._max_body = max_body
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._n_bytes = 0
        self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_too_large(self) -> bool:
        """Whether its body is more than was to be taken."""
        return self.status is not None and self._n_bytes > self._max_body

    def feed(self, data: bytes) -> None:
        """The next bytes, not after the end."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.may_follow = False  # a whole one may have been followed by noise
            self.is_broken = not self.is_whole
        if self.status is None:
            self._n_bytes += len(data)
            self.is_broken |= self._n_bytes > MAX_HEAD_BYTES

    def hung_up(self) -> None:
        """The server has closed the connection, which may be how it ends its answer."""
        self.is_whole |= self._ends_with_connection and not self.is_broken

    def reply(self) -> Reply:
        """What has come; there must be a head."""
        assert self.status is not None, "asked for before there was a head"
        return Reply(self.status, self._headers, b"".join(self._parts))

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self.is_whole:
            self.may_follow = False  # nobody asked for that; it must not become the next answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:  # else it is a trailer
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.status is not None or status < 200:
            return
        self.status, self._n_bytes = status, 0
        headers = self._headers
        is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._ends_with_connection = not is_chunked and "content-length" not in headers

    def on_body(self, data: bytes) -> None:
        if self.is_whole or self.is_broken:
            return
        self._n_bytes += len(data)
        self._parts.append(data)
        self.is_broken = self.is_too_large

    def on_message_complete(self) -> None:
        if self.status is None:
            self._headers.clear()  # a 100 and its like
        elif not self.is_whole and not self.is_broken:
            self.is_whole = True
            self.may_follow = self._parser.should_keep_alive()
