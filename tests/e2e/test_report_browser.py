"""The report in a real browser: nothing is loaded, nothing is an error, everything works."""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimscore import tables as schemas
from claimscore.evaluation.label_items import LabelConfig, draw
from claimscore.evaluation.labels import LabelsConfig, evaluate_labels
from claimscore.report import DetailChunk, ReportTables, write_report
from claimscore.report.evaluation_page import write_label_page
from tests.support.evaluation_pages import PAGES
from tests.support.frames import support_rows
from tests.support.hostile_run import EVIL, hostile
from tests.support.labelled_runs import read_sheet, write_judged_run
from tests.support.made_up_run import claim_rows

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CLAIMSCORE_CHROMIUM") or shutil.which("chromium")
AXE = Path(os.environ.get("CLAIMSCORE_AXE", "node_modules/axe-core/axe.min.js"))

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
MakeUp = Callable[..., ReportTables]
MakePage = Callable[[Path, str], Path]


class Browser:
    """Opens reports and hears of everything that a page complains of or asks for."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, tables: ReportTables, address: str = "", **options: Any) -> Any:
        write_report(tables, self.folder / "report.html")
        return self.visit(self.folder / "report.html", address, **options)

    def visit(self, path: Path, address: str = "", **options: Any) -> Any:
        page = self.browser.new_context(**options).new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(f"{path.as_uri()}{address}")
        page.wait_for_selector("html[data-ready]")
        return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any, tmp_path: Path) -> Iterator[Browser]:
    """A browser; after the test no page has complained, and none has asked for anything."""
    opened = Browser(chromium, tmp_path)
    yield opened
    assert opened.complaints == []
    outside = [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert outside == []
    files = {url.partition("#")[0] for url in opened.requests if url.startswith("file:")}
    assert len(files) == 1


def axe_violations(page: Any) -> list[tuple[str, str]]:
    """What axe-core complains of, with the first element of each kind."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]]


def found(page: Any) -> str:
    said: str = page.inner_text(".found")
    return said


NAMES = "Array.from(document.querySelectorAll('table.list tbody th'), e => e.innerText)"


def rows(page: Any) -> list[str]:
    names: list[str] = page.evaluate(NAMES)
    return names


def test_overview_list_and_record_are_drawn(browser: Browser, made_up: MakeUp) -> None:
    page = browser.open(made_up(60))
    page.wait_for_selector("#cs-histogram-2 svg")
    page.wait_for_selector("#cs-groups-0 svg")
    page.click("text=Explore records")
    page.wait_for_selector(".points circle")
    assert found(page) == "60 records"
    page.click("table.list a >> nth=11")
    page.wait_for_selector("#cs-record .matrix td")
    assert page.locator("#cs-record .claims li").count() >= 4


def test_filters_narrow_the_list(browser: Browser, made_up: MakeUp) -> None:
    page = browser.open(made_up(60), "#explore")
    page.fill("input[type=search]", "HOTEL-0007")
    page.wait_for_selector(".found:text('1 of 60 records')")
    assert rows(page) == ["hotel-0007"]
    page.fill("input[type=search]", "late checkout")
    page.wait_for_selector(".found:not(:text('1 of 60 records'))")
    assert 1 < int(found(page).split()[0]) < 60
    page.fill("input[type=search]", "")
    page.select_option("label:has-text('Show') >> select >> nth=0", "failed")
    page.wait_for_selector(".found:text('5 of 60 records')")
    page.select_option("label:has-text('Group and colour') select", "system")
    page.select_option(
        "label:text-is('Group') select, label:has-text('Group') >> nth=1 >> select", "=system 1"
    )
    page.wait_for_selector(".found:text('2 of 60 records')")
    assert rows(page) == ["hotel-0010", "hotel-0043"]
    page.click("text=Clear")
    page.wait_for_selector(".found:text-is('60 records')")
    page.select_option("label:has-text('Show') >> select >> nth=0", label="Claims: repeated")
    page.wait_for_selector(".found:text('20 of 60 records')")
    page.click("text=Clear")
    page.wait_for_selector(".found:text-is('60 records')")
    page.fill("input[aria-label='at least']", "80")
    page.press("input[aria-label='at least']", "Tab")
    page.wait_for_selector(".chips li")
    values = page.locator("table.list tbody td.num:nth-child(4)").all_inner_texts()
    assert values
    assert all(float(value) >= 80 for value in values)


