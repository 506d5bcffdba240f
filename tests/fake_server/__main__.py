"""`python -m tests.fake_server` prints the base URL of a server and serves until it is stopped."""

from __future__ import annotations

from tests.fake_server.server import main

main()
