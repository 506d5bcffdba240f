"""Published figures that are printed beside one's own."""

from __future__ import annotations

SUMMAC_SOURCE = (
    "SummaC, Laban et al. 2022: test split, Table 2 (balanced accuracy) and Table A1 (ROC-AUC); "
    "the three-digit values are the output of the authors' main-results notebook"
)

#: Data sets of the SummaC benchmark, in the paper's order.
SUMMAC_DATASETS = ("cogensumm", "xsumfaith", "polytope", "factcc", "summeval", "frank")

#: Other names of those data sets.
SUMMAC_ALIASES = {"cogensum": "cogensumm", "cgs": "cogensumm", "xsf": "xsumfaith"}

#: Model -> measure -> one figure a data set, then the overall mean.
SUMMAC_TEST: dict[str, dict[str, tuple[float, ...]]] = {
    "SummaC-ZS": {
        "balanced_accuracy": (0.704, 0.584, 0.620, 0.838, 0.787, 0.790, 0.721),
        "roc_auc": (0.731, 0.580, 0.603, 0.837, 0.855, 0.853, 0.743),
    },
    "SummaC-Conv": {
        "balanced_accuracy": (0.647, 0.664, 0.627, 0.895, 0.817, 0.816, 0.744),
        "roc_auc": (0.676, 0.702, 0.624, 0.922, 0.860, 0.884, 0.778),
    },
}

OVERALL = "overall"


def summac_figure(model: str, measure: str, dataset: str) -> float | None:
    """The published figure of a data set (or `overall`); None where the name is another."""
    name = dataset.lower()
    names = (*SUMMAC_DATASETS, OVERALL)
    name = SUMMAC_ALIASES.get(name, name)
    return SUMMAC_TEST[model][measure][names.index(name)] if name in names else None


CASPR_SOURCE = (
    "CASPR, Ananthamurugan et al. 2024, Tables 2 and 5: roberta-large-mnli over claims of GPT-3.5; "
    "the model of its BERTScore is not named"
)

#: Metric -> comparison -> mean and half of the 95 % interval. The others are in a figure only.
CASPR_MEANS: dict[str, dict[str, tuple[float, float]]] = {
    "caspr": {
        "ref_contrastive": (84.3, 3.8),
        "syn_high": (98.1, 0.8),
        "syn_contrast": (83.7, 3.6),
    },
    "ds": {
        "ref_contrastive": (73.6, 0.9),
        "syn_high": (44.5, 1.6),
        "syn_contrast": (74.1, 0.8),
    },
    "bs-inverse": {
        "ref_contrastive": (72.5, 1.4),
        "syn_high": (50.6, 1.7),
        "syn_contrast": (73.4, 1.3),
    },
}

#: Metric -> Spearman's rho of the pairs' scores with those of their paraphrases.
CASPR_RHO = {"caspr": 0.66, "ds": 0.51, "bs-inverse": 0.86}
