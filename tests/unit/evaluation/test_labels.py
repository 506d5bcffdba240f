"""`claimscore label` and `claimscore evaluate labels`: what is drawn, and what labels say."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from claimscore.evaluation.label_items import POLICY
from claimscore.runs import RunDirectory
from claimscore.tables import CLAIM_CHECKS, CLAIMS
from tests.support.command_line import Command
from tests.support.labelled_runs import Verdict, read_sheet, write_judged_run

WORDS = ("supported", "contradicted", "unmentioned")


def claims_of(number: int) -> list[Verdict]:
    """Three claims: one each verdict; of odd records the last one is supported too."""
    odd = number % 2
    return [
        (f"=1+{number} is said.", "supported", 0.9 - number / 250),
        (f"-{number} degrees.", "contradicted", 0.21 + number / 120),
        (f"Number {number} is odd.", WORDS[0 if odd else 2], 0.6 if odd else 0.1),
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_judged_run(tmp_path / "run", {f"r{n}": claims_of(n) for n in range(20)})


def truth(row: dict[str, str]) -> str:
    """People find what the run finds, but every claim about degrees supported."""
    if "degrees" in row["claim"] or "is said" in row["claim"]:
        return "supported"
    return "s" if int(row["id"][1:]) % 2 else "U"


def fill_in(path: Path, label: Callable[[dict[str, str]], str], target: Path | None = None) -> Path:
    rows = read_sheet(path)
    target = target or path
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(row | {"label": label(row)} for row in rows)
    return target


def test_a_drawn_sheet_is_blind_and_stands_for_all_claims(cli: Command, run: Path) -> None:
    assert cli("label", run, "--n", 30, "--json").json()["rows"] == 30
    rows = read_sheet(run / "labels.csv")
    assert list(rows[0]) == [
        *("metric", "id", "claim_position", "claim", "evidence", "source"),
        *("sentence", "text", "policy", "weight", "label"),
    ]
    assert len({(row["id"], row["claim_position"]) for row in rows}) == 30
    assert sum(float(row["weight"]) for row in rows) == pytest.approx(60)
    assert all(row["label"] == "" and row["evidence"] in row["source"] for row in rows)
    assert all(row["claim"].strip("'") in row["text"] for row in rows)
    again = run / "again.csv"
    assert cli("label", run, "--n", 30, "--out", again, "--quiet").out == ""
    assert read_sheet(again) == rows
    cli("label", run, "--n", 30, "--seed", 1, "--out", run / "other.csv")
    assert read_sheet(run / "other.csv") != rows


def test_a_sheet_by_uncertainty_has_more_of_what_is_unsure(cli: Command, run: Path) -> None:
    """A third of the claims has p = .6 or .1; the chance goes by the share and by √(p(1 − p))."""
    weights = {}
    for by in ("uncertainty", "random"):
        cli("label", run, "--n", 20, "--by", by, "--out", run / f"{by}.csv")
        rows = read_sheet(run / f"{by}.csv")
        weights[by] = {row["claim"].split(" ")[0]: float(row["weight"]) for row in rows}
        assert len(rows) == 20
    assert set(weights["random"].values()) == {3.0}
    by_sureness = [weights["uncertainty"][word] for word in ("=1+2", "-18") if word in weights]
    assert by_sureness == sorted(by_sureness, reverse=True)
    assert max(weights["uncertainty"].values()) <= 6


@pytest.mark.parametrize("by", ["uncertainty", "random", "verdict"])
def test_all_labels_drawn_in_any_way_give_the_mean_of_people(
    cli: Command, run: Path, by: str
) -> None:
    cli("label", run, "--n", 99, "--by", by)
    fill_in(run / "labels.csv", truth)
    found = cli("evaluate", "labels", run, run / "labels.csv", "--json").json()
    assert found["means"][0]["value"] == pytest.approx(5 / 6)


def test_the_page_of_labels_has_the_policy() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "labels.md"
    assert f"```text\n{POLICY}\n```" in page.read_text(encoding="utf-8")


def test_labels_say_which_policy_they_follow(cli: Command, run: Path, tmp_path: Path) -> None:
    """The text is printed, its digest kept; spaces at the ends of its lines make no other one."""
    printed = cli("label", run, "--n", 9).out
    assert "true but not stated in the source" in printed
    (digest,) = {row["policy"] for row in read_sheet(run / "labels.csv")}
    assert digest in printed
    assert re.fullmatch(r"sha256:[0-9a-f]{12}", digest)
    digests = []
    for number, text in enumerate(
        ("Rounding: no.\n", "\ufeffRounding: no.  \r\n\r\n", "Rounding: yes")
    ):
        policy = tmp_path / "policy.txt"
        policy.write_text(text, encoding="utf-8", newline="")
        sheet = tmp_path / f"{number}.csv"
        page = tmp_path / f"{number}.html"
        out = cli("label", run, "--policy", policy, "--out", sheet, "--page", page, "--json")
        html = page.read_text(encoding="utf-8")
        assert text.strip("\ufeff\r\n ") in html
        assert '"Content-Security-Policy" content="default-src' in html
        digests.append(out.json()["policy"])
        assert {row["policy"] for row in read_sheet(sheet)} == {digests[-1]}
    assert digests[0] == digests[1] != digests[2] != digest
    fill_in(run / "labels.csv", truth)
    assert f"the labels follow policy {digest}" in cli(
        "evaluate", "labels", run, run / "labels.csv"
    ).out.replace("\n", " ")


def test_labels_of_two_policies_are_refused_together(
    cli: Command, run: Path, tmp_path: Path
) -> None:
    """Those of another policy, and those of none, as files of earlier versions have it."""
    cli("label", run, "--n", 9)
    sheet = fill_in(run / "labels.csv", truth)
    (tmp_path / "strict.txt").write_text("Rounding: no.", encoding="utf-8")
    cli("label", run, "--n", 9, "--policy", tmp_path / "strict.txt", "--out", tmp_path / "b.csv")
    strict = fill_in(tmp_path / "b.csv", truth)
    older = tmp_path / "older.csv"
    pl.read_csv(sheet).drop("policy").write_csv(older)
    assert cli("evaluate", "labels", run, older, "--json").json()["policy"] is None
    for other, policy in ((strict, read_sheet(strict)[0]["policy"]), (older, "none")):
        found = cli("evaluate", "labels", run, sheet, other)
        assert found.status == 2
        assert "labels of several policies do not go together" in found.err
        assert f"{other}: {policy}" in found.err
    other_run = write_judged_run(tmp_path / "other", {f"r{n}": claims_of(n) for n in range(20)})
    cli("label", other_run, "--n", 9, "--policy", tmp_path / "strict.txt")
    fill_in(other_run / "labels.csv", truth)
    found = cli("compare", run, other_run, "-m", "faithfulness")
    assert found.status == 2
    assert f"{other_run / 'labels.csv'}: sha256:" in found.err


def test_a_sheet_with_semicolons_is_read(cli: Command, run: Path) -> None:
    cli("label", run, "--n", 9)
    rows = read_sheet(fill_in(run / "labels.csv", truth))
    with (run / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    found = cli("evaluate", "labels", run, run / "labels.csv")
    assert (found.status, found.err) == (0, "")


def test_claims_that_others_entail_are_not_asked_about(cli: Command, run: Path) -> None:
    rows = [{"id": "r1", "side": side, "claim_position": 1} for side in ("summary", "references")]
    made = CLAIM_CHECKS.frame([{**row, "check": "entailed", "value": 0.95} for row in rows])
    with RunDirectory(run) as directory:
        directory.write_parts(0, "entailed_claims-summary", {"claim_checks": made})
    assert cli("label", run, "--n", 99, "--json").json()["rows"] == 59
    of_record = [row["claim"] for row in read_sheet(run / "labels.csv") if row["id"] == "r1"]
    assert "-1 degrees." not in " ".join(of_record)


def test_a_sheet_has_the_sentence_of_each_claim(cli: Command, run: Path) -> None:
    """By its place among the claims of its side that count."""
    rows = [
        {"id": f"r{n}", "side": side, "text": text, "sentence": f"{text} {n}", "left_out": why}
        for n in range(20)
        for side, text, why in (
            *(("summary", "He.", "ambiguous"), ("references", "No.", None)),
            *(("summary", text, None) for text, *_ in claims_of(n)),
        )
    ]
    with RunDirectory(run) as directory:
        directory.write_parts(0, "decompose-summary", {"claims": CLAIMS.frame(rows)})
    assert cli("label", run, "--n", 99).status == 0
    for row in read_sheet(run / "labels.csv"):
        assert row["sentence"] == f"{row['claim']} {row['id'][1:]}"


def test_all_labels_give_the_mean_of_people(cli: Command, run: Path) -> None:
    """60 of 60 claims: per record 2/3 or 1 supported by people, 1/3 or 2/3 by the verifier."""
    cli("label", run, "--n", 99)
    fill_in(run / "labels.csv", truth)
    found = cli("evaluate", "labels", run, run / "labels.csv", "--json").json()
    means = {row["estimate"]: row["value"] for row in found["means"]}
    assert means["corrected by the labels"] == pytest.approx(5 / 6)
    assert means["of the labels alone"] == pytest.approx(5 / 6)
    assert means["uncorrected"] == pytest.approx(1 / 2)
    (agreement,) = found["agreement"]
    # 40 of 60 the same; by chance 30/60·50/60 + 20/60·0 + 10/60·10/60
    chance = (30 * 50 + 10 * 10) / 3600
    assert agreement["value"] == pytest.approx((40 / 60 - chance) / (1 - chance))
    by_verdict = {row["verdict"]: row for row in found["by_verdict"]}
    assert by_verdict["supported"]["precision"] == 1
    assert by_verdict["supported"]["recall"] == pytest.approx(30 / 50)
    assert by_verdict["contradicted"]["precision"] == 0
    assert by_verdict["contradicted"]["recall"] is None
    assert [row["n"] for row in found["reliability"]] == [10, 20, 0, 10, 20]


def test_people_who_differ(cli: Command, run: Path, tmp_path: Path) -> None:
    """κ of two people; divided claims count for the mean and for nothing else."""
    cli("label", run, "--n", 60)
    sheet = run / "labels.csv"
    one = fill_in(sheet, lambda row: "supported", tmp_path / "anna.csv")
    other = fill_in(sheet, lambda row: "sc"[row["claim_position"] == "2"], tmp_path / "ben.csv")
    found = cli("evaluate", "labels", run, one, other, "--json").json()
    assert found["ties"] == 20
    assert found["means"][0]["value"] == pytest.approx(1 - 1 / 6)
    people, verifier = found["agreement"]
    assert (people["one"], people["other"], people["n"]) == ("anna", "ben", 60)
    assert people["value"] == 0.0
    assert (verifier["other"], verifier["n"]) == ("the verifier", 40)


def test_runs_with_labels_are_compared_by_them(cli: Command, run: Path, tmp_path: Path) -> None:
    """The metric sees no difference; people find the second run's claims about degrees wrong."""
    other = write_judged_run(tmp_path / "other", {f"r{n}": claims_of(n) for n in range(20)})
    for one in (run, other):
        cli("label", one, "--n", 60)
    fill_in(run / "labels.csv", truth)
    before = cli("compare", run, other, "-m", "faithfulness", "--json").json()
    fill_in(other / "labels.csv", lambda row: "c" if "degrees" in row["claim"] else truth(row))
    after = cli("compare", run, other, "-m", "faithfulness", "--json").json()
    assert before["runs"][0]["by_labels"] == {}
    found = after["runs"][0]["by_labels"]["faithfulness"]
    assert found["corrected"]["value"] == pytest.approx(-1 / 3)
    assert found["corrected"]["high"] < 0
    assert found["uncorrected"]["value"] == 0
    page = tmp_path / "compared.html"
    cli("compare", run, other, "--html", page)
    assert "corrected by labels of people" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": "maybe"}, "line 2: label 'maybe' is none of supported, contradicted"),
        ({"label": "s", "id": "r99"}, "no such claim"),
        ({"label": "s", "claim": "Another."}, "labels belong to the run"),
        ({"label": "s", "metric": "m"}, "labels of m, not of faithfulness"),
        ({"label": "s", "weight": "x"}, "line 2: weight 'x' is no number above 0"),
        ({"label": "s", "weight": "1e400"}, "line 2: weight '1e400' is no number above 0"),
        ({"label": "s", "weight": "0"}, "line 2: weight '0' is no number above 0"),
        ({"label": "s", "claim_position": "nan"}, "claim_position 'nan' is no whole number"),
        ({"label": "s", "claim_position": "1.5"}, "claim_position '1.5' is no whole number"),
        ({"label": ""}, "no row has a label yet"),
    ],
)
def test_wrong_labels_are_named(
    cli: Command, run: Path, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    cli("label", run, "--n", 1)
    good = fill_in(run / "labels.csv", lambda row: "")
    row = read_sheet(good)[0] | change
    bad = tmp_path / "bad.csv"
    bad.write_text(",".join(row) + "\n" + ",".join(f'"{v}"' for v in row.values()) + "\n")
    found = cli("evaluate", "labels", run, good, bad)
    assert found.status == 2
    assert said in found.err


def test_ids_that_look_like_escaped_formulas_stay_apart(cli: Command, tmp_path: Path) -> None:
    ids = ("=1", "'=1", "-5", "'x")
    run = write_judged_run(tmp_path / "run", {id: claims_of(2) for id in ids})
    cli("label", run, "--n", 99)
    fill_in(run / "labels.csv", lambda row: "s" if row["id"] == "''=1" else "u")
    found = cli("evaluate", "labels", run, run / "labels.csv", "--json").json()
    assert found["means"][1]["value"] == pytest.approx(1 / 4)
    assert found["labels"] == 12


@pytest.mark.parametrize("n", [1, 6])
def test_few_labels_have_the_widths_of_few_labels(cli: Command, run: Path, n: int) -> None:
    """All `n` are supported: the mean's exact bounds, and no interval of κ."""
    cli("label", run, "--n", n)
    fill_in(run / "labels.csv", lambda row: "s")
    found = cli("evaluate", "labels", run, run / "labels.csv", "--json").json()
    for row in found["means"][:2]:
        assert (row["value"], row["high"]) == (1.0, 1.0)
        assert 0 < row["low"] < 0.025 ** (1 / n) + 0.03
    assert found["agreement"][0]["value_low"] is None
    shares = [(row["precision"], row["precision_low"]) for row in found["by_verdict"]]
    assert all(share is None or low < share or low == 0 for share, low in shares)
    out = cli("evaluate", "labels", run, run / "labels.csv").out
    assert "κ has an interval from 30 records on, if labels disagree" in out


def test_what_cannot_be_drawn(cli: Command, run: Path) -> None:
    cli("label", run, "--n", 1)
    (run / "empty.txt").write_text(" \n", encoding="utf-8")
    (run / "latin.txt").write_bytes("Größe".encode("latin-1"))
    for options, said in (
        ((), "is there already and may hold labels"),
        (("--metric", "nonesuch", "--out", run / "x.csv"), "no scores of nonesuch"),
        (("--metric", "m", "--out", run / "x.csv"), "m judges no claims"),
        (("--n", 0, "--out", run / "x.csv"), "--n must be at least 1"),
        (("--by", "hand", "--out", run / "x.csv"), "'verdict', 'uncertainty', 'random'"),
        (("--policy", run / "none.txt", "--out", run / "x.csv"), "none.txt"),
        (("--policy", run / "empty.txt", "--out", run / "x.csv"), "the policy has no text"),
        (("--policy", run / "latin.txt", "--out", run / "x.csv"), "save the policy as UTF-8"),
    ):
        found = cli("label", run, *options)
        assert found.status == 2
        assert said in found.err
