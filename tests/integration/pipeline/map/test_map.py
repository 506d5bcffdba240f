"""`claimscore map` from end to end: a table and a prompt in, typed columns out."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimscore
from claimscore.cli import main
from claimscore.errors import ConfigError, RejectedError, StoppedEarly
from claimscore.runs import RunDirectory
from claimscore.types import Completion, Request
from tests.fake_server import Body, FakeServer
from tests.support.engine_doubles import FakeProvider, completion

ROOT = Path(__file__).parents[4]
REVIEWS = ROOT / "examples" / "reviews.csv"
TONE = ROOT / "examples" / "tone.toml"
DECOMPOSE = ROOT / "claimscore" / "prompts" / "decompose" / "v1.toml"

PLAIN = 'name = "plain"\nversion = "v1"\nuser = "Say $text"\n'


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's folders, or knows a key."""
    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLAIMSCORE_STATE_DIR", str(tmp_path / "state"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def command(*arguments: object) -> int:
    """The command line, in this process."""
    return main([str(argument) for argument in arguments])


def prompt_file(folder: Path, text: str = PLAIN) -> Path:
    path = folder / "prompt.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_rows(path: Path, n: int) -> Path:
    """Rows that all differ, as JSONL."""
    lines = (json.dumps({"n": i, "text": f"review {i}"}) + "\n" for i in range(n))
    path.write_text("".join(lines), encoding="utf-8")
    return path


async def tone_answer(body: Body) -> Completion:
    """The tone of a review is its first word after `The`; its confidence, its length."""
    text = body["messages"][-1]["content"].removeprefix("Review: ")
    return Completion(json.dumps({"tone": text[:8], "confidence": len(text) / 100}), "m")


async def say(request: Request) -> Completion:
    """Repeats what stands after "Say"; a row with `bad` in it is refused."""
    text = request.messages[-1].content.removeprefix("Say ")
    if "bad" in text:
        raise RejectedError("not nice", "content")
    return completion(text.upper())


def run_map(
    tmp_path: Path,
    table: Any,
    *,
    out: str = "out.parquet",
    provider: FakeProvider | None = None,
    **options: Any,
) -> claimscore.MapResult:
    """The Python call with a provider that repeats."""
    if "prompt" not in options:
        options["prompt"] = prompt_file(tmp_path)
    config = claimscore.MapConfig(input=table, out=tmp_path / out, **options)
    return claimscore.map(config, provider=provider or FakeProvider(say))


