"""The page as a browser's parser sees it: what is markup, what is text, what is missing."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from claimscore import tables as schemas
from claimscore.report import DetailChunk, MetricFacts, ReportTables, RunFacts, write_report
from claimscore.report.html import BASELINE_NOTICE, json_block, text

MakeUp = Callable[..., ReportTables]
EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>"
    "</title></style><!-- ]]> --> &lt;b&gt; ${x} $title \u2028\u2029 \x00 \u202e <script"
)


class Page(HTMLParser):
    """Elements with their attributes, the visible text, and the JSON blocks."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, str] = {}
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if self.cdata_elem == "script":
            if attributes.get("type") == "application/json":
                name = attributes["id"] or ""
                self.blocks[name] = self.blocks.get(name, "") + data
            else:
                self.scripts.append(data)
        elif tag != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def json(self, name: str) -> object:
        return json.loads(self.blocks[name])

    def details(self) -> list[dict[str, object]]:
        names = sorted(name for name in self.blocks if name.startswith("cs-details-"))
        return [record for name in names for record in json.loads(self.blocks[name])]


def read(tables: ReportTables, folder: Path) -> tuple[Page, str]:
    path = folder / "report.html"
    write_report(tables, path)
    source = path.read_bytes().decode("utf-8")
    return Page(source), source


def hostile(string: str, *, llm: str = "openai:m") -> ReportTables:
    """A run of one record in which every text that could be chosen by others is `string`."""
    claim = dict.fromkeys(schemas.CLAIMS.schema, string) | {"sentence_index": 0, "claim_index": 0}
    failure = dict.fromkeys(schemas.FAILURES.schema, string) | {"index": 0, "attempts": 2}
    nli = {
        **dict.fromkeys(schemas.NLI.schema, string),
        **dict.fromkeys(("premise_index", "hypothesis_index"), 0),
        **dict.fromkeys(("entailment", "neutral", "contradiction"), 1 / 3),
        "truncated": True,
    }
    score = dict.fromkeys(schemas.SCORES.schema, string) | {"value": None}
    score["components"] = json.dumps({string: string})
    record = {"id": string, "summary_a": string, "summary_b": string, string: string}
    record |= {"source": string, "references": [string]}
    fact = dict.fromkeys(schemas.FACTS.schema, string) | {"index": 0}
    cell = dict.fromkeys(schemas.SIMILARITIES.schema, string) | {
        "unit": "fact",
        "row_side": "source",
        "column_side": "summary",
        "row_index": 0,
        "column_index": 0,
        "similarity": 0.25,
        "truncated": False,
    }
    block = nli | {"premise_cut": string, "hypothesis_cut": string}
    block = {name: block[name] for name in schemas.BLOCK_NLI.schema}
    return ReportTables(
        run=RunFacts(
            title=string,
            input=string,
            n_records=1,
            llm=llm,
            models={string: string},
            version=string,
            finished=string,
            counts={string: string},
            settings={string: {string: [string]}},
            notices=(string,),
        ),
        metrics=[MetricFacts("caspr", description=string, higher_is=string)],
        scores=schemas.SCORES.frame([score, score | {"metric": "caspr", "value": 50.0}]),
        failures=schemas.FAILURES.frame([failure]),
        chunks=lambda: [
            DetailChunk(
                pl.DataFrame([record]),
                schemas.CLAIMS.frame([claim, claim | {"side": "a"}]),
                schemas.NLI.frame([nli]),
                schemas.FACTS.frame([fact | {"side": side} for side in ("source", "summary")]),
                schemas.SIMILARITIES.frame([cell]),
                schemas.BLOCK_NLI.frame([block]),
            )
        ],
    )