def test_columns_sort_both_ways_with_nulls_last(browser: Browser, made_up: MakeUp) -> None:
    """A number's column: highest first, as at the beginning, where that is the end to look at,
    then lowest first, then the order of the input."""
    tables = made_up(22)
    caspr = {**tables.metrics["caspr"], "worst_end": "highest"}
    metrics = {**tables.metrics, "caspr": caspr}
    page = browser.open(dataclasses.replace(tables, metrics=metrics), "#explore")
    order = [rows(page)]
    for _ in range(3):
        page.click("table.list th button:has-text('caspr')")
        page.wait_for_function(f"before => {NAMES}.join() !== before.join()", arg=order[-1])
        order.append(rows(page))
    assert order.pop() == order[0]
    assert order[2] == [f"hotel-{number:04d}" for number in range(22)]
    assert order[0][-2:] == order[1][-2:] == ["hotel-0010", "hotel-0021"]  # null
    assert order[0][:20] == order[1][:20][::-1]


def test_a_record_has_its_id_as_its_address(browser: Browser, made_up: MakeUp) -> None:
    """Also from the records to look at first, which the page may lack; signs are no obstacle."""
    name = "50 % / a#b"
    tables = made_up(3)
    (chunk,) = tables.chunks()
    named = chunk._replace(records=chunk.records.with_columns(id=pl.Series([name, "1", "2"])))
    worst = [{"id": name, "value": 1.0}, {"id": "of another page", "value": 2.0}]
    caspr = {"caspr": {**tables.metrics["caspr"], "worst": worst}}
    page = browser.open(dataclasses.replace(tables, metrics=caspr, chunks=lambda: [named]))
    assert page.locator(".first a").all_inner_texts() == [name]
    page.click(".first a")
    page.wait_for_selector(f"#cs-record h2:text-is('{name}')")
    page.evaluate("location.hash = '#record-1'")
    page.wait_for_selector("#cs-record h2:text-is('1')")
    page.evaluate("location.hash = '#record-nobody'")
    page.wait_for_selector("#cs-missing:visible")


def test_correlations_are_those_of_scipy(browser: Browser, made_up: MakeUp) -> None:
    from scipy.stats import pearsonr, spearmanr

    tables = made_up(40)
    (chunk,) = tables.chunks()
    rounded = tables.scores.with_columns((pl.col("value") / 10).round() * 10)
    chunks = [chunk._replace(scores=rounded)]
    page = browser.open(dataclasses.replace(tables, chunks=lambda: chunks), "#explore")
    page.wait_for_selector(".points")
    both = rounded.pivot("metric", index="id", values="value").drop_nulls()
    x, y = both["caspr"].to_numpy(), both["ds"].to_numpy()
    said = page.inner_text(".plots figure .hint >> nth=0").replace("−", "-")
    numbers = [float(found) for found in re.findall(r"[rρ] (-?\d\.\d{3})", said)]
    assert numbers == pytest.approx([pearsonr(x, y)[0], spearmanr(x, y)[0]], abs=6e-4)