class TestOneTable:
    """What comes out of a table and a prompt."""

    def test_typed_columns_follow_the_input(self, tmp_path: Path, capsys: Any) -> None:
        """The input's columns in their order, then `[output]`, `request_key`, `error`."""
        out = tmp_path / "tone.parquet"
        with FakeServer(answer=tone_answer) as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url)
            assert command("map", REVIEWS, "--prompt", TONE, "--out", out, *llm, "--json") == 0
            assert server.n_requests == 12
        rows = pl.read_parquet(out)
        assert dict(rows.schema) == {
            "id": pl.String(),
            "product": pl.String(),
            "stars": pl.Int64(),
            "text": pl.String(),
            "tone": pl.String(),
            "confidence": pl.Float64(),
            "request_key": pl.String(),
            "error": pl.String(),
        }
        assert rows["id"].to_list() == [f"r{i:02}" for i in range(1, 13)]
        assert rows["tone"].to_list() == [text[:8] for text in rows["text"]]
        assert rows["error"].null_count() == 12
        assert rows["request_key"].n_unique() == 12
        summary = json.loads(capsys.readouterr().out)
        assert summary["requests"] == summary["answered"] == summary["rows"] == 12
        assert (summary["failed"], summary["failures"]) == ({}, None)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "state", out.name]

    def test_a_prompt_without_output_gives_one_text(self, tmp_path: Path) -> None:
        """The column is called `answer`."""
        result = run_map(tmp_path, pl.DataFrame({"text": ["a", "b"]}))
        assert result.frame().collect()["answer"].to_list() == ["A", "B"]
        assert (result.rows, result.answered_rows, result.failed) == (2, 2, {})

    def test_nested_output(self, tmp_path: Path) -> None:
        """Lists and tables of `[output]` are lists and structs."""
        output = '[output]\nwords = ["string"]\nn = "integer"\nx = {a = "boolean"}\n'

        async def answer(request: Request) -> Completion:
            return completion('{"words": ["a", "b"], "n": 2, "x": {"a": true}}')

        prompt = prompt_file(tmp_path, PLAIN + output)
        frame = pl.DataFrame({"text": ["one"]})
        result = run_map(tmp_path, frame, prompt=prompt, provider=FakeProvider(answer))
        row = result.frame().select("words", "n", "x").collect()
        assert row.rows() == [(["a", "b"], 2, {"a": True})]
        assert row.schema["n"] == pl.Int64()

    def test_the_built_in_rules_do_their_own_prompts(self, tmp_path: Path) -> None:
        """With nothing but PyPI: decompose's prompt over a table."""
        out = tmp_path / "claims.parquet"
        assert command("map", REVIEWS, "--prompt", DECOMPOSE, "--out", out, "--quiet") == 0
        claims = pl.read_parquet(out)["claims"]
        assert claims.dtype == pl.List(pl.String())
        assert claims.list.len().min() >= 1

    def test_equal_rows_are_asked_once(self, tmp_path: Path) -> None:
        """And each has the answer."""
        provider = FakeProvider(say)
        frame = pl.DataFrame({"text": ["a", "b", "a"] * 5})
        rows = run_map(tmp_path, frame, provider=provider, chunk_rows=4).frame().collect()
        assert len(provider.asked) == 2
        assert rows["answer"].to_list() == ["A", "B", "A"] * 5

    def test_text_that_is_no_utf_8_is_kept_as_far_as_it_is(self, tmp_path: Path) -> None:
        """Half of a surrogate pair in an answer stops nothing."""

        async def answer(request: Request) -> Completion:
            return completion("a\ud800é")

        result = run_map(tmp_path, pl.DataFrame({"text": ["x"]}), provider=FakeProvider(answer))
        assert result.frame().collect()["answer"].to_list() == ["a?é"]

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param('{"n": 9223372036854775808}', id="integer"),
            pytest.param('{"n": "\\ud800"}', id="surrogate"),
        ],
    )
    def test_answers_that_no_column_can_hold_are_failures(
        self, tmp_path: Path, answer: str
    ) -> None:
        """A row's trouble, not the run's."""

        async def reply(request: Request) -> Completion:
            return completion(answer)

        kind = "integer" if "922" in answer else "string"
        prompt = prompt_file(tmp_path, PLAIN + f'[output]\nn = "{kind}"\n')
        frame = pl.DataFrame({"text": ["x"]})
        result = run_map(tmp_path, frame, prompt=prompt, provider=FakeProvider(reply))
        assert result.failed == {"parse": 1}

    def test_standard_input(
        self, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`-` is JSONL; the copy goes when the work is done."""
        out = tmp_path / "out.parquet"
        arguments = ("map", "-", "--prompt", str(DECOMPOSE), "--out", str(out), "--json")
        lines = '{"text": "The pool is warm.", "n": 1}\n{"text": "It is old.", "tags": ["a"]}\n'
        for was_finished in (False, True):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
            assert main(arguments) == 0
            assert json.loads(capsys.readouterr().out)["was_finished"] is was_finished
        rows = pl.read_parquet(out)
        assert rows.columns[:3] == ["text", "n", "tags"]
        assert rows["tags"].to_list() == [None, ["a"]]
        assert not list(tmp_path.glob("*.parts"))

    def test_what_it_would_cost(self, tmp_path: Path, capsys: Any) -> None:
        """`--estimate` asks and writes nothing, and counts what the cache does not have."""
        out = tmp_path / "out.parquet"
        price = ("--input-price", "1", "--output-price", "2")
        with FakeServer(answer=tone_answer) as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url)
            arguments = ("map", REVIEWS, "--prompt", TONE, *llm, *price, "--json")
            assert command(*arguments, "--out", out, "--estimate") == 0
            assert (server.n_requests, list(tmp_path.glob("out*"))) == (0, [])
            assert command(*arguments, "--out", out) == 0
            assert command(*arguments, "--out", out, "--estimate") == 0
        before, done, after = map(json.loads, capsys.readouterr().out.splitlines())
        assert (before["total"]["requests"], after["total"]["requests"]) == (12, 0)
        assert done["requests"] == 12
        assert 0 < done["usd"] < before["total"]["usd_at_most"]

    def test_the_price_of_ones_own_provider_is_not_known(self, tmp_path: Path) -> None:
        """`builtin` costs nothing, something else costs nobody knows what; never zero."""
        result = run_map(tmp_path, pl.DataFrame({"text": ["a"]}))
        assert result.summary["usd"] is None


def io_frame() -> pl.DataFrame:
    return pl.DataFrame({"text": ["a", None, "b"]})


def every_type() -> pl.DataFrame:
    """One column of each type that Parquet can hold."""
    day = datetime.datetime(2024, 2, 29, 12, 30)
    zone = pl.Series([day, None, day]).dt.replace_time_zone("Europe/Berlin")
    return pl.DataFrame(
        {
            "text": ["a", "b", "c"],
            "date": [day.date(), None, day.date()],
            "time": [day.time(), None, day.time()],
            "ms": pl.Series([day, None, day], dtype=pl.Datetime("ms")),
            "ns": pl.Series([day, None, day], dtype=pl.Datetime("ns")),
            "zoned": zone,
            "duration": [datetime.timedelta(1, 3), None, datetime.timedelta(0)],
            "list": [[1, None], None, []],
            "lists": [[["a"], None], [], None],
            "struct": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
            "array": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int16(), 2)),
            "decimal": pl.Series([decimal.Decimal("1.10"), None, decimal.Decimal("-2.00")]),
            "binary": [b"\x00\xff", None, b""],
            "categorical": pl.Series(["x", "y", None], dtype=pl.Categorical()),
            "enum": pl.Series(["p", None, "q"], dtype=pl.Enum(["p", "q"])),
            "i8": pl.Series([1, None, -128], dtype=pl.Int8()),
            "u64": pl.Series([2**64 - 1, None, 0], dtype=pl.UInt64()),
            "f32": pl.Series([0.1, None, float("nan")], dtype=pl.Float32()),
            "bool": [True, None, False],
            "nothing": pl.Series([None, None, None]),
        }
    )


class TestTypes:
    """The input's columns come through as they are."""

    @pytest.mark.parametrize("chunk_rows", [1, 2, 1000])
    @pytest.mark.parametrize("as_file", [True, False], ids=["parquet", "frame"])
    def test_every_type_of_parquet(self, tmp_path: Path, as_file: bool, chunk_rows: int) -> None:
        """Types and values, in a file and in memory, however they are cut."""
        table = every_type()
        table.write_parquet(tmp_path / "in.parquet")
        given = tmp_path / "in.parquet" if as_file else table
        rows = run_map(tmp_path, given, chunk_rows=chunk_rows).frame().collect()
        assert dict(rows.select(table.columns).schema) == dict(table.schema)
        assert rows.select(table.columns).equals(table)
        assert rows["answer"].to_list() == ["A", "B", "C"]

    @pytest.mark.parametrize(
        ("column", "text"),
        [
            pytest.param("date", "2024-02-29", id="date"),
            pytest.param("time", "12:30:00", id="time"),
            pytest.param("ms", "2024-02-29 12:30:00.000", id="datetime"),
            pytest.param("zoned", "2024-02-29 12:30:00.000000+01:00", id="zoned"),
            pytest.param("duration", "P1DT3S", id="duration"),
            pytest.param("list", "[1, null]", id="list"),
            pytest.param("struct", '{"a": 1, "b": ["x"]}', id="struct"),
            pytest.param("array", "[1, 2]", id="array"),
            pytest.param("decimal", "1.10", id="decimal"),
            pytest.param("categorical", "x", id="categorical"),
            pytest.param("enum", "p", id="enum"),
            pytest.param("u64", "18446744073709551615", id="integer"),
            pytest.param("f32", "0.1", id="float"),
            pytest.param("bool", "true", id="boolean"),
        ],
    )
    def test_values_in_a_prompt(self, tmp_path: Path, column: str, text: str) -> None:
        """What the documentation says of each type."""
        provider = FakeProvider(say)
        prompt = prompt_file(tmp_path, PLAIN.replace("$text", f"${column}"))
        run_map(tmp_path, every_type().head(1), prompt=prompt, provider=provider)
        assert provider.asked[0].messages[-1].content == f"Say {text}"

    def test_a_value_is_put_in_once(self, tmp_path: Path) -> None:
        """A `$text` or a brace in a value is data."""
        provider = FakeProvider(say)
        run_map(tmp_path, pl.DataFrame({"text": ["$text ${x} $$ {y}"]}), provider=provider)
        assert provider.asked[0].messages[-1].content == "Say $text ${x} $$ {y}"

    def test_several_files(self, tmp_path: Path) -> None:
        """A glob is one table, file after file."""
        for i in range(3):
            pl.DataFrame({"text": [f"{i}-{j}" for j in range(3)]}).write_parquet(
                tmp_path / f"p{i}.parquet"
            )
        rows = run_map(tmp_path, str(tmp_path / "p*.parquet"), chunk_rows=2).frame().collect()
        assert rows["text"].to_list() == [f"{i}-{j}" for i in range(3) for j in range(3)]


class TestFailures:
    """Rows without an answer."""

    def test_nulls_and_refusals(self, tmp_path: Path) -> None:
        """An error beside the row, a line in the failures file, no request for a null."""
        provider = FakeProvider(say)
        frame = pl.DataFrame({"text": ["a", None, "bad", "b"], "k": [1, 2, 3, 4]})
        result = run_map(tmp_path, frame, provider=provider, chunk_rows=3)
        rows = result.frame().collect()
        assert rows["answer"].to_list() == ["A", None, None, "B"]
        assert rows["error"].to_list() == [None, "column text is null", "not nice", None]
        assert rows["request_key"].is_null().to_list() == [False, True, False, False]
        assert result.failed == {"content": 1, "null_input": 1}
        assert (result.rows, result.answered_rows, result.failed_rows) == (4, 2, 2)
        failures = pl.read_parquet(tmp_path / "out.failures.parquet")
        assert failures.equals(result.failures().collect())
        assert failures.columns == ["row", "kind", "message", "attempts", "request_key", "raw"]
        assert failures.select("row", "kind", "attempts").rows() == [
            (1, "null_input", 0),
            (2, "content", 1),
        ]
        assert failures["request_key"][1] == rows["request_key"][2]

    def test_answers_that_do_not_fit_are_kept_raw(self, tmp_path: Path, capsys: Any) -> None:
        """Exit 3; the answer that was refused is in the failures file."""
        out = tmp_path / "tone.parquet"
        with FakeServer(text="I am a teapot") as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, "--quiet")
            arguments = ("map", REVIEWS, "--prompt", TONE, "--out", out, *llm)
            assert command(*arguments) == 3
            asked = server.n_requests
            assert command(*arguments) == 3
            assert server.n_requests == asked, "a rerun leaves failed rows alone"
        failures = pl.read_parquet(tmp_path / "tone.failures.parquet")
        assert failures.select("kind", "raw").unique().rows() == [("parse", "I am a teapot")]
        shown = capsys.readouterr().out
        assert "rows   12: 0 answered, 12 failed" in shown
        assert "finished before" in shown

    def test_retry_failed_asks_only_for_those(self, tmp_path: Path) -> None:
        """Rows that have their answer stay as they are, whatever became of the cache."""
        frame = pl.DataFrame({"text": [f"{'bad' if i % 5 == 4 else 'row'} {i}" for i in range(23)]})
        first = run_map(tmp_path, frame, chunk_rows=4)
        assert first.failed == {"content": 4}
        before = first.frame().collect()
        provider = FakeProvider()
        cache = tmp_path / "another-cache"
        second = run_map(
            tmp_path,
            frame,
            provider=provider,
            chunk_rows=4,
            retry_failed=True,
            cache_dir=cache,
        )
        asked = {r.messages[-1].content for r in provider.asked}
        assert asked == {f"Say bad {i}" for i in (4, 9, 14, 19)}
        assert second.failed == {}
        after = second.frame().collect()
        assert not (tmp_path / "out.failures.parquet").exists()
        assert after["error"].null_count() == 23
        good = before["error"].is_null()
        assert after.filter(good).equals(before.filter(good))
        assert after["answer"][4] == "Say bad 4/0"

    def test_rows_that_fail_again_keep_their_number(self, tmp_path: Path) -> None:
        """In the failures file, too."""
        frame = pl.DataFrame({"text": ["row 0", "bad 1", "row 2", "bad 3", "row 4"]})
        run_map(tmp_path, frame, chunk_rows=2)
        result = run_map(tmp_path, frame, chunk_rows=2, retry_failed=True)
        assert result.failures().collect()["row"].to_list() == [1, 3]
        assert result.frame().collect()["error"].is_null().to_list() == [True, False] * 2 + [True]

    def test_retry_failed_asks_for_new_samples(self, tmp_path: Path) -> None:
        """Answers that were refused before are not refused again, but followed by others."""
        frame = pl.DataFrame({"text": ["a"]})

        async def nothing(request: Request) -> Completion:
            return completion("")

        first = run_map(tmp_path, frame, provider=FakeProvider(nothing))
        assert first.failed == {"empty": 1}
        provider = FakeProvider()
        second = run_map(tmp_path, frame, provider=provider, retry_failed=True)
        assert [request.sample_index for request in provider.asked] == [3]
        assert second.frame().collect()["answer"].to_list() == ["Say a/3"]

    def test_retry_failed_with_nothing_failed_does_nothing(self, tmp_path: Path) -> None:
        """And says so."""
        frame = pl.DataFrame({"text": ["a"]})
        run_map(tmp_path, frame)
        result = run_map(tmp_path, frame, retry_failed=True)
        assert result.summary["was_finished"] is True

    def test_retry_failed_goes_on_after_a_stop(self, tmp_path: Path) -> None:
        """Failed rows of unfinished work are tried again too; good ones are kept."""
        frame = pl.DataFrame({"text": ["bad 0", "row 1", "row 2", "row 3", "stop", "row 5"]})

        async def until_stop(request: Request) -> Completion:
            if request.messages[-1].content == "Say stop":
                raise StoppedEarly("the end of the day")
            return await say(request)

        one = claimscore.LLMConfig(max_concurrency=1)
        options: dict[str, Any] = {"chunk_rows": 2, "llm": one}
        with pytest.raises(StoppedEarly, match="end of the day"):
            run_map(tmp_path, frame, provider=FakeProvider(until_stop), **options)
        provider = FakeProvider()
        options["cache_dir"] = tmp_path / "another-cache"
        result = run_map(tmp_path, frame, provider=provider, retry_failed=True, **options)
        rows = result.frame().collect()
        assert rows["error"].null_count() == 6
        assert rows["answer"][0] == "Say bad 0/0"
        assert rows["answer"][1] == "ROW 1"
        assert "Say row 1" not in {r.messages[-1].content for r in provider.asked}


