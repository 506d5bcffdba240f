"""Several prompts in a row: what a later one is asked about, and what comes out."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore
from claimscore.errors import ConfigError, RejectedError, TooManyFailures
from claimscore.pipeline.map.job import estimate_map
from claimscore.types import Completion, Request
from tests.support.command_line import Command
from tests.support.engine_doubles import FakeProvider, completion

EXTRACT = 'name = "extract"\nversion = "v1"\nuser = "List $text"\n[output]\nclaims = ["string"]\n'
JUDGE = """
name = "judge"
version = "v1"
user = "Judge $claims of $text"
explode = "claims"
[output]
grade = "integer"
"""


async def split(request: Request) -> Completion:
    """Each word of a text is a claim, "none" has none; a grade is the length of a claim.

    What begins with "bad" is refused by the server.
    """
    if " bad" in request.messages[-1].content[: len("Judge bad")]:
        raise RejectedError("not nice", "content")
    return await split_kindly(request)


async def split_kindly(request: Request) -> Completion:
    """The same, and nothing is refused."""
    verb, _, text = request.messages[-1].content.partition(" ")
    assert request.output is not None
    (column,) = request.output.schema["properties"]
    words = [] if text == "none" else text.split()
    answer: Any = words if verb == "List" else len(text.partition(" of ")[0])
    return completion(json.dumps({column: answer}))


class Chain:
    """The two prompts, in files that a test may change, and maps with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.provider = folder, FakeProvider(split)

    def prompts(self, *texts: str) -> list[Path]:
        paths = [self.folder / f"prompt{n}.toml" for n in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return paths

    def map(
        self, table: Any, *texts: str, out: str = "out.parquet", **options: Any
    ) -> claimscore.MapResult:
        self.provider.asked.clear()
        return claimscore.map(
            table,
            self.prompts(*texts or (EXTRACT, JUDGE)),
            self.folder / out,
            provider=self.provider,
            **options,
        )

    def asked(self, verb: str = "") -> list[str]:
        contents = (request.messages[-1].content for request in self.provider.asked)
        return [content for content in contents if content.startswith(verb)]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


TEXTS = pl.DataFrame({"text": ["dear me", "none", "bad", "a bad-one b"]})


class TestItems:
    """Lists that a later prompt is asked about."""

    def test_a_row_an_item(self, chain: Chain) -> None:
        """An empty list and a row that failed keep their row; a failure names its prompt."""
        result = chain.map(TEXTS)
        frame = result.frame().collect()
        assert frame.columns == [
            *("text", "claims", "extract.request_key", "extract.error"),
            *("id", "item", "grade", "judge.request_key", "judge.error"),
        ]
        assert frame.select("id", "item", "claims", "grade", "judge.error").rows() == [
            (0, 0, "dear", 4, None),
            (0, 1, "me", 2, None),
            (1, None, None, None, None),
            (2, None, None, None, None),
            (3, 0, "a", 1, None),
            (3, 1, "bad-one", None, "not nice"),
            (3, 2, "b", 1, None),
        ]
        assert frame["extract.error"].to_list() == [None, None, None, "not nice", None, None, None]
        assert result.failures().collect().select("row", "prompt", "item", "kind").rows() == [
            (2, "extract", None, "content"),
            (3, "judge", 1, "content"),
        ]
        assert result.failed == {"extract: content": 1, "judge: content": 1}
        assert (result.rows, result.answered_rows, result.failed_rows) == (4, 2, 2)

    def test_gathered(self, chain: Chain) -> None:
        """Lists beside the list; a third prompt reads them."""
        third = 'name = "sum"\nversion = "v1"\nuser = "Judge $grade"\n[output]\ntotal = "integer"\n'
        gather = JUDGE.replace("explode", "gather = true\nexplode")
        frame = chain.map(TEXTS, EXTRACT, gather, third).frame().collect()
        assert frame["claims"].to_list() == [["dear", "me"], [], None, ["a", "bad-one", "b"]]
        assert frame["grade"].to_list() == [[4, 2], [], [], [1, None, 1]]
        assert frame["judge.error"].to_list() == [[None] * 2, [], [], [None, "not nice", None]]
        assert chain.asked("Judge [") == [
            f"Judge {text}" for text in ("[4, 2]", "[]", "[1, null, 1]")
        ]
        assert "item" not in frame.columns

    def test_the_ids_of_the_input(self, chain: Chain) -> None:
        frame = chain.map(TEXTS.with_columns(id=pl.lit("r") + pl.col("text"))).frame().collect()
        assert frame["id"].to_list()[:3] == ["rdear me", "rdear me", "rnone"]

    def test_lists_of_the_input(self, chain: Chain) -> None:
        """Of one prompt alone; a null list and a null item are failures."""
        table = pl.DataFrame({"text": ["x"] * 4, "claims": [["a", None], [], None, ["bc"]]})
        result = chain.map(table, JUDGE)
        frame = result.frame().select("id", "item", "grade", "judge.error").collect()
        null = "column claims is null"
        assert frame.rows() == [
            (0, 0, 1, None),
            (0, 1, None, null),
            (1, None, None, None),
            (2, None, None, null),
            (3, 0, 2, None),
        ]
        assert result.failed == {"judge: null_input": 2}

    @pytest.mark.parametrize("gather", [False, True])
    def test_a_hostile_answer(self, chain: Chain, gather: bool) -> None:
        """What stands in it is no field; too long a list is a failure of its row."""
        items = {
            "secrets": ["$secret", "${text}", "$$"],
            "many": ["x"] * 10_000,
            "nest": [["a"], ["b"]],
        }

        async def answer(request: Request) -> Completion:
            verb, _, text = request.messages[-1].content.partition(" ")
            return completion(
                json.dumps({"claims": items[text]} if verb == "List" else {"grade": 1})
            )

        chain.provider = FakeProvider(answer)
        judge = JUDGE.replace("explode", "gather = true\nexplode") if gather else JUDGE
        table = pl.DataFrame({"text": list(items), "secret": ["key"] * 3})
        result = chain.map(table, EXTRACT, judge)
        assert chain.asked("Judge") == [f"Judge {claim} of secrets" for claim in items["secrets"]]
        assert result.failed == {"extract: parse": 1, "judge: too_many_items": 1}
        errors = result.frame().collect()["judge.error"].to_list()
        long = "the list in claims has 10,000 items, and max_items of judge is 50"
        assert errors == ([[None] * 3, [long], []] if gather else [None, None, None, long, None])

    def test_lists_of_lists_and_of_tables(self, chain: Chain) -> None:
        async def answer(request: Request) -> Completion:
            lists = '{"claims": [["a", "b"], []], "said": [{"by": "me"}]}'
            return completion(lists if "List" in request.messages[-1].content else '{"grade": 1}')

        chain.provider = FakeProvider(answer)
        output = '[["string"]]\nsaid = [{by = "string"}]'
        chain.map(TEXTS.head(1), EXTRACT.replace('["string"]', output), JUDGE)
        assert chain.asked("Judge") == ['Judge ["a", "b"] of dear me', "Judge [] of dear me"]
        chain.map(
            TEXTS.head(1),
            EXTRACT.replace('["string"]', output),
            JUDGE.replace("claims", "said"),
            out="tables.parquet",
        )
        assert chain.asked("Judge") == ['Judge {"by": "me"} of dear me']


def test_without_lists_a_row_stays_a_row(chain: Chain) -> None:
    """A later prompt is not asked about a row that failed before; another one is."""
    alone = JUDGE.replace('explode = "claims"', "")
    loud = 'name = "loud"\nversion = "v1"\nuser = "Judge $text"\n[output]\nsize = "integer"\n'
    frame = chain.map(TEXTS, EXTRACT, alone, loud).frame().collect()
    assert chain.asked("List") == [f"List {text}" for text in TEXTS["text"]]
    assert 'Judge ["dear", "me"] of dear me' in chain.asked("Judge")
    assert frame["grade"].to_list() == [14, 2, None, 21]
    assert frame["size"].to_list() == [7, 4, None, 11]


class TestGoingOn:
    """What is asked again: only what is new."""

    def test_a_changed_second_prompt_asks_nothing_of_the_first(self, chain: Chain) -> None:
        chain.map(TEXTS)
        before = len(chain.asked("Judge"))
        with pytest.raises(ConfigError, match=r"--prompt: was .*, now "):
            chain.map(TEXTS, EXTRACT, f'system = "Be strict."\n{JUDGE}')
        chain.map(TEXTS, EXTRACT, f'system = "Be strict."\n{JUDGE}', out="other.parquet")
        assert (len(chain.asked("Judge")), chain.asked("List")) == (before, ["List bad"])

    @pytest.mark.parametrize("is_finished", [True, False])
    def test_a_raised_limit_goes_on(self, chain: Chain, is_finished: bool) -> None:
        """Also where the first call did not come to its end; a lower one is refused."""
        table = pl.DataFrame({"text": [f"row {n}" for n in range(20)]})
        options: dict[str, Any] = {"limit": 6} if is_finished else {"limit": 6, "max_requests": 12}
        try:
            assert chain.map(table, **options).rows == 6
        except claimscore.ClaimscoreError:
            assert not is_finished
        n_before = len(chain.provider.asked)
        result = chain.map(table)
        assert n_before + len(chain.provider.asked) == 20 + 40
        assert result.frame().collect()["id"].to_list() == [n for n in range(20) for _ in "ab"]
        assert chain.map(table, limit=20).summary["was_finished"]
        with pytest.raises(ConfigError, match="the rows of INPUT: was 20, now 6"):
            chain.map(table, limit=6)
        other = [EXTRACT, JUDGE.replace("Judge", "Judge not")]
        with pytest.raises(ConfigError, match="--prompt: was"):
            chain.map(table, *other)

    def test_a_limit_of_a_prompt_alone(self, chain: Chain) -> None:
        """Types are those of the whole table; lost answers are not paid again."""
        table = "\n".join(["text", "1", "2.5", "3"])
        (chain.folder / "in.csv").write_text(table)
        extract = EXTRACT.replace("claims", "words")
        assert chain.map(chain.folder / "in.csv", extract, limit=2).rows == 2
        assert chain.asked() == ["List 1.0", "List 2.5"]
        lost = {"cache_dir": chain.folder / "lost"}
        with pytest.raises(ConfigError, match="2 of its answers are not in the cache"):
            chain.map(chain.folder / "in.csv", extract, **lost)
        result = chain.map(chain.folder / "in.csv", extract, limit=3)
        assert (result.rows, chain.asked()) == (3, ["List 3.0"])

    def test_retry_failed(self, chain: Chain) -> None:
        """Of a first prompt too, and what comes after it."""
        chain.map(TEXTS)
        chain.provider = FakeProvider(split_kindly)
        result = chain.map(TEXTS, retry_failed=True)
        assert chain.asked() == ["List bad", "Judge bad of bad", "Judge bad-one of a bad-one b"]
        assert result.failed == {}
        assert result.failures().collect().columns[:3] == ["row", "prompt", "item"]
        assert not (chain.folder / "out.failures.parquet").exists()


def test_failures_are_counted_by_prompt(chain: Chain) -> None:
    """Two of each are allowed, though there are four in all."""
    table = pl.DataFrame({"text": ["bad 1", "bad 2", "a bad-3 x", "b bad-4 y"]})
    result = chain.map(table, max_failures="2")
    assert result.failed == {"extract: content": 2, "judge: content": 2}
    message = r"judge: 2 of \d rows failed, and --max-failures allows 1"
    with pytest.raises(TooManyFailures, match=message):
        chain.map(table[1:], max_failures="1", out="other.parquet")


class TestRefused:
    """Prompts that do not go together, before anything is asked."""

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            pytest.param([EXTRACT, EXTRACT], "two prompts are called extract", id="name"),
            pytest.param(
                [EXTRACT, JUDGE.replace("grade", "claims")],
                "prompts extract and judge both make a column claims",
                id="column",
            ),
            pytest.param(
                [EXTRACT, JUDGE, JUDGE.replace("judge", "two").replace("grade", "two")],
                "explode: the DataFrame has no lists in a column claims",
                id="not a list",
            ),
            pytest.param(
                [EXTRACT, JUDGE.replace("claims", "claim")], "did you mean \\$claims", id="field"
            ),
            pytest.param(
                [
                    EXTRACT + 'more = ["string"]\n',
                    JUDGE,
                    JUDGE.replace("judge", "two").replace("grade", "two").replace("claims", "more"),
                ],
                "judge and two both make a column item; .* set gather = true in one",
                id="two lists",
            ),
            pytest.param([JUDGE, EXTRACT], "which is not there", id="order"),
            pytest.param(
                [EXTRACT, JUDGE.replace("grade", "item")], "cannot have a column .* item", id="item"
            ),
            pytest.param(
                [EXTRACT, JUDGE.replace("$claims", "all")],
                "user never shows \\$claims",
                id="unused",
            ),
            pytest.param(
                [EXTRACT, JUDGE.replace('explode = "claims"', "gather = true")],
                "gather, max_items: they go with explode",
                id="gather",
            ),
            pytest.param([], "name one at least", id="none"),
        ],
    )
    def test_prompts(self, chain: Chain, texts: list[str], message: str) -> None:
        with pytest.raises(ConfigError, match=message.replace("the DataFrame", "the frame")):
            claimscore.map(
                TEXTS, chain.prompts(*texts), chain.folder / "out.parquet", provider=chain.provider
            )
        assert not chain.provider.asked
        assert not list(chain.folder.glob("out*"))

    def test_a_prompt_of_a_run(self, chain: Chain, cli: Command) -> None:
        (path,) = chain.prompts(JUDGE)
        shown = cli("prompts", "check", f"decompose={path}")
        assert shown.status == 2
        assert "explode: a task has no lists to ask about; claimscore map has" in shown.out


