"""Models that judge pairs of texts: NLI classifiers, and the verifiers of `--verifier`.

Every distinct pair is judged once, in batches of similar length, and the answers come back in the
order of the input. The label order is read from the model's config and never assumed.

Besides NLI models verifiers are models of two labels, supported or not: classifiers of a document
and a claim (FactCC of Kryściński et al. 2020; HHEM with one output), and MiniCheck (Tang et al.
2024), whose classifiers take both as one text, ``document</s>claim``, and whose Flan-T5 gives
``predict: document</s>claim`` the probability of the token 1 beside that of 0.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import (
    Backbone,
    BatchedModel,
    padded_model,
    refuse_nan,
    row_sums,
)
from claimscore.pipeline.encoders.distinct import DistinctPairs, Pair, distinct_pairs
from claimscore.pipeline.encoders.embedded import (
    ID2LABEL,
    PackedNLI,
    adapter_revision,
    load_packed_nli,
)
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    LoadedModel,
    ModelFolder,
    ModelLoader,
    load_config,
)
from claimscore.pipeline.encoders.packed_families import (
    classifier_logits,
    family_of,
    packed_backbone,
    packed_t5,
)
from claimscore.pipeline.encoders.protocols import (
    LABEL_NAMES,
    NLI_LABELS,
    ModelInfo,
    OnBatch,
    label_columns,
)
from claimscore.pipeline.encoders.tokenizing import (
    PairTokenizer,
    TokenBatch,
    find_template,
    joined_template,
    text_ids,
)
from claimscore.text import normal_form

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


class PairLogits(NamedTuple):
    """A model's logits ``[rows, 3]`` of a batch; ``prepare`` is as in `Backbone`."""

    device: torch.device
    padded: bool
    logits: Callable[[TokenBatch], Tensor]
    prepare: Callable[[TokenBatch], TokenBatch] = lambda batch: batch

    @classmethod
    def of(cls, backbone: Backbone, logits: Callable[[TokenBatch], Tensor]) -> PairLogits:
        """Those of a head after a backbone."""
        return cls(backbone.device, backbone.padded, logits, backbone.prepare)


class BatchedPairClassifier(BatchedModel):
    """Probabilities of entailment, neutral and contradiction from one model on one device.

    Guarantees: rows in the order of the input, each distinct pair computed once, softmax in
    float32, and never a score from a NaN. ``columns`` are the places of the three labels among the
    model's logits; one without contradiction leaves that out. ``threshold`` is the probability of
    entailment from which on a text carries a claim, where the model comes with one that was
    fitted. ``given`` are settings beyond the model's own that change the numbers. It is a
    `Verifier`.
    """

    def __init__(
        self,
        info: ModelInfo,
        model: PairLogits,
        tokenizer: PairTokenizer,
        *,
        columns: tuple[int, ...],
        batch_tokens: int | None = None,
        threshold: float | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(info, model.device, padded=model.padded, batch_tokens=batch_tokens)
        self.kind = "nli" if len(columns) == len(NLI_LABELS) else "binary"
        self.threshold = threshold
        self.given = dict(given or {})
        self._model = model
        self._tokenizer = tokenizer
        self.columns = list(columns)

    @property
    def limit(self) -> int:
        """The most tokens of a pair, its special ones included."""
        return self._tokenizer.limit

    @property
    def facts(self) -> dict[str, str]:
        """The settings besides `info` that change the numbers, for the stored results."""
        return {"limit": str(self._tokenizer.limit), "packed": str(self.packed), **self.given}

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]`` probabilities; `RejectedItemsError` for a pair that fits nowhere."""
        given = distinct_pairs(pairs)
        return self._classify(given, on_batch)[given.pairs.inverse]

    @torch.inference_mode()
    def _classify(self, given: DistinctPairs, on_batch: OnBatch | None) -> NDArray[np.float32]:
        """The probabilities of the distinct pairs."""
        encoded = self._tokenizer.encode(given)
        computed: list[tuple[NDArray[np.int64], Tensor]] = []

        def forward(places: NDArray[np.int64], batch: TokenBatch) -> None:
            computed.append((places, self._model.logits(batch)))

        self._runner.run(
            *(given.pairs, encoded.rows, forward),
            prepare=self._model.prepare,
            item="a pair",
            on_batch=on_batch,
        )
        probabilities = np.empty((len(given.pairs.items), 3), dtype=np.float32)
        if computed:
            order, logits = zip(*computed, strict=True)
            probabilities[np.concatenate(order)] = self._probabilities(torch.cat(logits))
        return probabilities

    def text_lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return how many tokens each of distinct texts has, special ones not among them."""
        return self._tokenizer.text_lengths(texts)

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return for each pair whether it is longer than the model reads, ``[n]``."""
        unique = distinct_pairs(pairs)
        return self._tokenizer.truncates(unique)[unique.pairs.inverse]

    def _probabilities(self, logits: Tensor) -> NDArray[np.float32]:
        probabilities = torch.softmax(refuse_nan(logits.float(), self.info), dim=-1)
        array = np.full((len(logits), len(NLI_LABELS)), np.nan, dtype=np.float32)
        array[:, : len(self.columns)] = probabilities[:, self.columns].cpu().numpy()
        return array


def load(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the classifier that ``config.nli`` names; `ConfigError` where it cannot judge NLI."""
    loader = ModelLoader(config)
    if config.nli != EMBEDDED:
        source = loader.find(config.nli)
        settings = load_config(source)
        columns = label_columns(source.name, settings.id2label)
        return load_classifier(loader, source, settings, columns)
    info = ModelInfo(EMBEDDED, adapter_revision(), loader.config.dtype)
    own = load_packed_nli(info, device=loader.device, dtype=loader.dtype, offline=config.offline)
    _, backbone, tokenizer, limit = own.encoder
    return BatchedPairClassifier(
        info,
        PairLogits.of(backbone, partial(_segment_logits, own)),
        PairTokenizer(tokenizer, limit, find_template(tokenizer, EMBEDDED), read=normal_form),
        columns=label_columns(EMBEDDED, ID2LABEL),
        batch_tokens=config.batch_tokens,
        threshold=own.threshold,
    )