class TestRefused:
    """Wrong input, prompts and options: one line, exit 2, nothing asked, nothing left behind."""

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("x.jsonl", b'{"text": "a"\n', "x.jsonl, line 1", id="broken-json"),
            pytest.param("x.jsonl", b"", "no rows", id="empty"),
            pytest.param("x.csv", b"text\n", "no rows", id="only-a-header"),
            pytest.param("x.csv", b"text\n\xff\n", "UTF-8", id="encoding"),
            pytest.param("x.csv", b"a,text\n1\n", "1 fields", id="ragged"),
            pytest.param("x.parquet", b"PAR1 no", "x.parquet", id="parquet"),
            pytest.param("x.jsonl", b'{"txt": "a"}\n', "did you mean $txt?", id="close-name"),
            pytest.param("x.jsonl", b'{"text": "\\ud800"}\n', "line 1", id="surrogate"),
            pytest.param("x.jsonl", b'{"text":"a","answer":1}\n', "column answer", id="taken"),
            pytest.param("x.jsonl", b'{"text":"a","error":1}\n', "column error", id="error"),
            pytest.param("x.csv", b"text,request_key\na,b\n", "column request_key", id="key"),
            pytest.param("x.txt", b"a", "known endings", id="format"),
        ],
    )
    def test_wrong_input(
        self, tmp_path: Path, capsys: Any, name: str, content: bytes, message: str
    ) -> None:
        """File, place and reason on one line."""
        table = tmp_path / name
        table.write_bytes(content)
        with FakeServer() as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, "--quiet")
            out = tmp_path / "out.parquet"
            code = command("map", table, "--prompt", prompt_file(tmp_path), "--out", out, *llm)
            assert (code, server.n_requests) == (2, 0)
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert message in error
        assert name in error
        assert not list(tmp_path.glob("out*"))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param(PLAIN.replace("$text", "$txt $n"), "did you mean $text?", id="column"),
            pytest.param(PLAIN.replace("$text", "hello"), "names no $column", id="no-column"),
            pytest.param(PLAIN.replace("$text", "$5"), "lone $", id="lone-dollar"),
            pytest.param(PLAIN + "sytem = 'x'\n", "unknown key 'sytem'", id="key"),
            pytest.param(PLAIN + '[output]\nx = "str"\n', "unknown type 'str'", id="type"),
            pytest.param(PLAIN + '[output]\nn = "string"\n', "column n already", id="taken"),
            pytest.param(PLAIN + '[output]\nerror = "string"\n', "error", id="reserved"),
            pytest.param("name = 1\n", "must be a text", id="name"),
            pytest.param("name = \n", "prompt.toml", id="toml"),
        ],
    )
    def test_wrong_prompts(self, tmp_path: Path, capsys: Any, text: str, message: str) -> None:
        """The same, of the prompt."""
        table = write_rows(tmp_path / "rows.jsonl", 3)
        out = tmp_path / "out.parquet"
        llm = ("--llm", "openai:m", "--base-url", "http://127.0.0.1:9/v1", "--quiet")
        code = command("map", table, "--prompt", prompt_file(tmp_path, text), "--out", out, *llm)
        assert code == 2
        assert message in capsys.readouterr().err
        assert not list(tmp_path.glob("out*"))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            pytest.param({"--out": "out.csv"}, "end in .parquet", id="out"),
            pytest.param({"--llm": "builtin"}, "--llm openai:MODEL", id="builtin"),
            pytest.param({"--llm": "gpt-4o"}, "openai:MODEL", id="llm"),
            pytest.param({"--prompt": "nosuch.toml"}, "no such file", id="prompt"),
            pytest.param({"--rpm": "0"}, "above zero", id="rpm"),
            pytest.param({"--max-cost": "1"}, "price", id="unknown-price"),
        ],
    )
    def test_wrong_options(
        self,
        tmp_path: Path,
        capsys: Any,
        monkeypatch: pytest.MonkeyPatch,
        options: dict[str, str],
        message: str,
    ) -> None:
        """The error names what there is instead."""
        monkeypatch.chdir(tmp_path)
        given = {
            "--out": "out.parquet",
            "--prompt": str(prompt_file(tmp_path)),
            "--llm": "openai:m",
            "--base-url": "http://127.0.0.1:9/v1",
            **options,
        }
        table = write_rows(tmp_path / "rows.jsonl", 3)
        assert command("map", table, *(x for pair in given.items() for x in pair), "--quiet") == 2
        assert message in capsys.readouterr().err
        if message != "price":  # known only when the engine is made; no row is asked
            assert not list(tmp_path.glob("out*"))

    def test_bytes_in_a_prompt(self, tmp_path: Path) -> None:
        """No text would be right."""
        with pytest.raises(ConfigError, match="column text holds bytes"):
            run_map(tmp_path, pl.DataFrame({"text": [b"a"]}))

    def test_a_frame_that_parquet_cannot_hold(self, tmp_path: Path) -> None:
        """Said before anything is asked."""
        frame = pl.DataFrame({"text": ["a"], "o": pl.Series([object()], dtype=pl.Object())})
        with pytest.raises(ConfigError, match="not for Parquet"):
            run_map(tmp_path, frame)

    def test_files_with_different_columns(self, tmp_path: Path) -> None:
        """Which file, which column, which types."""
        pl.DataFrame({"text": ["a"], "n": [1]}).write_parquet(tmp_path / "p1.parquet")
        pl.DataFrame({"text": ["a"], "n": ["1"]}).write_parquet(tmp_path / "p2.parquet")
        with pytest.raises(ConfigError, match=r"p2\.parquet: column n is of type String, and"):
            run_map(tmp_path, str(tmp_path / "p*.parquet"))

    def test_somebody_elses_file(self, tmp_path: Path) -> None:
        """Nothing is written over."""
        frame = pl.DataFrame({"text": ["a"]})
        for name in ("out.parquet", "out.failures.parquet"):
            frame.write_parquet(tmp_path / name)
            provider = FakeProvider(say)
            with pytest.raises(ConfigError, match="not written by `claimscore map`"):
                run_map(tmp_path, frame, provider=provider)
            assert provider.asked == []
            assert pl.read_parquet(tmp_path / name).equals(frame)
            (tmp_path / name).unlink()

    @pytest.mark.parametrize("stopped", [True, False], ids=["unfinished", "finished"])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param("input", "content of", id="input"),
            pytest.param("prompt", '--prompt: was "', id="prompt"),
            pytest.param("model", '--llm: was "fake-1", now "other"', id="model"),
        ],
    )
    def test_other_settings_for_the_same_file(
        self, tmp_path: Path, change: str, message: str, stopped: bool
    ) -> None:
        """The difference is shown; what was there stays and can be taken up again."""
        frame = pl.DataFrame({"text": [f"row {i}" for i in range(6)]})
        options: dict[str, Any] = {"chunk_rows": 2}
        if stopped:
            stop_after(tmp_path, frame, 4, **options)
        else:
            run_map(tmp_path, frame, **options)
        provider = FakeProvider(say)
        changed = dict(options)
        if change == "prompt":
            changed["prompt"] = prompt_file(tmp_path, 'system = "Hello"\n' + PLAIN)
        if change == "model":
            provider.model = "other"
        table = frame.reverse() if change == "input" else frame
        with pytest.raises(ConfigError, match=message):
            run_map(tmp_path, table, provider=provider, **changed)
        assert provider.asked == []
        options["prompt"] = prompt_file(tmp_path)
        assert run_map(tmp_path, frame, **options).answered_rows == 6

    @pytest.mark.parametrize(
        ("rows", "chunk_rows"),
        [
            pytest.param(6, 2, id="prompt"),
            pytest.param(6, 3, id="chunks"),
            pytest.param(5, 2, id="input"),
        ],
    )
    def test_a_refused_call_can_be_corrected(
        self, tmp_path: Path, rows: int, chunk_rows: int
    ) -> None:
        """Settings that nothing was made with yet do not stand in the way of the right ones."""
        frame = pl.DataFrame({"text": [f"row {i}" for i in range(6)]})
        stop_after(tmp_path, frame, 0, chunk_rows=2)
        assert (tmp_path / "out.parquet.parts").exists()
        prompt = prompt_file(tmp_path, PLAIN.replace("Say", "Tell"))
        result = run_map(tmp_path, frame.head(rows), prompt=prompt, chunk_rows=chunk_rows)
        expected = [f"TELL ROW {i}" for i in range(rows)]
        assert result.frame().collect()["answer"].to_list() == expected

    def test_two_at_once(self, tmp_path: Path, capsys: Any) -> None:
        """The second is told who holds the file."""
        table = write_rows(tmp_path / "rows.jsonl", 3)
        out = tmp_path / "out.parquet"
        arguments = ("map", table, "--prompt", DECOMPOSE, "--out", out, "--quiet")
        with RunDirectory(tmp_path / "out.parquet.parts"):
            assert command(*arguments) == 2
        assert f"in use by process {os.getpid()}" in capsys.readouterr().err
        assert command(*arguments) == 0


