"""Which model families run packed: where their layers are, and what differs between them.

Only what must be known of a family stands here; its layers, weights and forward are those of
transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from claimscore.pipeline.encoders.packed.attention import Segments, packed_attention


class Family(NamedTuple):
    """How a family's layers are called.

    ``layers`` are the distinct layer modules of an encoder; ``feeds_forward`` and ``residual``
    name, within a layer, the linear modules inside a block and those that add to the stream;
    ``last`` computes a layer for the first tokens only; ``head`` gives the logits of a
    classifier from the states of first tokens ``[rows, hidden]``.
    """

    layers: Callable[[Any], list[nn.Module]]
    inner: tuple[str, ...]
    residual: tuple[str, ...]
    last: Callable[[Any, Tensor, Segments], Tensor]
    head: Callable[[Any, Tensor], Tensor]


def _bert_layers(model: Any) -> list[nn.Module]:
    return list(model.encoder.layer)


def _albert_layers(model: Any) -> list[nn.Module]:
    return [layer for group in model.encoder.albert_layer_groups for layer in group.albert_layers]


def _attend_first(attention: Any, states: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """The first tokens' states and their attention over whole rows, each ``[1, rows, hidden]``."""
    first = states[:, segments.starts]
    size = attention.attention_head_size

    def heads(linear: nn.Module, of: Tensor) -> Tensor:
        projected: Tensor = linear(of).unflatten(-1, (-1, size)).transpose(1, 2)
        return projected

    context, _ = packed_attention(
        attention,
        heads(attention.query, first),
        heads(attention.key, states),
        heads(attention.value, states),
        None,
        segments=segments,
        scaling=attention.scaling,
    )
    return first, context.flatten(2)


def _bert_last(layer: Any, states: Tensor, segments: Segments) -> Tensor:
    first, context = _attend_first(layer.attention.self, states, segments)
    found: Tensor = layer.feed_forward_chunk(layer.attention.output(context, first))
    return found


def _albert_last(layer: Any, states: Tensor, segments: Segments) -> Tensor:
    attention = layer.attention
    first, context = _attend_first(attention, states, segments)
    attended = attention.LayerNorm(first + attention.dense(context))
    found: Tensor = layer.full_layer_layer_norm(layer.ff_chunk(attended) + attended)
    return found


def _bert_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(model.bert.pooler(first.unsqueeze(1)))
    return logits


def _roberta_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(first.unsqueeze(1))
    return logits


def _albert_head(model: Any, first: Tensor) -> Tensor:
    albert = model.albert
    logits: Tensor = model.classifier(albert.pooler_activation(albert.pooler(first)))
    return logits


_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
_BERT_INNER = (*_QKV, "intermediate.dense")
_BERT_RESIDUAL = ("attention.output.dense", "output.dense")

_BERT = Family(_bert_layers, _BERT_INNER, _BERT_RESIDUAL, _bert_last, _bert_head)
_ROBERTA = _BERT._replace(head=_roberta_head)
_ALBERT = Family(
    _albert_layers,
    ("attention.query", "attention.key", "attention.value", "ffn"),
    ("attention.dense", "ffn_output"),
    _albert_last,
    _albert_head,
)

#: By transformers' ``model_type``.
FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": _ROBERTA,
    "albert": _ALBERT,
}


def family_of(config: Any) -> Family | None:
    """Return the family of a model's config; None where it must run padded.

    A decoder, and positions other than the learned absolute ones, are not what was tried.
    """
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    return FAMILIES.get(config.model_type)
