"""`claimscore map` from end to end: a table and a prompt in, typed columns out."""

import contextlib
import datetime
import decimal
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

import claimscore
from claimscore.errors import ConfigError, RejectedError, StoppedEarly
from claimscore.pipeline.map.job import MapProgress, estimate_map
from claimscore.pipeline.map.map_files import METADATA_KEY
from claimscore.types import Completion, Request, TokenLogprob
from tests.fake_server import FakeServer
from tests.support.command_line import Command
from tests.support.engine_doubles import FakeProvider, completion

ROOT = Path(__file__).parents[4]
REVIEWS = ROOT / "examples" / "reviews.csv"
TONE = ROOT / "examples" / "tone.toml"
DECOMPOSE = ROOT / "claimscore" / "prompts" / "decompose" / "v1.toml"

PLAIN = 'name = "plain"\nversion = "v1"\nuser = "Say $text"\n'


def prompt_file(folder: Path, text: str = PLAIN) -> Path:
    path = folder / "prompt.toml"
    path.write_text(text, encoding="utf-8")
    return path


def rows(n: int) -> pl.DataFrame:
    """Rows that all differ."""
    return pl.DataFrame({"text": [f"row {i}" for i in range(n)]})


def always(text: str) -> FakeProvider:
    """Gives each row this answer."""

    async def answer(request: Request) -> Completion:
        return completion(text)

    return FakeProvider(answer)


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
    on_progress = options.pop("on_progress", None)
    config = map_config(tmp_path, table, out, **options)
    return claimscore.map(config, provider=provider or FakeProvider(say), on_progress=on_progress)


def map_config(tmp_path: Path, table: Any, out: str = "out.parquet", **options: Any) -> Any:
    """The settings; the prompt is the plain one where `options` name none."""
    if "prompt" not in options:
        options["prompt"] = prompt_file(tmp_path)
    return claimscore.MapConfig(input=table, out=tmp_path / out, **options)


