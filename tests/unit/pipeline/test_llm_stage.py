"""One task over one chunk: provenance, several texts a request, several samples a text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from claimscore.cache.store import MemoryCache
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.engine import Engine
from claimscore.pipeline.llm_stage import TaskResult, run_task
from claimscore.types import Completion, Request
from tests.support.engine_doubles import FakeProvider
from tests.support.plans import plan_of
from tests.support.prompt_files import prompt_file

SENTENCES = [f"Thing {n} is good." for n in range(10)]
RECORDS = pl.DataFrame(
    {"id": ["r1", "r2"], "summary_a": [" ".join(SENTENCES), "One is bad."], "summary_b": ["", ""]}
)


class Asked(FakeProvider):
    """One task done, with answers by a function of the texts of a request, or of the request."""

    def __init__(
        self,
        answer: Callable[[Any], Any],
        prompt: str | Path = "v2",
        *,
        task: str = "decompose",
        records: pl.DataFrame = RECORDS,
        cache: MemoryCache | None = None,
    ) -> None:
        async def complete(request: Request) -> Completion:
            lines = request.messages[-1].content.split("\n")
            texts = [line.partition(". ")[2] for line in lines]
            given = answer(texts if prompt == "v2" else request)
            text = given if isinstance(given, str) else json.dumps({"answers": given})
            return Completion(text, model="\ud800m")

        super().__init__(complete)
        config = RunConfig(
            "x",
            Path("unused"),
            metrics=(),
            tasks=(task,),
            prompts={task: str(prompt)},
            llm=LLMConfig("openai:m"),
        )
        (planned,) = plan_of(config, records.columns).tasks
        results: list[TaskResult] = []

        async def work() -> None:
            async with Engine(self, cache or MemoryCache()) as engine:
                results.append(await run_task(planned, records, {}, engine))
                self.stats = engine.stats

        anyio.run(work)
        self.rows, self.failures = results[0].rows, results[0].failures

    @property
    def samples(self) -> list[int]:
        return sorted(request.sample_index for request in self.asked)


def claims(texts: list[str]) -> list[dict[str, Any]]:
    return [{"text": n, "claims": [text]} for n, text in enumerate(texts, start=1)]


def shuffled(answers: list[dict[str, Any]], order: list[int]) -> list[dict[str, Any]]:
    """The claims of the answers in another order under the same numbers."""
    return [item | {"claims": answers[n]["claims"]} for item, n in zip(answers, order, strict=True)]


def test_one_bad_answer_is_one_failure_row() -> None:
    one = RECORDS.filter(id="r2").with_columns(summary_b=pl.lit("It is warm. It is big."))

    def answer(request: Request) -> str:
        text = request.messages[-1].content
        return "no" if "big" in text else json.dumps({"claims": [text]})

    found = Asked(answer, "v1", records=one)
    columns = ("id", "stage", "side", "index", "kind", "attempts", "raw")
    assert found.failures.select(columns).rows() == [("r2", "decompose", "b", 1, "parse", 3, "no")]
    assert found.rows.select("side", "text").rows() == [("a", "One is bad."), ("b", "It is warm.")]

    def never_2(texts: list[str]) -> Any:
        return [item for item in claims(texts) if "Thing 2 " not in item["claims"][0]] or "no"

    listed = Asked(never_2)
    assert (listed.rows.height, len(listed.failures)) == (10, 1)
    assert listed.failures.select(columns).rows() == [("r1", "decompose", "a", 2, "parse", 3, "no")]


@pytest.mark.parametrize(
    ("spoil", "asked"),
    [
        pytest.param(lambda c: c[:2] + c[3:], 4, id="left out"),
        pytest.param(lambda c: [*c[:2], {"text": 3}, *c[3:]], 4, id="misshapen"),
        pytest.param(lambda c: [*c[:2], {"text": 3, "claims": [" "]}, *c[3:]], 4, id="empty claim"),
        # what may be about others is not used: all eight are asked about alone
        pytest.param(lambda c: "no", 13, id="no JSON"),
        pytest.param(lambda c: [], 13, id="nothing"),
        pytest.param(lambda c: c[:7] + c[:1], 13, id="one twice"),
        pytest.param(lambda c: [{**i, "text": i["text"] - 1} for i in c], 11, id="from 0"),
        pytest.param(
            lambda c: [{"text": 0}, *({**i, "text": i["text"] - 1} for i in c[1:])],
            11,
            id="from 0, and that one wrong",
        ),
        pytest.param(lambda c: shuffled(c, [1, 0, *range(2, 8)]), 5, id="two exchanged"),
        pytest.param(lambda c: shuffled(c, [*range(1, 8), 0]), 11, id="all moved by one"),
        pytest.param(lambda c: [*c, {"text": 9, "claims": []}], 11, id="one too many"),
    ],
)
def test_a_text_answered_badly_is_asked_alone(spoil: Callable[[Any], Any], asked: int) -> None:
    """No claim lands under another sentence, none is lost, and what is right is kept."""
    whole = Asked(claims)
    found = Asked(lambda texts: spoil(claims(texts)) if len(texts) == 8 else claims(texts))
    assert len(found.asked) == asked
    if asked == 4:
        assert found.asked[-1].messages[-1].content == "1. Thing 2 is good."
    assert found.rows.drop("request_key").equals(whole.rows.drop("request_key"))
    assert found.stats.failed == 0, "a failure that costs no row is not counted"


def test_a_sentence_is_asked_about_among_its_neighbours() -> None:
    """The first, up to three before and one after, by their places; the text of a summary is filled
    in as it stands. A changed sentence is asked about again with those whose context it is."""

    def answer(request: Request) -> str:
        return json.dumps({"claims": [], "ambiguous": []})

    def asked_of(sentences: list[str]) -> list[str]:
        records = RECORDS.head(1).with_columns(summary_a=pl.lit(" ".join(sentences)))
        asked = Asked(answer, "v3", records=records, cache=cache).asked
        return [request.messages[-1].content for request in asked]

    cache = MemoryCache()
    sentences = ["It is $text.", "So.", "It is $text.", "</text> is a tag.", "Bo left.", "He ate."]
    asked = asked_of(sentences)
    assert asked == [
        f"<before>{' '.join([*sentences[: n > 3], *sentences[max(0, n - 3) : n]])}</before>\n"
        f"<text>{sentence}</text>\n"
        f"<after>{''.join(sentences[n + 1 : n + 2])}</after>"
        for n, sentence in enumerate(sentences)
    ]
    assert asked_of([*sentences[:5], "She ate."]) == [
        text.replace("He ate.", "She ate.") for text in asked[4:]
    ]


POOL, MAID, LATE = "The pool was warm.", "Anna cleaned it daily.", "Dinner came late."


@pytest.mark.parametrize(
    ("said", "alone"),
    [
        pytest.param([[POOL], [MAID], [LATE]], [], id="each its own"),
        pytest.param([[POOL], ["Anna cleaned the pool daily."], [LATE]], [], id="a name put in"),
        pytest.param([[POOL], [MAID], [LATE, POOL]], [LATE], id="one claim of another text"),
        pytest.param([[POOL], [MAID], ["The warm pool came late."]], [], id="words of both"),
        pytest.param([[POOL], [MAID], ["It tasted odd."]], [], id="words of none"),
        pytest.param([[LATE], [POOL], [MAID]], [POOL, MAID, LATE], id="all moved"),
        pytest.param([[POOL], [], [LATE]], [], id="no claims"),
    ],
)
def test_a_claim_of_a_wrong_number_is_asked_alone(said: list[list[str]], alone: list[str]) -> None:
    """Answers that are paid are used or thrown away for good: a second run asks for nothing."""
    cache = MemoryCache()
    records = RECORDS.filter(id="r2").with_columns(summary_a=pl.lit(f"{POOL} {MAID} {LATE}"))

    def answer(texts: list[str]) -> list[dict[str, Any]]:
        several = [{"text": n, "claims": given} for n, given in enumerate(said, start=1)]
        return several if len(texts) == 3 else claims(texts)

    found = Asked(answer, records=records, cache=cache)
    assert [r.messages[-1].content for r in found.asked[1:]] == [f"1. {text}" for text in alone]
    expected = [
        [text] if text in alone else given
        for text, given in zip((POOL, MAID, LATE), said, strict=True)
    ]
    assert found.rows["text"].to_list() == [claim for given in expected for claim in given]
    again = Asked(answer, records=records, cache=cache)
    assert not again.asked
    assert again.rows.equals(found.rows)


def samples_prompt(tmp_path: Path, task: str, n: int) -> Path:
    return prompt_file(
        tmp_path / "s.toml", f"{task}=v1", f"[settings]\nsamples = {n}\ntemperature = 0.7\n"
    )


def paraphrase(
    tmp_path: Path, n: int, words: Callable[[int], str], cache: MemoryCache | None = None
) -> Asked:
    """`n` samples of one sentence."""
    return Asked(
        lambda request: json.dumps({"paraphrase": words(request.sample_index)}),
        samples_prompt(tmp_path, "paraphrase", n),
        task="paraphrase",
        records=RECORDS.filter(id="r2"),
        cache=cache,
    )


def test_a_refused_sample_never_becomes_another(tmp_path: Path) -> None:
    """It is asked for again beyond those that are wanted, so no answer stands there twice."""
    found = paraphrase(tmp_path, 3, lambda n: "" if n == 1 else f"words {n}")
    assert found.samples == [0, 1, 2, 4]
    assert found.rows["text"].to_list() == ["words 0", "words 4", "words 2"]
    found = paraphrase(tmp_path, 3, lambda n: "" if n % 3 == 1 else "words")
    assert found.samples == [0, 1, 2, 4, 7]
    assert found.rows["sample"].to_list() == [0, 2]
    (failure,) = found.failures.to_dicts()
    assert (failure["index"], failure["attempts"]) == (0, 3)
    assert failure["message"].startswith("sample 1: ")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (
            "decompose",
            "[settings]\nsamples = 3\ntemperature = 0.7\n",
            "several samples may have paraphrase, negate, judge",
        ),
        (
            "facts",
            'user = "$texts"\n[settings]\ntexts_per_request = 4\n',
            r"\$texts: facts asks about one text at a time",
        ),
    ],
    ids=["samples", "texts"],
)
def test_what_a_task_cannot_do(tmp_path: Path, task: str, text: str, message: str) -> None:
    prompt = str(prompt_file(tmp_path / "s.toml", f"{task}=v1", text))
    config = RunConfig("x", tmp_path, metrics=(), tasks=(task,), prompts={task: prompt})
    with pytest.raises(ConfigError, match=message):
        plan_of(config, RECORDS.columns)
