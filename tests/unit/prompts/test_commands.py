"""`claimscore prompts`: what it lists, shows, compares and finds wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from claimscore.cli import main
from claimscore.prompts import available_versions, prompt_names
from tests.support.prompt_files import prompt_file

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """A function: what `claimscore prompts ...` prints, and on standard error, with its status."""

    def call(*words: object, code: int = 0) -> str:
        assert main(["prompts", *map(str, words)]) == code
        streams = capsys.readouterr()
        return streams.out + streams.err

    return call


def test_list_names_the_default_and_the_source(said: Any, tmp_path: Path) -> None:
    listed = [line.split()[:5] for line in said("list").splitlines()]
    assert sum("yes" in line for line in listed) == len(prompt_names())
    assert [line[:2] for line in listed if "builtin" in line] == [["decompose", "v3"]]
    prompt_file(tmp_path / "facts" / "v1.toml", "facts=v1", 'changes = "Ours."')
    lines = [line.split() for line in said("list", "--prompts-dir", tmp_path).splitlines()]
    assert ["facts", "v1", "239addc9924c", str(tmp_path), "yes", "Ours."] in lines
    found = json.loads(said("list", "--prompts-dir", tmp_path, "--json"))["prompts"]
    assert [one["source"] for one in found].count(str(tmp_path)) == 1
    assert "no such folder" in said("list", "--prompts-dir", tmp_path / "none", code=2)
    (tmp_path / "facts" / "bad.toml").write_text("x = 1\n")
    text = said("list", "--prompts-dir", tmp_path, code=2)
    assert "bad.toml: x: Extra inputs" in text
    assert "Ours." in text


def test_show_has_all_that_is_sent(said: Any, tmp_path: Path) -> None:
    path = prompt_file(tmp_path / "mine.toml", "facts=v1", "[settings]\ntemperature = 0.5\n")
    shown = said("show", path)
    assert "facts mine @" in shown
    assert "temperature = 0.5" in shown
    assert "max_tokens = 1024" in shown
    assert "The blender is not quiet" in shown
    assert said("show", path, "--toml") == path.read_text()
    assert json.loads(said("show", "facts", "--json"))["digest"] == "239addc9924c"
    assert "versions of facts: v1, v2" in said("show", "facts=v9", code=2)


def test_diff_is_of_all_that_is_sent(said: Any, tmp_path: Path) -> None:
    path = prompt_file(tmp_path / "mine.toml", "facts=v1", "[settings]\ntemperature = 0.2\n")
    lines = said("diff", "facts", path).splitlines()
    assert lines[:2] == ["--- facts v1 @239addc9924c", lines[1]]
    assert lines[1].startswith("+++ facts mine @")
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        "-temperature = 0.0",
        "+temperature = 0.2",
    ]
    copy = prompt_file(tmp_path / "copy.toml", "facts=v1")
    assert said("diff", "facts=v1", copy) == "no difference: both are @239addc9924c\n"
    assert "+++ decompose v2 @" in said("diff", "decompose=v1", "decompose=v2")


@pytest.mark.parametrize(
    ("task", "version"),
    [(task, version) for task in prompt_names() for version in available_versions(task)],
)
def test_our_prompts_are_right(task: str, version: str, said: Any) -> None:
    checked = json.loads(said("check", f"{task}={version}", "--json"))
    assert (checked["task"], checked["problems"], checked["notes"]) == (task, [], [])


def test_check_tells_all_that_is_wrong(said: Any, tmp_path: Path) -> None:
    path = prompt_file(
        tmp_path / "mine.toml", "decompose=v1", 'user = "Split: $txt"\n[output]\nclaim = "string"\n'
    )
    for named in (path, f"decompose={path}"):
        shown = said("check", named, code=2)
        assert f"problem: {path}: the prompt uses $txt, which is not there; did you" in shown
        assert f"problem: {path}: the prompt never uses $text" in shown
        assert f"problem: {path}: [output] must be" in shown
    path.write_text(
        'name = "decompose"\nversion = "v9"\nuser = "$before $texts"\n[settings]\n'
        'texts_per_request = 2\n[output]\nambiguous = ["string"]\nclaims = ["string"]\n'
    )
    alone = f"problem: {path}: the prompt uses $before, which is not there"
    assert [line for line in said("check", path, code=2).splitlines() if "problem" in line] == [
        f"{alone} (there is: $summary, $texts)"
    ]
    assert f"{path}: the prompt never uses $source" in said("check", f"verify={path}", code=2)
    path.write_text(
        'name = "verify"\nversion = "v9"\nuser = "$text $source"\n'
        '[label_words]\nyes = "Yes"\nno = "No"\n'
    )
    labels = "[label_words] must be of supported and unmentioned, not of yes and no"
    assert f"problem: {path}: {labels}" in said("check", path, code=2)
    assert f"problem: {path}: [output] must be" in said("check", f"judge={path}", code=2)
    path.write_text('name = "facts"\n[setings]\n')
    assert f"{path}: setings: Extra inputs" in said("check", path, code=2)


def test_check_notes_what_may_not_be_meant(said: Any, tmp_path: Path) -> None:
    path = prompt_file(tmp_path / "v1.toml", "facts=v1", 'system = "Facts."')
    assert "as those of our prompt of that name" in said("check", path)


def test_check_of_a_table_prompt(said: Any) -> None:
    shown = said("check", EXAMPLES / "tone.toml")
    assert "for a table (claimscore map)" in shown


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
    example = f"[[examples]]\nuser = \"1. x\"\nassistant = '{answer}'\n"
    path = prompt_file(tmp_path / "mine.toml", f"decompose={version}", example)
    (note,) = json.loads(said("check", path, "--json"))["notes"]
    assert re.search(message, note)