def stop_after(tmp_path: Path, table: Any, n: int, **options: Any) -> None:
    """Stop a map after so many answers."""
    left = iter(range(n))

    async def answer(request: Request) -> Completion:
        if next(left, None) is None:
            raise StoppedEarly("the end of the day")
        return await say(request)

    options = {"llm": claimscore.LLMConfig(max_concurrency=1), **options}
    with pytest.raises(StoppedEarly, match="end of the day"):
        run_map(tmp_path, table, provider=FakeProvider(answer), **options)


class TestWhatIsAskedAgain:
    """Only what determines an answer asks for a new one."""

    def test_one_row_more(self, tmp_path: Path) -> None:
        """1,000 rows and then one more in another file: exactly one request."""
        rows = pl.DataFrame({"text": [f"row {i}" for i in range(1001)]})
        run_map(tmp_path, rows.head(1000))
        provider = FakeProvider(say)
        result = run_map(tmp_path, rows, out="more.parquet", provider=provider)
        assert [r.messages[-1].content for r in provider.asked] == ["Say row 1000"]
        assert (result.summary["requests"], result.summary["cache_hits"]) == (1, 1000)

    @pytest.mark.parametrize(
        ("text", "asked"),
        [
            pytest.param('system = "Be kind."\n' + PLAIN, 20, id="system"),
            pytest.param(PLAIN + "[settings]\nmax_tokens = 9\n", 20, id="settings"),
            pytest.param(PLAIN.replace("v1", "v2"), 0, id="version"),
            pytest.param(PLAIN + 'changes = "nothing"\n', 0, id="changes"),
            pytest.param(PLAIN.replace("plain", "other"), 0, id="name"),
        ],
    )
    def test_another_prompt(self, tmp_path: Path, text: str, asked: int) -> None:
        """What is sent is in the key; names and versions of a prompt are not sent."""
        rows = pl.DataFrame({"text": [f"row {i}" for i in range(20)], "other": range(20)})
        run_map(tmp_path, rows.drop("other"))
        provider = FakeProvider(say)
        prompt = prompt_file(tmp_path, text)
        run_map(tmp_path, rows, out="more.parquet", provider=provider, prompt=prompt)
        assert len(provider.asked) == asked