class TestOneTable:
    """What comes out of a table and a prompt."""

    @pytest.mark.parametrize(
        "table", [[{"text": "a", "n": 1.5}, {"text": None}], pl.LazyFrame({"text": ["a", None]})]
    )
    def test_rows_in_memory(self, table: Any, tmp_path: Path) -> None:
        made = run_map(tmp_path, table).frame().collect()
        assert made["answer"].to_list() == ["A", None]
        assert made["error"].to_list() == [None, "column text is null"]
        assert run_map(tmp_path, table).summary["was_finished"]

    def test_an_answer_outside_the_values_is_asked_again(self, tmp_path: Path) -> None:
        output = "[settings]\ntemperature = 0.5\n[output]\nstars = [1, 2]\n"
        output += 'tone = ["good", "bad"]\n'
        asked: list[str] = []

        async def answer(request: Request) -> Completion:
            text = request.messages[-1].content
            asked.append(text)
            right = text == "Say b" and asked.count(text) > 1
            return completion(json.dumps({"tone": "good", "stars": 2 if right else 3}))

        prompt, table = prompt_file(tmp_path, PLAIN + output), pl.DataFrame({"text": ["b", "c"]})
        result = run_map(tmp_path, table, prompt=prompt, provider=FakeProvider(answer))
        made = result.frame().collect()
        assert (made["stars"].dtype, made["tone"].dtype) == (pl.Int64(), pl.String())
        assert made["stars"].to_list() == [2, None]
        assert "stars: Input should be 1 or 2" in made["error"][1]
        assert (asked.count("Say b"), asked.count("Say c")) == (2, 3)

    def test_label_words_make_a_column_a_label(self, tmp_path: Path) -> None:
        """Of the prompt of a verifier too, whose source is a parameter of the server's."""

        async def answer(request: Request) -> Completion:
            ((document,), log) = request.extra["documents"], math.log(0.6)
            assert document["text"] == "It rained."
            return Completion("No", "m", "length", logprobs=(TokenLogprob("No", log, ()),))

        guardian = ROOT / "claimscore" / "prompts" / "verify" / "granite-guardian.toml"
        table = pl.DataFrame({"text": ["Rain."], "source": ["It rained."]})
        result = run_map(tmp_path, table, prompt=guardian, provider=FakeProvider(answer))
        made = result.frame().select("supported", "unmentioned", "error").collect()
        assert made.row(0) == (pytest.approx(0.6), 0, None)

    def test_nested_output(self, tmp_path: Path) -> None:
        output = '[output]\nwords = ["string"]\nn = "integer"\nx = {a = "boolean"}\n'
        provider = always('{"words": ["a", "b"], "n": 2, "x": {"a": true}}')
        prompt = prompt_file(tmp_path, PLAIN + output)
        result = run_map(tmp_path, rows(1), prompt=prompt, provider=provider)
        row = result.frame().select("words", "n", "x").collect()
        assert row.rows() == [(["a", "b"], 2, {"a": True})]
        assert row.schema["n"] == pl.Int64()

    def test_a_prompt_of_the_folder_by_name(self, tmp_path: Path) -> None:
        """What is for the tasks of a run is refused."""
        folder, provider = tmp_path / "prompts" / "plain", FakeProvider(say)
        folder.mkdir(parents=True)
        for version, more in (("v1", ""), ("v2", "temperature = 0.3"), ("v3", 'model = "x"')):
            text = f"{PLAIN.replace('v1', version)}[settings]\n{more}\n"
            (folder / f"{version}.toml").write_text(text)
        options = {"prompts_dir": folder.parent, "provider": provider}
        for prompt in ("plain", "plain=v2"):
            run_map(tmp_path, rows(1), out=f"{prompt}.parquet", prompt=prompt, **options)
        assert [request.temperature for request in provider.asked] == [0, 0.3]
        for prompt, message in (("plain=v3", "model"), ("plain=v4", "versions of plain")):
            with pytest.raises(ConfigError, match=message):
                run_map(tmp_path, rows(1), prompt=prompt, **options)

    @pytest.mark.parametrize("version", ["v1", "v3"])
    def test_the_built_in_rules_do_their_own_prompts(
        self, tmp_path: Path, cli: Command, version: str
    ) -> None:
        """With nothing but PyPI: decompose's prompt over a table, here from a file of settings.
        Progress goes to standard error, the result to standard output."""
        config, out = tmp_path / "claimscore.toml", tmp_path / "claims.parquet"
        prompt, table = DECOMPOSE.with_stem(version), tmp_path / "reviews.csv"
        config.write_text(f'prompt = "{prompt}"\nmax-concurrency = 3\n')
        context = pl.lit("It rained.").alias("before"), pl.lit("We left.").alias("after")
        pl.read_csv(REVIEWS).with_columns(context).write_csv(table)
        status, shown, progress = cli("map", table, "--config", config, "--out", out)
        assert status == 0
        assert "claimscore: writing 12 of 12 rows" in progress
        assert "rows     12: 12 answered, 0 failed" in shown
        claims = pl.read_parquet(out)["claims"]
        assert claims.dtype == pl.List(pl.String())
        assert claims.list.len().min() >= 1

    @pytest.mark.parametrize(
        ("kind", "answer"),
        [("integer", '{"n": 9223372036854775808}'), ("string", '{"n": "\\ud800"}')],
    )
    def test_answers_that_no_column_can_hold(self, tmp_path: Path, kind: str, answer: str) -> None:
        """A row's trouble, not the run's; half of a surrogate pair in a text is one sign of it."""
        prompt = prompt_file(tmp_path, PLAIN + f'[output]\nn = "{kind}"\n')
        result = run_map(tmp_path, rows(1), prompt=prompt, provider=always(answer))
        assert result.failed == {"parse": 1}
        result = run_map(tmp_path, rows(1), out="text.parquet", provider=always("a\ud800é"))
        assert result.frame().collect()["answer"].to_list() == ["a?é"]

    def test_standard_input(
        self, tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`-` is JSONL; the copy goes when the work is done."""
        out = tmp_path / "out.parquet"
        lines = '{"text": "The pool is warm.", "n": 1}\n{"text": "It is old.", "tags": ["a"]}\n'
        for was_finished in (False, True):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
            done = cli("map", "-", "--prompt", DECOMPOSE, "--out", out, "--json").json()
            assert done["was_finished"] is was_finished
        made = pl.read_parquet(out)
        assert made.columns[:3] == ["text", "n", "tags"]
        assert made["tags"].to_list() == [None, '["a"]']
        assert not list(tmp_path.glob("*.parts"))


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
        table = every_type()
        table.write_parquet(tmp_path / "in.parquet")
        given = tmp_path / "in.parquet" if as_file else table
        made = run_map(tmp_path, given, chunk_rows=chunk_rows).frame().collect()
        assert dict(made.select(table.columns).schema) == dict(table.schema)
        assert made.select(table.columns).equals(table)
        assert made["answer"].to_list() == ["A", "B", "C"]

    def test_values_in_a_prompt(self, tmp_path: Path) -> None:
        """What the documentation says of each type; a `$date` or a brace in a value is data."""
        texts = {
            "date": "2024-02-29",
            "time": "12:30:00",
            "ms": "2024-02-29 12:30:00.000",
            "zoned": "2024-02-29 12:30:00.000000+01:00",
            "duration": "P1DT3S",
            "list": "[1, null]",
            "struct": '{"a": 1, "b": ["x"]}',
            "array": "[1, 2]",
            "decimal": "1.10",
            "categorical": "x",
            "enum": "p",
            "u64": "18446744073709551615",
            "f32": "0.1",
            "bool": "true",
            "text": "$date ${x} $$ {y}",
        }
        provider = FakeProvider(say)
        prompt = prompt_file(tmp_path, PLAIN.replace("$text", " | ".join(f"${t}" for t in texts)))
        frame = every_type().head(1).with_columns(text=pl.lit(texts["text"]))
        run_map(tmp_path, frame, prompt=prompt, provider=provider)
        assert provider.asked[0].messages[-1].content == f"Say {' | '.join(texts.values())}"


class TestFailures:
    """Rows without an answer."""

    def test_nulls_and_refusals(self, tmp_path: Path) -> None:
        provider = FakeProvider(say)
        frame = pl.DataFrame({"text": ["a", None, "bad", "b"], "k": [1, 2, 3, 4]})
        result = run_map(tmp_path, frame, provider=provider, chunk_rows=3)
        made = result.frame().collect()
        assert made["answer"].to_list() == ["A", None, None, "B"]
        assert made["error"].to_list() == [None, "column text is null", "not nice", None]
        assert made["request_key"].is_null().to_list() == [False, True, False, False]
        assert result.failed == {"content": 1, "null_input": 1}
        assert (result.rows, result.answered_rows, result.failed_rows) == (4, 2, 2)
        failures = pl.read_parquet(tmp_path / "out.failures.parquet")
        assert failures.equals(result.failures().collect())
        assert failures.columns == ["row", "kind", "message", "attempts", "request_key", "raw"]
        assert failures.select("row", "kind", "attempts").rows() == [
            (1, "null_input", 0),
            (2, "content", 1),
        ]
        assert failures["request_key"][1] == made["request_key"][2]

    def test_answers_that_do_not_fit_are_kept_raw(self, tmp_path: Path, cli: Command) -> None:
        with FakeServer(text="I am a teapot") as server:
            llm = ("--llm", "openai:m", "--base-url", server.base_url, "--quiet")
            call = ("map", REVIEWS, "--prompt", TONE, "--out", tmp_path / "tone.parquet", *llm)
            first, asked = cli(*call), server.n_requests
            second = cli(*call)
            assert server.n_requests == asked, "a rerun leaves failed rows alone"
        failures = pl.read_parquet(tmp_path / "tone.failures.parquet")
        assert failures.select("kind", "raw").unique().rows() == [("parse", "I am a teapot")]
        assert (first.status, second.status) == (3, 3)
        assert "12: 0 answered, 12 failed" in first.out
        assert "finished before" in second.out

    def test_retry_failed_asks_only_for_those(self, tmp_path: Path) -> None:
        """Rows that have their answer stay as they are, and are not paid for again where the cache
        has lost them; those that fail again keep their number; with nothing failed nothing is
        done."""
        frame = pl.DataFrame({"text": [f"{'bad' if i % 5 == 4 else 'row'} {i}" for i in range(23)]})

        async def all_but_9(request: Request) -> Completion:
            if "bad 9" in request.messages[-1].content:
                raise RejectedError("not nice", "content")
            return completion("good")

        def retried(provider: FakeProvider) -> claimscore.MapResult:
            return run_map(tmp_path, frame, provider=provider, chunk_rows=4, retry_failed=True)

        first = run_map(tmp_path, frame, chunk_rows=4)
        lost = {"cache_dir": tmp_path / "another-cache", "retry_failed": True, "chunk_rows": 4}
        with pytest.raises(ConfigError, match="19 of its answers are not in the cache"):
            run_map(tmp_path, frame, **lost)
        assert not (tmp_path / "out.parquet.parts").exists()
        assert first.failed == {"content": 4}
        before = first.frame().collect()
        provider = FakeProvider(all_but_9)
        second = retried(provider)
        asked = {request.messages[-1].content for request in provider.asked}
        assert asked == {f"Say bad {i}" for i in (4, 9, 14, 19)}
        assert second.failures().collect()["row"].to_list() == [9]
        after = second.frame().collect()
        assert (after["error"].null_count(), after["answer"][4]) == (22, "good")
        good = before["error"].is_null()
        assert after.filter(good).equals(before.filter(good))
        assert retried(FakeProvider()).failed == {}
        assert not (tmp_path / "out.failures.parquet").exists()
        assert retried(FakeProvider()).summary["was_finished"] is True


class TestRefused:
    """Wrong input, prompts and options: one line, exit 2, nothing asked, nothing left behind."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            pytest.param({"x.jsonl": b'{"text": "a"\n'}, "x.jsonl, line 1", id="broken-json"),
            pytest.param({"x.parquet": b"PAR1 no"}, "x.parquet", id="parquet"),
            pytest.param({"x.jsonl": b'{"txt": "a"}\n'}, "did you mean $txt?", id="close-name"),
            pytest.param({"x.jsonl": b'{"text":"a","answer":1}'}, "column answer", id="taken"),
            pytest.param({"x.jsonl": b'{"text":"a","error":1}'}, "column error", id="error"),
            pytest.param({"x.csv": b"text,request_key\na,b"}, "column request_key", id="key"),
            pytest.param({"prompt": PLAIN.replace("$text", "$txt")}, "mean $text?", id="column"),
            pytest.param({"prompt": PLAIN.replace("$", "")}, "names no $column", id="no-column"),
            pytest.param({"prompt": PLAIN + '[output]\ntext = "string"'}, "column text", id="both"),
            pytest.param({"prompt": PLAIN + '[output]\nerror = "string"'}, "error", id="reserved"),
            pytest.param({"prompt": "name = \n"}, "prompt.toml", id="toml"),
            pytest.param({"--out": "out.csv"}, "end in .parquet", id="out"),
            pytest.param({"--llm": "builtin"}, "--llm builtin asks none", id="builtin"),
            pytest.param({"--prompt": "nosuch.toml"}, "no such file", id="no prompt"),
            pytest.param(
                {"prompt": f'{PLAIN}[label_words]\na = "A"\nb = "B"\n', "--llm": "anthropic:m"},
                "[label_words] are read from log-probabilities, which anthropic does not",
                id="no log-probabilities",
            ),
        ],
    )
    def test_input_prompt_or_option(
        self, tmp_path: Path, cli: Command, given: dict[str, Any], message: str
    ) -> None:
        assert message in refused(cli, tmp_path, **given)

    def test_a_cap_without_a_price(self, tmp_path: Path, cli: Command) -> None:
        """Known only when the engine is made; no row is asked."""
        assert "price" in refused(cli, tmp_path, leaves=True, **{"--max-cost": "1"})

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (pl.Series([b"a"]), "column text holds bytes"),
            (pl.Series([object()], dtype=pl.Object()), "not for Parquet"),
        ],
        ids=["bytes", "objects"],
    )
    def test_values_of_no_use(self, tmp_path: Path, values: pl.Series, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            run_map(tmp_path, pl.DataFrame({"text": values}))

    def test_somebody_elses_file(self, tmp_path: Path) -> None:
        frame = pl.DataFrame({"text": ["a"]})
        for name in ("out.parquet", "out.failures.parquet"):
            frame.write_parquet(tmp_path / name)
            provider = FakeProvider(say)
            with pytest.raises(ConfigError, match="not written by `claimscore map`"):
                run_map(tmp_path, frame, provider=provider)
            assert provider.asked == []
            assert pl.read_parquet(tmp_path / name).equals(frame)
            (tmp_path / name).unlink()

    @pytest.mark.parametrize("n", [4, 6], ids=["unfinished", "finished"])
    def test_other_settings_for_the_same_file(self, tmp_path: Path, n: int) -> None:
        """Of input, prompt or model; the call with its own settings goes on."""
        frame, same = rows(6), FakeProvider(say)
        stop_after(tmp_path, frame, n, chunk_rows=2)
        other = FakeProvider(say)
        other.model = "other"
        for table, text, provider, message in (
            (frame.reverse(), PLAIN, same, "content of"),
            (frame, 'system = "Hello"\n' + PLAIN, same, '--prompt: was "'),
            (frame, PLAIN, other, '--llm: was "fake-1", now "other"'),
        ):
            options: Any = {"prompt": prompt_file(tmp_path, text), "chunk_rows": 2}
            with pytest.raises(ConfigError, match=message):
                run_map(tmp_path, table, provider=provider, **options)
            assert provider.asked == []
        prompt_file(tmp_path)
        assert run_map(tmp_path, frame, chunk_rows=2).answered_rows == 6

    @pytest.mark.parametrize(
        ("n", "chunk_rows"), [(6, 2), (6, 3), (5, 2)], ids=["prompt", "chunks", "input"]
    )
    def test_a_refused_call_can_be_corrected(self, tmp_path: Path, n: int, chunk_rows: int) -> None:
        """Settings that nothing was made with yet do not stand in the way of the right ones."""
        frame = rows(6)
        stop_after(tmp_path, frame, 0, chunk_rows=2)
        assert (tmp_path / "out.parquet.parts").exists()
        prompt = prompt_file(tmp_path, PLAIN.replace("Say", "Tell"))
        result = run_map(tmp_path, frame.head(n), prompt=prompt, chunk_rows=chunk_rows)
        expected = [f"TELL ROW {i}" for i in range(n)]
        assert result.frame().collect()["answer"].to_list() == expected


def refused(cli: Command, folder: Path, *, leaves: bool = False, **given: Any) -> str:
    """The one line of a map that is refused. `given` are options, the text of its `prompt`, or a
    table by the name of its file. Nothing is sent, nor written unless it `leaves` something."""
    table = next((name for name in given if "." in name), "rows.jsonl")
    (folder / table).write_bytes(given.get(table, b'{"n": 1, "text": "a"}\n'))
    prompt = prompt_file(folder, given.get("prompt", PLAIN))
    options = {"--out": folder / "out.parquet", "--prompt": prompt, "--llm": "openai:m"}
    options |= {name: value for name, value in given.items() if name.startswith("--")}
    with FakeServer() as server:
        options["--base-url"] = server.base_url
        call = [part for option in options.items() for part in option]
        status, _, error = cli("map", folder / table, *call, "--quiet")
        assert (status, server.n_requests, error.count("\n")) == (2, 0, 1)
    assert leaves or not list(folder.glob("out*"))
    return error


def stop_after(tmp_path: Path, table: Any, n: int, **options: Any) -> None:
    """Stop a map after so many answers."""
    left = iter(range(n))

    async def answer(request: Request) -> Completion:
        if next(left, None) is None:
            raise StoppedEarly("the end of the day")
        return await say(request)

    options = {"llm": claimscore.LLMConfig(max_concurrency=1), **options}
    with contextlib.suppress(StoppedEarly):
        run_map(tmp_path, table, provider=FakeProvider(answer), **options)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        pytest.param('system = "Be kind."\n' + PLAIN, 21, id="system"),
        pytest.param(PLAIN + "[settings]\nmax_tokens = 9\n", 21, id="settings"),
        pytest.param(PLAIN.replace("plain", "other").replace("v1", "v2"), 1, id="name"),
    ],
)
def test_only_what_is_sent_asks_for_an_answer(tmp_path: Path, text: str, asked: int) -> None:
    """Here one row more; names and versions of a prompt are not sent."""
    run_map(tmp_path, rows(20))
    table = rows(21).with_columns(other=1)
    result = run_map(tmp_path, table, out="more.parquet", prompt=prompt_file(tmp_path, text))
    assert (result.summary["requests"], result.summary["cache_hits"]) == (asked, 21 - asked)


