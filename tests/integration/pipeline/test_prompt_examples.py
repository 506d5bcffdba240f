"""`claimscore prompts from-labels`: examples from labels, and what they gain."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from claimscore.prompts import load_prompt, load_prompt_file
from claimscore.types import Completion, Usage
from tests.fake_server import Body, FakeServer
from tests.support.command_line import Command

#: The claims of a record and what people say of them.
CLAIMS = {
    "supported": "The room costs $5.",
    "contradicted": "The room costs $9.",
    "unmentioned": "It rains.",
}
SOURCE = "Guests use $source here. The room costs $5. " + " ".join(
    f"Line {n} is dull." for n in range(9)
)


def write_labels(path: Path, n: int = 10, policy: str = "") -> Path:
    rows = [
        {
            **{"metric": "faithfulness", "id": f"r{record}", "claim_position": place},
            **{"claim": f"{claim} {record}", "evidence": "", "source": SOURCE, "weight": 1.5},
            **{"sentence": f"Stay: {claim} {record}", "policy": policy if record else ""},
            "label": label,
        }
        for record in range(n)
        for place, (label, claim) in enumerate(CLAIMS.items())
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def answer(learns: bool) -> Any:
    """A model that takes what costs $9 for supported, until an example says otherwise."""

    async def verdict(body: Body) -> Completion:
        *examples, question = (message["content"] for message in body["messages"][1:])
        claim = question.rpartition("Claim: ")[2]
        said = next(label for label, text in CLAIMS.items() if claim.startswith(text))
        if said == "contradicted" and not (learns and "contradicted" in " ".join(examples)):
            said = "supported"
        evidence = "" if said == "unmentioned" else "The room costs $5."
        return Completion(
            json.dumps({"verdict": said, "evidence": evidence}), "m", "stop", Usage(9, 9)
        )

    return verdict


@pytest.fixture
def call(tmp_path: Path) -> tuple[Any, ...]:
    labels = write_labels(tmp_path / "labels.csv")
    out = ("--n", 4, "--out", tmp_path / "mine.toml", "--cache-dir", tmp_path / "cache")
    return ("prompts", "from-labels", "verify", labels, "--llm", "openai:m", *out)


def test_examples_that_help_are_written(
    tmp_path: Path, cli: Command, call: tuple[Any, ...]
) -> None:
    with FakeServer(answer=answer(learns=True)) as server:
        done = cli(*call, "--base-url", server.base_url, "--json")
        asked = len(server.bodies)
        assert cli(*call, "--base-url", server.base_url).status == 0
        assert len(server.bodies) == asked == 60, "the second call asks nothing"
    assert "asks openai:m twice about 30 claims" in done.err
    (gain,) = done.json()["gains"]
    assert (gain["before"], gain["after"]) == pytest.approx((2 / 3, 1))
    prompt, base = load_prompt_file(tmp_path / "mine.toml"), load_prompt("verify")
    assert (prompt.name, prompt.version) == ("verify", "mine")
    assert (prompt.system, prompt.user, prompt.output) == (base.system, base.user, base.output)
    verdicts = [json.loads(said)["verdict"] for _, said in prompt.examples]
    assert verdicts == ["supported", "contradicted", "unmentioned", "supported"]
    sent = prompt.render({"source": "S", "text": "T"})
    question = sent[3].content
    assert "Guests use $source here. The room costs $5." in question, "dollars are as they were"
    assert "Line 8" not in question
    assert json.loads(sent[4].content)["evidence"] == "The room costs $5."
    assert len({user.rpartition("Claim: ")[2][-1] for user, _ in prompt.examples}) == 4, "records"


def test_examples_that_do_not_help_are_not_written(
    tmp_path: Path, cli: Command, call: tuple[Any, ...]
) -> None:
    with FakeServer(answer=answer(learns=False)) as server:
        done = cli(*call, "--base-url", server.base_url)
        assert done.status == 4
        assert "no gain, so" in done.out
        capped = (*call, "--cache-dir", tmp_path / "new", "--max-requests", 40)
        stopped = cli(*capped, "--base-url", server.base_url)
    assert stopped.status == 75, "the cap holds for all that it asks"
    assert not (tmp_path / "mine.toml").exists()


def test_the_model_is_asked_with_the_sentence_of_each_claim(
    cli: Command, call: tuple[Any, ...]
) -> None:
    """Also in the examples, as a run asks."""
    changed = (*call[:2], "verify=v2", *call[3:])
    with FakeServer(answer=answer(learns=True)) as server:
        assert cli(*changed, "--base-url", server.base_url).status == 0
    questions = [
        message["content"]
        for body in server.bodies
        for message in body["messages"]
        if SOURCE[:9] in message["content"]
    ]
    assert len(questions) == 30 + 30 * 5
    for question in questions:
        claim = question.rpartition("Claim: ")[2]
        assert f"Sentence: Stay: {claim}\n" in question


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path, cli: Command, call: Any) -> None:
    few = write_labels(tmp_path / "few.csv", 4)
    mixed = write_labels(tmp_path / "mixed.csv", policy="sha256:abc")
    other = write_labels(tmp_path / "right.csv")
    other.write_text(other.read_text().replace("contradicted", "supported"), encoding="utf-8")
    with FakeServer(answer=answer(learns=False)) as server:
        url = ("--base-url", server.base_url)
        for place, value, message in (
            (3, few, "12 labels of claims"),
            (3, mixed, "labels of several policies do not go together"),
            (3, other, "the model says of each claim what people say"),
            (2, "decompose", "labels are of verdicts"),
            (9, tmp_path / "mine", "a prompt file is called as its version"),
        ):
            changed = list(call)
            changed[place] = value
            refused = cli(*changed, *url)
            assert refused.status == 2
            assert message in refused.err
