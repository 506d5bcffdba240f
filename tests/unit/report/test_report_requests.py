"""What stands behind a row: the prompt as it was sent, and the answer."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from claimscore.config import RunConfig
from claimscore.pipeline.run import run
from claimscore.report.record_details import NO_ROOM
from claimscore.report.run_report import write_run_report
from tests.support.hostile_run import hostile
from tests.support.rated_tables import write_jsonl
from tests.support.report_pages import Page, read

SUMMARIES = [
    {
        "id": "one",
        "summary_a": "The rooms are clean and quiet. It rains.",
        "summary_b": "It rains.",
    },
    {"id": "two", "summary_a": "The staff is kind.", "summary_b": "The rooms are not clean."},
]


def made_run(folder: Path, **changes: Any) -> Path:
    source = folder / "in.jsonl"
    write_jsonl(source, SUMMARIES)
    given: dict[str, Any] = {
        "input": str(source),
        "out": folder / "out",
        "metrics": ("ds",),
        "tasks": ("decompose", "facts"),
        "cache_dir": folder / "cache",
    }
    run(RunConfig(**given | changes))
    return folder / "out"


def report_of(out: Path, **prompts: Path) -> Page:
    named = {task: str(file) for task, file in prompts.items()}
    page = write_run_report(out, out.parent / "cache", named)
    return Page(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("run"))


def test_a_claim_leads_to_its_prompt_and_answer(out: Path) -> None:
    page = report_of(out)
    one, _ = page.details()
    side = one["sides"][0]
    assert side["claims"][:2] == ["The rooms are clean.", "The rooms are quiet."]
    assert side["calls"][0] == side["calls"][1] != side["calls"][2]
    call = one["calls"][side["calls"][0]]
    assert (call["task"], call["side"], call["place"]) == ("decompose", "a", 1)
    assert "<text>The rooms are clean and quiet.</text>" in call["user"]
    assert json.loads(call["answer"])["claims"] == side["claims"][:2]
    assert page.index["heads"][call["head"]][0][0] == "system"
    assert {call["task"] for call in one["calls"]} == {"decompose", "facts"}
    assert len(call["key"]) == 64


@pytest.mark.parametrize("prompt", ["v1", "v2", "v3"])
@pytest.mark.parametrize("granularity", ["sentence", "summary"])
def test_every_row_finds_its_prompt(tmp_path: Path, prompt: str, granularity: Any) -> None:
    page = report_of(
        made_run(
            tmp_path,
            granularity=granularity,
            prompts={"decompose": prompt},
            tasks=("decompose", "facts"),
        )
    )
    calls = [call for record in page.details() for call in record["calls"]]
    assert {call["task"] for call in calls} == {"decompose", "facts"}
    assert all(call["user"] and call["answer"] for call in calls)
    assert {call["version"] for call in calls if call["task"] == "decompose"} == {prompt}


def test_without_the_cache_the_page_says_so(tmp_path: Path) -> None:
    """The prompt is rendered again all the same; no cache is made for a look."""
    out = made_run(tmp_path)
    shutil.rmtree(tmp_path / "cache")
    (one, _) = report_of(out).details()
    assert not any("answer" in call for call in one["calls"])
    assert all("user" in call and "answer" not in call for call in one["calls"])
    assert not (tmp_path / "cache").exists()


def test_a_prompt_that_changed_is_not_shown(tmp_path: Path) -> None:
    """What is shown is what was sent, or nothing; a file of your own is read where it is named."""
    file = tmp_path / "mine.toml"
    text = 'name = "decompose"\nversion = "x"\nuser = "Claims of: $text"\n'
    text += '[output]\nclaims = ["string"]\n'
    file.write_text(text)
    out = made_run(tmp_path, tasks=("decompose",), prompts={"decompose": str(file)})
    (one, _) = report_of(out, decompose=file).details()
    assert one["calls"][0]["user"] == "Claims of: The rooms are clean and quiet."
    file.write_text(text.replace("Claims of", "All claims of"))
    (one, _) = report_of(out, decompose=file).details()
    assert "user" not in one["calls"][0]
    assert "user" not in one["calls"][0]
    file.unlink()
    (one, _) = report_of(out, decompose=file).details()
    assert "user" not in one["calls"][0]
    assert "user" not in report_of(out).details()[0]["calls"][0]


def test_a_full_page_says_what_it_leaves_out(tmp_path: Path) -> None:
    first, second = read(hostile("x"), tmp_path)[0].details()
    room = len(json.dumps({k: v for k, v in first.items() if k in NO_ROOM}))
    tables = dataclasses.replace(hostile("x"), max_more_chars=room)
    one, other = read(tables, tmp_path)[0].details()
    assert one == first
    assert other == second | json.loads(json.dumps(NO_ROOM))
