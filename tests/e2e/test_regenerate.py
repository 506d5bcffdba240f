"""A changed prompt, model or input buys what is new and nothing else, by a server that counts."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimscore.pipeline import model_stage as working
from tests.fake_server import Body, FakeServer, plain_answer
from tests.support.command_line import claimscore, table
from tests.support.pass_doubles import FunctionClassifier
from tests.support.rated_tables import write_jsonl

TASKS = "decompose,paraphrase,negate,facts"
PRICES = ("--input-price", "1", "--output-price", "4")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def records(path: Path, n: int) -> Path:
    """Pairs of two sentences each, no two alike, and a source."""
    lines = [
        {
            "id": f"r{i}",
            "summary_a": f"Room {i} is clean and quiet. Floor {i} is loud.",
            "summary_b": f"Bed {i} is hard. The pool of house {i} is warm and large.",
            "source": f"The garden of house {i} was lovely.",
        }
        for i in range(n)
    ]
    return write_jsonl(path, lines)


def asked_by(body: Body) -> str:
    """The task of a request, as its output schema is named."""
    name: str = body["response_format"]["json_schema"]["name"]
    return name


def run(server: FakeServer, source: Path, out: Path, *more: object, code: int = 0) -> Counter[str]:
    """Run all tasks; how many requests of each task the server has had by it."""
    before = len(server.bodies)
    options = ("--metrics", "ds", "--tasks", TASKS, "--llm", "openai:m")
    call = ("run", source, "--out", out, *options, "--base-url", server.base_url, *more)
    assert claimscore(*call) == code
    return Counter(map(asked_by, server.bodies[before:]))


def our_prompt(tmp_path: Path, task: str, old: str = "", new: str = "") -> Path:
    """A copy of our prompt as the user's v7 of it, with one word changed."""
    from claimscore.prompts import Spec

    text = Spec(task, "v1").path().read_text().replace('version = "v1"', 'version = "v7"')
    assert old in text
    path = tmp_path / "prompts" / task / "v7.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
    return path


def test_nothing_changed_sends_nothing(server: FakeServer, tmp_path: Path) -> None:
    source = records(tmp_path / "in.jsonl", 4)
    first = run(server, source, tmp_path / "a")
    assert first == {"decompose": 16, "paraphrase": 16, "negate": 24, "facts": 12}
    assert not run(server, source, tmp_path / "a")
    assert not run(server, source, tmp_path / "b")
    copy = our_prompt(tmp_path, "decompose")
    assert not run(server, source, tmp_path / "c", "--prompt", f"decompose={copy}")
    assert set(table(tmp_path / "c", "claims")["prompt_version"]) == {"v7"}


def test_one_word_in_a_prompt_resends_that_task_alone(server: FakeServer, tmp_path: Path) -> None:
    """The same claims came back, so the task that reads them has nothing new to ask."""
    source = records(tmp_path / "in.jsonl", 4)
    run(server, source, tmp_path / "a")
    our_prompt(tmp_path, "decompose", "simple", "plain")
    changed = ("--prompt", "decompose=v7", "--prompts-dir", tmp_path / "prompts")
    assert run(server, source, tmp_path / "b", *changed) == {"decompose": 16}
    assert max(server.paid.values()) == 1
    told = table(tmp_path / "b", "claims").select("prompt", "prompt_version", "prompt_digest")
    assert told.unique().height == 1
    assert told.row(0)[:2] == ("decompose", "v7")
    assert told.row(0)[2] != table(tmp_path / "a", "claims")["prompt_digest"][0]
    assert set(table(tmp_path / "b", "negations")["prompt_version"]) == {"v1"}


