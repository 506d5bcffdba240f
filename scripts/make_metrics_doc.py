"""Write the parts of docs/metrics that come from the code: `python scripts/make_metrics_doc.py`.

A page keeps its text. The list below `<!-- facts: NAME ... -->` has the columns, models and options
of its metrics, the list below `<!-- example: NAME ... -->` the scores of the example records by the
embedded models.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.cli import main
from claimscore.metrics import METRICS, catalogue
from claimscore.metrics.base import MetricOption

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "metrics"
#: The records that the examples show, by the file that has them.
SHOWN = {
    "products.jsonl": ("kettle-1", "kettle-2"),
    "hotels.jsonl": ("hotel-paraphrase", "hotel-negated", "hotel-contrast"),
}
#: Components that say nothing about where a value comes from, beside the counts (`n_...`).
UNSHOWN = {"baseline_f1", "best", "claims", "layer", "match", "repeats", "texts"} | {
    "least_probability",
    "mean_probability",
}
#: An option with more values than this is described by its page's own text.
MOST_VALUES = 7


def metric_facts(name: str) -> dict[str, Any]:
    """The object of `claimscore metrics show NAME --json`."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["metrics", "show", name, "--json"])
    return dict(json.loads(printed.getvalue()))


def pages() -> dict[str, Path]:
    """The page of each metric of `METRICS`."""
    found: dict[str, Path] = {}
    for page in sorted(PAGES.glob("*.md")):
        for names in re.findall(r"<!-- facts: (.*?) -->", page.read_text(encoding="utf-8")):
            found |= dict.fromkeys(names.split(), page)
    if missing := METRICS.keys() - found:
        raise SystemExit(f"docs/metrics: no page has {', '.join(sorted(missing))}")
    return found


def facts_list(names: list[str]) -> str:
    """The facts of one page: of several metrics each value that they do not share, by name."""
    all_facts = {name: metric_facts(name) for name in names}
    rows: list[tuple[str, str]] = [("Name", ", ".join(f"`{name}`" for name in names))]
    for title, told in (
        ("Columns", _columns),
        ("Models", _models),
        ("Range", lambda facts: f"{_range(facts)}; higher is {facts['higher_is']}"),
    ):
        rows.append((title, _shared({name: told(facts) for name, facts in all_facts.items()})))
    options: dict[str, list[str]] = defaultdict(list)
    known = {name: {one.name: one for one in catalogue(()).options(name)} for name in names}
    for option in known[names[0]]:
        values = {name: _values(found[option]) for name, found in known.items() if option in found}
        options[_shared(values)].append(f"`:{option}=`")
    rows += [(", ".join(titles), values) for values, titles in options.items()]
    return "\n".join(f"- {title}: {text}" for title, text in rows)


def example_list(names: list[str], scores: pl.DataFrame) -> str:
    """The scores of the example records, with their components."""
    lines = []
    for name in names:
        for row in scores.filter(metric=name).rows(named=True):
            parts = (_component(*item) for item in json.loads(row["components"]).items())
            shown = "; ".join([f"{row['value']:.2f}", ", ".join(part for part in parts if part)])
            metric = f"`{name}` of " if len(names) > 1 else ""
            lines.append(f"- {metric}`{row['id']}`: {shown.removesuffix('; ')}")
    return "\n".join(lines)


def example_scores(folder: Path) -> pl.DataFrame:
    """The scores of the records in `SHOWN` by every metric that a page shows; runs the models."""
    wanted = [
        name
        for page in sorted(PAGES.glob("*.md"))
        for found in re.findall(r"<!-- example: (.*?) -->", page.read_text(encoding="utf-8"))
        for name in found.split()
    ]
    frames = []
    for file, ids in SHOWN.items():
        pairs = file == "hotels.jsonl"
        names = [name for name in wanted if ("summary_a" in metric_facts(name)["columns"]) is pairs]
        out = folder / file
        source = str(ROOT / "examples" / file)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(["run", source, "--out", str(out), "--metrics", ",".join(names)])
        scores = pl.read_parquet(out / "scores.parquet")
        frames.append(scores.filter(pl.col("id").is_in(ids)))
    return pl.concat(frames)


def page_with(text: str, scores: pl.DataFrame | None) -> str:
    """The page with its generated parts made anew; examples stay where `scores` is None."""

    def made(found: re.Match[str]) -> str:
        kind, names = found[2], found[3].split()
        if kind == "facts":
            return f"{found[1]}{facts_list(names)}\n"
        return found[0] if scores is None else f"{found[1]}{example_list(names, scores)}\n"

    return re.sub(r"(<!-- (facts|example): (.*) -->\n\n)(?:- .*\n)*", made, text)


def _columns(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"`{column}`" for column in facts["columns"])


def _models(facts: Mapping[str, Any]) -> str:
    llm = [f"`--llm` ({', '.join(facts['tasks'])})"] if facts["tasks"] else []
    return ", ".join([*llm, *(f"`--{model}`" for model in facts["models"])]) or "none"


def _range(facts: Mapping[str, Any]) -> str:
    low, high = facts["range"]
    if low is None and high is None:
        return "any number"
    if low is None:
        return f"up to {high:g}"
    return f"{low:g} to {high:g}" if high is not None else f"{low:g} and more"


def _values(option: MetricOption) -> str:
    if option.values and len(option.values) > MOST_VALUES:
        return f"`{option.values[0]}` (default) and {len(option.values) - 1} more, below"
    return option.described(", ", "`{}`")


def _shared(told: Mapping[str, str]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for name, text in told.items():
        names[text].append(f"`{name}`")
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(who)}: {text}" for text, who in names.items())


def _component(name: str, value: Any) -> str:
    """A number, or a list of numbers or texts; nothing of what is nested deeper."""
    if name in UNSHOWN or name.startswith("n_"):
        return ""
    if isinstance(value, float):
        return f"{name} {value:.2f}"
    if isinstance(value, int | str):
        return f"{name} {value}"
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        items = (f"{item:.2f}" if isinstance(item, float) else str(item) for item in value)
        return f"{name} [{', '.join(items)}]"
    return ""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = example_scores(Path(folder))
        for path in sorted(PAGES.glob("*.md")):
            path.write_text(page_with(path.read_text(encoding="utf-8"), made), encoding="utf-8")
