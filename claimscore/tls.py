"""What a server's certificate is checked with."""

from __future__ import annotations

import functools
import ssl

import httpx2


@functools.cache
def tls_context() -> ssl.SSLContext:
    """One for all clients: it takes a while to read the system's certificates. It verifies always,
    and speaks HTTP/1.1."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
