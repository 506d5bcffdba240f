"""Published data sets as claimscore records: one row a summary, a text with its human claims,
or a pair of entities (CoCoTrip).

Every record of a summary has `id`, `source` or `sources`, `summary`, and where the data set has
them `case`, `system`, `references`, `ratings` (means over the annotators), `dataset`, `split`,
`label`, and published scores under their own names.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from claimscore.atomic import atomic_file, os_errors
from claimscore.errors import ConfigError, InputError
from claimscore.evaluation.published import SUMMAC_ALIASES
from claimscore.records.columns import CANONICAL
from claimscore.records.files import find_files
from claimscore.records.readers import read

Record = dict[str, Any]

NEWSROOM_DIMENSIONS = ("coherence", "fluency", "informativeness", "relevance")


def convert(name: str, source: Path, out: Path) -> int:
    """Write the data set's records as JSONL; returns their number.

    `ConfigError` for an unknown name, `InputError` where `source` is not in a format of that
    data set.
    """
    if name not in CONVERTERS:
        raise ConfigError(f"unknown data set {name}; known: {', '.join(CONVERTERS)}")
    count = 0
    with atomic_file(out) as stream:
        try:
            for record in CONVERTERS[name](source):
                stream.write(CANONICAL(record).encode() + b"\n")
                count += 1
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            what = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
            if isinstance(exc, UnicodeDecodeError | json.JSONDecodeError):
                what = "the file is no JSON"
            wanted = (CONVERTERS[name].__doc__ or "").partition("\n")[0]
            raise InputError(
                f"{source}: record {count + 1} is not in a format of {name}: {what}; "
                f"wanted: {wanted}"
            ) from exc
        if not count:
            raise InputError(f"{source}: there are no records in it")
    return count


def opinsummeval(source: Path) -> Iterator[Record]:
    """OpinSummEval: the folder `metric_evaluation` of A-Chicharito-S/OpinSummEval, or one JSONL.

    The folder has `14model_outputs.jsonl` (texts) and `scores.jsonl` (two annotators, scores).
    The one file has per line `case`, `reviews`, `reference` and `systems`: name ->
    `summary`, `human_annotator1`, `human_annotator2`, `scores`. A rating is the mean of both.
    """
    if source.is_dir():
        yield from _opinsummeval_folder(source)
        return
    for case in _objects(source):
        for system, output in case["systems"].items():
            annotators = [output["human_annotator1"], output["human_annotator2"]]
            texts = (case["reviews"], case["reference"], output["summary"])
            yield _opinion_record(case["case"], system, texts, annotators, output["scores"])


def _opinsummeval_folder(folder: Path) -> Iterator[Record]:
    scores = {line["case"]: line for line in _objects(folder / "scores.jsonl")}
    for number, line in enumerate(_objects(folder / "14model_outputs.jsonl"), start=1):
        case = line.get("case", number)
        reviews = list(line["revs"].values())
        for system, summary in line["model_output"].items():
            given = dict(scores[case][system])
            annotators = [given.pop("annot1"), given.pop("annot2")]
            yield _opinion_record(case, system, (reviews, line["summ"], summary), annotators, given)


def _opinion_record(
    case: int | str,
    system: str,
    texts: tuple[Sequence[str], str, str],
    annotators: Sequence[Mapping[str, float]],
    scores: Mapping[str, float],
) -> Record:
    reviews, reference, summary = texts
    return {
        "id": f"{case}-{system}",
        "case": str(case),
        "system": system,
        "sources": list(reviews),
        "references": [reference],
        "summary": summary,
        "ratings": _mean_ratings(annotators),
        **{name: float(score) for name, score in scores.items()},
    }


def newsroom(source: Path) -> Iterator[Record]:
    """Newsroom's human evaluation: `newsroom-human-eval.csv` of lil-lab/newsroom, or one JSONL.

    The CSV has a row an annotator (`ArticleID`, `System`, `ArticleTitle`, `ArticleText`,
    `SystemSummary`, `CoherenceRating`, ...; texts with HTML entities) and no references. The
    JSONL has per line `article_key`, `system`, `document`, `summary`, `reference` and `human`:
    dimension -> the annotators' ratings.
    """
    if source.name.lower().endswith(".csv"):
        yield from _newsroom_csv(source)
        return
    for row in _objects(source):
        references = {"references": [row["reference"]]} if row.get("reference") else {}
        ratings = {name: fmean(values) for name, values in row["human"].items()}
        yield {
            "id": row["id"],
            "case": str(row["article_key"]),
            "system": row["system"],
            "source": row["document"],
            **references,
            "summary": row["summary"],
            "ratings": ratings,
        }


def _newsroom_csv(source: Path) -> Iterator[Record]:
    of_summary: dict[tuple[str, str], list[Record]] = {}
    for row in _objects(source):
        of_summary.setdefault((row["ArticleID"], row["System"]), []).append(row)
    for (article, system), rows in of_summary.items():
        annotators = [
            {name: float(row[f"{name.capitalize()}Rating"]) for name in NEWSROOM_DIMENSIONS}
            for row in rows
        ]
        yield {
            "id": f"{article}-{system}",
            "case": article,
            "system": system,
            "source": html.unescape(rows[0]["ArticleText"]),
            "summary": html.unescape(rows[0]["SystemSummary"]),
            "ratings": _mean_ratings(annotators),
        }


def summeval(source: Path) -> Iterator[Record]:
    """SummEval: `model_annotations.aligned.paired.jsonl` of Yale-LILY/SummEval, or one JSONL.

    The first has a line a summary: `id`, `model_id`, `decoded`, `references`, `text` (only in
    the paired file) and `expert_annotations`, of which the mean is taken. The other has a line an
    article: `id`, `document`, `references` and `systems`: name -> `summary`, `expert_mean`.
    """
    for row in _objects(source):
        if "systems" in row:
            texts = {"source": row["document"], "references": row["references"]}
            for system, output in row["systems"].items():
                yield {
                    "id": f"{row['id']}-{system}",
                    "case": row["id"],
                    "system": system,
                    **texts,
                    "summary": output["summary"],
                    "ratings": output["expert_mean"],
                }
            continue
        yield {
            "id": f"{row['id']}-{row['model_id']}",
            "case": row["id"],
            "system": row["model_id"],
            **({"source": row["text"]} if row.get("text") else {}),
            "references": row["references"],
            "summary": row["decoded"],
            "ratings": _mean_ratings(row["expert_annotations"]),
        }


def summac(source: Path) -> Iterator[Record]:
    """The SummaC benchmark: what `SummaCBenchmark(...).datasets` holds, as JSON or JSONL.

    A JSON file is the list of `{"name", "dataset": [...]}`, or a list of rows; a JSONL file has a
    row a line. A row has `document`, `claim`, `label` (1: consistent), `dataset`, and `cut` or
    `split`; `id` and `model_name` where there are. A folder is taken as all its `*.jsonl` files.
    """
    counts: dict[str, int] = {}
    for row in _summac_rows(source):
        if "label" not in row:  # graded data beside the benchmark (QAGS)
            continue
        name = str(row["dataset"])
        dataset = SUMMAC_ALIASES.get(name, name)
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


def _summac_rows(source: Path) -> Iterator[Record]:
    if source.is_dir():
        for path in sorted(source.glob("*.jsonl")):
            yield from _objects(path)
    elif source.suffix != ".json":
        yield from _objects(source)
    else:
        for item in _json(source):
            if "name" in item and isinstance(item.get("dataset"), list):
                yield from ({"dataset": item["name"], **row} for row in item["dataset"])
            else:
                yield item


def cocotrip(source: Path) -> Iterator[Record]:
    """CoCoTrip: `data/anno.json` of megagonlabs/cocosum, or a folder that holds `anno.json`.

    The texts of `caspr_synthetic_dataset.json` (niru-umass-dev/caspr) are joined where that file is
    in the folder too. One row a pair of entities, for `evaluate caspr`.
    """
    folder = source if source.is_dir() else None
    annotations = _json(source if folder is None else folder / "anno.json")
    synthetic = folder / "caspr_synthetic_dataset.json" if folder else None
    rows = _json(synthetic) if synthetic is not None and synthetic.exists() else []
    texts = {(row["entity_a"], row["entity_b"]): row for row in rows}
    for split in ("train", "dev", "test"):
        for pair in annotations[split]:
            entities = (pair["entity_a"], pair["entity_b"])
            summaries = ("entity_a_summary", "entity_b_summary", "common_summary")
            yield {
                "id": "_".join(entities),
                "split": split,
                **{name: pair[name] for name in summaries if name in pair},
                **texts.get(entities, {"entity_a": entities[0], "entity_b": entities[1]}),
            }


# Claims that people made of texts, for `evaluate claims`


def rose(source: Path) -> Iterator[Record]:
    """RoSE (Liu et al. 2023): `docs/_data/acu-cnndm-test.json` of Yale-LILY/ROSE.

    References of CNN/DailyMail with their atomic content units.
    """
    for row in _json(source):
        text = " ".join(row["reference"].split())
        yield {"id": str(row["id"]), "summary": text, "claims": list(map(str.strip, row["acu"]))}


def factscore(source: Path) -> Iterator[Record]:
    """FActScore (Min et al. 2023): a file of its `labeled_data`; a record a sentence.

    `claims` are the facts as people revised them, `case` the person that the text is about.
    """
    for row in _objects(source):
        topic = row["topic"]
        for number, sentence in enumerate(row["annotations"] or ()):
            facts = sentence.get("human-atomic-facts") or ()
            yield {
                "id": f"{topic}-{number}",
                "case": topic,
                "summary": sentence["text"],
                "claims": [fact["text"] for fact in facts],
            }


def factcheck_gpt(source: Path) -> Iterator[Record]:
    """Factcheck-GPT (Wang et al. 2023): `factcheck-GPT-benchmark.jsonl`; a record a sentence."""
    for case, row in enumerate(_objects(source)):
        for number, sentence in enumerate(row["sentences"].values()):
            yield {
                "id": f"{case}-{number}",
                "case": str(case),
                "summary": sentence["text"],
                "claims": list(sentence.get("claims") or ()),
            }


def bump(source: Path) -> Iterator[Record]:
    """BUMP (Ma et al. 2023): a table of article, reference_summary, edited_summary, error_type.

    A record a summary; `twin` of an edited one is its reference's id, `kind` its error.
    """
    seen: set[str] = set()
    for number, row in enumerate(_objects(source)):
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
    documents = {row["doc_id"]: row["document"] for row in _objects(tables["summedits_docs"])}
    for number, row in enumerate(_objects(tables["summedits"])):
        yield {
            "id": f"{number}",
            "case": row["doc_id"],
            "domain": row["domain"],
            "source": documents[row["doc_id"]],
            "summary": row["summary"],
            "label": int(row["label"]),
            "kind": [] if row["label"] else list(row["edit_types"]),
        }


def realsumm(source: Path) -> Iterator[Record]:
    """REALSumm (Bhandari et al. 2020): a checkout of neulab/REALSumm, references with their SCUs.

    A file is a table of decisions: doc_id, system, summary, scu_index, scu, label (1: the summary
    has that unit), kind (of the system). Its summary is the source there, the unit the summary.

    The documents are those of `selected_documents.md`, in its order, as the lines of `ref.txt`.
    """
    if not source.is_dir():
        for row in _objects(source):
            yield {
                "id": f"{row['doc_id']}-{row['kind']}-{row['system']}-{row['scu_index']}",
                "case": row["doc_id"],
                "system": row["system"],
                "source": row["summary"],
                "summary": row["scu"],
                "label": int(row["label"]),
                "kind": row["kind"],
            }
        return
    chosen = source / "selected_docs_for_human_eval"
    with os_errors(chosen):
        listed = (chosen / "selected_documents.md").read_text(encoding="utf-8")
        texts = (chosen / "abs" / "bart" / "ref.txt").read_text(encoding="utf-8").splitlines()
    numbers = re.search(r"\[[\d,\s]+\]", listed)
    if numbers is None:
        raise InputError(f"{chosen / 'selected_documents.md'}: no list of documents in it")
    units: dict[str, list[str]] = {}
    for row in _objects(source / "human_annotations" / "SCUs_and_annotations" / "SCUs_list.csv"):
        if row["answer"] == "Y":
            units.setdefault(row["eventId"], []).append(row["questionText"].strip())
    for number, text in zip(json.loads(numbers[0]), texts, strict=True):
        name = f"cnndm{number}"
        text = " ".join(text.replace("<t>", " ").replace("</t>", " ").split())
        yield {"id": name, "summary": text, "claims": units[name]}


def carb(source: Path) -> Iterator[Record]:
    """CaRB (Bhardwaj et al. 2019): `data/gold/dev.tsv` or `test.tsv`, for `--table facts`.

    A line is sentence, relation, then the arguments; a claim is first argument, relation, others.
    """
    claims: dict[str, list[str]] = {}
    with os_errors(source):
        lines = source.read_text(encoding="utf-8").splitlines()
    for line in lines:
        sentence, relation, subject, *others = (cell.strip() for cell in line.split("\t"))
        words = (subject, relation, *others)
        claims.setdefault(sentence, []).append(" ".join(word for word in words if word))
    for number, (sentence, found) in enumerate(claims.items()):
        yield {"id": str(number), "summary": sentence, "claims": found}


def _json(path: Path) -> Any:
    with os_errors(path):
        return json.loads(path.read_bytes())


CONVERTERS: dict[str, Callable[[Path], Iterable[Record]]] = {
    "opinsummeval": opinsummeval,
    "newsroom": newsroom,
    "summeval": summeval,
    "summac": summac,
    "cocotrip": cocotrip,
    "rose": rose,
    "factscore": factscore,
    "factcheck-gpt": factcheck_gpt,
    "realsumm": realsumm,
    "carb": carb,
    "bump": bump,
    "summedits": summedits,
}


def _objects(path: Path) -> Iterator[Record]:
    for file in find_files(str(path)):
        for _, record in read(file):
            yield record


def _mean_ratings(annotators: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The annotators' mean, dimension by dimension; all must have rated the same ones."""
    return {name: fmean(a[name] for a in annotators) for name in annotators[0]}
