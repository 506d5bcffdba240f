"""`summac-zs`, `summac-conv` and `mnli-doc` over the tables of a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from claimscore.blocks import GRANULARITIES, KEEP, SPLITTERS, Cut
from claimscore.errors import ConfigError
from claimscore.metrics.base import (
    ChunkTables,
    Metric,
    MetricFamily,
    PassRequirement,
    Requirements,
    Score,
    scored,
    unscored,
)
from claimscore.metrics.ragged import first_largest, reduce_runs, split_runs, starts_of
from claimscore.metrics.summac import convolution, zero_shot
from claimscore.metrics.summac.image import CONTRADICTION, ENTAILMENT, Values
from claimscore.metrics.summac.tables import (
    PROBABILITIES,
    SOURCE,
    SUMMARY,
    Images,
    missing_reasons,
    read_images,
    stack_histograms,
)
from claimscore.metrics.summac.weights import ConvWeights, load_weights
from claimscore.text import RULES_VERSION

REFERENCE = (
    "Laban et al. 2022, SummaC: Re-Visiting NLI-based Models for Inconsistency Detection in "
    "Summarization (TACL 10)"
)
_SIGNATURE_KEYS = ("nli", "dtype", "claimscore")

#: One granularity for both sides, or `document-summary` as the authors' code spells it.
_PAIRS = tuple(f"{a}-{b}" for a in GRANULARITIES for b in GRANULARITIES if a != b)
_CUT_OPTIONS = {
    "granularity": (*GRANULARITIES, *_PAIRS),
    "splitter": SPLITTERS,
    "blocks": KEEP,
}


def cut_need(settings: Mapping[str, str]) -> PassRequirement:
    """The pass over the cuts that `granularity`, `splitter` and `blocks` name."""
    document, _, summary = settings["granularity"].partition("-")
    cuts = (
        Cut(granularity, settings["splitter"], settings["blocks"]).name
        for granularity in (document, summary or document)
    )
    sides = zip((SOURCE, SUMMARY), cuts, strict=True)
    return PassRequirement("block_nli", tuple(f"{side}.{cut}" for side, cut in sides))


def _needs(settings: Mapping[str, str]) -> Requirements:
    return Requirements(columns=("source", "summary"), passes=(cut_need(settings),))


def _facts(settings: Mapping[str, str], *names: str) -> tuple[tuple[str, str], ...]:
    """Settings for the signature; the splitter of our own with its version."""
    facts = {**settings, "splitter": settings["splitter"].replace("rules", RULES_VERSION)}
    return tuple((name, facts[name]) for name in (*_CUT_OPTIONS, *names))


# SummaC-ZS


def _make_zs(name: str, settings: Mapping[str, str]) -> Metric:
    needs = _needs(settings)
    variant = settings["variant"]
    return Metric(
        name=name,
        version="v1",
        requires=needs,
        score=functools.partial(_score_zs, needs=needs, settings=settings),
        signature_keys=_SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(-1.0 if variant == "code" else 0.0, 1.0),
        description="best entailment of each summary sentence by a document sentence, averaged",
        reference=f"{REFERENCE}, SummaC_ZS",
        facts=_facts(settings, "op1", "op2", "variant"),
    )


def _score_zs(
    tables: ChunkTables, *, needs: Requirements, settings: Mapping[str, str]
) -> list[Score]:
    images = read_images(tables, needs.passes[0])
    shapes, pairs = images.matrices.shapes, images.matrices.values
    entailment, contradiction = (
        reduce_runs(pairs[:, label], shapes.row_lengths, settings["op1"])
        for label in (ENTAILMENT, CONTRADICTION)
    )
    sentences = zero_shot.sentence_scores(entailment, contradiction, settings["variant"])
    values = reduce_runs(sentences, shapes.n_rows, settings["op2"])
    parts = {"sentence_scores": split_runs(sentences, shapes.n_rows)}
    return _scores(tables, needs, images, values, parts)


def _scores(
    tables: ChunkTables,
    needs: Requirements,
    images: Images,
    values: Values,
    parts: Mapping[str, list[list[float]]],
) -> list[Score]:
    """One score a record; `values` and each of `parts` are those of the complete images."""
    reasons = missing_reasons(tables, needs, images)
    shapes = images.matrices.shapes
    found = zip(
        tables.records["id"].gather(images.matrices.records),
        values.tolist(),
        shapes.n_columns.tolist(),
        shapes.n_rows.tolist(),
        zip(*parts.values(), strict=True),
        strict=True,
    )
    scores = {
        record: scored(
            record,
            value,
            {"n_document_blocks": n_document, "n_summary_blocks": n_summary}
            | dict(zip(parts, own, strict=True)),
        )
        for record, value, n_document, n_summary, own in found
    }
    return [
        scores.get(record) or unscored(record, reasons[record]) for record in tables.records["id"]
    ]


SUMMAC_ZS = MetricFamily(
    "summac-zs",
    {
        **_CUT_OPTIONS,
        "op1": ("max", "mean", "min"),
        "op2": ("mean", "max", "min"),
        "variant": zero_shot.VARIANTS,
    },
    _make_zs,
)


# SummaC-Conv

#: What an option means that is neither given nor said by the weights' file.
_CONV_OPTIONS = {
    **_CUT_OPTIONS,
    "labels": convolution.LABEL_SETS,
    "aggregate": convolution.AGGREGATES,
    "variant": convolution.VARIANTS,
}


_CONV_DESCRIPTION = "probability of consistency from histograms of each summary sentence's NLI"


@dataclasses.dataclass(frozen=True)
class _Conv:
    """The weights and how their histograms are made."""

    weights: ConvWeights
    edges: Values
    labels: str
    aggregate: str
    variant: str

    def probabilities(self, values: Values, lengths: NDArray[np.int64]) -> Values:
        """The scores of summaries of so many sentences each; of one, what it alone would get."""
        return convolution.probabilities_of(
            values, lengths, self.weights, self.aggregate, self.variant
        )


def _make_conv(name: str, given: Mapping[str, str]) -> Metric:
    if not given["weights"]:
        return _without_weights(name)
    weights = load_weights(Path(given["weights"]).expanduser())
    settings = _conv_settings(given, weights)
    needs = _needs(settings)
    conv = _Conv(
        weights,
        _edges(settings, weights),
        *(settings[name] for name in ("labels", "aggregate", "variant")),
    )
    return Metric(
        name=name,
        version="v1",
        requires=needs,
        score=functools.partial(_score_conv, needs=needs, conv=conv),
        signature_keys=_SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(0.0, 1.0),
        description=_CONV_DESCRIPTION,
        reference=f"{REFERENCE}, SummaC_Conv",
        facts=(
            *_facts(settings, "bins", "labels", "aggregate", "variant"),
            ("weights", weights.digest),
        ),
    )


def _without_weights(name: str) -> Metric:
    """The metric as it stands in lists; its `check` says what is missing."""

    def check() -> None:
        raise ConfigError(
            f"metric {name} needs weights: {name}:weights=FILE, made by `claimscore train "
            "summac-conv` or published by its authors (summac_conv_vitc_sent_perc_e.bin)"
        )

    return Metric(
        name=name,
        version="v1",
        requires=_needs({option: known[0] for option, known in _CONV_OPTIONS.items()}),
        score=lambda tables: [unscored(record, "no weights") for record in tables.records["id"]],
        signature_keys=_SIGNATURE_KEYS,
        higher_is="more consistent",
        range=(0.0, 1.0),
        description=_CONV_DESCRIPTION,
        reference=f"{REFERENCE}, SummaC_Conv",
        check=check,
    )


def _conv_settings(given: Mapping[str, str], weights: ConvWeights) -> dict[str, str]:
    """Each option: as given, else as the weights were trained, else its default."""
    settings = {}
    for name, known in _CONV_OPTIONS.items():
        value = given[name] or weights.settings.get(name, known[0])
        if value not in known:
            raise ConfigError(f"metric summac-conv: {name} is one of {', '.join(known)}")
        settings[name] = value
    bins = given["bins"] or weights.settings.get("bins") or _likely_bins(weights, settings)
    return {**settings, "bins": bins}


def _likely_bins(weights: ConvWeights, settings: Mapping[str, str]) -> str:
    """The bins of a file that does not name them: 23 a label are the released ones."""
    per_label = weights.width // len(settings["labels"])
    released = per_label == len(convolution.PERCENTILE_EDGES) - 1
    return "percentile" if released else f"even{per_label}"


def _edges(settings: Mapping[str, str], weights: ConvWeights) -> Values:
    try:
        edges = convolution.bin_edges(settings["bins"])
    except ValueError as exc:
        raise ConfigError(f"metric summac-conv: {exc}") from None
    labels = settings["labels"]
    what = f"bins {settings['bins']} of labels {labels}"
    weights.check_width((len(edges) - 1) * len(labels), what)
    return edges


def _score_conv(tables: ChunkTables, *, needs: Requirements, conv: _Conv) -> list[Score]:
    images = read_images(tables, needs.passes[0])
    counts = stack_histograms(images, conv.edges, conv.labels)
    values = convolution.sentence_values(counts, conv.weights)
    lengths = images.matrices.shapes.n_rows
    alone = conv.probabilities(values, np.ones_like(values, dtype=np.int64))
    parts = {
        "sentence_scores": split_runs(alone, lengths),
        "sentence_values": split_runs(values, lengths),
    }
    return _scores(tables, needs, images, conv.probabilities(values, lengths), parts)


SUMMAC_CONV = MetricFamily(
    "summac-conv",
    {"weights": None, "bins": None, **dict.fromkeys(_CONV_OPTIONS)},
    _make_conv,
)


# MNLI-doc

_MNLI_NEEDS = Requirements(
    columns=("source", "summary"),
    passes=(PassRequirement("block_nli", ("source.document", "summary.document")),),
)


def _score_mnli(tables: ChunkTables) -> list[Score]:
    images = read_images(tables, _MNLI_NEEDS.passes[0])
    reasons = missing_reasons(tables, _MNLI_NEEDS, images)
    shapes, pairs = images.matrices.shapes, images.matrices.values
    best = first_largest(pairs[:, ENTAILMENT], shapes.sizes) + starts_of(shapes.sizes)
    found = dict(zip(images.places, pairs[best].tolist(), strict=True))
    n_documents = dict(zip(images.places, shapes.n_columns.tolist(), strict=True))
    return [
        scored(
            record,
            found[record][ENTAILMENT],
            {
                "n_documents": n_documents[record],
                **dict(zip(PROBABILITIES, found[record], strict=True)),
            },
        )
        if record in found
        else unscored(record, reasons[record])
        for record in tables.records["id"]
    ]


MNLI_DOC = Metric(
    name="mnli-doc",
    version="v1",
    requires=_MNLI_NEEDS,
    score=_score_mnli,
    signature_keys=_SIGNATURE_KEYS,
    higher_is="more consistent",
    range=(0.0, 1.0),
    description="entailment of the whole summary by the whole document",
    reference=f"{REFERENCE}, baseline MNLI-doc",
)
