"""Describes a model and how it runs here, and compares our path with the stock model.

The stock model is loaded beside ours in float32, untouched, and is given one probe at a time.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import DType, EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders import (
    embedded,
    embedder,
    load_model,
    nli,
    token_encoder,
)
from claimscore.pipeline.encoders.arithmetic import resolve_auto
from claimscore.pipeline.encoders.loading import EMBEDDED, LoadedModel, ModelLoader, load_config
from claimscore.pipeline.encoders.packed import packing_pays
from claimscore.pipeline.encoders.packed_families import FAMILIES
from claimscore.pipeline.encoders.protocols import NLI_LABELS, label_columns
from claimscore.pipeline.encoders.token_encoder import bertscore_from_embeddings, keep_layers

Role = Literal["nli", "verifier", "embedder", "token-encoder"]
ROLES: tuple[Role, ...] = ("nli", "verifier", "embedder", "token-encoder")

#: The largest difference that is agreement, by dtype: in probabilities, 1 - cosine, BERTScore.
BOUNDS: dict[DType, float] = {"float32": 2e-5, "bfloat16": 5e-2, "float16": 1e-2}
_WHAT = {
    "nli": "probabilities",
    "verifier": "probabilities",
    "embedder": "1 - cosine of embeddings",
    "token-encoder": "precision, recall and F1",
}

_LONG = "The rooms were clean, the staff was kind and breakfast was served until noon. " * 60
PAIRS = (
    ("The hotel was clean and quiet.", "The hotel was dirty."),
    ("Breakfast is served from seven to ten.", "Guests can eat in the morning."),
    ("We stayed for three nights in May.", "The pool was closed."),
    ("Nobody answered the phone, and the room was never cleaned!", "Service was poor."),
    ("Café no. 12½ — naïve, 価格は¥3,000", "It costs 3,000 yen."),
    ("yes", "no"),
    (_LONG, "The staff was kind."),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The report of `claimscore models check`. ``difference`` is the largest of all probes.

    ``labels`` is the order of the model's own columns (nli, verifier); ``pairs_from_ids`` whether
    pairs are put together from the ids of single texts (the same); ``labels_differ`` counts the
    probes whose label differs although the stock model's margin exceeds ``bound`` (the same).
    ``auto`` is what ``--dtype auto`` means for the model on this machine, where that was asked;
    then ``dtype``, in which it was compared, is float32.
    """

    model: str
    revision: str
    role: Role
    family: str
    runs: Literal["packed", "padded"]
    why: str
    labels: tuple[str, ...] | None = None
    token_limit: int
    budget_tokens: int
    budget_origin: str
    pairs_from_ids: bool | None = None
    device: str
    dtype: DType
    products: str
    probes: int
    compared: str
    difference: float
    bound: float
    labels_differ: int | None = None
    auto: DType | None = None

    @property
    def agrees(self) -> bool:
        return self.difference <= self.bound and not self.labels_differ


def check_model(model: str, config: EncoderConfig, role: Role | None = None) -> ModelCheck:
    """Load a model as a run would and compare it with the stock model on a few probes.

    Without a ``role``, a sequence classifier is an NLI model if it has three labels, else a
    verifier, and all else a sentence encoder. `ConfigError` where the folder or the hub has no
    model of that role.
    """
    role = role or find_role(model, config)
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    named = {role.replace("-", "_"): model}
    options: dict[str, Any] = {**named, "rescale_with_baseline": False}
    config = dataclasses.replace(config, **options)
    checks: dict[Role, Callable[[str, EncoderConfig, Role], ModelCheck]] = {
        **{"nli": _check_pairs, "verifier": _check_pairs},
        **{"embedder": _check_embedder, "token-encoder": _check_tokens},
    }
    auto = None
    if config.dtype == "auto":
        auto = resolve_auto(config, list(named), load_model).dtype
        config = dataclasses.replace(config, dtype="float32")
    with torch.inference_mode():
        return dataclasses.replace(checks[role](model, config, role), auto=auto)


