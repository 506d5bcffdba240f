"""`python -m claimscore`."""

from __future__ import annotations

from claimscore.cli import main

if __name__ == "__main__":
    main()
