"""Write the tables of the page on scaling: `PYTHONPATH=. python scripts/make_scaling_doc.py`.

They come from benchmarks/scaling; the text between them is the page's own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "scaling"
PAGE = ROOT / "docs" / "explanation/scaling.md"


def scaling_doc(page: str) -> str:
    """The page with its tables as they are now."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    from scaling_tables import TABLES

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}"

    return re.sub(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", table, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(scaling_doc(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