def test_settings_from_a_file(tmp_path: Path) -> None:
    """`--config` knows map's options as it knows run's."""
    config = tmp_path / "claimscore.toml"
    config.write_text(f'prompt = "{DECOMPOSE}"\nmax-concurrency = 3\n')
    out = tmp_path / "out.parquet"
    assert command("map", REVIEWS, "--config", config, "--out", out, "--quiet") == 0


def test_progress_is_told(tmp_path: Path) -> None:
    """From reading to writing, and the rows count up to all of them."""
    seen: list[tuple[str, int, int]] = []
    config = claimscore.MapConfig(
        input=io_frame(), prompt=prompt_file(tmp_path), out=tmp_path / "out.parquet"
    )
    claimscore.map(
        config,
        provider=FakeProvider(say),
        on_progress=lambda p: seen.append((p.phase, p.rows_done, p.rows_total)),
    )
    assert seen[0][0] == "reading"
    assert seen[-1] == ("writing", 3, 3)


def test_the_display_is_plain_lines_without_a_terminal(tmp_path: Path, capsys: Any) -> None:
    """Progress on standard error, the result on standard output."""
    out = tmp_path / "out.parquet"
    assert command("map", REVIEWS, "--prompt", DECOMPOSE, "--out", out) == 0
    shown = capsys.readouterr()
    assert "claimscore: writing 12 of 12 rows" in shown.err
    assert "rows     12: 12 answered, 0 failed" in shown.out


def test_a_stream_of_standard_input_in_python(tmp_path: Path) -> None:
    """`stdin` is any binary stream."""
    config = claimscore.MapConfig(
        input="-", prompt=prompt_file(tmp_path), out=tmp_path / "out.parquet"
    )
    stream = io.BytesIO(b'{"text": "a"}\n')
    result = claimscore.map(config, provider=FakeProvider(say), stdin=stream)
    assert result.frame().collect()["answer"].to_list() == ["A"]
