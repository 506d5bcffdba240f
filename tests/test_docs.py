"""The Python examples of README and docs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claimscore.metrics.base import SIDES
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.tasks import TASKS

ROOT = Path(__file__).parent.parent
PAGES = ("reference/language-models.md", "reference/map.md")
FILES = (ROOT / "README.md", *(ROOT / "docs" / name for name in PAGES))
#: Pages on which an example goes on from the one before it.
GOING_ON = sorted(
    path for folder in ("how-to", "extend") for path in (ROOT / "docs" / folder).iterdir()
)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples() -> list[object]:
    alone = [
        pytest.param(code, id=f"{path.stem}-{number}")
        for path in FILES
        for number, code in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")), 1)
    ]
    pages = [(path, BLOCK.findall(path.read_text(encoding="utf-8"))) for path in GOING_ON]
    return alone + [pytest.param("\n".join(code), id=path.stem) for path, code in pages if code]


@pytest.mark.parametrize("code", examples())
def test_python_examples_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder that has the examples beside it, as in a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def test_the_tables_page_is_up_to_date() -> None:
    """docs/reference/tables.md is written from the schemas."""
    namespace: dict[str, object] = {"__name__": "make_tables_doc"}
    script = ROOT / "scripts" / "make_tables_doc.py"
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), namespace)
    make = namespace["tables_doc"]
    assert callable(make)
    assert (ROOT / "docs" / "reference/tables.md").read_text(encoding="utf-8") == make()


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    """One that installs and runs, one that installs and tests; each one line."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*)\n```", readme)
    assert [name for name, _ in commands] == ["run", "test"]
    assert readme.count("pip install") == 2


def test_the_page_of_own_metrics_names_what_there_is() -> None:
    """It shows the example as it is shipped, and every task, pass and side."""
    page = (ROOT / "docs" / "extend/metric.md").read_text(encoding="utf-8")
    assert (ROOT / "examples" / "own_metrics.py").read_text(encoding="utf-8") in page
    for name in (*TASKS, *PASSES, *SIDES.values()):
        assert f"`{name}`" in page, name
