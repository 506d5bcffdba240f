"""The progress of a run, from its folder alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from claimscore.errors import ConfigError
from claimscore.metrics.support import UNSURE, uncertainty
from claimscore.object_stores import is_address
from claimscore.pipeline.llm.budget.ledger import SPEND_FILE, read_ledger
from claimscore.pipeline.plan import sides_done
from claimscore.pipeline.scoring import count_claim_checks
from claimscore.runs import RunDirectory, damage_as_error, models_asked
from claimscore.tables import SIDE_COLUMNS
from claimscore.types import JSON


def run_status(out: Path | str) -> JSON:
    """Chunks done and left, rows by table, failures by stage and kind, spending so far.

    Reads only the manifest and the settings, so it is quick and may be called while the
    run works. Raises `ConfigError` where `out` is not a run directory.
    """
    directory = RunDirectory.reader(out)
    with damage_as_error(out):
        return _status(out, directory)


def _status(out: Path | str, directory: RunDirectory) -> JSON:
    begun: JSON = {
        **named(out, directory),
        "running": directory.is_locked,
        "spent": read_ledger(directory.state / SPEND_FILE)[0].to_json(),
        "last_call": directory.note(),
    }
    if not directory.manifest.has(0, "records"):
        return {**begun, "records": None, "failures": [], "complete": False}
    settings, plan, n_chunks = directory.settings, directory.plan(), directory.n_chunks
    records, size = settings["records"]["count"], settings["chunk_records"]
    llm, models = set(), set()
    for chunk in range(n_chunks):
        steps = directory.manifest.steps(chunk)
        if any(set(sides) - sides_done(task, steps) for task, sides in plan["tasks"].items()):
            llm.add(chunk)
        if not steps.issuperset(plan["passes"]):
            models.add(chunk)
    todo = llm | models

    def records_in(chunks: Iterable[int]) -> int:
        return sum(min(size, records - size * chunk) for chunk in chunks)

    complete = not todo and (directory.path / "scores.parquet").exists()
    return {
        **begun,
        "llm": models_asked(settings),
        "records": records,
        "chunks": {"total": n_chunks, "done": n_chunks - len(todo), "left": len(todo)},
        "records_left": {
            "all": records_in(todo),
            "llm": records_in(llm),
            "models": records_in(models),
        },
        "llm_chunks_left": len(llm),
        "model_chunks_left": len(models),
        "rows": directory.manifest.counts(),
        "failures": directory.failures_by_kind(),
        "claim_checks": count_claim_checks(directory),
        "complete": complete,
        "metrics": directory.summary().get("metrics", {}) if complete else {},
    }


def named(out: Path | str, directory: RunDirectory) -> JSON:
    """The name of a run, and its folder on this machine where that is another one."""
    folder = {"folder": str(directory.path)} if is_address(out) else {}
    return {"out": str(out), **folder}


def record_status(out: Path | str, record_id: str) -> JSON:
    """One record: its scores, its failures, and its claims with verdict and evidence.

    Beside a source `probability` is that of support; of several sources the one that supports a
    claim most decides. `ConfigError` where there is no such run or record.
    """
    directory = RunDirectory.reader(out)
    directory.check_read()
    of_record = pl.col("id").cast(pl.String) == record_id

    def rows(table: str) -> list[JSON]:
        return directory.scan(table).filter(of_record).collect().to_dicts()

    scores: list[JSON] = []
    with damage_as_error(out):
        if not rows("records"):
            raise ConfigError(f"{out}: the run has no record {record_id!r}")
        if (table := directory.scores()) is not None:
            scores = table.filter(of_record).collect().to_dicts()
        of_texts, texts = rows("claims"), defaultdict[str, list[str]](list)
        for row in of_texts:
            if row["left_out"] is None:
                texts[row["side"]].append(row["text"] or "")
        judged = _judged_by_claims(rows("nli"), texts)
        order = ("unmentioned", "contradicted", "supported")
        names = ("verdict", "probability", "uncertainty", "votes", "evidence")
        for row in sorted(  # the most support last
            rows("support"), key=lambda row: (order.index(row["verdict"]), row["probability"])
        ):
            of_row = {name: row[name] for name in names}
            is_unsure = uncertainty(row["probability"]) >= UNSURE
            judged[row["side"], row["claim_position"]] = of_row | {"unsure": is_unsure}
        entailed = {
            (row["side"], row["claim_position"])
            for row in rows("claim_checks")
            if row["check"] == "entailed"
        }
        places = {side: itertools.count() for side in texts}
        claims = []
        for row in of_texts:
            side, left_out = row["side"], row["left_out"]
            place = next(places[side]) if left_out is None else None
            left_out = "entailed" if (side, place) in entailed else left_out
            claim = {"side": side, "column": SIDE_COLUMNS.get(side, side)}
            claim |= {"claim": row["text"] or "", "left_out": left_out}
            claims.append(claim | judged.get((side, place), {"verdict": None}))
        return {"id": record_id, "scores": scores, "failures": rows("failures"), "claims": claims}


def _judged_by_claims(rows: Sequence[JSON], texts: Mapping[str, Sequence[str]]) -> dict[Any, JSON]:
    """Verdicts by side and place, as CASPR counts pairs; the surest such pair is the evidence."""
    pairs: defaultdict[Any, Any] = defaultdict(lambda: defaultdict(lambda: (0, 0.0, 0.0)))
    for row in rows:
        p = row["entailment"], row["neutral"], row["contradiction"]
        ends = [(row[f"{end}_side"], row[f"{end}_index"]) for end in ("premise", "hypothesis")]
        for mine, its in (ends, ends[::-1]):
            sign, supported, denied = pairs[mine][its]
            pairs[mine][its] = sign + 1 - p.index(max(p)), max(supported, p[0]), max(denied, p[2])
    judged = {}
    for mine, cells in pairs.items():
        supported, denied = (
            [(cell[which], its) for its, cell in cells.items() if cell[0] * way > 0]
            for which, way in ((1, 1), (2, -1))
        )
        judged[mine] = {"verdict": "unmentioned", "evidence": None}
        if supported or denied:
            _, (side, place) = max(supported if len(supported) >= len(denied) else denied)
            verdict = "said" if len(supported) >= len(denied) else "contradicted"
            judged[mine] = {"verdict": verdict, "evidence": texts[side][place]}
    return judged
