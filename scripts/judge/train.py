"""Train the embedded judge in the five phases of its model card.

    python -m scripts.judge.train --data NLI-FOLDER --human-claims FOLDER --verification FOLDER \
        --out FILE [--start FILE]

The first phase learns from labelled pairs alone. The second starts from it with rule-made pairs on
narrower and wider phrases, which the files hold too few of, while the learning rate falls from half
its peak to 0. The third trains every layer on longer texts and pairs about claims, beside fewer of
the others; the fourth adds pairs about passages; the fifth judgements of people about long texts,
in normal form. The weights of these two are averaged. ``--start`` is the adapter of the fourth
phase, then taken as it is. Made pairs and phases lie beside the result; run again after a stop, it
goes on from the checkpoint of its phase.
``--human-claims`` holds FActScore, Factcheck-GPT and CaRB as ``factscore``, ``factcheck_gpt`` and
``carb.parquet``, with the columns that ``pairs.human_documents`` reads.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import polars as pl

from scripts.judge.claim_calibration import calibrate_claims, write_fit
from scripts.judge.examples import read_pairs, training_files
from scripts.judge.model import blend
from scripts.judge.monotone import monotone_pairs
from scripts.judge.pairs import PASSAGE_KINDS, claim_pairs
from scripts.judge.training import Phase, evaluate, train
from scripts.judge.verification import verification_pairs

FIRST_WEIGHTS = {
    **dict.fromkeys(("joci_", "mpe_"), 0.0),
    **{"synthetic_review": 0.6, "help_": 2.0, "monli_": 3.0, "fw_negation": 2.0},
}
SECOND_WEIGHTS = FIRST_WEIGHTS | {"synthetic_review": 0.4, "help_": 1.5}
CLAIM_WEIGHTS = {
    **dict.fromkeys(("joci_", "mpe_"), 0.0),
    **dict.fromkeys(("synthetic_review", "monotone"), 0.3),
    **dict.fromkeys(("help_", "conjnli"), 0.5),
    **dict.fromkeys(("monli_", "fw_negation", "tenp_paragraph", "claim_adjunct"), 2.0),
    **{"cad_": 1.2, "tenp_": 0.5, "mnli_": 0.8, "dnc_": 0.6},
    **dict.fromkeys(("claim_turned", "claim_name"), 3.0),
    **dict.fromkeys(("claim_number", "claim_word"), 2.5),
    **dict.fromkeys(("claim_addition", "claim_kind"), 1.5),
    **{"claim_roles": 0.6, "claim_paragraph": 0.8},
    **dict.fromkeys((f"claim_{kind}" for kind in PASSAGE_KINDS), 0.0),
}
PASSAGE_WEIGHTS = {
    **dict.fromkeys(("joci_", "mpe_"), 0.0),
    **{"synthetic_review": 0.15, "monotone": 0.8, "conjnli": 0.4, "dnc_": 0.5},
    **dict.fromkeys(("monli_", "fw_negation", "tenp_paragraph"), 2.0),
    "tenp_": 0.5,
    **dict.fromkeys(("claim_turned", "claim_exchanged"), 3.0),
    **dict.fromkeys(("claim_name", "claim_number", "claim_word", "claim_adjunct"), 2.0),
    **dict.fromkeys(("claim_said", "claim_misread", "claim_kind"), 1.5),
    "claim_identity": 1.2,
    **dict.fromkeys(("claim_replaced", "claim_reworded", "claim_among"), 0.8),
    **dict.fromkeys(("claim_lexical", "claim_roles"), 0.7),
    **dict.fromkeys(("claim_scrambled", "claim_unrelated", "claim_unsaid"), 0.5),
    **{"claim_denied": 0.6, "claim_kept": 0.4},
}
VERIFICATION_WEIGHTS = {
    name: weight
    for weight, names in {
        0.0: "joci_ mpe_",
        0.025: "claim_kept",
        0.05: "claim_unsaid",
        0.06: "claim_denied claim_replaced",
        0.075: "claim_unrelated",
        0.12: "synthetic_review",
        0.125: "document_kept claim_lexical claim_roles claim_scrambled",
        0.15: "claim_reworded claim_refused",
        0.175: "document_replaced claim_among",
        0.2: "document_denied claim_misread claim_identity claim_paragraph claim_claim "
        "claim_shorter",
        0.25: "document_misread conjnli claim_opposite claim_addition claim_negation",
        0.3: "monotone claim_kind",
        0.4: "verified_tracie document_exchanged dnc_ help_ claim_number claim_word claim_adjunct",
        0.5: "claim_exchanged claim_wider",
        0.6: "claim_turned",
        0.7: "verified_scone unrelated_review",
        0.8: "verified_scitail",
        0.85: "made_",
        0.9: "mnli_ cad_ snli_",
        1.0: "tenp_paragraph",
        1.2: "monli_ fw_negation",
        1.5: "verified_fever",
        1.8: "verified_attributionbench",
        2.0: "verified_condaqa verified_defacto verified_cg2c",
        2.5: "verified_fib_cnn",
        0.35: "tenp_ claim_said claim_name",
        1.6: "verified_",
    }.items()
    for name in names.split()
}

#: The share of the fifth phase in the weights that ship, the rest is of the fourth.
BLEND = 0.7


def phases(
    data: Path, human: Path, verification: Path, out: Path, start: Path | None = None
) -> list[Phase]:
    """The five phases, or the last one alone where its ``start`` is given.

    The pairs that they learn from are written beside ``out``.
    """
    known = read_pairs(training_files([data]))

    def beside(name: str, pairs: pl.DataFrame) -> Path:
        path = out.with_name(f"{out.stem}.{name}.parquet")
        pairs.write_parquet(path)
        return path

    def monotone(count: int, seed: int) -> Path:
        return beside(f"monotone{seed}", monotone_pairs(count, seed))

    made = [out.with_name(f"{out.stem}.phase{k}.safetensors") for k in (1, 2, 3, 4, 5)]
    claims = beside("claims", claim_pairs(human, known))
    first = Phase(
        data=(data,),
        out=made[0],
        samples=192_000,
        horizon=1.875,
        cooldown=0.0,
        source_weights=tuple(FIRST_WEIGHTS.items()),
    )
    second = replace(
        first,
        data=(data, monotone(24_000, 1)),
        out=made[1],
        start=made[0],
        samples=90_000,
        horizon=1.0,
        cooldown=1.0,
        warmup=0.03,
        encoder_lr=0.75e-4,
        head_lr=0.5e-3,
        seed=1,
        source_weights=tuple(SECOND_WEIGHTS.items()),
    )
    third = Phase(
        data=(data, monotone(12_000, 2), claims),
        out=made[2],
        start=made[1],
        samples=131_200,
        horizon=260 / 131.2,
        cooldown=0.35,
        warmup=0.02,
        encoder_lr=1.2e-4,
        head_lr=0.4e-3,
        frozen_layers=0,
        max_length=512,
        seed=2,
        source_weights=tuple(CLAIM_WEIGHTS.items()),
    )
    fourth = replace(
        third,
        data=(data, monotone(24_000, 3), claims),
        out=made[3],
        start=made[2],
        samples=160_000,
        horizon=2.88,
        cooldown=0.4,
        seed=3,
        source_weights=tuple(PASSAGE_WEIGHTS.items()),
    )
    fifth = replace(
        fourth,
        data=(*fourth.data, beside("verification", verification_pairs(verification, known))),
        out=made[4],
        start=start or made[3],
        samples=164_000,
        horizon=1.6,
        workers=2,
        seed=4,
        source_weights=tuple(VERIFICATION_WEIGHTS.items()),
    )
    return [fifth] if start else [first, second, third, fourth, fifth]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--human-claims", type=Path, required=True)
    options.add_argument("--verification", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--start", type=Path)
    given = options.parse_args()
    folders = given.data, given.human_claims, given.verification
    trained = [train(phase) for phase in phases(*folders, given.out, given.start)]
    blend(given.start or trained[-2], trained[-1], BLEND, given.out)
    print(evaluate(given.out, [given.data]))
    fit, threshold = calibrate_claims(given.out, given.verification, given.data)
    write_fit(given.out, given.out, fit, threshold)


if __name__ == "__main__":
    main()
