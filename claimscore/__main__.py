"""`python -m claimscore`."""

from __future__ import annotations

import sys

from claimscore.cli import main

if __name__ == "__main__":
    sys.exit(main())
