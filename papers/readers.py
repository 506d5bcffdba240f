"""Published data sets as records of claimscore: `python -m papers.readers NAME SOURCE --out FILE`.

Nothing is downloaded: SOURCE is the file or folder that the authors publish. A record is a summary
with `id`, `source` or `sources`, `summary`, and where the data set has them `case` (its document),
`system`, `references`, `ratings` (means over the annotators) and `label`; a text with its human
`claims`; or a pair of entities (CoCoTrip). Files are JSONL, JSON or Parquet.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

Record = dict[str, Any]

#: Other names of the data sets of the SummaC benchmark.
SUMMAC_ALIASES = {"cogensum": "cogensumm", "cgs": "cogensumm", "xsf": "xsumfaith"}


# Rated summaries, for `evaluate correlate`


def opinsummeval(source: Path) -> Iterator[Record]:
    """OpinSummEval (Shen and Wan 2023): `case`, `reviews`, `reference` and `systems` in a line.

    The authors' `14model_outputs.jsonl` and `scores.jsonl`, joined: a system's name leads to
    `summary`, `human_annotator1`, `human_annotator2` and `scores`.
    """
    for case in _rows(source):
        for system, output in case["systems"].items():
            annotators = [output["human_annotator1"], output["human_annotator2"]]
            yield {
                "id": f"{case['case']}-{system}",
                "case": str(case["case"]),
                "system": system,
                "sources": case["reviews"],
                "references": [case["reference"]],
                "summary": output["summary"],
                "ratings": _mean_ratings(annotators),
                **{name: float(score) for name, score in output["scores"].items()},
            }


def newsroom(source: Path) -> Iterator[Record]:
    """Newsroom's human evaluation (Grusky et al. 2018), a line a summary.

    `id`, `article_key`, `system`, `document`, `summary`, `reference`, and `human`: dimension ->
    the annotators' ratings.
    """
    for row in _rows(source):
        yield {
            "id": row["id"],
            "case": str(row["article_key"]),
            "system": row["system"],
            "source": row["document"],
            **({"references": [row["reference"]]} if row.get("reference") else {}),
            "summary": row["summary"],
            "ratings": {name: fmean(values) for name, values in row["human"].items()},
        }


def summeval(source: Path) -> Iterator[Record]:
    """SummEval: `model_annotations.aligned.paired.jsonl` of Yale-LILY/SummEval, or one JSONL.

    The first has a line a summary: `id`, `model_id`, `decoded`, `references`, `text` and
    `expert_annotations`, of which the mean is taken. The other has a line an article: `id`,
    `document`, `references` and `systems`: name -> `summary`, `expert_mean`.
    """
    for row in _rows(source):
        if "systems" not in row:
            yield {
                "id": f"{row['id']}-{row['model_id']}",
                "case": row["id"],
                "system": row["model_id"],
                "source": row["text"],
                "references": row["references"],
                "summary": row["decoded"],
                "ratings": _mean_ratings(row["expert_annotations"]),
            }
            continue
        for system, output in row["systems"].items():
            yield {
                "id": f"{row['id']}-{system}",
                "case": row["id"],
                "system": system,
                "source": row["document"],
                "references": row["references"],
                "summary": output["summary"],
                "ratings": output["expert_mean"],
            }


def _mean_ratings(annotators: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The annotators' mean, dimension by dimension; all must have rated the same ones."""
    return {name: fmean(a[name] for a in annotators) for name in annotators[0]}


# Pairs of entities, for CASPR


def cocotrip(source: Path) -> Iterator[Record]:
    """CoCoTrip: `data/anno.json` of megagonlabs/cocosum, or a folder that holds `anno.json`.

    The texts of `caspr_synthetic_dataset.json` (niru-umass-dev/caspr) are joined where that file is
    in the folder too.
    """
    folder = source if source.is_dir() else source.parent
    annotations = json.loads((folder / "anno.json" if source.is_dir() else source).read_bytes())
    synthetic = folder / "caspr_synthetic_dataset.json"
    rows = _rows(synthetic) if source.is_dir() and synthetic.exists() else ()
    texts = {(row["entity_a"], row["entity_b"]): row for row in rows}
    for split in ("train", "dev", "test"):
        for pair in annotations[split]:
            entities = pair["entity_a"], pair["entity_b"]
            summaries = ("entity_a_summary", "entity_b_summary", "common_summary")
            yield {
                "id": "_".join(entities),
                "split": split,
                **{name: pair[name] for name in summaries if name in pair},
                **texts.get(entities, {"entity_a": entities[0], "entity_b": entities[1]}),
            }