class TestFilesOfMaps:
    """The file of a map as the input of the next one."""

    def test_the_bookkeeping_columns_get_the_name_of_their_prompt(self, chain: Chain) -> None:
        chain.map(TEXTS, EXTRACT)
        alone = JUDGE.replace('explode = "claims"', "")
        frame = chain.map(chain.folder / "out.parquet", alone, out="2.parquet").frame().collect()
        assert frame.columns == [
            *("text", "claims", "extract.request_key", "extract.error"),
            *("grade", "request_key", "error"),
        ]
        assert frame["extract.error"].null_count() == 3
        third = (
            alone.replace('"judge"', '"third"')
            .replace("grade", "third")
            .replace("$claims", "$grade")
        )
        frame = chain.map(chain.folder / "2.parquet", third, out="3.parquet").frame().collect()
        assert "judge.error" in frame.columns

    def test_of_a_frame_too(self, chain: Chain) -> None:
        """Which says no more what prompt it was; here with a file that is not kept."""
        made = claimscore.map(TEXTS, chain.prompts(EXTRACT), provider=chain.provider)
        folder = Path(made.path).parent
        frame = chain.map(made.frame().collect(), JUDGE).frame().collect()
        assert {"input.request_key", "input.error", "judge.error"} <= {*frame.columns}
        assert folder.exists()
        del made
        assert not folder.exists()


