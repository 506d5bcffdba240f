"""The Python examples of README and docs run as they stand; generated parts are up to date."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from claimscore.metrics.base import SIDES
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.tasks import TASKS

ROOT = Path(__file__).parents[2]
#: The tutorial has tests of its own.
PAGES = [
    page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if page.stem != "tutorial"
]
BLOCK = re.compile(r"(<!-- not run[^\n]* -->\n)?```(python|text)\n(.*?)```", re.DOTALL)


def examples() -> list[object]:
    """The pages with Python, each with its Python and text blocks in order."""
    found = []
    for page in sorted(PAGES):
        blocks = [
            (kind, text)
            for skipped, kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))
            if not skipped
        ]
        if any(kind == "python" for kind, _ in blocks):
            found.append(pytest.param(blocks, id=page.relative_to(ROOT).as_posix()))
    return found


@pytest.mark.parametrize("blocks", examples())
def test_python_examples_run(
    blocks: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page go on from each other; a text block after Python is what it prints.

    They run in an empty folder that has the examples beside it, as in a checkout.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": "__main__"}, None
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, "example", "exec"), names)
            printed = out.getvalue()
        elif printed is not None:
            assert printed == text
            printed = None


def script(name: str) -> dict[str, Any]:
    """The names of a script of `scripts/`, which is not run."""
    return runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name=name)


def test_the_tables_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    assert page == script("make_tables_doc")["tables_doc"]()


def test_the_pages_of_metrics_have_the_facts_of_the_code() -> None:
    make = script("make_metrics_doc")
    make["pages"]()  # exits where a metric has no page
    for page in (ROOT / "docs" / "metrics").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert make["page_with"](text, None) == text, "run python scripts/make_metrics_doc.py"


def test_the_examples_of_the_metrics_are_their_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = script("make_metrics_doc")
    scores = make["example_scores"](tmp_path)
    for page in (ROOT / "docs" / "metrics").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert make["page_with"](text, scores) == text, "run python scripts/make_metrics_doc.py"


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*)\n```", readme)
    assert [name for name, _ in commands] == ["run", "test"]
    assert readme.count("pip install") == 2


def test_the_page_of_own_metrics_names_what_there_is() -> None:
    page = (ROOT / "docs" / "extend" / "metric.md").read_text(encoding="utf-8")
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert (ROOT / "examples" / "own_metrics.py").read_text(encoding="utf-8").startswith(shown)
    for name in (*TASKS, *PASSES, *SIDES.values()):
        assert f"`{name}`" in page, name
