"""Named entities that a summary and its source have in common."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from claimscore.errors import ConfigError
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    Requirements,
    Score,
    option,
    scored,
    unscored,
)
from claimscore.metrics.reference_texts import SummaryPair, score_pairs

REFERENCE = (
    "Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in "
    "Summarization (NER-Overlap, among its baselines); entities by spaCy"
)

DEFAULT_MODEL = "en_core_web_sm"

#: Labels of names, in OntoNotes and CoNLL; the others are numbers, dates, quantities.
NAME_LABELS = frozenset(
    (
        *("PERSON", "PER", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT"),
        *("WORK_OF_ART", "LAW", "LANGUAGE", "MISC"),
    )
)


class Overlap(NamedTuple):
    """Shares of entities in common; None where there is no entity to take a share of."""

    precision: float | None
    recall: float | None
    f1: float | None


def overlap(summary: frozenset[str], source: frozenset[str]) -> Overlap:
    """Of two sets of entities: P = |A ∩ B| / |A|, R = |A ∩ B| / |B|, F1 = 2·|A ∩ B| / (|A| + |B|).

    A are the summary's entities. P is None without any in the summary, R without any in the
    source, F1 where either has none.
    """
    common = len(summary & source)
    both = bool(summary and source)
    return Overlap(
        common / len(summary) if summary else None,
        common / len(source) if source else None,
        2 * common / (len(summary) + len(source)) if both else None,
    )


def check_model(model: str) -> None:
    """`ConfigError` where spaCy or its model is not installed."""
    try:
        import spacy.util
    except ImportError:
        raise ConfigError(
            "metric ner-overlap: spaCy is not installed; run pip install 'claimscore[ner]'"
        ) from None
    if not (spacy.util.is_package(model) or Path(model).is_dir()):
        raise ConfigError(
            f"metric ner-overlap: there is no spaCy model {model}; run "
            f"`python -m spacy download {model}`, or name another with ner-overlap:model=NAME|PATH"
        )


@functools.lru_cache(maxsize=1)
def _load(model: str) -> Any:
    check_model(model)
    import spacy

    try:
        nlp = spacy.load(model)
    except (OSError, ValueError, ImportError) as exc:
        reason = str(exc).strip().partition("\n")[0]
        raise ConfigError(f"metric ner-overlap: {model} cannot be loaded: {reason}") from exc
    if not {"ner", "entity_ruler", "span_ruler"} & set(nlp.pipe_names):
        raise ConfigError(f"metric ner-overlap: the spaCy model {model} finds no entities")
    return nlp


def _entities(nlp: Any, texts: Sequence[str], names_only: bool) -> Iterator[frozenset[str]]:
    """The entities of each text: folded case, single spaces; the label is not part of them."""
    for document in nlp.pipe(texts):
        yield frozenset(
            " ".join(entity.text.casefold().split())
            for entity in document.ents
            if not names_only or entity.label_ in NAME_LABELS
        )


@dataclasses.dataclass(frozen=True)
class NerOptions:
    """Options of `ner-overlap`."""

    measure: str = option(
        "precision", "The number that is the score.", ("precision", "recall", "f1")
    )
    types: str = option("all", "All entities, or names alone.", ("all", "names"))
    model: str = option("", f"The spaCy model: a package or a folder; {DEFAULT_MODEL} if empty.")


_REQUIRES = Requirements(columns=("summary", "source"))


_VERDICT = "the source has {share} of the named entities of a summary"


def _make(name: str, options: NerOptions) -> Metric:
    model = options.model or DEFAULT_MODEL
    return Metric(
        name=name,
        requires=_REQUIRES,
        score=functools.partial(_score, options, model),
        signature_keys=("claimscore",),
        higher_is="more entities in common",
        range=(0.0, 1.0),
        description=f"{options.measure} of the summary's named entities in the source (spaCy)",
        reference=REFERENCE,
        facts=(("ner", model), ("types", options.types), ("measure", options.measure)),
        check=functools.partial(check_model, model),
        verdict=_VERDICT if options.measure == "precision" else "",
    )


def _score(options: NerOptions, model: str, tables: ChunkTables) -> list[Score]:
    pairs: list[SummaryPair] = []

    def keep(pair: SummaryPair) -> Score:
        pairs.append(pair)
        return unscored(pair.id, "")

    scores = score_pairs(tables, _REQUIRES, "source", keep)
    if not pairs:
        return scores
    nlp = _load(model)
    texts = dict.fromkeys(text for pair in pairs for text in (pair.summary, *pair.texts.values()))
    readable = [text for text in texts if len(text) <= nlp.max_length]
    by_text = dict(zip(readable, _entities(nlp, readable, options.types == "names"), strict=True))
    version = f"{nlp.meta['lang']}_{nlp.meta['name']}-{nlp.meta['version']}"
    of_pairs = {pair.id: _score_pair(options.measure, pair, by_text, version) for pair in pairs}
    return [of_pairs.get(score.id, score) for score in scores]


def _score_pair(
    measure: str, pair: SummaryPair, by_text: Mapping[str, frozenset[str]], version: str
) -> Score:
    if any(text not in by_text for text in (pair.summary, *pair.texts.values())):
        return unscored(pair.id, "a text is too long for spaCy")
    summary = by_text[pair.summary]
    source = frozenset[str]().union(*(by_text[text] for text in pair.texts.values()))
    shares = overlap(summary, source)
    components: dict[str, object] = {
        **shares._asdict(),
        "missing": sorted(summary - source),
        "n_summary": len(summary),
        "n_source": len(source),
        "model": version,
    }
    value: float | None = getattr(shares, measure)
    if value is None:
        side = "source" if measure == "recall" or summary else "summary"
        return unscored(pair.id, f"no entities in {side}", components)
    return scored(pair.id, value, components)


NER_OVERLAP = MetricFamily("ner-overlap", NerOptions, _make)
