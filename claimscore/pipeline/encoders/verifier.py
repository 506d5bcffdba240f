"""The model of `--verifier`: judges whether a text supports a claim; see `Verifier`.

Besides NLI models these are models of two labels, supported or not: classifiers of a document and
a claim (FactCC of Kryściński et al. 2020; HHEM with one output), and MiniCheck (Tang et al. 2024),
whose classifiers take both as one text, ``document</s>claim``, and whose Flan-T5 gives ``predict:
document</s>claim`` the probability of the token 1 beside that of 0.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import nli
from claimscore.pipeline.encoders.loading import EMBEDDED, ModelFolder, ModelLoader, load_config
from claimscore.pipeline.encoders.nli import BatchedPairClassifier, PairLogits
from claimscore.pipeline.encoders.packed_families import packed_t5
from claimscore.pipeline.encoders.protocols import LABEL_NAMES, NLI_LABELS
from claimscore.pipeline.encoders.tokenizing import PairTokenizer, joined_template, text_ids

MINICHECK = "minicheck"

#: The prompt of MiniCheck's Flan-T5.
PREFIX = "predict: "

#: Labels that their models' configurations do not say, by a part of the model's name.
KNOWN_LABELS = {
    MINICHECK: ("unsupported", "supported"),
    "hallucination_evaluation_model": ("supported",),
}

#: How labels are spelled, in lower case with underscores: 0 supported, 1 not or unmentioned,
#: 2 contradicted.
_VERDICTS = {
    **{name: NLI_LABELS.index(label) for name, label in LABEL_NAMES.items()},
    **dict.fromkeys(("supported", "supports", "support", "correct", "consistent", "factual"), 0),
    **dict.fromkeys(("unsupported", "not_supported", "not_entailment", "incorrect"), 1),
    **dict.fromkeys(("inconsistent", "hallucinated", "hallucination", "unmentioned"), 1),
    **dict.fromkeys(("not_enough_info", "nei"), 1),
    **dict.fromkeys(("contradicted", "refuted", "refutes"), 2),
}

#: Read at once by a model that does not say how much it can read, as in MiniCheck's code.
MOST_TOKENS = 2048


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the model that ``config.verifier`` names; `ConfigError` where it cannot judge."""
    if config.verifier == EMBEDDED:
        return nli.load(dataclasses.replace(config, nli=EMBEDDED))
    loader = ModelLoader(config)
    source = loader.find(config.verifier)
    settings = load_config(source)
    if is_sequence_to_sequence(settings):
        return _load_sequence_to_sequence(loader, source, settings)
    columns = verdict_columns(source.name, settings.id2label, config.verifier_labels)
    is_joined = MINICHECK in source.name.lower()
    given = {}
    if len(columns) < len(NLI_LABELS) or config.verifier_labels:
        given = {"columns": str(columns), "joined": str(is_joined)}
    return nli.load_classifier(
        *(loader, source, settings, columns),
        is_joined=is_joined,
        threshold=_threshold(settings),
        given=given,
    )


def is_sequence_to_sequence(settings: Any) -> bool:
    """Whether a model of this configuration answers with a text."""
    named = getattr(settings, "architectures", None) or ()
    return any("ConditionalGeneration" in name for name in named)


def verdict_columns(
    model: str, id2label: Mapping[Any, str], given: Sequence[str] = ()
) -> tuple[int, ...]:
    """The model's columns of supported and not, or of supported, unmentioned and contradicted.

    By ``given``, else by its own labels, else as known of its name. A single output is a logit
    beside 0, so the columns are 1 and 0. `ConfigError` where that is open: a guess could turn
    every score round.
    """
    own = [str(id2label[key]) for key in sorted(id2label, key=int)]
    generic = all(re.fullmatch(r"(?i)label_\d+", name) for name in own)
    known = [labels for part, labels in KNOWN_LABELS.items() if part in model.lower()]
    labels = given or (known[0] if generic and known else own)
    verdicts = [_VERDICTS.get(re.sub(r"[\s-]+", "_", name.strip().lower())) for name in labels]
    if len(own) == len(labels):
        if verdicts == [0] and (given or known):
            return 1, 0
        if sorted(map(str, verdicts)) in (["0", "1"], ["0", "1", "2"]):
            return tuple(verdicts.index(place) for place in range(len(verdicts)))
    of = "--verifier-labels" if given else "its labels"
    raise ConfigError(
        f"--verifier {model}: {of} {', '.join(labels[:6])} do not say which of its {len(own)} "
        "outputs is which; name them in their order, as in --verifier-labels unsupported,supported"
    )


def _threshold(settings: Any) -> float | None:
    """The one in the model's configuration, where there is one."""
    found = getattr(settings, "threshold", None)
    return float(found) if isinstance(found, float) and 0 < found < 1 else None


def _load_sequence_to_sequence(
    loader: ModelLoader, source: ModelFolder, settings: Any
) -> BatchedPairClassifier:
    """MiniCheck's Flan-T5: the first token of its answer is 1 for support and 0 for none."""
    from transformers import AutoModelForSeq2SeqLM

    if loader.config.verifier_labels:
        raise ConfigError(f"--verifier-labels: {source.name} answers with 1 or 0, not by labels")
    if settings.model_type != "t5":
        raise ConfigError(
            f"--verifier {source.name}: of models that answer with a text only T5s are known, as "
            f"MiniCheck's Flan-T5; this is a {settings.model_type}"
        )
    loaded = loader.load(source, AutoModelForSeq2SeqLM, settings, is_packed=True)
    tokens = [int(text_ids(loaded.tokenizer, [answer]).flat[0]) for answer in "10"]
    begin = getattr(settings, "decoder_start_token_id", None)
    if tokens[0] == tokens[1] or begin is None:
        raise ConfigError(
            f"--verifier {source.name}: its answers 1 and 0 do not begin with tokens of their own; "
            "a model that answers with a text must be one as MiniCheck's Flan-T5"
        )
    backbone, answers = packed_t5(loaded.model, dtype=loader.dtype)
    template = joined_template(loaded.tokenizer, PREFIX)
    limit = loaded.limit if loaded.limit < 10**6 else MOST_TOKENS
    return BatchedPairClassifier(
        loaded.info,
        PairLogits(
            backbone.device, False, lambda batch: answers(batch)[:, tokens], backbone.prepare
        ),
        PairTokenizer(loaded.tokenizer, limit, template),
        columns=(0, 1),
        batch_tokens=loader.config.batch_tokens,
        threshold=_threshold(settings),
        given={"prompt": PREFIX},
    )
