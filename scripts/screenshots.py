"""Make the pictures of the documentation: `python scripts/screenshots.py [FOLDER]`.

It runs claimscore over `examples/` with the embedded models, opens the pages in Chromium and writes
WebP files; the output of a terminal becomes an SVG by rich. It needs playwright, Pillow and
`chromium` or CLAIMSCORE_CHROMIUM. FOLDER is docs/assets unless given.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "docs" / "assets"
#: Name -> page, its address within, the heading to scroll to, size in CSS pixels.
SHOTS = {
    "report": ("products/report.html", "", "Scores", (1100, 1260)),
    "record": ("products/report.html", "#record-kettle-2", "kettle-2", (1000, 1090)),
    "facts": ("facts/report.html", "#record-kettle-2", "kettle-2", (1000, 1250)),
    "comparison": ("compare.html", "", "Runs compared", (1000, 1000)),
}
COLUMNS = 88


def terminal(arguments: Sequence[str], cwd: Path) -> str:
    """The results that `claimscore` prints in a terminal of `COLUMNS` columns, with its colours."""
    screen, line = pty.openpty()
    environment = os.environ | {
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "CLAIMSCORE_CACHE_DIR": str(cwd / "cache"),
        "CLAIMSCORE_STATE_DIR": str(cwd / "state"),
    }
    command = [sys.executable, "-m", "claimscore", *arguments]
    quiet = subprocess.DEVNULL  # progress, which overwrites itself
    with subprocess.Popen(command, cwd=cwd, env=environment, stdout=line, stderr=quiet) as process:
        os.close(line)
        printed = b""
        try:
            while chunk := os.read(screen, 65536):
                printed += chunk
        except OSError:  # Linux says so when the last writer has closed the terminal
            pass
        os.close(screen)
    if process.returncode:
        raise SystemExit(printed.decode())
    return printed.decode()


def svg(printed: str, title: str) -> str:
    """The text as an SVG that names no font on another machine and cuts no letter's foot."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(printed.replace("\r\n", "\n").rstrip()))
    unwanted = r'@font-face \{.*?\}\s*| clip-path="url\([^)]*\)"'
    return re.sub(unwanted, "", console.export_svg(title=title), flags=re.DOTALL)


def make_runs(folder: Path) -> str:
    """Two runs over the products, two over the hotels and their comparison; the first's output."""
    for name in ("hotels.jsonl", "products.jsonl"):
        shutil.copy(ROOT / "examples" / name, folder)
    first = ["run", "products.jsonl", "--out", "products"]
    printed = terminal(first, folder)
    for arguments in (
        ["run", "products.jsonl", "--out", "facts", "--metrics", "factsim,summac-zs,rouge-1"],
        ["run", "hotels.jsonl", "--out", "hotels"],
        ["run", "hotels.jsonl", "--out", "sentences", "--units", "sentences"],
        ["compare", "hotels", "sentences", "--html", "compare.html"],
    ):
        terminal(arguments, folder)
    return "$ claimscore " + " ".join(first) + "\n" + printed


def shoot(folder: Path, out: Path) -> None:
    """The pages of `SHOTS` in the light scheme, as WebP files."""
    chromium = os.environ.get("CLAIMSCORE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (file, address, heading, (width, height)) in SHOTS.items():
            size: Any = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme="light", device_scale_factor=1.5)
            page.goto((folder / file).as_uri() + address)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1500)  # the figures are drawn after the page is there
            start = page.get_by_role("heading", name=heading, exact=True).first
            start.evaluate("found => scrollTo(0, found.getBoundingClientRect().top + scrollY - 24)")
            page.wait_for_timeout(300)
            picture = Image.open(io.BytesIO(page.screenshot()))
            picture.convert("RGB").save(out / f"{name}.webp", quality=82, method=6)
            page.close()
        browser.close()


def main(out: Path) -> None:
    """All pictures, into the folder."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        printed = make_runs(folder)
        (out / "terminal.svg").write_text(svg(printed, "claimscore run"), encoding="utf-8")
        shoot(folder, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS)
