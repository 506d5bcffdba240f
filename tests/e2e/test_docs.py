"""Examples of README and docs run as they stand; generated parts and messages are up to date."""

import contextlib
import io
import re
import runpy
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from claimscore.config import read_toml
from claimscore.metrics.base import SIDES
from claimscore.pipeline.llm.providers.base import PROVIDERS, provider_class
from claimscore.pipeline.llm.providers.base import VENDORS as WAYS
from claimscore.pipeline.passes import PASSES
from claimscore.pipeline.tasks import TASKS
from tests.fake_server import FakeServer
from tests.support.command_line import Command

ROOT = Path(__file__).parents[2]
#: The tutorial has tests of its own.
PAGES = [
    page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if page.stem != "tutorial"
]
BLOCK = re.compile(r"(<!-- not run[^\n]* -->\n)?```(python|text)\n(.*?)```", re.DOTALL)


def examples() -> list[object]:
    """The pages with Python, each with its Python and text blocks in order."""
    params = []
    for page in sorted(PAGES):
        blocks = [
            (kind, text)
            for skipped, kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))
            if not skipped
        ]
        if any(kind == "python" for kind, _ in blocks):
            params.append(pytest.param(blocks, id=page.relative_to(ROOT).as_posix()))
    return params


@pytest.mark.parametrize("blocks", examples())
def test_python_examples_run(
    blocks: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page go on from each other; a text block after Python is what it prints.

    They run in an empty folder that has the examples beside it, as in a checkout.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": "__main__"}, None
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, "example", "exec"), names)
            printed = out.getvalue()
        elif printed is not None:
            assert printed == text
            printed = None


def script(name: str) -> dict[str, Any]:
    """The names of a script of `scripts/`, which is not run."""
    return runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name=name)


def test_the_tables_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    assert page == script("make_tables_doc")["tables_doc"]()


def test_the_pages_of_metrics_have_the_facts_of_the_code() -> None:
    make = script("make_metrics_doc")
    make["pages"]()  # exits where a metric has no page
    for page in (ROOT / "docs" / "metrics").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert make["page_with"](text, None) == text, "run python scripts/make_metrics_doc.py"


def test_the_examples_of_the_metrics_are_their_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = script("make_metrics_doc")
    scores = make["example_scores"](tmp_path)
    for page in (ROOT / "docs" / "metrics").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert make["page_with"](text, scores) == text, "run python scripts/make_metrics_doc.py"


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*)\n```", readme)
    assert [name for name, _ in commands] == ["run", "test"]
    assert readme.count("pip install") == 2


@pytest.mark.timeout(300)  # seconds of work, but runs and models on a machine that may be busy
def test_the_readmes_commands_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    """The first prints what is shown, the others go on from it; OpenAI is the fake server."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (first,) = re.findall(r"&& \.venv/bin/claimscore (run .*)", readme)
    (after,) = re.findall(r"```sh\n\. \.venv/bin/activate\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    lines = cli(*first.split()).out.splitlines()
    shown = readme.partition("```text\n")[2].partition("...\n")[0].splitlines()
    assert lines[1 : len(shown) + 1] == shown
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        prices = ("--input-price", "0.15", "--output-price", "0.6")
        for line in after.splitlines():
            _, *arguments = shlex.split(line, comments=True)
            result = cli(*arguments, *(prices if "--llm" in arguments else ()))
            assert (result.status, bool(result.out)) == (0, True), result.err
        assert server.n_requests > 0


def test_the_page_of_own_metrics_names_what_there_is() -> None:
    page = (ROOT / "docs" / "extend" / "metric.md").read_text(encoding="utf-8")
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert (ROOT / "examples" / "own_metrics.py").read_text(encoding="utf-8").startswith(shown)
    lists = page.split("```python\n")[2].partition("```")[0]
    assert (ROOT / "examples" / "own_metrics.py").read_text(encoding="utf-8").endswith(lists)
    for name in (*TASKS, *PASSES, *SIDES.values()):
        assert f"`{name}`" in page, name


