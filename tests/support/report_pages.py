"""A report as a browser's parser sees it, with what lies compressed in it."""

import base64
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from claimscore.report import ReportTables, write_report
from claimscore.report.matrices import ALPHABET


class Page(HTMLParser):
    """Elements with their attributes, the visible text, and the blocks of data."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, str] = {}
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if self.cdata_elem == "script":
            if attributes.get("type") != "module":
                name = attributes["id"] or ""
                self.blocks[name] = self.blocks.get(name, "") + data
            else:
                self.scripts.append(data)
        elif tag != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def unpacked(self, name: str) -> Any:
        """A compressed block, as the page's script reads it."""
        return json.loads(zlib.decompress(base64.b64decode(self.blocks[name])))

    @property
    def figures(self) -> list[dict[str, Any]]:
        """What the page's script draws."""
        figures: list[dict[str, Any]] = json.loads(self.blocks["cs-figures"])
        return figures

    @property
    def index(self) -> dict[str, Any]:
        index: dict[str, Any] = self.unpacked("cs-index")
        return index

    def details(self) -> list[dict[str, Any]]:
        """Everything about each record, from both of its blocks."""
        n = sum(name.startswith("cs-texts-") for name in self.blocks)
        return [
            {**texts, **more}
            for number in range(n)
            for texts, more in zip(
                self.unpacked(f"cs-texts-{number}"), self.unpacked(f"cs-more-{number}"), strict=True
            )
        ]


def read(tables: ReportTables, folder: Path) -> tuple[Page, str]:
    """The report of these tables: parsed, and as it is."""
    path = folder / "report.html"
    write_report(tables, path)
    source = path.read_bytes().decode("utf-8")
    return Page(source), source


def decode(code: str) -> list[int]:
    """The numbers of a matrix, two characters each, as the page's script reads them."""
    places = [ALPHABET.index(character) for character in code]
    return [64 * high + low for high, low in zip(places[::2], places[1::2], strict=True)]
