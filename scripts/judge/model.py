"""The embedded NLI model as it is trained: a stock BERT, the head, and the adapter that ships."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, BertTokenizer

from claimscore import minilm
from claimscore.pipeline.encoders.embedded import (
    ADAPTER_FORMAT,
    ADAPTER_PATH,
    ID2LABEL,
    METADATA_KEY,
    SegmentHead,
    adapter_revision,
    apply_adapter,
    read_adapter,
    unpack,
)


class EmbeddedNLI(nn.Module):
    """A stock ``BertModel`` in ``bert``, the segment head, and a fitted temperature.

    ``id2label`` names the columns of the logits; the general encoder stage reads it and assumes
    no order of its own. ``revision`` identifies the adapter by version and digest.
    """

    def __init__(self, bert: BertModel, *, temperature: float = 1.0, revision: str = "") -> None:
        super().__init__()
        self.bert = bert
        self.head = SegmentHead(int(bert.config.hidden_size))
        self.temperature = temperature
        self.revision = revision
        self.config = bert.config
        self.id2label = dict(ID2LABEL)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return ``[batch, 3]`` logits in the order of ``id2label``, divided by the temperature.

        [CLS] and the first [SEP] belong to the premise, the last [SEP] to the hypothesis, as the
        token types say; padding belongs to neither.
        """
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        first = segment_mean(states, attention_mask * (1 - token_type_ids))
        second = segment_mean(states, attention_mask * token_type_ids)
        cls = F.normalize(states[:, 0].float(), dim=-1)
        return self.head.classify(cls, first, second) / self.temperature


def segment_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the unit-length mean of the states where ``mask`` is one, in float32."""
    weights = mask.unsqueeze(-1).float()
    total = (states.float() * weights).sum(dim=1)
    return F.normalize(total / weights.sum(dim=1).clamp(min=1.0), dim=-1)


def load_backbone(folder: Path) -> tuple[BertModel, BertTokenizer]:
    """Return the backbone in float32 and evaluation mode with its fast tokenizer.

    ``folder`` comes from ``minilm.find``. The random numbers of the caller are left alone.
    """
    config = BertConfig.from_pretrained(folder, local_files_only=True)
    with torch.random.fork_rng(devices=[]):
        bert = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    bert.load_state_dict({name: weights[name].float() for name in bert.state_dict()})
    bert.train(False)  # `eval` is untyped in transformers
    return bert, BertTokenizer.from_pretrained(folder, local_files_only=True)


def load_embedded_nli(
    folder: Path | None = None, *, adapter: Path = ADAPTER_PATH, offline: bool = False
) -> tuple[EmbeddedNLI, BertTokenizer]:
    """Return the embedded NLI model in evaluation mode, and its tokenizer."""
    bert, tokenizer = load_backbone(minilm.find(folder, offline=offline))
    content = read_adapter(adapter)
    with torch.random.fork_rng(devices=[]):
        model = EmbeddedNLI(
            bert,
            temperature=content.temperature,
            revision=adapter_revision(adapter),
        )
    apply_adapter(content, dict(model.bert.named_parameters()), model.head)
    return model.eval(), tokenizer


def make_adapter(model: EmbeddedNLI, backbone: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors to ship: differences to ``backbone``, where there are any, and the head.

    Matrices become int8 with one float32 scale for each row, vectors float16.
    """
    named: dict[str, Tensor] = {}
    for name, value in model.bert.named_parameters():
        difference = value.detach() - backbone[name]
        if bool(difference.any()):
            named[f"bert.{name}"] = difference
    named |= {f"head.{name}": value.detach() for name, value in model.head.named_parameters()}
    return pack(named)


def pack(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Quantise matrices to int8 by row (``name:q``, ``name:scale``) and vectors to float16."""
    packed: dict[str, Tensor] = {}
    for name, value in named.items():
        if value.ndim == 2:
            scale = value.abs().amax(dim=1).clamp(min=1e-12) / 127.0
            packed[f"{name}:q"] = (value / scale[:, None]).round().to(torch.int8).contiguous()
            packed[f"{name}:scale"] = scale.contiguous()
        else:
            packed[name] = value.half().contiguous()
    return packed


def blend(before: Path, after: Path, share: float, out: Path) -> None:
    """Write the adapter whose weights are ``share`` of those of ``after``, the rest of ``before``.

    Between a model and its fine-tuned successor such averages lose less of what the first one knew
    (Wortsman et al. 2022, *Robust fine-tuning of zero-shot models*, section 4).
    """
    first, second = (unpack(read_adapter(path).tensors) for path in (before, after))
    weights = {name: share * value + (1 - share) * first[name] for name, value in second.items()}
    metadata = read_adapter(after).metadata | {"blend": str(share)}
    write_adapter(out, pack(weights), metadata)


def write_adapter(path: Path, tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write an adapter file through a temporary name, marked with its format and backbone.

    The metadata are one JSON value, as safetensors writes several in no certain order: equal
    content gives equal bytes.
    """
    described = {**metadata, "format": ADAPTER_FORMAT, "backbone_sha256": minilm.SHA256}
    header = {METADATA_KEY: json.dumps(described, sort_keys=True)}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(save(tensors, metadata=header))
    temporary.replace(path)