def test_the_page_of_own_tasks_shows_the_prompt_of_its_commands() -> None:
    page = (ROOT / "docs" / "how-to" / "own-task.md").read_text(encoding="utf-8")
    shown = page.partition("```toml\n")[2].partition("```")[0]
    assert (ROOT / "examples" / "tone.toml").read_text(encoding="utf-8") == shown


# -- commands to other vendors

VENDORS = (ROOT / "docs" / "how-to" / "other-vendors.md").read_text(encoding="utf-8")
VENDORS_KEY = "sk-of-the-vendor"
COMMANDS = re.findall(r"(?m)^claimscore (run examples/(?:\\\n|.)*)$", VENDORS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Command
) -> None:
    """Each vendor's address is the fake server's; only requests with the key are answered."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with FakeServer(key=VENDORS_KEY) as server:
        for vendor in map(provider_class, PROVIDERS):
            for variable in filter(
                None, (vendor.key_variable, "GEMINI_API_KEY", "MISTRAL_API_KEY")
            ):
                monkeypatch.setenv(variable, VENDORS_KEY)
        for variable in ("ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
            monkeypatch.setenv(variable, server.base_url)
        here = re.sub(r"(?<=--base-url )\S+", server.base_url, command)
        result = cli(*shlex.split(here.replace("\\\n", "")))
        assert result.status == 0, result.err
        assert len(server.paid) == server.n_requests == 48


def _shown(row: Mapping[str, str]) -> str:
    code = (f"`{row[name]}`" if name in row else "-" for name in ("llm", "url", "key"))
    plain = (row[name] for name in ("batches", "logprobs", "checked"))
    return f"| {' | '.join([row['name'], *code, *plain])} |"


def test_every_vendor_is_on_the_page() -> None:
    vendors = [family for family in PROVIDERS if not provider_class(family).is_local]
    rows = read_toml(WAYS)
    for family in vendors:
        vendor, row = provider_class(family), rows[family]
        offers = bool(vendor.batches), vendor.has_logprobs, vendor.key_variable
        assert (row["batches"] == "yes", row["logprobs"] == "yes", row["key"]) == offers
    shown = [line for line in VENDORS.splitlines() if line.startswith("| ") and "---" not in line]
    assert shown[1:] == [_shown(row) for row in rows.values()]
    assert len(COMMANDS) == 3


# -- messages of troubleshooting

GOOD = '{"id": "1", "summary_a": "Rooms are clean.", "summary_b": "Rooms are dirty."}\n'
SERVER = "--metrics caspr --llm openai:m --base-url"


class Trouble(NamedTuple):
    """A command that prints a message of the page; `first` is run before it."""

    content: str
    command: str
    first: str = ""


TROUBLES = {
    "The run directory has other settings": Trouble(
        GOOD,
        "run pairs.jsonl --out runs/first --metrics ds --seed 3",
        first="run pairs.jsonl --out runs/first --metrics ds",
    ),
    "The price is not known": Trouble(
        GOOD, f"run pairs.jsonl --out runs/first {SERVER} http://localhost:9/v1 --max-cost 5"
    ),
}


def message(heading: str) -> str:
    """The first text block under the heading."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    section = page.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    return re.findall(r"```text\n(.*?)\n```", section, re.DOTALL)[0]


@pytest.mark.parametrize("heading", TROUBLES)
def test_messages_are_as_printed(
    heading: str, cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`...` on the page stands for anything."""
    trouble = TROUBLES[heading]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    Path("pairs.jsonl").write_text(trouble.content, encoding="utf-8")
    if trouble.first:
        assert cli(*trouble.first.split()).status == 0
    result = cli(*trouble.command.split())
    pattern = ".*".join(re.escape(part) for part in message(heading).split("..."))
    assert re.search(pattern, result.err, re.DOTALL), result.err
    assert result.status == 2