class TestEstimate:
    """What later prompts ask is known where the answers are there, else at most."""

    def test_before_and_after_the_first_prompt(self, chain: Chain, cli: Command) -> None:
        paths = chain.prompts(EXTRACT, JUDGE.replace("explode", "max_items = 7\nexplode"))
        TEXTS.write_parquet(chain.folder / "in.parquet")
        config = claimscore.MapConfig(
            chain.folder / "in.parquet", paths, chain.folder / "out.parquet"
        )

        def figures() -> dict[str, tuple[int, int]]:
            estimate = estimate_map(config, provider=chain.provider)
            return {task.task: (task.questions, task.requests) for task in estimate.tasks}

        assert figures() == {"extract": (4, 4), "judge": (0, 0), "judge, at most": (28, 28)}
        chain.map(TEXTS[:2], EXTRACT, out="one.parquet")
        assert figures() == {"extract": (4, 2), "judge": (2, 2), "judge, at most": (14, 14)}
        options = ("--prompt", paths[0], "--prompt", paths[1], "--llm", "openai:m", "--estimate")
        shown = cli("map", config.input, *options, "--out", config.out)
        said = "judge, at most: about answers that are not there yet, each with 7 items; a lower"
        assert f"{said} max_items of its prompt asks less" in " ".join(shown.out.split())


def test_status_counts_rows_as_progress_does(chain: Chain, cli: Command) -> None:
    """A chunk that is not written counts by its answers, which the cache has."""
    table = pl.DataFrame({"text": [f"row {n}" for n in range(20)]})
    with pytest.raises(claimscore.ClaimscoreError):
        chain.map(table, max_requests=31)
    state = cli("status", chain.folder / "out.parquet", "--json").json()
    assert [state["rows"][key] for key in ("done", "total")] == state["last_call"]["rows"]
    assert 0 < state["rows"]["done"] < 20