def test_hostile_text_makes_no_element_and_no_attribute(tmp_path: Path) -> None:
    """The page's structure is the same whether its texts are harmless or hostile."""

    def structure(page: Page) -> Counter[tuple[str, tuple[str, ...]]]:
        return Counter((tag, tuple(attributes)) for tag, attributes in page.elements)

    harmless, _ = read(hostile("plain"), tmp_path)
    page, source = read(hostile(EVIL), tmp_path)
    assert structure(page) == structure(harmless)
    assert not [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    assert "\x00" not in source
    assert "\u2028" not in "".join(page.blocks.values())
    assert "<" not in "".join(page.blocks.values())


def test_hostile_text_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    """The JSON blocks hold the same text, character by character, NUL included."""
    page, _ = read(hostile(EVIL), tmp_path)
    (record,) = page.details()
    assert page.json("cs-records")["ids"] == [EVIL]  # type: ignore[index]
    sides = {side["side"]: side for side in record["sides"]}  # type: ignore[attr-defined]
    assert sides["a"]["claims"] == [EVIL]
    assert sides["a"]["segments"] == [[EVIL, [0]]]
    assert sides["b"]["segments"] == [[EVIL.strip(), []]]
    assert record["other"] == [[EVIL, EVIL]]
    assert record["texts"] == [["source", [EVIL], 0], ["references", [EVIL], 0]]
    assert record["facts"]["source"] == [f"{EVIL} {EVIL}"[:200]]  # type: ignore[index]
    assert record["facts"]["missing"] == [0]  # type: ignore[index]
    assert record["reasons"] == [None, EVIL]
    assert record["components"] == [{EVIL: EVIL}, {EVIL: EVIL}]
    assert record["failures"][0][3] == EVIL  # type: ignore[index]


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    """Static parts show the text itself, with control characters made visible."""
    page, _ = read(hostile(EVIL), tmp_path)
    shown = " ".join(EVIL.replace("\x00", "\ufffd").split())
    assert page.text.count(shown) >= 8


def test_nothing_is_loaded_and_only_our_script_runs(made_up: MakeUp, tmp_path: Path) -> None:
    """No element refers to anything outside, and the policy forbids it as well."""
    page, source = read(made_up(12), tmp_path)
    for tag, attributes in page.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#") or tag == "link"
    assert "http://" not in source
    assert "https://" not in source
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a) or ""
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert len(page.scripts) == 1


def test_script_uses_nothing_that_parses_markup() -> None:
    """The script has no way of making markup or code out of a string."""
    import claimscore.report

    scripts = sorted(Path(claimscore.report.__file__).parent.glob("*.js"))
    assert len(scripts) == 4
    script = "".join(path.read_text(encoding="utf-8") for path in scripts)
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in script


def test_same_tables_give_the_same_bytes(made_up: MakeUp, tmp_path: Path) -> None:
    """Nothing but the tables decides the bytes, be they frames or lazy frames."""
    _, first = read(made_up(130), tmp_path)
    again = made_up(130)
    lazy = dataclasses.replace(again, scores=again.scores.lazy(), failures=again.failures.lazy())
    _, second = read(lazy, tmp_path)
    assert first == second


def test_nulls_are_counted_and_shown_with_their_reason(made_up: MakeUp, tmp_path: Path) -> None:
    """A null is no zero: the mean leaves it out, and its reason stands on the page."""
    page, _ = read(made_up(12), tmp_path)
    assert "caspr 1 decompose failed for summary_b" in page.text
    assert "decompose parse 1 1 no JSON object in the answer" in page.text
    listed = page.json("cs-records")
    assert listed["values"][10][0] is None  # type: ignore[index]
    assert listed["failures"] == [0] * 10 + [1, 0]  # type: ignore[index]
    assert page.details()[10]["reasons"] == [
        "decompose failed for summary_b: no JSON object in the answer",
        None,
        None,
    ]