def find_role(model: str, config: EncoderConfig) -> Role:
    """Return what a model is for, as far as its config tells."""
    if model == EMBEDDED:
        return "nli"
    settings = load_config(ModelLoader(config).find(model))
    named = getattr(settings, "architectures", None) or ()
    if not any("SequenceClassification" in name for name in named):
        return "embedder"
    return "nli" if settings.num_labels == len(NLI_LABELS) else "verifier"


def _check_pairs(model: str, config: EncoderConfig, role: Role) -> ModelCheck:
    """A classifier's probabilities beside the stock model's. A verifier of two labels gets its
    input as its authors give it, whole: as a pair, or as one text."""
    ours = nli.load(config) if role == "nli" else nli.load_verifier(config)
    role = "nli" if ours.kind == "nli" else role
    cut = ours.truncates(PAIRS)
    probes = [pair for pair, is_cut in zip(PAIRS, cut, strict=True) if role == "nli" or not is_cut]
    found = ours.classify(probes)[:, : len(ours.columns)]
    answers = "prompt" in ours.given
    stock, id2label = _stock_classifier(model, config, answers=answers)
    separator = stock.tokenizer.eos_token or stock.tokenizer.sep_token
    is_joined, prefix = ours.given.get("joined") == "True" or answers, ours.given.get("prompt", "")
    columns, begin = list(ours.columns), {}
    if role == "nli" and not config.verifier_labels:
        columns = list(label_columns(model, id2label))
    order = np.argsort(columns)
    if answers:
        columns = [stock.tokenizer(answer)["input_ids"][0] for answer in "10"]
        begin["decoder_input_ids"] = torch.tensor(
            [[stock.model.config.decoder_start_token_id]], device=stock.model.device
        )
    rows = []
    for pair in probes:
        texts = (prefix + separator.join(pair),) if is_joined else pair
        output = stock.model(**_inputs(stock, *texts, limit=ours.limit), **begin)
        logits = output if isinstance(output, Tensor) else output.logits
        logits = logits.float().reshape(1, -1)
        logits = F.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits
        rows.append(logits if role == "nli" else logits[:, columns])
    every = torch.softmax(torch.cat(rows), dim=-1).cpu().numpy()
    wanted = every[:, columns] if role == "nli" else every
    bound, margins = BOUNDS[config.dtype], np.sort(wanted, axis=1)
    clear = margins[:, -1] - margins[:, -2] > bound
    differ = clear & (found.argmax(axis=1) != wanted.argmax(axis=1))
    names = NLI_LABELS if role == "nli" else ("supported", "not supported")
    return _described(
        *(ours, role, stock, config, np.abs(found - wanted)),
        labels=tuple(names[place] for place in order),
        pairs_from_ids=ours.pairs_from_ids,
        labels_differ=int(differ.sum()),
    )


def _check_embedder(model: str, config: EncoderConfig, role: Role) -> ModelCheck:
    ours = embedder.load(config)
    stock = _stock_encoder(model, config)
    texts = list(dict.fromkeys(text for pair in PAIRS for text in pair))
    found = torch.from_numpy(ours.embed(texts)).double()
    wanted = []
    for text in texts:
        given = text.strip().lower() if ours.layout.lower_case else text.strip()
        states = stock.model(**_inputs(stock, given, limit=ours.limit)).last_hidden_state[0].float()
        size = np.array([len(states)])
        wanted.append(
            ours.layout.vectors(states[:1] if ours.layout.reads_first_only else states, size)[0]
        )
    cosines = F.cosine_similarity(found, torch.stack(wanted).double().cpu(), dim=-1)
    return _described(ours, role, stock, config, (1 - cosines).abs().numpy())


def _check_tokens(model: str, config: EncoderConfig, role: Role) -> ModelCheck:
    ours = token_encoder.load(config)
    stock = _stock_encoder(model, config, layer=ours.layer)
    found = ours.bertscore([pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS])

    def embedded_tokens(text: str) -> tuple[Tensor, Tensor]:
        given = ours.as_read(text)
        states = stock.model(**_inputs(stock, given, limit=ours.limit)).last_hidden_state[0].float()
        options = {"return_special_tokens_mask": True, "verbose": False}
        encoded = stock.tokenizer([given], truncation=True, max_length=ours.limit, **options)
        own = 1 - torch.tensor(encoded["special_tokens_mask"][0], device=states.device)
        return F.normalize(states, dim=-1), own

    wanted = []
    for pair in PAIRS:
        (one, its), (other, others) = map(embedded_tokens, pair)
        wanted.append(bertscore_from_embeddings(one, other, its, others))
    return _described(ours, role, stock, config, np.abs(found - np.array(wanted)))


