"""What a model is and how it would run here, and whether our path agrees with the stock model.

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
from claimscore.pipeline.encoders import embedded, embedder, nli, tokens
from claimscore.pipeline.encoders.base import NLI_LABELS
from claimscore.pipeline.encoders.labels import label_columns
from claimscore.pipeline.encoders.loading import (
    EMBEDDED,
    find_model,
    load_config,
    load_tokenizer,
    load_weights,
    resolve_device,
)
from claimscore.pipeline.encoders.packed import family_of
from claimscore.pipeline.encoders.packed.families import FAMILIES
from claimscore.pipeline.encoders.packed.linear import packing_pays
from claimscore.pipeline.encoders.token_matching import bertscore_from_embeddings

Role = Literal["nli", "embedder", "token-encoder"]
ROLES: tuple[Role, ...] = ("nli", "embedder", "token-encoder")

#: The largest difference that is agreement, by dtype: in probabilities, 1 - cosine, BERTScore.
BOUNDS: dict[DType, float] = {"float32": 2e-5, "bfloat16": 5e-2, "float16": 1e-2}
_WHAT = {
    "nli": "probabilities",
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


@dataclasses.dataclass(frozen=True)
class ModelCheck:
    """What `claimscore models check` prints. ``difference`` is the largest of all probes.

    ``labels`` is the order of the model's own columns (nli); ``pairs_from_ids`` whether pairs are
    put together from the ids of single texts (nli); ``labels_differ`` counts the probes whose
    label differs although the stock model's margin exceeds ``bound`` (nli).
    """

    model: str
    revision: str
    role: Role
    family: str
    runs: Literal["packed", "padded"]
    why: str
    labels: tuple[str, ...] | None
    token_limit: int
    budget_tokens: int
    budget_origin: str
    pairs_from_ids: bool | None
    device: str
    dtype: DType
    products: str
    probes: int
    compared: str
    difference: float
    bound: float
    labels_differ: int | None

    @property
    def agrees(self) -> bool:
        return self.difference <= self.bound and not self.labels_differ


def check_model(model: str, config: EncoderConfig, role: Role | None = None) -> ModelCheck:
    """Load a model as a run would and compare it with the stock model on a few probes.

    Without a ``role``, a sequence classifier is an NLI model and all else a sentence encoder.
    `ConfigError` where the folder or the hub has no model of that role.
    """
    role = role or find_role(model, config)
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    named = {role.replace("-", "_"): model}
    options: dict[str, Any] = {**named, "rescale_with_baseline": False}
    config = dataclasses.replace(config, **options)
    checks: dict[Role, Callable[[str, EncoderConfig], ModelCheck]] = {
        "nli": _check_nli,
        "embedder": _check_embedder,
        "token-encoder": _check_tokens,
    }
    with torch.inference_mode():
        return checks[role](model, config)


def find_role(model: str, config: EncoderConfig) -> Role:
    """Return what a model is for, as far as its config tells."""
    if model == EMBEDDED:
        return "nli"
    settings = load_config(find_model(model, offline=config.offline))
    named = getattr(settings, "architectures", None) or ()
    return "nli" if any("SequenceClassification" in name for name in named) else "embedder"


def _check_nli(model: str, config: EncoderConfig) -> ModelCheck:
    ours = nli.load(config)
    device = resolve_device(config.device)
    found = ours.classify(PAIRS)
    stock, tokenizer, settings, id2label = _stock_classifier(model, config)
    columns = list(label_columns(model, id2label))
    rows = []
    for pair in PAIRS:
        output = stock(**_inputs(stock, tokenizer, *pair, limit=ours.limit, device=device))
        logits = output if isinstance(output, Tensor) else output.logits
        rows.append(torch.softmax(logits.float(), dim=-1)[0, columns].cpu().numpy())
    wanted = np.stack(rows)
    bound, margins = BOUNDS[config.dtype], np.sort(wanted, axis=1)
    clear = margins[:, 2] - margins[:, 1] > bound
    differ = clear & (found.argmax(axis=1) != wanted.argmax(axis=1))
    names = dict(zip(columns, NLI_LABELS, strict=True))
    return dataclasses.replace(
        _described(ours, "nli", settings, config, device, np.abs(found - wanted)),
        labels=tuple(names[i] for i in range(len(NLI_LABELS))),
        pairs_from_ids=ours.pairs_from_ids,
        labels_differ=int(differ.sum()),
    )


def _check_embedder(model: str, config: EncoderConfig) -> ModelCheck:
    ours = embedder.load(config)
    device = resolve_device(config.device)
    stock, tokenizer, settings = _stock_encoder(model, config)
    texts = _texts()
    found = torch.from_numpy(ours.embed(texts)).double()
    wanted = []
    for text in texts:
        given = text.strip().lower() if ours.layout.lower_case else text.strip()
        inputs = _inputs(stock, tokenizer, given, limit=ours.limit, device=device)
        states = stock(**inputs).last_hidden_state[0].float()
        size = np.array([len(states)])
        wanted.append(
            ours.layout.vectors(states[:1] if ours.layout.reads_first_only else states, size)[0]
        )
    cosines = F.cosine_similarity(found, torch.stack(wanted).double().cpu(), dim=-1)
    return _described(ours, "embedder", settings, config, device, (1 - cosines).abs().numpy())


def _check_tokens(model: str, config: EncoderConfig) -> ModelCheck:
    ours = tokens.load(config)
    device = resolve_device(config.device)
    stock, tokenizer, settings = _stock_encoder(model, config, layer=ours.layer)
    firsts, seconds = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
    found = ours.bertscore(firsts, seconds)

    def embedded_tokens(text: str) -> tuple[Tensor, Tensor]:
        inputs, special = _with_special(stock, tokenizer, ours.as_read(text), ours.limit, device)
        states = stock(**inputs).last_hidden_state[0].float()
        return F.normalize(states, dim=-1), 1 - special.to(device)

    wanted = []
    for pair in PAIRS:
        (one, its), (other, others) = map(embedded_tokens, pair)
        wanted.append(bertscore_from_embeddings(one, other, its, others))
    return _described(
        ours, "token-encoder", settings, config, device, np.abs(found - np.array(wanted))
    )


def _texts() -> list[str]:
    return list(dict.fromkeys(text for pair in PAIRS for text in pair))


def _described(
    ours: Any,
    role: Role,
    settings: Any,
    config: EncoderConfig,
    device: torch.device,
    differences: NDArray[np.floating[Any]],
) -> ModelCheck:
    return ModelCheck(
        model=ours.info.model,
        revision=ours.info.revision,
        role=role,
        family=str(settings.model_type),
        runs="packed" if ours.packed else "padded",
        why=why_so(settings),
        labels=None,
        token_limit=ours.limit,
        budget_tokens=ours.budget.tokens,
        budget_origin=ours.budget.origin,
        pairs_from_ids=None,
        device=str(device),
        dtype=config.dtype,
        products=products(settings, config.dtype, device),
        probes=len(differences),
        compared=_WHAT[role],
        difference=float(differences.max()),
        bound=BOUNDS[config.dtype],
        labels_differ=None,
    )


def why_so(settings: Any) -> str:
    """Return why a model of this config runs packed or padded."""
    name = settings.model_type
    if family_of(settings) is not None:
        return f"{name} is one of the packed families ({', '.join(FAMILIES)})"
    if name not in FAMILIES:
        return f"{name} has no packed forward pass here; packed are {', '.join(FAMILIES)}"
    if getattr(settings, "is_decoder", False) or getattr(settings, "add_cross_attention", False):
        return "it is a decoder; only encoders run packed"
    return f"its positions are {settings.position_embedding_type}; packed takes absolute ones"


def products(settings: Any, dtype: DType, device: torch.device) -> str:
    """Return in words how matrix products are computed on this device."""
    if device.type != "cpu":
        return f"torch on the device, in {dtype}"
    known: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    own = "torch's own"
    fast = packing_pays(known[dtype])
    if family_of(settings) is None:
        how = f"{own}, in {dtype}"
    else:
        how = f"{'oneDNN with packed weights' if fast else own}, in {dtype}"
    slow = dtype == "bfloat16" and not fast
    return how + (" (this CPU has none in bfloat16: float32 is faster)" if slow else "")


def _stock(model: str, config: EncoderConfig, auto_class: Any) -> tuple[Any, Any, Any]:
    """A model as transformers has it, in float32, with its tokenizer and config."""
    source = find_model(model, offline=config.offline)
    settings = load_config(source)
    tokenizer = load_tokenizer(source)
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = tokenizer.pad_token_id
    device = resolve_device(config.device)
    loaded = load_weights(
        source,
        auto_class,
        settings,
        device=device,
        dtype=torch.float32,
        may_lack=lambda weight: "pooler" in weight,
    )
    return loaded, tokenizer, settings


def _stock_classifier(model: str, config: EncoderConfig) -> tuple[Any, Any, Any, Any]:
    """A classifier with its tokenizer, config and labels; the embedded one gives bare logits."""
    from transformers import AutoModelForSequenceClassification

    if model != EMBEDDED:
        stock, tokenizer, settings = _stock(model, config, AutoModelForSequenceClassification)
        return stock, tokenizer, settings, settings.id2label
    backbone = embedded.find_backbone(offline=config.offline)
    ours: Any
    ours, tokenizer = embedded.load_embedded_nli(backbone)
    ours.to(resolve_device(config.device)).eval()
    return ours, tokenizer, ours.bert.config, ours.id2label


def _stock_encoder(
    model: str, config: EncoderConfig, *, layer: int | None = None
) -> tuple[Any, Any, Any]:
    """As `_stock`, an encoder, up to ``layer``."""
    from transformers import AutoModel

    if model != EMBEDDED:
        auto = AutoModel if layer is None else _UpTo(layer)
        return _stock(model, config, auto)
    bert: Any
    bert, tokenizer = embedded.load_backbone(embedded.find_backbone(offline=config.offline))
    if layer is not None:
        bert.encoder.layer = bert.encoder.layer[:layer]
        bert.config.num_hidden_layers = layer
    return bert.to(resolve_device(config.device)).eval(), tokenizer, bert.config


class _UpTo:
    """`AutoModel` that loads the first layers only, as `tokens.load` and bert-score do."""

    def __init__(self, layer: int) -> None:
        self._layer = layer

    def from_pretrained(self, folder: Any, *, config: Any, **options: Any) -> Any:
        from transformers import AutoModel

        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: self._layer]
        config.num_hidden_layers = self._layer
        return AutoModel.from_pretrained(folder, config=config, **options)


def _inputs(
    stock: Any, tokenizer: Any, *texts: str, limit: int, device: torch.device
) -> dict[str, Tensor]:
    """What the tokenizer itself makes of one text or pair, as the model takes it."""
    encoded = tokenizer(
        *([text] for text in texts),
        truncation="longest_first",
        max_length=limit,
        return_tensors="pt",
        verbose=False,
    )
    taken = inspect.signature(stock.forward).parameters
    return {name: ids.to(device) for name, ids in encoded.items() if name in taken}


def _with_special(
    stock: Any, tokenizer: Any, text: str, limit: int, device: torch.device
) -> tuple[dict[str, Tensor], Tensor]:
    encoded = tokenizer(
        [text], truncation=True, max_length=limit, return_special_tokens_mask=True, verbose=False
    )
    special = torch.tensor(encoded["special_tokens_mask"][0])
    return _inputs(stock, tokenizer, text, limit=limit, device=device), special