def test_not_a_number_is_null_with_a_reason(made_up: MakeUp, tmp_path: Path) -> None:
    """NaN and infinity never reach the mean, the picture or the JSON."""
    tables = made_up(3)
    value = pl.Series([float("nan"), float("inf"), 10.0] + [1.0] * 6)
    page, _ = read(
        dataclasses.replace(tables, scores=tables.scores.with_columns(value.alias("value"))),
        tmp_path,
    )
    assert page.details()[0]["reasons"] == ["not a finite number", "not a finite number", None]


def test_empty_run_is_a_page_that_says_so(made_up: MakeUp, tmp_path: Path) -> None:
    """No records, no scores, no metrics: still a page."""
    page, _ = read(made_up(0, metrics=()), tmp_path)
    for words in ("no scores", "no records", "Nothing failed", "0 records"):
        assert words in page.text
    assert page.details() == []


def test_metric_without_a_value_has_a_dash(made_up: MakeUp, tmp_path: Path) -> None:
    """A metric of which every value is null has no mean, no interval and no picture."""
    tables = made_up(2)
    scores = tables.scores.with_columns(value=pl.lit(None, pl.Float64), reason=pl.lit("why: me"))
    page, _ = read(dataclasses.replace(tables, scores=scores), tmp_path)
    assert "– – 0 2" in page.text
    assert "No values to show." in page.text
    assert "caspr 2 why ds 2 why" in page.text


@pytest.mark.parametrize(
    ("llm", "expected"),
    [
        pytest.param("builtin", True, id="builtin"),
        pytest.param("openai:builtin", False, id="a server's model"),
    ],
)
def test_baseline_says_that_it_is_one(
    llm: str, expected: bool, made_up: MakeUp, tmp_path: Path
) -> None:
    """A run of rules says that it is a baseline of rules, not a language model."""
    tables = made_up(1)
    run = dataclasses.replace(tables.run, llm=llm)
    page, _ = read(dataclasses.replace(tables, run=run), tmp_path)
    assert (BASELINE_NOTICE in page.text) is expected


def test_cap_is_stated_and_kept(made_up: MakeUp, tmp_path: Path) -> None:
    """Above the cap the list ends, the page says so, and the numbers still count all."""
    page, _ = read(made_up(150, max_details=70), tmp_path)
    assert "first 70 of 150 records" in page.text
    assert len(page.details()) == 70
    assert len(page.json("cs-records")["ids"]) == 70  # type: ignore[index]
    assert "± 2.08 150 0" in page.text


def test_landmarks_names_and_pictures_are_accessible(made_up: MakeUp, tmp_path: Path) -> None:
    """One main, one h1, every picture with title and description, every id once."""
    page, source = read(made_up(12), tmp_path)
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["main"] == tags["h1"] == tags["header"] == tags["footer"] == 1
    assert tags["svg"] == tags["desc"] == 3
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    assert source.startswith('<!DOCTYPE html>\n<html lang="en">')


def test_failed_writing_leaves_the_old_report(made_up: MakeUp, tmp_path: Path) -> None:
    """The report is replaced when it is complete, or not at all."""
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken() -> list[DetailChunk]:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError):
        write_report(made_up(1, chunks=broken), path)
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"


def test_lone_surrogates_do_not_stop_the_report(made_up: MakeUp, tmp_path: Path) -> None:
    """A file name that is no UTF-8 reaches Python as surrogates; it is shown escaped."""
    tables = made_up(1)
    run = dataclasses.replace(tables.run, input="caf\udce9.jsonl")
    page, _ = read(dataclasses.replace(tables, run=run), tmp_path)
    assert "caf\\udce9.jsonl" in page.text


def test_text_and_json_block_escape() -> None:
    """The two gates through which all text goes."""
    assert text("<a href='x'>&\"\x00") == "&lt;a href=&#x27;x&#x27;&gt;&amp;&quot;\ufffd"
    assert (
        json_block({"<": "</script>&\u2028"}) == '{"\\u003c":"\\u003c/script\\u003e\\u0026\\u2028"}'
    )
