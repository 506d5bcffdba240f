"""The provider behind `--llm builtin`: claims and facts by a parser; nothing is sent anywhere."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from anyio import CapacityLimiter, Event, to_thread

from claimscore import minilm
from claimscore.baseline import parser
from claimscore.baseline.extraction import extract
from claimscore.baseline.facts import facts
from claimscore.baseline.references import Antecedents, Mentions, completed, mentions_of
from claimscore.baseline.tree import Tree, move_stops, sentences_of
from claimscore.config import LLMConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.providers.base import Vendor
from claimscore.types import ANSWERS, JSON, TEXT_NUMBER, Completion, Request

_REMEMBERED = 10_000
_YEAR = r"(?: \([12]\d{3}(?:[–-](?:\d{2,4}|present))?\))"
_TITLE = rf'(?:["“][^"“”()]+["”]{_YEAR}?|[A-Z0-9][^,;()"“”]*?{_YEAR})'
_LISTING = re.compile(
    r"(?P<before>.*?\b(?:include|includes|included|including|such as|like|in|series|films|albums) )"
    rf"(?P<titles>{_TITLE}(?:, {_TITLE})*),? and (?P<last>{_TITLE})\.?"
)
_SEMICOLON = re.compile(r"; (?![^()]*\))")


class _Reading(NamedTuple):
    """The claims of a sentence, part by part, with what each part mentions."""

    claims: list[list[str]]
    mentions: list[Mentions]


class ClaimMaker:
    """Makes the claims of texts; sentences that it has seen before cost nothing."""

    def __init__(self) -> None:
        self._known: dict[str, _Reading] = {}

    def claims(self, texts: Sequence[str], before: Sequence[str] = ()) -> list[list[str]]:
        """The single claims of each text, sentence by sentence, each a sentence.

        `before` holds what stands before each text: with the earlier sentences of the text it says
        what a pronoun stands for. A sentence that is one claim, or cannot be cut with certainty, is
        one claim as it stands. The words of a claim are those of its sentence, with articles, forms
        of "be", "at" and the past tense of participles, and with names for pronouns. Sentences are
        parsed together. `ValueError` where `before` has another length than `texts`; `ConfigError`
        where the parser's backbone is not installed.
        """
        of_texts = [sentences_of(text) for text in texts]
        contexts = [sentences_of(text) for text in before or [""] * len(texts)]
        read = self._read([s for sentences in (*contexts, *of_texts) for s in sentences])
        made: list[list[str]] = []
        for context, sentences in zip(contexts, of_texts, strict=True):
            antecedents = Antecedents()
            for mentions in (m for sentence in context for m in read[sentence].mentions):
                antecedents.read(mentions)
            parts = (part for sentence in sentences for part in zip(*read[sentence], strict=True))
            of_text: list[str] = []
            for claims, mentions in parts:
                names = antecedents.read(mentions)
                of_text += [completed(claim, names, mentions.her) for claim in claims]
            made.append(of_text)
        return made

    def _read(self, sentences: Sequence[str]) -> dict[str, _Reading]:
        """The reading of each sentence."""
        known = self._known
        readings = {s: known[s] for s in sentences if s in known}
        new = [s for s in dict.fromkeys(sentences) if s not in readings]
        first = {s: _with_first_title(s) for s in new}
        parts = {s: _SEMICOLON.split(text) for s, (text, _) in first.items()}
        trees = iter(parser.load().parse_all([part for s in new for part in parts[s]]))
        for sentence in new:
            text, titles = first[sentence]
            of_parts = list(islice(trees, len(parts[sentence])))
            mentions = [mentions_of(tree) for tree in of_parts]  # before the trees are cut
            claims = _claims_of(text, parts[sentence], of_parts)
            claims = [_with_each_title(of_part, titles) for of_part in claims]
            known[sentence] = readings[sentence] = _Reading(claims, mentions)
        for oldest in list(islice(known, max(0, len(known) - _REMEMBERED))):
            known.pop(oldest, None)
        return readings


def _with_first_title(sentence: str) -> tuple[str, list[str]]:
    """A sentence that ends with a list of titles, with the first of them alone; and the titles.

    Titles are in quotation marks, or each has a year in brackets behind it, so that they are known
    from the text: parsers read such lists badly.
    """
    text = move_stops(sentence)
    listing = _LISTING.fullmatch(text)
    if listing is None:
        return sentence, []
    listed = [*re.findall(_TITLE, listing["titles"]), listing["last"]]
    titles = [re.sub(f"{_YEAR}$", "", title) for title in listed]
    return f"{listing['before']}{titles[0]}.", titles


def _with_each_title(claims: list[str], titles: list[str]) -> list[str]:
    """Claims of a sentence with its first title, and those with this one for each other title."""
    repeated = [
        claim.replace(titles[0], title) if titles else claim
        for claim in claims
        for title in (titles if titles and titles[0] in claim else titles[:1] or [""])
    ]
    return list(dict.fromkeys(repeated))


def _claims_of(sentence: str, parts: list[str], trees: list[Tree | None]) -> list[list[str]]:
    """The claims of each part of a sentence between semicolons; all are the first one's where not
    each part is a clause."""
    if all(tree is not None and tree.is_clause() for tree in trees):
        pairs = zip(parts, trees, strict=True)
        return [(extract(tree) if tree else None) or [_whole(part)] for part, tree in pairs]
    tree = trees[0] if len(trees) == 1 else None
    return [(extract(tree) if tree else None) or [_whole(sentence)], *([] for _ in trees[1:])]


def _whole(sentence: str) -> str:
    """A sentence as one claim, with a capital and an end mark."""
    text = _capitalised(sentence.strip().rstrip(",;:"))
    closed = text.rstrip("\"'”’)]»")
    return text if closed[-1:] in tuple(".!?…。！？") else text + "."


def _capitalised(text: str) -> str:
    """The first letter as a capital, unless a digit stands before it."""
    for i, char in enumerate(text):
        if char.isalpha():
            upper = char.upper()
            same = upper.lower() == char.lower()  # not "ß" or the micro sign
            return text[:i] + (upper if same else char) + text[i + 1 :]
        if char.isdigit():
            return text
    return text


#: The model's name: another one for every change of what it answers.
MODEL = "builtin-parser-9"

_NUMBERED = re.compile(r"(\d+)\. (.*)")
#: Most requests whose sentences are parsed together.
_TOGETHER = 32


class Passage(NamedTuple):
    """A text, and what stands before it."""

    text: str
    before: str = ""


def _fact_answers(passages: Sequence[Passage]) -> list[JSON]:
    return [
        {"facts": [{"subject": s, "description": d} for s, d in of_text]}
        for of_text in facts([passage.text for passage in passages])
    ]


class _Asked:
    """The texts of a request, and their answers once they are made."""

    def __init__(self, texts: list[Passage]) -> None:
        self.texts = texts
        self.answers: list[JSON] | None = None
        self.is_over = Event()


class BuiltinProvider(Vendor):
    """Answers `tasks`, by the name of the output schema; the same request gets the same bytes.

    Samples do not differ: temperature and `sample_index` change nothing.
    """

    family = "builtin"
    namespace = "builtin"
    model = MODEL
    usage = "builtin", "a small parser that makes claims and facts, no key (extra: offline)"
    is_local = True
    tasks = ("decompose", "facts")
    prompts = MappingProxyType({"decompose": "v3"})

    def __init__(self) -> None:
        self._maker = ClaimMaker()
        self._turns = CapacityLimiter(os.cpu_count() or 1)
        self._waiting: defaultdict[str, list[_Asked]] = defaultdict(list)
        self._answer: dict[str, Callable[[Sequence[Passage]], list[JSON]]] = {
            "decompose": self._claim_answers,
            "facts": _fact_answers,
        }

    @classmethod
    def from_config(cls, config: LLMConfig) -> BuiltinProvider:
        """`ConfigError` where the parser's weights are neither here nor to be had."""
        minilm.find(offline=config.offline)
        return cls()

    @classmethod
    def check_tasks(cls, names: Sequence[str]) -> None:
        """`ConfigError` for other tasks than `tasks`."""
        if beyond := [name for name in names if name not in cls.tasks]:
            raise ConfigError(
                f"{', '.join(beyond)}: --llm builtin can only do {' and '.join(cls.tasks)}; "
                "name a language model, as in --llm openai:MODEL"
            )

    async def complete(self, request: Request) -> Completion:
        """`ConfigError` for a task that is not in `tasks`."""
        task = request.output.name if request.output is not None else ""
        if task not in self.tasks:
            self.check_tasks([task or "free text"])
        extra: JSON = {"ambiguous": []} if _asks_for_ambiguous(request) else {}
        answers = [{**answer, **extra} for answer in await self._answers(task, texts_of(request))]
        answer: JSON = answers[0]
        if _is_numbered(request):
            numbered = enumerate(answers, start=1)
            answer = {ANSWERS: [{TEXT_NUMBER: k, **of_text} for k, of_text in numbered]}
        return Completion(text=json.dumps(answer, ensure_ascii=False), model=self.model)

    def _claim_answers(self, passages: Sequence[Passage]) -> list[JSON]:
        texts, before = zip(*passages, strict=True)
        return [{"claims": claims} for claims in self._maker.claims(texts, before)]

    async def _answers(self, task: str, texts: list[Passage]) -> list[JSON]:
        """The answers to a request's texts. All requests that wait for a thread go together, since
        the parser reads many sentences in less time than one by one."""
        asked, waiting = _Asked(texts), self._waiting[task]
        waiting.append(asked)
        async with self._turns:
            if asked in waiting:
                together = waiting[:_TOGETHER]
                del waiting[:_TOGETHER]
                try:
                    of_all = [text for one in together for text in one.texts]
                    made = iter(await to_thread.run_sync(self._answer[task], of_all))
                    for one in together:
                        one.answers = list(islice(made, len(one.texts)))
                finally:
                    for one in together:
                        one.is_over.set()
        await asked.is_over.wait()
        if asked.answers is None:  # the request that took it along was cancelled, or failed
            return await self._answers(task, texts)
        return asked.answers

    async def aclose(self) -> None:
        """Nothing to close."""


