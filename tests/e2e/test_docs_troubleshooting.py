"""The messages on the page of troubleshooting are those that the commands print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command_line import Command

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
GOOD = '{"id": "1", "summary_a": "Rooms are clean.", "summary_b": "Rooms are dirty."}\n'
SERVER = "--metrics caspr --llm openai:m --base-url"


class Trouble(NamedTuple):
    """A command that prints a message of the page; `first` is run before it."""

    content: str
    command: str
    status: int = 2
    first: str = ""
    file: str = "pairs.jsonl"


TROUBLES = {
    "A column is missing": Trouble(
        GOOD.replace("summary_b", "summry_b"), "run pairs.jsonl --out runs/first --metrics ds"
    ),
    "An id occurs twice": Trouble(GOOD * 2, "run pairs.jsonl --out runs/first --metrics ds"),
    "A line is no JSON": Trouble(
        GOOD + '{"id": "2",\n', "run pairs.jsonl --out runs/first --metrics ds"
    ),
    "A CSV row has too many fields": Trouble(
        "id,summary_a,summary_b\n1,Rooms, they say, are clean.\n",
        "run pairs.csv --out runs/first --metrics ds",
        file="pairs.csv",
    ),
    "The run directory has other settings": Trouble(
        GOOD,
        "run pairs.jsonl --out runs/first --metrics ds --seed 3",
        first="run pairs.jsonl --out runs/first --metrics ds",
    ),
    "A metric or prompt is unknown": Trouble(
        GOOD, "run pairs.jsonl --out runs/first --metrics casper"
    ),
    "The built-in parser cannot do this task": Trouble(
        '{"summary": "Rooms are clean.", "source": "Rooms are clean."}\n',
        "run pairs.jsonl --out runs/first --metrics llm-judge",
    ),
    "The key would go over plain http": Trouble(
        GOOD, f"run pairs.jsonl --out runs/first {SERVER} http://models.example/v1"
    ),
    "The price is not known": Trouble(
        GOOD, f"run pairs.jsonl --out runs/first {SERVER} http://localhost:9/v1 --max-cost 5"
    ),
    "A cap is reached": Trouble(
        GOOD, "run pairs.jsonl --out runs/first --metrics caspr --max-requests 1", status=75
    ),
    "The server does not answer": Trouble(
        GOOD,
        f"run pairs.jsonl --out runs/first {SERVER} http://localhost:9/v1 --max-outage-s 1",
        status=75,
    ),
    "A model is not on this machine": Trouble(
        GOOD, "run pairs.jsonl --out runs/first --metrics caspr --nli no/such --offline"
    ),
}


def message(heading: str) -> str:
    """The first text block under the heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2]
    found = re.search(r"```text\n(.*?)\n```", section.partition("\n### ")[0], re.DOTALL)
    assert found is not None, heading
    return found[1]


@pytest.mark.parametrize("heading", TROUBLES)
def test_messages_are_as_printed(
    heading: str, cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`...` on the page stands for anything."""
    trouble = TROUBLES[heading]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    Path(trouble.file).write_text(trouble.content, encoding="utf-8")
    if trouble.first:
        assert cli(*trouble.first.split()).status == 0
    result = cli(*trouble.command.split())
    pattern = ".*".join(re.escape(part) for part in message(heading).split("..."))
    assert re.search(pattern, result.err, re.DOTALL), result.err
    assert result.status == trouble.status
