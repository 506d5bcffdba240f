"""The recipes run as they stand, with stand-ins for libraries that are not installed."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import polars as pl
import pytest
import yaml

import claimscore
from tests.support.command_line import Command
from tests.support.embedded_models import needs_backbone

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = {kind: re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "yaml")}

pytestmark = needs_backbone


@pytest.mark.parametrize(
    ("summary", "status"), [("The pool is open.", 0), ("The pool is closed.", 4)]
)
def test_the_gate_passes_and_fails(
    summary: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    """The commands of the action, on articles that the summaries repeat or contradict."""
    monkeypatch.chdir(tmp_path)
    row = {"source": "The pool is open. It has a slide.", "summary": summary}
    Path("articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for _ in range(20)))
    (workflow,) = map(yaml.safe_load, BLOCKS["yaml"])
    steps = workflow["jobs"]["summaries"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if "run" in step]
    assert commands[0][:2] == ["pip", "install"]
    (gate,) = commands[1:]
    assert cli(*gate[1:]).status == status
    kept = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    assert Path(kept["with"]["path"]).is_file()


def test_the_test_of_a_summary_passes_and_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS["python"][0], "recipe", "exec"), names)
    test: Callable[[], None] = names["test_the_summary_says_what_its_source_says"]
    test()
    evaluate = claimscore.evaluate
    row = {"source": "The pool is open all day.", "summary": "The pool is closed."}
    monkeypatch.setattr(claimscore, "evaluate", lambda _, **how: evaluate([row], **how))
    with pytest.raises(AssertionError, match="contradicted"):
        test()


class Tracker(ModuleType):
    """What the recipes use of mlflow and wandb: it keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("tracker")
        self.scores: dict[str, float] = {}
        self.files: list[Path | str] = []
        self.log = self.log_metrics = self.scores.update
        self.save = self.log_artifact = self.files.append

    def start_run(self, **_: str) -> Self:
        return self

    init = start_run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert all(Path(file).is_file() for file in self.files)


def test_scores_go_to_trackers_and_tables_to_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """polars answers in place of DuckDB, whose SQL it has as far as the recipe goes."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    trackers = {name: Tracker() for name in ("mlflow", "wandb")}
    duckdb: Any = ModuleType("duckdb")
    duckdb.sql = lambda query: SimpleNamespace(show=lambda: print(pl.sql(query, eager=True)))
    for name, module in {**trackers, "duckdb": duckdb}.items():
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {"claimscore": claimscore}
    for block in BLOCKS["python"][1:]:
        exec(compile(block, "recipe", "exec"), names)
    for tracker in trackers.values():
        assert tracker.scores == {"caspr": pytest.approx(68.06, abs=0.01)}
        assert [*map(str, tracker.files)] == ["runs/hotels/report.html"]
    claims = pl.read_parquet("runs/hotels/claims/*.parquet")
    shown = capsys.readouterr().out
    for _, rows in claims.partition_by("side", as_dict=True).items():
        assert str(rows.height) in shown
