"""`claimscore compare`: what is printed and written, the exit codes, and two real runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from claimscore.cli import main
from claimscore.console import table
from tests.e2e.test_terminal import in_terminal
from tests.support.compared_runs import write_run
from tests.support.tiny_models import save_tiny_nli

EXAMPLES = Path(__file__).parents[4] / "examples" / "hotels.jsonl"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Any command: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    ids = [str(number) for number in range(12)]
    hostile = "a\x1b[31m [x] \u202e red"
    return (
        write_run(tmp_path / "a", ids, {"ds": [50.0] * 12}, claims={("10", "a"): [hostile]}),
        write_run(
            tmp_path / "b",
            ids,
            {"ds": [50.0 + number for number in range(11)] + [None]},
            claims={("10", "a"): ["Else."]},
        ),
    )


def test_what_is_printed(call: Call, pair: tuple[Path, Path]):
    """Runs, differences, records, method; nothing that a terminal would obey."""
    code, text, _ = call("compare", *pair, "--samples", 100, "--top", 12)
    assert code == 0
    assert f"A  {pair[0]} (baseline): 12 records" in text
    assert "ds: 1 of the shared records have no score in B: 1 x decompose failed" in text
    assert "higher" in text
    assert "95 % paired bootstrap interval (100 samples" in text
    assert "letter trigrams" in text
    assert "[x]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "more records that moved are in --json and --html" in text


def test_a_narrow_terminal_gets_lines_instead_of_a_squeezed_table(
    call: Call, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    """Every number can be read, and no word is cut."""
    monkeypatch.setattr(table, "FILE_WIDTH", 50)
    code, text, _ = call("compare", *pair, "--samples", 100)
    assert code == 0
    assert max(map(len, text.splitlines()[2:])) <= 50
    assert "ds: n 11, mean A 50.00, mean B 55.00, B − A" in " ".join(text.split())


def test_json_goes_to_a_file_or_to_standard_output(call: Call, pair: tuple[Path, Path]):
    """One object, and nothing else is printed."""
    _, printed, _ = call("compare", *pair, "--samples", 100, "--json")
    found = json.loads(printed)
    assert found["runs"][0]["differences"][0]["difference"] == 5.0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_differences_of_every_record(
    call: Call, pair: tuple[Path, Path], tmp_path: Path, ending: str
):
    """A row a record and metric; what is null says why."""
    file = tmp_path / f"d.{ending}"
    code, _, _ = call("compare", *pair, "--samples", 10, "--differences", file, "--quiet")
    rows = pl.read_csv(file) if ending == "csv" else pl.read_parquet(file)
    assert code == 0
    assert rows.height == 12
    last = rows.filter(pl.col("id").cast(pl.String) == "11").row(0, named=True)
    assert (last["difference"], last["reason"]) == (None, "decompose failed: no answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare",), "BASELINE RUN"),
        (("compare", "missing", "missing"), "missing: there is no such run directory"),
        (("compare", "missing"), "at least two runs"),
        (("compare", "a", "b", "--differences", "x.txt"), "must end in .csv or .parquet"),
        (("compare", "a", "b", "--top", "-3"), "--top must be at least 0"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(call: Call, arguments: tuple[str, ...], message: str):
    """Nothing is read or written."""
    code, text, error = call(*arguments)
    assert (code, text) == (2, "")
    assert message in error
    assert "Traceback" not in error


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundled example, scored with claims by two NLI models, and with sentences."""
    folder = tmp_path_factory.mktemp("real")
    models = [save_tiny_nli(folder / f"nli{seed}", seed=seed) for seed in (0, 1)]
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()[:4]
    records = folder / "records.jsonl"
    records.write_text("\n".join(lines) + "\n", encoding="utf-8")
    runs = {"claims": (models[0], "claims"), "other nli": (models[1], "claims")}
    runs["sentences"] = (models[0], "sentences")
    for name, (model, units) in runs.items():
        arguments = ["--metrics", "caspr", "--nli", model, "--units", units, "--device", "cpu"]
        out = ["run", records, "--out", folder / name, "--quiet", *arguments]
        assert main([*map(str, out)]) == 0
    return {name: folder / name for name in runs}