def load_verifier(config: EncoderConfig) -> BatchedPairClassifier:
    """Load the model that ``config.verifier`` names; `ConfigError` where it cannot judge."""
    if config.verifier == EMBEDDED:
        return load(dataclasses.replace(config, nli=EMBEDDED))
    loader = ModelLoader(config)
    source = loader.find(config.verifier)
    settings = load_config(source)
    named = getattr(settings, "architectures", None) or ()
    if any("ConditionalGeneration" in name for name in named):
        return _load_sequence_to_sequence(loader, source, settings)
    columns = verdict_columns(source.name, settings.id2label, config.verifier_labels)
    is_joined = MINICHECK in source.name.lower()
    given = {}
    if len(columns) < len(NLI_LABELS) or config.verifier_labels:
        given = {"columns": str(columns), "joined": str(is_joined)}
    return load_classifier(
        *(loader, source, settings, columns),
        is_joined=is_joined,
        threshold=_threshold(settings),
        given=given,
    )


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
    threshold = getattr(settings, "threshold", None)
    return float(threshold) if isinstance(threshold, float) and 0 < threshold < 1 else None


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
        PairLogits.of(backbone, lambda batch: answers(batch)[:, tokens]),
        PairTokenizer(loaded.tokenizer, limit, template),
        columns=(0, 1),
        batch_tokens=loader.config.batch_tokens,
        threshold=_threshold(settings),
        given={"prompt": PREFIX},
    )


def load_classifier(
    loader: ModelLoader,
    source: ModelFolder,
    settings: Any,
    columns: tuple[int, ...],
    *,
    is_joined: bool = False,
    **options: Any,
) -> BatchedPairClassifier:
    """Load a sequence classifier. Its one output is the logit of column 1, beside a logit of 0;
    ``is_joined`` where it takes a pair as one text (`joined_template`)."""
    from transformers import AutoModelForSequenceClassification

    loaded = loader.load(source, AutoModelForSequenceClassification, settings)
    model = stock = _stock_logits(loaded, loader.dtype)
    if settings.num_labels == 1:
        model = stock._replace(logits=lambda batch: F.pad(stock.logits(batch), (1, 0)))
    if is_joined:
        template = joined_template(loaded.tokenizer, "")
    else:
        template = find_template(loaded.tokenizer, source.name)
    pairs = PairTokenizer(loaded.tokenizer, loaded.limit, template)
    batch_tokens = loader.config.batch_tokens
    return BatchedPairClassifier(
        loaded.info, model, pairs, columns=columns, batch_tokens=batch_tokens, **options
    )


def _segment_logits(model: PackedNLI, batch: TokenBatch) -> Tensor:
    """The embedded model's logits ``[rows, 3]`` from its encoder's states."""
    states = model.encoder.backbone.states(batch)
    seconds = np.add.reduceat(batch.types, batch.starts)
    sizes = np.stack([batch.lengths - seconds, seconds], axis=1)
    sums = row_sums(states, sizes.reshape(-1)).view(-1, 2, states.shape[1])
    counts = torch.from_numpy(sizes).to(sums.device).clamp(min=1).unsqueeze(2)
    first, second = F.normalize(sums / counts, dim=-1).unbind(1)
    cls = F.normalize(states[torch.from_numpy(batch.starts).to(states.device)], dim=-1)
    return model.head.classify(cls, first, second) / model.temperature


def _stock_logits(loaded: LoadedModel, dtype: torch.dtype) -> PairLogits:
    """The classifier's logits: packed where its family can be, else its own forward."""
    model, with_types = loaded.model, _takes_types(loaded)
    if family_of(model.config) is None:
        stock = padded_model(model, loaded.tokenizer, with_types=with_types)
        return PairLogits(stock.device, True, lambda batch: stock(batch).logits)
    backbone = packed_backbone(model.base_model, dtype=dtype, with_types=with_types)
    return PairLogits.of(backbone, classifier_logits(model, backbone))


def _takes_types(loaded: LoadedModel) -> bool:
    """Whether the model tells the two texts apart by token types (RoBERTa and others do not)."""
    return (
        "token_type_ids" in loaded.tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(loaded.model.forward).parameters
        and getattr(loaded.model.config, "type_vocab_size", 2) > 1
    )
