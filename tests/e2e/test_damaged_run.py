"""A run directory whose files were damaged: the same call makes them again and sends no request."""

import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimscore.baseline.provider import BuiltinProvider
from claimscore.cli import main
from claimscore.config import LLMConfig, RunConfig
from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.llm.providers import base
from claimscore.pipeline.run import RunResult, run
from claimscore.runs import RunDirectory
from claimscore.types import Completion, Request
from tests.support.pass_doubles import FakeModel as FakeClassifier

N_RECORDS = 7

#: A text that the provider refuses without an answer, and one that gets an unusable answer.
REFUSED, MUMBLED = "Refused", "Mumbled"


class Counting(BuiltinProvider):
    """Counts what it is asked, refuses one text and says nonsense about another; negates too."""

    n_asked = 0

    async def complete(self, request: Request) -> Completion:
        Counting.n_asked += 1
        said = request.messages[-1].content
        if REFUSED in said:
            raise RejectedError("not that one", "content_filter")
        if MUMBLED in said:
            return Completion("mumble", "m")
        if request.output is not None and request.output.name == "negate":
            return Completion(json.dumps({"negation": f"Not so: {said}"}), "m")
        return await super().complete(request)


def write_input(path: Path) -> Path:
    """One record whose first text is refused and one of whose answers cannot be used."""
    texts = [f"Room {n} is clean. Bar {n} is loud." for n in range(N_RECORDS)]
    texts[2], texts[5] = f"{REFUSED} it is. Room 2 is big.", f"{MUMBLED} it is. Room 5 is old."
    lines = [
        json.dumps({"id": f"r{n}", "summary_a": text, "summary_b": f"Bed {n} is hard."})
        for n, text in enumerate(texts)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module", autouse=True)
def small() -> object:
    """A provider that counts, a model that is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "load_provider", lambda _: Counting())
        patch.setattr("claimscore.pipeline.model_stage.load_model", lambda *_: FakeClassifier())
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run that ended, with its cache."""
    folder = tmp_path_factory.mktemp("damage")
    config = RunConfig(
        str(write_input(folder / "input.jsonl")),
        folder / "run",
        ("caspr", "ds"),
        ("negate",),
        cache_dir=folder / "cache",
        chunk_records=1,
        llm=LLMConfig("openai:m"),
    )
    run(config)
    return config


@pytest.fixture
def copied(finished: RunConfig, tmp_path: Path) -> RunConfig:
    return copy_of(finished, tmp_path / "run")


def copy_of(finished: RunConfig, out: Path) -> RunConfig:
    shutil.copytree(finished.out, out)
    return dataclasses.replace(finished, out=out)


def again(config: RunConfig) -> tuple[RunResult, int, list[str]]:
    """The same call: its result, how many requests were sent, what people were told."""
    before, told = Counting.n_asked, list[str]()

    def hear(progress: object) -> None:
        notice = str(progress.notice)  # type: ignore[attr-defined]
        if notice and notice not in told:
            told.append(notice)

    result = run(config, on_progress=hear)
    return result, Counting.n_asked - before, told


def out_of(config: RunConfig) -> Path:
    assert isinstance(config.out, Path)
    return config.out


def rows(config: RunConfig) -> dict[str, pl.DataFrame]:
    """All tables, their rows in an order of their own."""
    directory = RunDirectory.reader(config.out)
    tables = ("records", "claims", "negations", "nli", "failures")
    return {table: directory.read(table, *range(N_RECORDS)) for table in tables}


def assert_as_before(config: RunConfig, finished: RunConfig) -> None:
    scores = "scores.parquet"
    assert (out_of(config) / scores).read_bytes() == (out_of(finished) / scores).read_bytes()
    found, expected = rows(config), rows(finished)
    for table, frame in expected.items():
        assert found[table].to_dicts() == frame.to_dicts(), table


def parts(out: Path) -> list[Path]:
    return sorted(out.glob("*/part-*.parquet"))


def cut(path: Path, at: int) -> None:
    path.write_bytes(path.read_bytes()[: at % max(1, path.stat().st_size)])


def flip(path: Path, at: int) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[at // 8 % len(content)] ^= 1 << at % 8
    path.write_bytes(content)


def empty(path: Path, _: int) -> None:
    path.write_bytes(b"")


def delete(path: Path, _: int) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path, int], None]] = [cut, flip, empty, delete]


@settings(max_examples=3)
@given(seed=st.integers(0, 2**32), n_files=st.integers(1, 12))
def test_any_damage_is_mended(finished: RunConfig, seed: int, n_files: int) -> None:
    """Of any files of the run, in any way: the same bytes come back, and no request is sent but the
    one that was refused."""
    draw = random.Random(seed)
    out = out_of(finished).with_name(f"run-{seed}")
    config = copy_of(finished, out)
    try:
        state = out / ".state"
        known = [
            *parts(out),
            *(out / name for name in ("scores.parquet", "summary.json")),
            *(state / name for name in ("plan.json", "scores.json", "manifest.log")),
        ]
        for path in draw.sample(known, n_files):
            draw.choice(DAMAGES)(path, draw.randrange(10**6))
        _, n_asked, _ = again(config)
        assert n_asked <= 1
        assert_as_before(config, finished)
    finally:
        shutil.rmtree(out)


def test_records_are_made_from_the_same_input_only(
    copied: RunConfig, finished: RunConfig, tmp_path: Path
) -> None:
    """Changed or gone it is refused in one line, and nothing else is lost."""
    source = write_input(tmp_path / "input.jsonl")
    config = dataclasses.replace(copied, input=str(source))
    out = out_of(copied)
    flip(next((out / "records").iterdir()), 3000)
    content = source.read_text()
    source.write_text(content.replace("Room 3", "Room 33"))
    with pytest.raises(ConfigError, match="the content of the input: was"):
        run(config)
    source.unlink()
    with pytest.raises(ConfigError, match=r"input\.jsonl"):
        run(config)
    source.write_text(content)
    assert again(config)[1] == 0
    assert_as_before(config, finished)


def test_a_folder_in_the_place_of_a_part(copied: RunConfig) -> None:
    """No file of the user is removed: one line says what is in the way."""
    path = out_of(copied) / "nli" / "part-000006-nli-a-b.parquet"
    path.unlink()
    path.mkdir()
    (path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"part-000006-nli-a-b\.parquet: it is a folder"):
        run(copied)
    assert (path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("damage", "command"),
    [(cut, "status"), (empty, "report"), (delete, "score"), (delete, "compare")],
)
def test_other_commands_say_it_in_one_line(
    copied: RunConfig,
    finished: RunConfig,
    damage: Callable[[Path, int], None],
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Which file, and what to do; nothing is changed by them."""
    path = out_of(copied) / "nli" / "part-000000-nli-a-b.parquet"
    damage(path, 100)
    before = {path: path.read_bytes() for path in parts(out_of(copied))}
    more = {"score": ["--metrics", "rouge-1"], "compare": [str(finished.out)]}.get(command, [])
    assert main([command, str(copied.out), *more]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert str(path) in said
    assert "the same command that began it makes it again" in said
    assert {path: path.read_bytes() for path in parts(out_of(copied))} == before


def test_scores_with_a_flipped_bit_are_not_shown(
    copied: RunConfig, finished: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report of other numbers would look like one."""
    flip(out_of(copied) / "scores.parquet", 3000)
    assert main(["report", str(copied.out)]) == 2
    assert main(["compare", str(copied.out), str(finished.out)]) == 2
    assert main(["status", str(copied.out), "--record", "r1"]) == 2
    assert capsys.readouterr().err.count("scores.parquet: damaged: not what was written") == 3
