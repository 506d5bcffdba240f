"""Print one of the README's commands, so that CI runs what people paste.

python scripts/readme_command.py run
python scripts/readme_command.py test
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def readme_command(name: str) -> str:
    """The code block after `<!-- command: NAME -->`."""
    pattern = rf"<!-- command: {re.escape(name)} -->\n```sh\n(.*?)\n```"
    found = re.findall(pattern, README.read_text(encoding="utf-8"), re.DOTALL)
    if len(found) != 1:
        raise SystemExit(f"{README}: {len(found)} blocks after <!-- command: {name} -->, not one")
    return str(found[0])


if __name__ == "__main__":
    print(readme_command(sys.argv[1]))
