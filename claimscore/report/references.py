"""The papers of the metrics: `references.bib` is the one place of their entries."""

from __future__ import annotations

import functools
import re
from importlib import resources

#: Metric (without its options) -> keys of `references.bib`, the paper of the metric first.
PAPERS: dict[str, tuple[str, ...]] = {
    "caspr": ("ananthamurugan2024caspr",),
    "ds": ("iso2022comparative",),
    "ds3": ("iso2022comparative",),
    "bs-inverse": ("ananthamurugan2024caspr", "zhang2020bertscore"),
    "bertscore": ("zhang2020bertscore",),
    "meteor": ("banerjee2005meteor",),
    "ner-overlap": ("laban2022summac",),
    "perplexity": ("jelinek1977perplexity",),
    "bart-score": ("yuan2021bartscore",),
    "rouge-1": ("lin2004rouge",),
    "rouge-2": ("lin2004rouge",),
    "rouge-l": ("lin2004rouge",),
    "rouge-lsum": ("lin2004rouge",),
    "summac-zs": ("laban2022summac",),
    "summac-conv": ("laban2022summac",),
    "mnli-doc": ("laban2022summac",),
    "ls-score": ("wu2020unsupervised",),
    "llm-judge": ("liu2023geval",),
    "qa": ("scialom2021questeval", "fabbri2022qafacteval"),
    "factsim": ("anghinoni2026factsim",),
    "bert-cosine": ("reimers2019sentence",),
    "wms": ("clark2019sentence", "kusner2015word"),
    "sms": ("clark2019sentence", "kusner2015word"),
    "moverscore": ("zhao2019moverscore", "kusner2015word"),
}

_ENTRY = re.compile(r"^@\w+\{([\w-]+),\n.*?^\}", re.MULTILINE | re.DOTALL)


def bibtex_entries(metric: str) -> tuple[str, ...]:
    """The BibTeX entries of a metric with or without options; none for a user's own metric."""
    entries = _entries()
    return tuple(entries[key] for key in PAPERS.get(metric.partition(":")[0], ()))


@functools.cache
def _entries() -> dict[str, str]:
    """The entries of the file by their keys."""
    text = (resources.files("claimscore.report") / "references.bib").read_text(encoding="utf-8")
    return {found[1]: found[0] for found in _ENTRY.finditer(text)}
