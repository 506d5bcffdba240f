"""The files and the text of the CASPR experiment."""

from __future__ import annotations

import json
from pathlib import Path

from claimscore.evaluation.caspr.experiment import CasprConfig, CasprResult
from claimscore.evaluation.caspr.figure import can_plot, write_figure
from claimscore.evaluation.caspr.sections import caspr_sections
from claimscore.evaluation.display import print_sections
from claimscore.evaluation.sections import markdown, write_results

_FIGURE = "caspr.svg"
_NO_FIGURE = "no figure: pip install 'claimscore[plots]' and run the same command again"


def write_experiment(result: CasprResult, config: CasprConfig) -> None:
    """`means`, `rho` and `pairs` as Parquet and CSV, `caspr.md`, and `caspr.svg` where
    matplotlib is there; all in the experiment's folder."""
    out = config.run.folder
    frames = {"means": result.means, "rho": result.rho, "pairs": result.scores}
    text = markdown("The CASPR paper's comparisons", caspr_sections(result, config))
    if can_plot():
        write_figure(result, out / _FIGURE)
        text += f"\n![Scores of each comparison]({_FIGURE})\n"
    signatures = result.scores.select("metric", "signature").unique(maintain_order=True)
    text += "\n## Signatures\n" + "".join(
        f"\n- {metric}: `{signature}`" for metric, signature in signatures.iter_rows()
    )
    write_results(out, frames, "caspr.md", text + "\n")


def print_experiment(result: CasprResult, config: CasprConfig, as_json: bool) -> None:
    """The tables, or one JSON object."""
    out = config.run.folder
    if as_json:
        facts = {
            "records": result.n_records,
            "made": result.n_made,
            "missing": [item._asdict() for item in result.missing],
            "means": result.means.to_dicts(),
            "rho": result.rho.to_dicts(),
        }
        print(json.dumps(facts, ensure_ascii=False, allow_nan=False))
        return
    print_sections(caspr_sections(result, config))
    print(f"figure: {out / _FIGURE}" if can_plot() else _NO_FIGURE)
    report = Path(result.run.out, "report.html")
    print(f"page: {out / 'caspr.html'}   report: {report}   tables: {out}")
