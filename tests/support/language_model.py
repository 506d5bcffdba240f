"""A stand-in for a language model that judges, asks and answers; behind the loopback server."""

import json
import math
import re

from claimscore.types import Completion, TokenLogprob, Usage
from tests.fake_server import Body

_WORDS = re.compile(r"\w+")


async def judging_answer(body: Body) -> Completion:
    """By the schema's name: a grade with log-probabilities, questions, an answer, or a verdict.

    A question asks for the word after another one; the answer is looked up in the text.
    """
    task = body["response_format"]["json_schema"]["name"]
    content = body["messages"][-1]["content"]
    if task == "judge":
        return grade(_score_of(content))
    if task == "questions":
        return _saying({"questions": questions_about(content)})
    if task == "verify":
        source, _, claim = content.rpartition("\n\nClaim: ")
        verdict = "supported" if claim in source else "unmentioned"
        return _saying({"verdict": verdict, "evidence": claim if claim in source else ""})
    text, _, question = content.rpartition("Question: ")
    match = re.search(rf"\b{question.split()[-1].rstrip('?')} (\w+)", text)
    return _saying({"answerable": match is not None, "answer": match[1] if match else ""})


def questions_about(text: str) -> list[dict[str, str]]:
    """For each sentence: which word comes after its first two?"""
    sentences = [_WORDS.findall(sentence) for sentence in text.split(".")]
    return [
        {"question": f"Which word comes after {words[1]}?", "answer": words[2]}
        for words in sentences
        if len(words) > 2
    ]


def grade(score: int, probabilities: dict[int, float] | None = None) -> Completion:
    """`{"score": N}` with probabilities at its place: those given, else half of it elsewhere."""
    others = {score: 0.5, score % 5 + 1: 0.25}
    top = tuple((str(s), math.log(p)) for s, p in (probabilities or others).items())
    place = TokenLogprob(str(score), dict(top)[str(score)], top)
    tokens = (TokenLogprob('{"', 0.0), TokenLogprob("score", 0.0), TokenLogprob('": ', 0.0), place)
    text = f'{{"score": {score}}}'
    return Completion(text, "m", "stop", Usage(), logprobs=(*tokens, TokenLogprob("}", 0.0)))


def _score_of(content: str) -> int:
    """Any score, the same for the same question."""
    return sum(content.encode()) % 5 + 1


def _saying(answer: dict[str, object]) -> Completion:
    return Completion(json.dumps(answer), "m")
