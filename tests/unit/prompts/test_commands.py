"""`claimscore prompts`: what it lists, shows, compares and finds wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.prompts import prompt_names
from claimscore.prompts.folders import available_versions

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """A function: what `claimscore prompts ...` prints, and on standard error, with its status."""

    def call(*words: object, code: int = 0) -> str:
        assert main(["prompts", *map(str, words)]) == code
        streams = capsys.readouterr()
        return streams.out + streams.err

    return call


def mine(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_list_names_the_default_the_source_and_what_is_hidden(said: Any, tmp_path: Path) -> None:
    assert said("list").count("default") == len(prompt_names())
    mine(tmp_path, 'inherits = "v1"\nchanges = "Ours."\n', "facts/v1.toml")
    lines = [line.split() for line in said("list", "--prompts-dir", tmp_path).splitlines()]
    assert ["facts", "v1", "239addc9924c", str(tmp_path), "default", "Ours."] in lines
    assert ["facts", "v1", "239addc9924c", "claimscore", "hidden"] in [line[:5] for line in lines]
    found = json.loads(said("list", "--prompts-dir", tmp_path, "--json"))["prompts"]
    inheriting = [one for one in found if one["inherits"]]
    assert [one["source"] for one in inheriting] == [str(tmp_path)]
    assert "no such folder" in said("list", "--prompts-dir", tmp_path / "none", code=2)


def test_show_has_all_that_is_inherited(said: Any, tmp_path: Path) -> None:
    path = mine(tmp_path, 'name = "facts"\ninherits = "v1"\n[settings]\nmodel = "large"\n')
    shown = said("show", path)
    assert "facts mine @" in shown
    assert 'model = "large"' in shown
    assert "max_tokens = 1024" in shown
    assert "The blender is not quiet" in shown
    assert said("show", path, "--toml") == path.read_text()
    assert json.loads(said("show", "facts", "--json"))["digest"] == "239addc9924c"
    assert "versions of facts: v1, v2" in said("show", "facts=v9", code=2)


def test_diff_is_of_all_that_is_sent(said: Any, tmp_path: Path) -> None:
    path = mine(tmp_path, 'name = "facts"\ninherits = "v1"\n[settings]\ntemperature = 0.2\n')
    lines = said("diff", "facts", path).splitlines()
    assert lines[:2] == ["--- facts v1 @239addc9924c", lines[1]]
    assert lines[1].startswith("+++ facts mine @")
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        "-temperature = 0.0",
        "+temperature = 0.2",
    ]
    copy = mine(tmp_path, 'name = "facts"\ninherits = "v1"\n', "copy.toml")
    assert said("diff", "facts=v1", copy) == "no difference: both are @239addc9924c\n"
    assert "+++ decompose v2 @" in said("diff", "decompose=v1", "decompose=v2")


@pytest.mark.parametrize(
    ("task", "version"),
    [(task, version) for task in prompt_names() for version in available_versions(task)],
)
def test_our_prompts_are_right(task: str, version: str, said: Any) -> None:
    checked = json.loads(said("check", f"{task}={version}", "--json"))
    trial = checked["trial"]
    assert (checked["problems"], checked["notes"], trial["failures"]) == ([], [], [])
    assert bool(trial["rows"]) == (task in ("decompose", "facts")) == (not trial["why_not"])
    assert trial["prompt_bytes"] == sum(
        len(message["content"].encode()) for message in trial["messages"]
    )
    assert trial["prompt_tokens"] == round(trial["prompt_bytes"] / 4)
    assert 0 < trial["own_tokens"] < trial["prompt_tokens"]


def test_check_shows_the_users_first_record_and_its_rows(said: Any) -> None:
    shown = said("check", "facts", EXAMPLES / "products.jsonl")
    assert "rendered for record kettle-1" in shown
    assert "4 a token, as estimate counts" in shown
    assert '"subject": "kettle", "description": "fast"' in shown
    assert "[4 rows]" in shown


def test_check_reads_other_columns_and_says_which_may_be_meant(said: Any, tmp_path: Path) -> None:
    source = tmp_path / "articles.csv"
    source.write_text('article,highlights\n"It rained. It was cold.",Rain.\nx,\n')
    refused = said("check", "decompose", source, code=2)
    assert "is --columns summary=highlights,source=article meant?" in refused
    shown = said("check", "decompose", source, "--columns", "summary=highlights")
    assert "rendered for record 0 of" in shown
    assert "\n[user]\nRain.\n" in shown
    other = ("check", "decompose", source, "--columns", "summary=none")
    assert "--columns summary=none: no column none" in said(*other, code=2)
    for call in (("decompose",), (EXAMPLES / "tone.toml", source)):
        assert "--columns goes with" in said("check", *call, "--columns", "text=x", code=2)


def test_check_tells_all_that_is_wrong_with_its_lines(said: Any, tmp_path: Path) -> None:
    path = mine(
        tmp_path,
        'name = "decompose"\ninherits = "v1"\nuser = "Split: $txt"\n[output]\nclaim = "string"\n',
    )
    shown = said("check", path, code=2)
    assert f"problem: {path}, line 3: the prompt uses $txt, which is not there; did you" in shown
    assert f"problem: {path}, line 3: the prompt never uses $text" in shown
    assert f"problem: {path}, line 4: [output] must be" in shown
    assert "rendered" not in shown
    broken = mine(tmp_path, 'name = "facts"\n[setings]\n', "broken.toml")
    assert f"error: {broken}, line 2: unknown key 'setings'" in said("check", broken, code=2)


def test_check_notes_what_may_not_be_meant(said: Any, tmp_path: Path) -> None:
    text = 'name = "facts"\nversion = "v1"\ninherits = "v1"\nsystem = "Facts."\n'
    assert "as those of our prompt of that name" in said("check", mine(tmp_path, text))
    mine(tmp_path, text, "prompts/facts/v7.toml")
    shown = said("check", "facts=v7", "--prompts-dir", tmp_path / "prompts")
    assert 'note: the file says version = "v1"; in a folder of prompts its name counts' in shown


def test_check_of_a_table_prompt(said: Any) -> None:
    tone = EXAMPLES / "tone.toml"
    shown = said("check", tone)
    assert "Review: $text" in shown
    assert "not sent" in shown
    assert "The kettle is quiet" in said("check", tone, EXAMPLES / "reviews.csv")
    assert "the prompt uses $text" in said("check", tone, EXAMPLES / "rated.csv", code=2)


def test_a_broken_file_is_told_beside_the_list(said: Any, tmp_path: Path) -> None:
    mine(tmp_path, "x = 1\n", "facts/bad.toml")
    mine(tmp_path, 'inherits = "v1"\n', "facts/good.toml")
    text = said("list", "--prompts-dir", tmp_path, code=2)
    assert "good" in text
    assert "bad.toml, line 1: unknown key 'x'" in text


@pytest.mark.parametrize(
    ("version", "answer", "message"),
    [
        ("v1", "no JSON", "example 1 answers what would be refused"),
        ("v1", '{"claim": []}', "refused: .*claim"),
        ("v2", '{"claims": ["x"]}', "refused: .*answers"),
    ],
)
def test_an_example_that_teaches_what_is_refused(
    said: Any, tmp_path: Path, version: str, answer: str, message: str
) -> None:
    path = mine(
        tmp_path,
        f'name = "decompose"\ninherits = "{version}"\n[[examples]]\nuser = "1. x"\n'
        f"assistant = '{answer}'\n",
    )
    (note,) = json.loads(said("check", path, "--json"))["notes"]
    assert re.search(message, note)
    assert json.loads(said("check", f"decompose={version}", "--json"))["notes"] == []
