"""The JSON object: its names, and that it is plain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claimscore.evaluation.compare.comparison_json import to_json
from tests.support.compared_runs import compared


def test_the_json_object_has_these_names(versions: tuple[Path, Path]):
    """Scripts rely on them; a change is a new `format`."""
    found = to_json(compared(*versions))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["format"], list(found)) == (
        1,
        ["format", "claimscore", "baseline", "method", "runs"],
    )
    assert set(_names(found)) == JSON_NAMES


#: Objects whose names are data: tables, labels, reasons.
MAPS = ("units", "same_units", "only_in_baseline", "only_in_run", "reasons")


def _names(value: Any, prefix: str = "") -> Iterator[str]:
    """Every name as a path; `*` stands for names that are data."""
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{prefix}*" if prefix.endswith(MAPS) else f"{prefix}.{name}".removeprefix(".")
            if not path.endswith("*"):
                yield path
            yield from _names(inner, path)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item, prefix)


NAMES = """format claimscore baseline method runs
    baseline.label baseline.path baseline.records baseline.metrics baseline.notices
    method.level method.samples method.seed method.equal_within method.correction method.alpha
    method.corrected_p_values method.corrected_p_values_of_groups method.similarity
    method.threshold method.by method.top
    runs.label runs.path runs.records runs.metrics runs.notices runs.shared
    runs.missing runs.missing.in_baseline runs.missing.in_baseline.count
    runs.missing.in_baseline.first runs.missing.in_run runs.missing.in_run.count
    runs.missing.in_run.first runs.settings runs.data
    runs.metrics_only_in_baseline runs.metrics_only_in_run runs.differences
    runs.differences.metric runs.differences.n runs.differences.baseline_mean
    runs.differences.mean runs.differences.difference runs.differences.low runs.differences.high
    runs.differences.higher runs.differences.same runs.differences.lower
    runs.differences.p_bootstrap runs.differences.p_sign runs.differences.p_wilcoxon
    runs.differences.p_bootstrap_holm runs.differences.p_sign_holm
    runs.differences.p_wilcoxon_holm runs.differences.d_z runs.differences.rank_biserial
    runs.differences.verdict runs.differences.reason runs.differences.nulls
    runs.differences.nulls.baseline runs.differences.nulls.run runs.differences.nulls.either
    runs.differences.nulls.baseline_reasons runs.differences.nulls.run_reasons
    runs.groups runs.moved runs.moved.id runs.moved.moves runs.moved.moves.metric
    runs.moved.moves.baseline runs.moved.moves.run runs.moved.moves.difference
    runs.moved.texts_differ runs.moved.units runs.moved.units*.side runs.moved.units*.kind
    runs.moved.units*.baseline runs.moved.units*.run runs.moved.units*.similarity
    runs.moved.same_units runs.moved.cells runs.moved.cells.table runs.moved.cells.shared
    runs.moved.cells.flipped runs.moved.cells.flipped.reworded
    runs.moved.cells.flipped.baseline runs.moved.cells.flipped.run
    runs.moved.cells.only_in_baseline runs.moved.cells.only_in_run
    runs.agreement runs.agreement.table runs.agreement.side runs.agreement.records
    runs.agreement.only_in_baseline runs.agreement.only_in_run
    runs.agreement.identical_records runs.agreement.other_records
    runs.agreement.baseline_units runs.agreement.units
    runs.agreement.baseline_per_sentence runs.agreement.per_sentence runs.agreement.same
    runs.agreement.normalised runs.agreement.changed runs.agreement.vanished
    runs.agreement.appeared runs.agreement.share_same runs.agreement.share_matched
    runs.labels runs.labels.table runs.labels.records runs.labels.cells runs.labels.flipped
    runs.labels.share_same runs.labels.counts runs.labels.counts.baseline
    runs.labels.counts.run runs.labels.counts.cells"""
JSON_NAMES = set(NAMES.split()) | {
    f"runs.moved.cells.flipped.{run}.{name}"
    for run in ("baseline", "run")
    for name in (
        *("premise_side", "premise", "hypothesis_side", "hypothesis"),
        *("label", "probabilities"),
    )
}