# Labelled summaries, for `evaluate support`


def summac(source: Path) -> Iterator[Record]:
    """The SummaC benchmark: the rows of `SummaCBenchmark`, in a file or in a folder of JSONL.

    A row has `document`, `claim`, `label` (1: consistent), `dataset`, and `cut` or `split`; `id`
    and `model_name` where there are.
    """
    counts: dict[str, int] = {}
    for path in sorted(source.glob("*.jsonl")) if source.is_dir() else [source]:
        for row in _rows(path):
            if "label" not in row:  # graded data beside the benchmark (QAGS)
                continue
            dataset = SUMMAC_ALIASES.get(str(row["dataset"]), str(row["dataset"]))
            split = str(row.get("split") or row.get("cut") or "")
            number = counts.get(dataset + split, 0)
            counts[dataset + split] = number + 1
            yield {
                "id": row.get("id") or f"{dataset}-{split}-{number:04d}",
                "dataset": dataset,
                **({"split": split} if split else {}),
                "source": row["document"],
                "summary": row["claim"],
                "label": int(row["label"]),
                **({"system": row["model_name"]} if row.get("model_name") else {}),
            }


def bump(source: Path) -> Iterator[Record]:
    """BUMP (Ma et al. 2023): a table of article, reference_summary, edited_summary, error_type.

    A record a summary; `twin` of an edited one is its reference's id, `kind` its error.
    """
    seen: set[str] = set()
    for number, row in enumerate(_rows(source)):
        case = str(row["article_id"])
        reference = f"{case}-reference"
        texts = {"case": case, "source": row["article"]}
        if case not in seen:
            seen.add(case)
            yield {"id": reference, **texts, "summary": row["reference_summary"], "label": 1}
        kind = row["error_type"].removesuffix(" Error").lower()
        edited = {"summary": row["edited_summary"], "label": 0, "kind": kind, "twin": reference}
        yield {"id": f"{case}-{number}", **texts, **edited}


def summedits(source: Path) -> Iterator[Record]:
    """SummEdits (Laban et al. 2023): a folder with the tables `summedits` and `summedits_docs`.

    The first has doc_id, summary, label (1: consistent) and edit_types, the other doc_id, document.
    """
    tables = {path.stem: path for path in sorted(source.glob("summedits*"))}
    documents = {row["doc_id"]: row["document"] for row in _rows(tables["summedits_docs"])}
    for number, row in enumerate(_rows(tables["summedits"])):
        yield {
            "id": f"{number}",
            "case": row["doc_id"],
            "domain": row["domain"],
            "source": documents[row["doc_id"]],
            "summary": row["summary"],
            "label": int(row["label"]),
            "kind": [] if row["label"] else list(row["edit_types"]),
        }


def ragtruth(source: Path) -> Iterator[Record]:
    """RAGTruth (Niu et al. 2024): premise, claim, label, kind, level, source_id, model, and marks.

    A row is a response or (`level`) one of its sentences, and supported unless people marked a
    span. Rows whose errors are marked implicit_true or due_to_null are left out. A source in JSON
    becomes lines: "ambience casual: no".
    """
    return _ragtruth(source, "response")


def ragtruth_sentences(source: Path) -> Iterator[Record]:
    """The sentences of RAGTruth without those of kind meta; wanted: what `ragtruth` reads."""
    return _ragtruth(source, "sentence")


def _ragtruth(source: Path, level: str) -> Iterator[Record]:
    for row in _rows(source):
        marked = row["implicit_true"] or row["due_to_null"] or row["kind"] == "meta"
        if row["level"] != level or marked:
            continue
        premise = row["premise"]
        is_json = premise.startswith("{")
        kinds = row["kind"].lower()
        place = [] if row["sentence"] is None else [row["sentence"]]
        yield {
            "id": "-".join(map(str, (row["source_id"], row["model"], *place))),
            "case": str(row["source_id"]),
            "system": row["model"],
            "domain": row["source"],
            "source": "\n".join(_lines(json.loads(premise))) if is_json else premise,
            "summary": row["claim"],
            "label": int(row["label"] == "supported"),
            "kind": kinds.split("|") if kinds else [],
        }