def _is_numbered(request: Request) -> bool:
    properties = request.output.schema.get("properties", {}) if request.output else {}
    return set(properties) == {ANSWERS}


def _asks_for_ambiguous(request: Request) -> bool:
    """Whether an answer has the column of claims that cannot be decided: this maker has none."""
    return request.output is not None and '"ambiguous"' in json.dumps(request.output.schema)


def texts_of(request: Request) -> list[Passage]:
    """The texts that a request is about: where several answers are asked for, the numbered list;
    else what stands for `$text` with `$before` ahead of it, or for the only placeholder of a
    prompt; else all of the last user message. A text moves none of them, whatever tags it has."""
    given = request.texts
    content = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    if _is_numbered(request):
        return [Passage(text) for text in numbered_texts(given.get("texts", content))]
    only = next(iter(given.values())) if len(given) == 1 else content
    return [Passage(given.get("text", only).strip(), given.get("before", ""))]


def numbered_texts(content: str) -> list[str]:
    """The texts of the last list `1. ...`, one a line."""
    texts: list[str] = []
    for line in content.split("\n"):
        numbered = _NUMBERED.fullmatch(line)
        if numbered is None:
            continue
        number = int(numbered[1])
        if number == 1:
            texts = []
        if number == len(texts) + 1:
            texts.append(numbered[2])
    return texts