def test_a_record_can_be_read_without_a_pointer(browser: Browser, made_up: MakeUp) -> None:
    page = browser.open(made_up(3), "#explore")
    second = rows(page)[1]
    page.focus("table.list tbody a >> nth=0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#cs-record h2:text('{second}')")
    assert page.evaluate("document.activeElement.textContent") == second
    page.focus("#cs-record .matrix td[tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    readout = page.inner_text("#cs-record .readout")
    assert readout.startswith("A2 with B2")
    assert page.locator("#cs-record .claims li.on").count() == 2
    page.keyboard.press("Escape")
    page.wait_for_selector("#explore:visible")
    assert page.evaluate("document.activeElement.textContent") == second


def coloured(page: Any, selector: str) -> list[str]:
    """The label that each of these texts is coloured by."""
    return [
        next(name for name in found.split() if len(name) == 1)
        for found in page.locator(selector).evaluate_all("all => all.map((one) => one.className)")
    ]


def test_sentences_are_coloured_as_caspr_counts(browser: Browser, made_up: MakeUp) -> None:
    """Ties count as said; only neutral pairs as unmentioned; mixed sentences as both."""
    e, n, c = (0.9, 0.1, 0.0), (0.1, 0.9, 0.0), (0.0, 0.1, 0.9)
    pairs = [[e, c], [c, n], [n, n], [n, e]]
    nli = [
        dict(zip(schemas.NLI.schema, ("x", *places, *p), strict=False))
        for i, row in enumerate(pairs)
        for j, p in enumerate(row)
        for places in (("a", i, "b", j, "ab"), ("b", j, "a", i, "ba"))
    ]
    sides = {
        "a": [("One and two.", "One.", "Two."), ("Three.", "Three."), ("Four.", "Four.")],
        "b": [("Five.", "Five."), ("Six.", "Six.")],
    }
    claims = [row for side, sentences in sides.items() for row in claim_rows("x", side, sentences)]
    record = {"id": "x", "summary_a": "One and two. Three. Four.", "summary_b": "Five. Six."}
    chunk = DetailChunk(
        pl.DataFrame([record]), schemas.CLAIMS.frame(claims), schemas.NLI.frame(nli)
    )
    page = browser.open(made_up(1, chunks=lambda: [chunk]), "#record-x")
    assert coloured(page, ".side:nth-child(1) .tint") == ["M", "N", "E"]
    assert coloured(page, ".side:nth-child(2) .tint") == ["E", "E"]
    assert coloured(page, ".side:nth-child(1) .claims .tag") == ["E", "C", "N", "E"]
    reasons = page.locator(".side:nth-child(1) .reason").all_inner_texts()
    assert reasons == ["said by B1 Five.", "contradicted by B1 Five.", "said by B2 Six."]


def test_sentences_are_coloured_by_their_best_block(browser: Browser, made_up: MakeUp) -> None:
    """Without claims: by the block of the source that entails or contradicts a sentence most."""
    values = [[(0.9, 0.1), (0.2, 0.6), (0.1, 0.1)], [(0.1, 0.8), (0.4, 0.1), (0.3, 0.49)]]
    rows = [
        ("x", "source", "sentence", i, "summary", "sentence", j, e, 1 - e - c, c, False)
        for i, row in enumerate(values)
        for j, (e, c) in enumerate(row)
    ]
    blocks = [dict(zip(schemas.BLOCK_NLI.schema, row, strict=False)) for row in rows]
    record = {
        "id": "x",
        "source": "The kettle boils fast. It is rather loud.",
        "summary": "It is a fast kettle. It is a quiet kettle. It is made of steel.",
    }
    empty = (schemas.CLAIMS.empty(), schemas.NLI.empty())
    chunk = DetailChunk(pl.DataFrame([record]), *empty, block_nli=schemas.BLOCK_NLI.frame(blocks))
    page = browser.open(made_up(1, chunks=lambda: [chunk]), "#record-x")
    assert coloured(page, ".side .tint") == ["E", "C", "N"]
    page.hover(".matrix td[tabindex='0']")
    assert page.locator(".block.on").all_inner_texts() == [
        "S1It is a fast kettle.",
        "D1The kettle boils fast.",
    ]


def test_claims_stand_beside_verdict_and_evidence(browser: Browser, made_up: MakeUp) -> None:
    """Unsupported ones first; the evidence is marked in its text; a matrix of claims by texts."""
    reviews = ["Slow to boil. The lid is stiff.", "Boils fast. Very fast."]
    claims = claim_rows("x", "summary", [("It is fast and red.", "It is fast.", "It is red.")])
    rows = [
        (0, 0, "contradicted", 0.1, "Slow to boil."),
        (0, 1, "supported", 0.9, "Very fast."),
        (1, 0, "unmentioned", 0.2, "The lid is stiff."),
        (1, 1, "unmentioned", 0.1, "Boils fast."),
    ]
    names = ("claim_position", "source_index", "verdict", "probability", "evidence")
    sides = {"id": "x", "side": "summary", "source_side": "source", "read": "r", "verifier": "nli"}
    support = schemas.SUPPORT.frame([sides | dict(zip(names, row, strict=True)) for row in rows])
    records = pl.DataFrame([{"id": "x", "sources": reviews, "summary": "It is fast and red."}])
    chunk = DetailChunk(records, schemas.CLAIMS.frame(claims), schemas.NLI.empty(), support=support)
    page = browser.open(made_up(1, chunks=lambda: [chunk]), "#record-x")
    assert coloured(page, ".side .claims .tag") == ["E", "N"]
    assert page.locator("table.support th[scope=row] [dir]").all_inner_texts() == [
        "It is red.",
        "It is fast.",
    ]
    assert ", supported from 0.50 on; verifier: nli. " in page.inner_text(".support-of > .hint")
    legend = page.locator(".support-of .legend li").all_inner_texts()
    assert legend == ["C\ncontradicted", "N\nunmentioned", "E\nsupported"]
    differ = "its claims differ"
    named = page.locator(".side .legend li").all_inner_texts()
    assert named == [f"{of} the source" for of in ("supported by", "unmentioned in")] + [differ]
    for shown in ("The lid is stiff.", "Very fast."):
        page.locator("tr", has_text=shown).get_by_role("button").click()
        assert page.locator("mark.evidence").all_inner_texts() == [shown]
    assert page.locator(".matrix td").evaluate_all("all => all.map((td) => td.textContent)") == [
        "", "N", "N", "C", "E",
    ]  # fmt: skip
    page.hover(".matrix td[tabindex='0']")
    assert "The lid is stiff." in page.inner_text(".readout")


def test_unsure_verdicts_come_first_and_can_be_filtered(browser: Browser, made_up: MakeUp) -> None:
    """The least sure first; a claim is as sure as beside the text that supports it most."""
    texts = ("It is fast.", "It is red.", "It is new.")
    chunks = []
    for record, p in (("x", (0.1, 0.45, 0.7)), ("y", (0.1, 0.9, 0.8))):
        rows = support_rows(record, [[value] for value in p])
        rows[1]["votes"] = [{"verifier": n, "probability": v} for n, v in (("m", 0.4), ("n", 0.5))]
        chunks.append(
            DetailChunk(
                pl.DataFrame([{"id": record, "source": "A kettle.", "summary": " ".join(texts)}]),
                schemas.CLAIMS.frame(claim_rows(record, "summary", [(" ".join(texts), *texts)])),
                schemas.NLI.empty(),
                support=schemas.SUPPORT.frame([row | {"model": "m"} for row in rows]),
            )
        )
    page = browser.open(made_up(1, chunks=lambda: chunks), "#record-x")
    assert page.locator("table.support th[scope=row] [dir]").all_inner_texts() == [
        *("It is red.", "It is new.", "It is fast."),
    ]
    marked = page.locator("table.support tr", has_text="unsure").all_inner_texts()
    assert ["m 0.4, n 0.5" in row for row in marked] == [True, False]
    assert page.locator(".mark", has_text="the verdict is unsure").count() == 2
    page.click("text=Explore records")
    totals = "Claims of the summary by the source: {} supported, 0 contradicted, {} unmentioned."
    page.wait_for_selector(f".totals:text-is('{totals.format(3, 3)}')")
    page.select_option("label:has-text('Show') >> select", label="Claims: unsure verdicts")
    page.wait_for_selector(".found:text('1 of 2')")
    page.wait_for_selector(f".totals:text-is('{totals.format(1, 2)}')")
    page.select_option("label:has-text('Show') >> select", label="Claims: supported")
    page.wait_for_selector(".found:text('2 records')")


def test_a_long_source_shows_that_it_goes_on(browser: Browser, made_up: MakeUp) -> None:
    """Its end is shaded; a cover that moves with the text hides the shade where the text ends."""
    records = pl.DataFrame([{"id": "x", "source": "Long. " * 999, "summary": "S."}])
    chunk = DetailChunk(records, schemas.CLAIMS.empty(), schemas.NLI.empty())
    box = browser.open(made_up(1, chunks=lambda: [chunk]), "#record-x").locator(".long")
    assert box.evaluate("box => box.scrollHeight > box.clientHeight")
    assert box.evaluate("box => getComputedStyle(box).backgroundAttachment") == "local, scroll"


def test_figures_and_tables_can_be_taken_away(browser: Browser, made_up: MakeUp) -> None:
    page = browser.open(made_up(12))
    page.wait_for_selector("#cs-histogram-0 svg")

    def saved(selector: str) -> bytes:
        with page.expect_download() as waiting:
            page.click(selector)
        return Path(waiting.value.path()).read_bytes()

    svg = saved("[aria-label='SVG: Distribution of caspr']").decode()
    assert svg.startswith("<svg")
    assert "var(" not in svg
    assert "http" not in svg.replace("http://www.w3.org/", "")
    assert saved("[aria-label='PNG: Distribution of caspr']").startswith(b"\x89PNG")
    assert "caspr" in saved("[aria-label='CSV: Scores']").decode("utf-8-sig").splitlines()[1]
    page.click("text=Explore records")
    page.fill("input[type=search]", "hotel-0003")
    page.wait_for_selector(".found:text('1 of 12')")
    lines = saved("[aria-label='CSV: Records shown']").decode("utf-8-sig").splitlines()
    assert lines[0] == "id,system,caspr,ds,bs-inverse,failures"
    assert len(lines) == 2
    assert lines[1].startswith("hotel-0003,system 0,")
    page.click("table.list a")
    assert saved(".panel .take >> text=PNG").startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_texts_are_texts_everywhere(browser: Browser, scheme: str) -> None:
    page = browser.open(hostile(EVIL), color_scheme=scheme)
    page.wait_for_selector("#cs-groups-0 svg")
    page.click("text=Explore records")
    page.wait_for_selector("table.list tbody tr")
    page.select_option("label:has-text('Group and colour') select", index=1)
    page.fill("input[type=search]", "in no text")
    page.wait_for_selector(".found:text('0 of 2')")
    page.fill("input[type=search]", "<SCRIPT>alert")
    page.wait_for_selector(".found:text-is('2 records')")  # a list before that goes under a click
    page.click("table.list a >> nth=0")
    page.wait_for_selector("#cs-record h2")
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.wait_for_selector("#cs-record .matrix.heat td")
    page.hover("#cs-record .matrix.heat td[tabindex='0']")
    page.click("#cs-record .asked button >> nth=0")
    assert "<script>alert(1)</script>" in page.inner_text("dialog[open]")
    strangers = page.evaluate(
        """() => [...document.querySelectorAll('*')].filter((one) =>
             ['IMG', 'IFRAME', 'OBJECT'].includes(one.tagName)
             || [...one.attributes].some((found) => found.name.startsWith('on'))).length"""
    )
    assert strangers == 0
    assert page.evaluate("document.scripts.length") == page.evaluate(
        "document.querySelectorAll('script[id], body > script, head > script').length"
    )


def test_a_csv_holds_no_formula(browser: Browser, made_up: MakeUp) -> None:
    tables = made_up(1)
    (chunk,) = tables.chunks()
    formula = '=HYPERLINK("x")'
    records = chunk.records.with_columns(id=pl.lit(formula))
    page = browser.open(
        dataclasses.replace(tables, chunks=lambda: [chunk._replace(records=records)]), "#explore"
    )
    with page.expect_download() as waiting:
        page.click("[aria-label='CSV: Records shown']")
    assert '"\'=HYPERLINK(""x"")"' in Path(waiting.value.path()).read_text()


def test_without_scripts_the_overview_is_there(browser: Browser, made_up: MakeUp) -> None:
    path = browser.folder / "report.html"
    write_report(made_up(3), path)
    page = browser.browser.new_context(java_script_enabled=False).new_page()
    page.on("request", lambda request: browser.requests.append(request.url))
    page.goto(path.as_uri())
    assert page.locator("table.metrics").is_visible()
    assert page.locator("noscript").is_visible()
    assert not page.locator("#explore").is_visible()


def open_evaluation(browser: Browser, make: MakePage, name: str, **options: Any) -> Any:
    """A page of an evaluation."""
    return browser.visit(make(browser.folder, name), **options)


@pytest.mark.parametrize("make", PAGES)
def test_evaluations_draw_their_figures_whatever_the_names(
    browser: Browser, make: MakePage
) -> None:
    page = open_evaluation(browser, make, EVIL.replace("\x00", "").replace("/", "_")[:60])
    n_figures = len(json.loads(page.inner_text("#cs-figures")))
    assert page.locator("figure.chart svg.plot, figure.chart .drawn > figure").count() == n_figures
    assert page.locator("figure.chart .take").count() == n_figures
    assert page.locator("h2").count() >= 3


@pytest.mark.skipif(not AXE.is_file(), reason=f"there is no axe-core at {AXE}")
def test_claims_are_labelled_by_keys_and_saved(browser: Browser) -> None:
    """Keys 1, 2, 3 label and go on, 0 takes back; a new visit goes on; the CSV has the labels.

    On a phone the buttons leave most of the screen to the texts.
    """
    claims = [(f"Claim <b>{n}</b>", "supported", 0.9) for n in range(3)]
    run = write_judged_run(browser.folder / "run", {"=a": claims, "<i>": claims})
    rows = draw(LabelConfig(str(run), n=6))
    path = browser.folder / "label.html"
    write_label_page(rows, "Rounding: <yes>", path)
    page = browser.visit(path, viewport={"width": 390, "height": 800}, bypass_csp=True)
    assert axe_violations(page) == []
    assert page.inner_text("#policy p") == "Rounding: <yes>"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".bar").bounding_box()["height"] < 800 / 5
    for key in ("1", "2", "3", "1", "ArrowLeft", "0"):
        page.keyboard.press(key)
    assert page.inner_text("#progress").startswith("3 of 6")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#progress").startswith("3 of 6")
    assert page.inner_text("#item-title").startswith("Item 4 of 6")
    page.once("dialog", lambda dialog: dialog.dismiss())
    for key in ("ArrowLeft", "ArrowLeft", "2", "1"):  # the label it has, then item 3's another
        page.keyboard.press(key)
    assert browser.complaints.pop() == "Item 3 has the label unmentioned. Make it supported?"
    page.click("#open")
    page.click(".text >> nth=0")
    page.keyboard.press("3")
    with page.expect_download() as waiting:
        page.click("#save")
    waiting.value.save_as(browser.folder / "saved.csv")
    saved = read_sheet(browser.folder / "saved.csv")
    labels = ["supported", "contradicted", "unmentioned", "unmentioned", "", ""]
    assert [row["label"] for row in saved] == labels
    result = evaluate_labels(LabelsConfig(str(run), (str(browser.folder / "saved.csv"),)))
    assert result.facts["labels"] == 4
    page.keyboard.press("1")
    page.keyboard.press("2")
    assert page.inner_text("#progress").startswith("6 of 6 labelled. Now save them.")
    browser.visit(path)  # the policy of its content is one


@pytest.mark.skipif(not AXE.is_file(), reason=f"there is no axe-core at {AXE}")
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
@pytest.mark.parametrize("make", PAGES)
def test_axe_finds_nothing_in_evaluations(
    browser: Browser, make: MakePage, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 900}
    page = open_evaluation(
        browser, make, "plain", color_scheme=scheme, viewport=viewport, bypass_csp=True
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe_violations(page) == []


@pytest.mark.skipif(not AXE.is_file(), reason=f"there is no axe-core at {AXE}")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(browser: Browser, scheme: str, width: int) -> None:
    page = browser.open(
        hostile("a text"),
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        bypass_csp=True,
    )
    page.wait_for_selector("#cs-groups-0 svg")
    for view in ("#overview", "#explore", "#record-a%20text"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(f"html[data-ready='{view}']")
        page.evaluate("for (const d of document.querySelectorAll('main details')) d.open = true")
        page.wait_for_timeout(300)
        assert axe_violations(page) == []