def _described(
    ours: Any,
    role: Role,
    stock: LoadedModel,
    config: EncoderConfig,
    differences: NDArray[np.floating[Any]],
    **of_nli: Any,
) -> ModelCheck:
    settings, device = stock.model.config, next(stock.model.parameters()).device
    return ModelCheck(
        model=ours.info.model,
        revision=ours.info.revision,
        role=role,
        family=str(settings.model_type),
        runs="packed" if ours.packed else "padded",
        why=why_so(settings, packed=ours.packed),
        token_limit=ours.limit,
        budget_tokens=ours.budget[0],
        budget_origin=ours.budget[1],
        device=str(device),
        dtype=config.dtype,
        products=products(config.dtype, device, packed=ours.packed),
        probes=len(differences),
        compared=_WHAT[role],
        difference=float(differences.max()),
        bound=BOUNDS[config.dtype],
        **of_nli,
    )


def why_so(settings: Any, *, packed: bool) -> str:
    """Return why a model of this config runs packed or padded."""
    name, known = settings.model_type, ", ".join(FAMILIES)
    if packed:
        return f"{name} is one of the packed families ({known}; t5 as a verifier)"
    if name not in FAMILIES:
        return f"{name} has no packed forward pass here; packed are {known}"
    if getattr(settings, "is_decoder", False) or getattr(settings, "add_cross_attention", False):
        return "it is a decoder; only encoders run packed"
    return f"its positions, or a layer of it, are not those of a {name} model that runs packed"


def products(dtype: DType, device: torch.device, *, packed: bool) -> str:
    """Return in words how matrix products are computed on this device."""
    if device.type != "cpu":
        return f"torch on the device, in {dtype}"
    fast = packing_pays(getattr(torch, dtype))
    how = "oneDNN with packed weights" if fast and packed else "torch's own"
    slow = dtype == "bfloat16" and not fast
    told = " (this CPU has none in bfloat16: float32 is faster)" if slow else ""
    return f"{how}, in {dtype}{told}"


def _stock_classifier(
    model: str, config: EncoderConfig, *, answers: bool = False
) -> tuple[LoadedModel, Any]:
    """A classifier as transformers has it, and its labels; the embedded one gives bare logits, one
    that ``answers`` those of tokens."""
    from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    loader = ModelLoader(dataclasses.replace(config, dtype="float32"))
    if model != EMBEDDED:
        kind = AutoModelForSeq2SeqLM if answers else AutoModelForSequenceClassification
        loaded = loader.load(loader.find(model), kind)
        return loaded, loaded.model.config.id2label
    own, tokenizer = embedded.load_embedded_nli(offline=config.offline)
    loaded = loader.take(EMBEDDED, own.revision, own.bert, tokenizer)
    return loaded._replace(model=own.to(loader.device)), own.id2label


def _stock_encoder(model: str, config: EncoderConfig, *, layer: int | None = None) -> LoadedModel:
    """An encoder as transformers has it, up to ``layer``."""
    loader = ModelLoader(dataclasses.replace(config, dtype="float32"))
    source = loader.find(model)
    settings = load_config(source)
    if layer is not None:
        keep_layers(source.name, settings, layer, None)
    return loader.encoder(source, settings)


def _inputs(stock: LoadedModel, *texts: str, limit: int) -> dict[str, Tensor]:
    """The tokenizer's own ids of one text or pair, as the model takes it."""
    encoded = stock.tokenizer(
        *([text] for text in texts),
        truncation="longest_first",
        max_length=limit,
        return_tensors="pt",
        verbose=False,
    )
    taken = inspect.signature(stock.model.forward).parameters
    device = next(stock.model.parameters()).device
    return {name: ids.to(device) for name, ids in encoded.items() if name in taken}