def test_what_reads_the_rows_is_asked_about_new_rows_alone(tmp_path: Path) -> None:
    """The changed prompt changes the claims of one sentence: two new claims are negated."""

    async def answer(body: Body) -> Any:
        said = await plain_answer(body)
        if asked_by(body) == "decompose" and "plain" in json.dumps(body["messages"][0]):
            text = said.text.replace("Room 2 is clean", "Room 2 is spotless")
            return type(said)(text, said.model, said.finish_reason, said.usage)
        return said

    source = records(tmp_path / "in.jsonl", 4)
    with FakeServer(answer=answer) as server:
        run(server, source, tmp_path / "a")
        our_prompt(tmp_path, "decompose", "simple", "plain")
        changed = ("--prompt", "decompose=v7", "--prompts-dir", tmp_path / "prompts")
        sent = run(server, source, tmp_path / "b", *changed)
    assert sent == {"decompose": 16, "negate": 1}
    negated = [body for body in server.bodies if asked_by(body) == "negate"]
    assert negated[-1]["messages"][-1]["content"] == "Room 2 is spotless."


def test_another_model_for_facts_resends_facts_alone(server: FakeServer, tmp_path: Path) -> None:
    source = records(tmp_path / "in.jsonl", 4)
    run(server, source, tmp_path / "a")
    large = f"facts=openai:large@{server.base_url}"
    assert run(server, source, tmp_path / "b", "--llm", large) == {"facts": 12}
    assert {body["model"] for body in server.bodies[-12:]} == {"large"}
    assert 'model = "large"' in (tmp_path / "b" / "run.toml").read_text()


def test_it_is_said_before_anything_is_sent(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = records(tmp_path / "in.jsonl", 4)
    run(server, source, tmp_path / "a", *PRICES)
    capsys.readouterr()
    sent = run(server, source, tmp_path / "b", "--prompt", "decompose=v2", *PRICES)
    said = capsys.readouterr().err
    assert "asks openai:m: decompose v2, 8 requests for 8 questions; " in said
    assert "; facts v1, 0 requests for 0 of 12 questions (12 have stored answers)\n" in said
    assert "cost: about $0.00" in said
    assert sent == {"decompose": 8}
    capsys.readouterr()
    run(server, source, tmp_path / "b", "--prompt", "decompose=v2", *PRICES)
    assert "requests" not in capsys.readouterr().err, "nothing is missing: nothing to say"
    run(server, source, tmp_path / "c", "--prompt", "decompose=v2", "--quiet")
    assert capsys.readouterr().err == ""


def test_only_new_pairs_go_through_the_model(
    server: FakeServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The claims of the other version are the same but for one summary's: its pairs are new."""
    source = records(tmp_path / "in.jsonl", 3)
    model = FunctionClassifier(lambda *_: (0.2, 0.3, 0.5))
    monkeypatch.setattr(working, "load_model", lambda role, config: model)

    def score(out: str, *more: object) -> Any:
        call = ("run", source, "--out", tmp_path / out, "--metrics", "caspr", "--json", *more)
        address = ("--llm", "openai:m", "--base-url", server.base_url)
        assert claimscore(*call, *address) == 0
        return json.loads(capsys.readouterr().out)["last_call"]

    first = score("a")["model_items"]
    assert first == {"computed": len(model.asked), "stored": 0}
    again = score("b", "--prompt", "decompose=v2")
    assert again["requests"] == 6
    assert again["model_items"] == {"computed": 0, "stored": first["computed"]}
    lines = source.read_text().splitlines()
    changed = json.loads(lines[1]) | {"summary_b": "The pool is cold."}
    source.write_text("\n".join([lines[0], json.dumps(changed), lines[2]]) + "\n")
    third = score("c", "--prompt", "decompose=v2")
    assert third["requests"] == 1
    claims = table(tmp_path / "c", "claims").filter(id="r1")
    n_a, n_b = (claims.filter(side=side).height for side in ("a", "b"))
    assert (n_a, n_b) == (3, 1)
    assert third["model_items"]["computed"] == 2 * n_a * n_b
    assert len(model.asked) == len(set(model.asked)) == first["computed"] + 2 * n_a * n_b