#: Ten rows, of which the fifth is refused; they are mapped in chunks of three.
TEN = pl.DataFrame({"text": [f"row {i}" if i != 4 else "bad" for i in range(10)]})


class TestStatus:
    """`claimscore status` of a map: by its file, or by the unfinished work beside it."""

    def test_an_unfinished_map(self, tmp_path: Path, cli: Command) -> None:
        """Named by the file that is not there yet, or by the folder of its parts."""
        stop_after(tmp_path, TEN, 7, chunk_rows=3)
        out, parts = tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
        for path in (out, parts):
            state = cli("status", path, "--json").json()
            assert (state["out"], state["complete"], state["running"]) == (str(parts), False, False)
            counts = state["rows"]
            assert 0 < counts["done"] < counts["total"] == counts["done"] + counts["left"] == 10
            assert state["spent"]["requests"] >= 7
        shown = cli("status", out, "--watch").out
        assert f"{counts['done']} of 10 done" in shown
        assert "stopped  the end of the day\n" in shown
        assert "not running; the same `claimscore map` goes on" in shown
        seen: list[int] = []
        run_map(tmp_path, TEN, chunk_rows=3, on_progress=lambda p: seen.append(p.rows_known))
        assert min(filter(None, seen)) >= counts["done"] > 6  # more than the finished chunks

    def test_a_finished_map(self, tmp_path: Path, cli: Command) -> None:
        """What it would cost again is nothing, or its failed rows."""
        out = run_map(tmp_path, TEN, chunk_rows=3).path
        state = cli("status", out, "--json").json()
        assert state["complete"]
        assert state["rows"] == {"total": 10, "done": 10, "failed": 1, "left": 0}
        assert state["failures"] == [{"stage": "map", "kind": "content", "count": 1}]
        assert cli("status", out).out.splitlines() == [
            f"{out}: complete",
            "rows    10 of 10 done, 1 of them failed",
            "failed  1 x map: content",
            "next    the same command with --retry-failed tries the failed ones again",
        ]
        for retry_failed in (False, True):
            config = map_config(tmp_path, TEN, chunk_rows=3, retry_failed=retry_failed)
            assert estimate_map(config, provider=FakeProvider(say)).requests == int(retry_failed)

    def test_a_map_at_work(self, tmp_path: Path, cli: Command) -> None:
        seen: list[Any] = []
        looked = anyio.Event()
        note = tmp_path / "out.parquet.parts" / ".state" / "now.json"

        def look(progress: MapProgress) -> None:
            if progress.phase == "running" and note.exists() and not seen:
                seen.append(cli("status", tmp_path / "out.parquet", "--json").json())
                looked.set()

        async def say_when_looked_at(request: Request) -> Completion:
            await looked.wait()
            return await say(request)

        run_map(tmp_path, TEN, provider=FakeProvider(say_when_looked_at), on_progress=look)
        assert (seen[0]["running"], seen[0]["last_call"]["phase"]) == (True, "running")
        assert seen[0]["rows"] == {"total": 10, "done": 0, "failed": 0, "left": 10}

    def test_what_is_no_map(self, tmp_path: Path, cli: Command) -> None:
        TEN.write_parquet(tmp_path / "other.parquet")
        for name, said in (("other", "was not written by `claimscore map`"), ("none", "none.par")):
            shown = cli("status", tmp_path / f"{name}.parquet")
            assert (shown.status, said in shown.err, shown.err.count("\n")) == (2, True, 1)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, value) for name in ("settings", "rows", "failed") for value in (None, [3])),
            *(("rows", value) for value in (-1, float("nan"), True, {})),
            *(("failed", {"refused": value}) for value in (None, -1, "x", 11)),
            *(("settings", {"seed": value}) for value in (None, float("nan"))),
        ],
        ids=str,
    )
    def test_foreign_metadata(self, name: str, value: Any, tmp_path: Path, cli: Command) -> None:
        """One line that names the file, by `status` and by another call of `map`."""
        out = run_map(tmp_path, TEN).path
        facts = json.loads(pl.read_parquet_metadata(out)[METADATA_KEY]) | {name: value}
        pl.read_parquet(out).write_parquet(out, metadata={METADATA_KEY: json.dumps(facts)})
        message = (
            f"{out} is there already and was not written by `claimscore map`; name another --out"
        )
        assert message in cli("status", out).err
        with pytest.raises(ConfigError, match="was not written by"):
            run_map(tmp_path, TEN)
