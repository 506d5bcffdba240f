"""What the fake server says to the tasks of a run: always the same, of the text's words."""

import json
import re
from collections.abc import Callable
from typing import Any

from claimscore.types import ANSWERS, TEXT_NUMBER, Completion, TokenLogprob, Usage
from tests.fake_server.chat import Body


def claims(text: str) -> dict[str, Any]:
    """A claim for each part between commas, "and" and sentences; a part of one word takes the place
    of the last word before it: "The rooms are large and quiet"."""
    made: list[str] = []
    for part in re.split(r"(?<=\w)[.!?;,]\s|,? (?:and|but) ", text.strip().rstrip(".!?")):
        words = part.split()
        if len(words) == 1 and made:
            words = [*made[-1].split()[:-1], *words]
        if words:
            made.append(" ".join(words))
    return {"claims": [f"{claim[0].upper()}{claim[1:]}." for claim in made]}


def facts(text: str) -> dict[str, Any]:
    """A fact for each claim, of its second and its last word."""
    words = [re.findall(r"\w+", claim.lower()) for claim in claims(text)["claims"]]
    pairs = [(claim[1:2] or claim, claim[-1]) for claim in words if claim]
    return {"facts": [{"subject": first[0], "description": last} for first, last in pairs]}


#: Task, as the prompt's output schema is named -> its answer for a text.
ANSWERED: dict[str, Callable[[str], dict[str, Any]]] = {
    "decompose": claims,
    "facts": facts,
    "paraphrase": lambda text: {"paraphrase": f"In other words: {text}"},
    "negate": lambda text: {"negation": f"It is not true that {text[:1].lower()}{text[1:]}"},
}


async def plain_answer(body: Body) -> Completion:
    """The answer to a request as it came over the wire; of one about several texts, theirs.

    Without a schema a prompt asks for a word.
    """
    if "response_format" not in body:
        place = TokenLogprob("Yes", -0.1, (("Yes", -0.1),))
        return Completion("Yes", body["model"], "stop", Usage(), logprobs=(place,))
    schema = body["response_format"]["json_schema"]
    answer = ANSWERED[schema["name"]]
    content = [m["content"] for m in body["messages"] if m["role"] == "user"][-1]
    if set(schema["schema"].get("properties", {})) == {ANSWERS}:
        texts = numbered_texts(content)
        of_each = [{TEXT_NUMBER: k, **answer(text)} for k, text in enumerate(texts, start=1)]
        reply: dict[str, Any] = {ANSWERS: of_each}
    else:
        block = re.search(r"<text>(.*)</text>", content, re.DOTALL)
        reply = answer((block[1] if block else content).strip())
    return Completion(json.dumps(reply, ensure_ascii=False), body["model"], "stop", Usage())


def numbered_texts(content: str) -> list[str]:
    """The texts of the last list `1. ...`, one a line."""
    numbered = re.findall(r"(?m)^(\d+)\. (.*)$", content)
    last = max(place for place, (number, _) in enumerate(numbered) if number == "1")
    return [text for _, text in numbered[last:]]