def _lines(value: Any, *path: str) -> Iterator[str]:
    """A line a value of JSON, with the names that lead there in words."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _lines(inner, *path, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _lines(inner, *path)
    else:
        words = [re.sub("(?<=[a-z])(?=[A-Z])|_", " ", name).lower() for name in path]
        known = {None: "unknown", True: "yes", False: "no"}
        is_word = value is None or isinstance(value, bool)
        yield f"{' '.join(words)}: {known[value] if is_word else value}"


# Claims that people made of texts, for `evaluate claims`


def rose(source: Path) -> Iterator[Record]:
    """RoSE (Liu et al. 2023): `acu-cnndm-test.json` of Yale-LILY/ROSE: id, reference, acu(s)."""
    for row in _rows(source):
        units = row["acu"] if "acu" in row else row["acus"]
        text = " ".join(row["reference"].split())
        yield {"id": str(row["id"]), "summary": text, "claims": list(map(str.strip, units))}


def factscore(source: Path) -> Iterator[Record]:
    """FActScore (Min et al. 2023): a file of its `labeled_data`, or a table with a row a sentence.

    The table has `generator`, `topic`, `sentence_index`, `sentence` and `facts`. `claims` are the
    facts as people revised them, `case` the person that the text is about.
    """
    for row in _rows(source):
        topic = row["topic"]
        if "sentence" in row:
            name = f"{row['generator']}-{topic}-{row['sentence_index']}"
            yield _text(name, topic, row["sentence"], row["facts"])
            continue
        for number, sentence in enumerate(row["annotations"] or ()):
            facts = [fact["text"] for fact in sentence.get("human-atomic-facts") or ()]
            yield _text(f"{topic}-{number}", topic, sentence["text"], facts)


def factcheck_gpt(source: Path) -> Iterator[Record]:
    """Factcheck-GPT (Wang et al. 2023): `factcheck-GPT-benchmark.jsonl`, or a row a sentence.

    The rows have `response_id`, `sentence_index`, `sentence` and `claims`.
    """
    for case, row in enumerate(_rows(source)):
        if "sentence" in row:
            case, number = row["response_id"], row["sentence_index"]
            yield _text(f"{case}-{number}", str(case), row["sentence"], row["claims"])
            continue
        for number, sentence in enumerate(row["sentences"].values()):
            claims = sentence.get("claims") or ()
            yield _text(f"{case}-{number}", str(case), sentence["text"], claims)


def _text(name: str, case: str, text: str, claims: Sequence[str]) -> Record:
    return {"id": name, "case": case, "summary": text, "claims": list(claims)}


def realsumm(source: Path) -> Iterator[Record]:
    """REALSumm (Bhandari et al. 2020): its references (id, reference, scus), or its decisions.

    A decision is doc_id, system, summary, scu_index, scu, label (1: the summary has that unit) and
    kind (of the system). Its summary is the source here, the unit the summary.
    """
    for row in _rows(source):
        if "scus" in row:
            yield {"id": row["id"], "summary": row["reference"], "claims": list(row["scus"])}
            continue
        yield {
            "id": f"{row['doc_id']}-{row['kind']}-{row['system']}-{row['scu_index']}",
            "case": row["doc_id"],
            "system": row["system"],
            "source": row["summary"],
            "summary": row["scu"],
            "label": int(row["label"]),
            "kind": row["kind"],
        }


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    "opinsummeval": opinsummeval,
    "newsroom": newsroom,
    "summeval": summeval,
    "cocotrip": cocotrip,
    "summac": summac,
    "bump": bump,
    "summedits": summedits,
    "ragtruth": ragtruth,
    "ragtruth-sentences": ragtruth_sentences,
    "rose": rose,
    "factscore": factscore,
    "factcheck-gpt": factcheck_gpt,
    "realsumm": realsumm,
}


def _rows(path: Path) -> list[Record]:
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".json":
        return list(json.loads(text))
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def write(name: str, source: Path, out: Path) -> int:
    """Write the records of a data set as JSONL, and return their number.

    `ValueError` says what SOURCE must be where it is something else.
    """
    try:
        records = list(READERS[name](source))
    except (KeyError, TypeError, AttributeError, ValueError, pl.exceptions.PolarsError) as exc:
        what = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
        wanted = (READERS[name].__doc__ or "").partition("\n")[0]
        raise ValueError(f"{source}: this is not {name}: {what}; wanted: {wanted}") from exc
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    out.write_text("".join(lines), encoding="utf-8")
    return len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=sorted(READERS))
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        print(f"{given.out}: {write(given.name, given.source, given.out):,} records")
    except (ValueError, OSError) as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