def test_claims_against_sentences(call: Call, real: dict[str, Path]):
    """Sentences of two claims are gone; those of one claim are the same in both."""
    _, printed, _ = call("compare", real["claims"], real["sentences"], "--json")
    (run,) = json.loads(printed)["runs"]
    assert {"name": "texts.units", "baseline": "claims", "run": "sentences"} in run["settings"]
    for side in run["agreement"]:
        assert side["baseline_units"] > side["units"] > side["same"] > 0
        assert side["per_sentence"] == 1.0 < side["baseline_per_sentence"]
        assert side["changed"] > 0
        for of, one in (("baseline_units", "vanished"), ("units", "appeared")):
            assert side[of] == side["same"] + side["normalised"] + side["changed"] + side[one]


def test_two_nli_models_over_the_same_claims(call: Call, real: dict[str, Path]):
    """All claims are the same; labels differ, and all that differ are counted."""
    _, printed, _ = call("compare", real["claims"], real["other nli"], "--json")
    (run,) = json.loads(printed)["runs"]
    assert [row["share_same"] for row in run["agreement"]] == [1.0, 1.0]
    (labels,) = run["labels"]
    assert labels["records"] == run["shared"] == 4
    assert 0 < labels["flipped"] <= labels["cells"]
    assert any(row["name"].startswith("nli.") for row in run["settings"])
    scores = [pl.read_parquet(real[name] / "scores.parquet") for name in ("claims", "other nli")]
    means = [frame["value"].mean() for frame in scores]
    assert run["differences"][0]["difference"] == pytest.approx(means[1] - means[0])


def test_blocks_of_texts_by_two_nli_models(call: Call, real: dict[str, Path], tmp_path: Path):
    """SummaC's cells are compared by the sentences that they are of."""
    record = {
        "id": "1",
        "source": "The pool is warm and large. The staff were rude to us. Parking is free here.",
        "summary": "The pool is warm. Parking costs ten dollars a night.",
    }
    records = tmp_path / "records.jsonl"
    records.write_text(json.dumps(record) + "\n", encoding="utf-8")
    runs = [tmp_path / f"run{seed}" for seed in (0, 1)]
    for seed, run in enumerate(runs):
        model = real["claims"].parent / f"nli{seed}"
        options = ("--metrics", "summac-zs", "--nli", model, "--device", "cpu", "--quiet")
        assert call("run", records, "--out", run, *options)[0] == 0
    (found,) = json.loads(call("compare", *runs, "--json")[1])["runs"]
    (labels,) = found["labels"]
    assert (labels["table"], labels["cells"]) == ("block_nli", 6)
    (cells,) = found["moved"][0]["cells"]
    assert (cells["shared"], len(cells["flipped"])) == (6, labels["flipped"])
    texts = {cell["run"]["premise"] for cell in cells["flipped"]}
    assert texts <= {
        "The pool is warm and large.",
        "The staff were rude to us.",
        "Parking is free here.",
    }
    assert texts


def test_an_encoder_finds_reworded_claims(
    call: Call, real: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By the cosine of the model that is named."""
    from tests.support.tiny_models import save_tiny_encoder

    monkeypatch.setenv("CLAIMSCORE_CACHE_DIR", str(tmp_path / "cache"))
    model = save_tiny_encoder(tmp_path / "encoder")
    options = ("--embedder", model, "--threshold", 0.01, "--json")
    code, printed, _ = call("compare", real["claims"], real["sentences"], *options)
    found = json.loads(printed)
    assert code == 0
    assert found["method"]["similarity"] == f"cosine of vectors by {model}"
    assert any(side["changed"] for side in found["runs"][0]["agreement"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--html", "."), "is a directory"),
        (("--html", "{}/x.csv", "--differences", "{}/x.csv"), "x.csv: two outputs"),
    ],
)
def test_where_nothing_can_be_written(
    call: Call, real: dict[str, Path], tmp_path: Path, options: tuple[str, ...], message: str
):
    """One line, and nothing is overwritten."""
    options = tuple(option.format(tmp_path) for option in options)
    code, _, error = call("compare", real["claims"], real["claims"], *options, "--quiet")
    assert (code, message in error) == (2, True)
    assert not list(tmp_path.glob("x.csv"))


def test_a_dumb_terminal_has_its_width(versions: tuple[Path, Path], tmp_path: Path):
    """Lines break at spaces, and no table is wider than the window."""
    command = [sys.executable, "-m", "claimscore", "compare", *map(str, versions)]
    shown = in_terminal(command, tmp_path, columns=30, TERM="dumb")
    assert "─" not in shown
    assert all(len(line.rstrip()) <= 30 or "/" in line for line in shown.splitlines()), shown
