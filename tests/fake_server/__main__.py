"""`python -m tests.fake_server` prints the base URL of a server and serves until it is stopped."""

from tests.fake_server.server import main

main()
