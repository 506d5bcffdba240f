"""The families of transformers that run packed: where their parts are, how their tokens attend."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.pipeline.encoders.packed import (
    Attention,
    Layer,
    LayerParts,
    LengthGroup,
    PackedBackbone,
    Product,
    Segments,
    attend,
    gelu,
    tanh_gelu,
)
from claimscore.pipeline.encoders.tokenizing import TokenBatch


class Family(NamedTuple):
    """Where a family of models keeps its parts, and how its tokens attend.

    ``layers`` is the path of the layers within the model. ``parts`` are the paths of the fields of
    `LayerParts` within a layer, those of norms with a plus between; several fields are equal parts
    of one linear layer. ``attention`` makes that of a layer of a model. ``embedded`` is the path of
    what follows the embeddings, ``norm`` that of the last norm. ``head`` gives the logits of a
    classifier from one state for each row. ``fits`` says whether a config is what was tried.
    """

    parts: Mapping[str, str]
    head: Callable[[Any, Tensor], Any]
    layers: str = "encoder.layer"
    attention: Callable[[Any, Any], Attention] = lambda model, layer: attend
    embedded: str | None = None
    norm: str | None = None
    normed_sum: bool = True
    fits: Callable[[Any], bool] = lambda config: True

    def layer_parts(self, model: Any, layer: Any) -> LayerParts:
        """The parts of a layer of transformers' model."""
        config, output = model.config, dict[str, Any]()
        for names, path in self.parts.items():
            fields = names.split()
            part: Any = attrgetter(*path.split("+"))(layer)
            parts = _split(part, len(fields)) if len(fields) > 1 else [part]
            output.update(zip(fields, parts, strict=True))
        acts = (getattr(config, name, None) for name in _ACTIVATIONS)
        output["activation"] = _gelu_or(next(filter(None, acts)), output["activation"])
        attention = self.attention(model, layer)
        heads = config.num_attention_heads
        return LayerParts(**output, heads=heads, attention=attention, normed_sum=self.normed_sum)


#: The settings of transformers' configs that may name the activation.
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation")


def family_of(config: Any) -> Family | None:
    """Return the family of a model's config; None where it must run padded.

    A decoder, and positions other than the learned absolute ones, are not what was tried.
    """
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    family = FAMILIES.get(config.model_type)
    return family if family is not None and family.fits(config) else None


def packed_backbone(
    model: Any, *, dtype: torch.dtype = torch.float32, with_types: bool = True
) -> PackedBackbone:
    """Return an encoder of transformers that runs packed. It takes the model over.

    ``dtype`` is that of the products; the residual stream and the norms are float32.
    `ValueError` where it has no family.
    """
    family = family_of(model.config)
    if family is None:
        raise ValueError(f"{model.config.model_type} has no packed forward pass")
    device, model = next(model.parameters()).device, model.float()
    embeddings, after = model.embeddings, _find(model, family.embedded)
    taken = set(inspect.signature(embeddings.forward).parameters)

    def embed(inputs: dict[str, Tensor]) -> Tensor:
        states = embeddings(**{name: part for name, part in inputs.items() if name in taken})[0]
        output: Tensor = states if after is None else after(states)
        return output

    stock = _every_layer(model, family.layers)
    made = {id(one): Layer(family.layer_parts(model, one), dtype) for one in stock}
    layers = [made[id(one)] for one in stock]
    setattr(model, family.layers.partition(".")[0], None)  # its weights are laid out anew
    places = getattr(embeddings, "position_embeddings", None)
    return PackedBackbone(
        embed,
        layers,
        device=device,
        with_types=with_types,
        norm=_find(model, family.norm),
        padding_index=getattr(places, "padding_idx", None),
    )


def classifier_logits(model: Any, backbone: PackedBackbone) -> Callable[[TokenBatch], Tensor]:
    """Return what gives a classifier's logits ``[rows, labels]`` of a batch."""
    family = family_of(model.config)
    assert family is not None

    def logits(batch: TokenBatch) -> Tensor:
        if getattr(model.config, "classifier_pooling", "cls") == "mean":
            lengths = torch.from_numpy(batch.lengths).to(backbone.device)
            states = torch.segment_reduce(backbone.states(batch), "mean", lengths=lengths)
        else:
            states = backbone.first(batch)
        output: Tensor = family.head(model, states)
        return output

    return logits


def _find(model: Any, path: str | None) -> Any:
    try:
        return None if path is None else attrgetter(path)(model)
    except AttributeError:  # where sizes are equal, nothing follows the embeddings
        return None


def _every_layer(model: Any, path: str) -> list[Any]:
    """The layers in order; ALBERT's, of which each runs several times, as often as they run."""
    stock, n_groups = list(attrgetter(path)(model)), getattr(model.config, "num_hidden_groups", 0)
    if not n_groups:
        return stock
    n = model.config.num_hidden_layers
    return [one for i in range(n) for one in stock[int(i / (n / n_groups))].albert_layers]


def _gelu_or(name: Any, module: Any) -> Callable[[Tensor], Tensor]:
    """An activation; GELU as the function that is computed in place."""
    output: Callable[[Tensor], Tensor] = _GELUS.get(name, module)
    return output


#: By transformers' names of activations.
_GELUS = {"gelu": gelu, "gelu_new": tanh_gelu, "gelu_pytorch_tanh": tanh_gelu}


class _Bucketed:
    """MPNet's and T5's attention: a learnt bias for each head by the distance of two tokens."""

    def __init__(
        self, bucket: Callable[[Tensor], Tensor], bias: nn.Embedding, scale: float | None = None
    ) -> None:
        self._bucket, self._bias, self._scale = bucket, bias, scale

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
        first_only = len(query) != len(key)

        def bias(group: LengthGroup) -> Tensor:
            table: Tensor = segments.once(("bias", group.length), lambda: self._table(group.length))
            return table[:, :1] if first_only else table

        return attend(query, key, value, segments, scale=self._scale, bias=bias)

    def _table(self, length: int) -> Tensor:
        places = torch.arange(length, device=self._bias.weight.device)
        output: Tensor = self._bias(self._bucket(places[None, :] - places[:, None]))
        return output.permute(2, 0, 1).contiguous()


class _Disentangled:
    """DeBERTa's attention: beside content to content, content to distance and distance to content.

    He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", ICLR 2021. The
    logits of a token and all distances up to the longest row are one product, in which those of a
    row's pairs lie on a diagonal: a view of other strides takes them, and nothing is gathered.
    """

    def __init__(self, stock: Any, distances: Tensor) -> None:
        n_parts = 1 + len({"c2p", "p2c"} & set(stock.pos_att_type))
        self._scale = 1 / math.sqrt(stock.attention_head_size * n_parts)
        self._span = int(stock.pos_ebd_size)
        self._buckets = int(stock.position_buckets), int(stock.max_relative_positions)

        def project(kind: str, shared: str, own: str) -> Tensor | None:
            if kind not in stock.pos_att_type:
                return None
            linear = getattr(stock, shared if stock.share_att_key else own)
            table: Tensor = linear(distances[: 2 * self._span]).detach() * self._scale
            return table.view(len(table), stock.num_attention_heads, -1).permute(1, 2, 0)

        # Each [heads, dim, 2 * span].
        self._keys = project("c2p", "key_proj", "pos_key_proj")
        self._queries = project("p2c", "query_proj", "pos_query_proj")

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
        far, first_only = segments.longest, len(query) != len(key)
        width, n, heads = 2 * far - 1, len(key), query.shape[1]
        places: Tensor = segments.once("distances", lambda: self._places(far, query.device))
        tables = [
            None if table is None else part.transpose(0, 1) @ table[:, :, order].to(part.dtype)
            for part, table, order in (
                (query, self._keys, places.flip(0)),
                (key, self._queries, places),
            )
        ]

        def bias(group: LengthGroup) -> Tensor:
            asked = 1 if first_only else group.length
            size = (group.rows, heads, asked, group.length)
            row, token = (1, group.row) if first_only else (group.length, group.token)
            of_asked, of_read = tables
            output = torch.zeros((), device=query.device, dtype=query.dtype)
            if of_asked is not None:
                steps = (row * width, len(query) * width, width - 1, 1)
                output = of_asked.as_strided(size, steps, token * width + far - 1)
            if of_read is not None:
                steps = (group.length * width, n * width, 1, width - 1)
                output = output + of_read.as_strided(size, steps, group.token * width + far - 1)
            return output

        return attend(query, key, value, segments, scale=self._scale, bias=bias)

    def _places(self, far: int, device: torch.device) -> Tensor:
        """The place in the tables of each distance from ``1 - far`` to ``far - 1``."""
        from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

        output = torch.arange(1 - far, far, device=device)
        if min(self._buckets) > 0:
            output = make_log_bucket_position(output, *self._buckets).long()
        return (output + self._span).clamp(0, 2 * self._span - 1)


def _split(linear: nn.Linear, n: int) -> list[nn.Linear]:
    """The ``n`` equal parts of a layer that computes several at once; they share its memory."""
    biases = [None] * n if linear.bias is None else linear.bias.detach().chunk(n)
    return list(map(linear_of, linear.weight.detach().chunk(n), biases))


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer of these tensors, which are not copied."""
    output = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    output.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        output.bias = nn.Parameter(bias, requires_grad=False)
    return output


@dataclasses.dataclass(frozen=True)
class _Rotary:
    """ModernBERT's attention: rotary positions, and in local layers a ``window``."""

    embedding: Any
    kind: str
    window: int | None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
        turns: tuple[Tensor, Tensor] = segments.once(self.kind, lambda: self._turns(segments))
        of_query = turns
        if len(query) != len(key):
            of_query = turns[0][segments.starts], turns[1][segments.starts]
        return attend(
            _turned(query, *of_query),
            _turned(key, *turns),
            value,
            segments,
            window=self.window,
        )

    def _turns(self, segments: Segments) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``[tokens, 1, dim]``, the sines of the first half negative."""
        states = torch.empty(0, device=segments.within.device)
        cos, sin = self.embedding(states, segments.within[None], self.kind)
        half = sin.shape[-1] // 2
        signs = torch.ones(2 * half, device=sin.device)
        signs[:half] = -1
        return cos[0][:, None], (sin[0] * signs)[:, None]


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    given = states.float()
    other = given.roll(given.shape[-1] // 2, dims=-1)
    return torch.addcmul(given * cos, other, sin).to(states.dtype)


def packed_t5(
    model: Any, *, dtype: torch.dtype
) -> tuple[PackedBackbone, Callable[[TokenBatch], Tensor]]:
    """Return a T5's encoder, to run packed, and what gives the logits ``[rows, vocabulary]`` of the
    first token of each row's answer. It takes the model over; ``dtype`` is that of the products.

    At that token the decoder attends to nothing but itself, so its self-attention is two products.
    """
    model = model.float()
    config, decoder = model.config, model.decoder
    encoder, embedding, head = model.encoder, model.shared, model.lm_head
    own = encoder.block[0].layer[0].SelfAttention
    bucket = partial(
        own._relative_position_bucket,
        num_buckets=config.relative_attention_num_buckets,
        max_distance=config.relative_attention_max_distance,
    )
    bucketed = _Bucketed(bucket, own.relative_attention_bias, scale=1.0)

    def parts(attention: Any, norm: nn.Module, feed: Any, attend_as: Attention) -> LayerParts:
        block = feed.DenseReluDense
        return LayerParts(
            query=attention.q,
            key=attention.k,
            value=attention.v,
            attended=attention.o,
            inner=block.wi_0 if config.is_gated_act else block.wi,
            gate=block.wi_1 if config.is_gated_act else None,
            outer=block.wo,
            norms=(norm, feed.layer_norm),
            heads=config.num_heads,
            activation=_gelu_or(config.dense_act_fn, block.act),
            attention=attend_as,
            normed_sum=False,
        )

    reading = [
        Layer(parts(one.SelfAttention, one.layer_norm, feed, bucketed), dtype)
        for one, feed in (block.layer for block in encoder.block)
    ]
    answering = []
    for first, cross, feed in (block.layer for block in decoder.block):
        itself = first.SelfAttention
        layer = parts(cross.EncDecAttention, cross.layer_norm, feed, partial(attend, scale=1.0))
        answering.append(
            (
                first.layer_norm,
                Product(itself.v, dtype, dtype),
                Product(itself.o, dtype, torch.float32),
                Layer(layer, dtype),
            )
        )
    backbone = PackedBackbone(
        lambda inputs: embedding(inputs["input_ids"][0]),
        reading,
        device=next(model.parameters()).device,
        with_types=False,
        norm=encoder.final_layer_norm,
    )
    norm, begin = decoder.final_layer_norm, embedding.weight[config.decoder_start_token_id]
    model.encoder = model.decoder = None  # their weights are laid out anew

    def logits(batch: TokenBatch) -> Tensor:
        packed = backbone.prepare(batch)
        read = backbone.states(packed)
        states = begin.expand(len(batch.lengths), -1)
        for normed, value, out, layer in answering:
            states = layer.cross(out(value(normed(states)), states), read, packed.segments)
        states = norm(states)
        if config.scale_decoder_outputs:
            states = states * config.d_model**-0.5
        output: Tensor = head(states)
        return output

    return backbone, logits


def _is_disentangled(config: Any) -> bool:
    """DeBERTa-v2's largest models have a convolution besides, others may have no distances."""
    return bool(config.relative_attention) and not getattr(config, "conv_kernel_size", 0)


def _is_plainly_rotary(config: Any) -> bool:
    return all(kind["rope_type"] == "default" for kind in config.rope_parameters.values())


def _distances(model: Any, layer: Any) -> Attention:
    encoder = model.encoder
    return _Bucketed(encoder.relative_position_bucket, encoder.relative_attention_bias)


def _disentangled(model: Any, layer: Any) -> Attention:
    return _Disentangled(layer.attention.self, model.encoder.get_rel_embedding())


def _rotary(model: Any, layer: Any) -> Attention:
    kind = layer.attention_type
    window = model.config.sliding_window if kind == "sliding_attention" else None
    return _Rotary(model.rotary_emb, kind, window)


def _paths(paths: str) -> dict[str, str]:
    fields = ("query", "key", "value", "attended", "inner", "outer", "norms", "activation")
    return dict(zip(fields, paths.split(), strict=True))


#: BERT's parts, which most families have.
BERT_PARTS = _paths(
    "attention.self.query attention.self.key attention.self.value attention.output.dense "
    "intermediate.dense output.dense attention.output.LayerNorm+output.LayerNorm "
    "intermediate.intermediate_act_fn"
)
_ALBERT_PARTS = _paths(
    "attention.query attention.key attention.value attention.dense ffn ffn_output "
    "attention.LayerNorm+full_layer_layer_norm activation"
)
_DISTILBERT_PARTS = _paths(
    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin ffn.lin1 ffn.lin2 "
    "sa_layer_norm+output_layer_norm ffn.activation"
)
_MPNET_PARTS = _paths(
    "attention.attn.q attention.attn.k attention.attn.v attention.attn.o intermediate.dense "
    "output.dense attention.LayerNorm+output.LayerNorm intermediate.intermediate_act_fn"
)
_DEBERTA_PARTS = BERT_PARTS | {
    name: f"attention.self.{name}_proj" for name in ("query", "key", "value")
}
_MODERNBERT_PARTS = {
    **{"query key value": "attn.Wqkv", "attended": "attn.Wo", "inner gate": "mlp.Wi"},
    **{"outer": "mlp.Wo", "norms": "attn_norm+mlp_norm", "activation": "mlp.act"},
}

_ROBERTA = Family(BERT_PARTS, lambda model, first: model.classifier(first[:, None]))

#: By transformers' ``model_type``.
FAMILIES = {
    "bert": Family(
        BERT_PARTS, lambda model, first: model.classifier(model.bert.pooler(first[:, None]))
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": _ROBERTA._replace(embedded="embeddings_project"),
    "albert": Family(
        _ALBERT_PARTS,
        lambda model, first: model.classifier(
            model.albert.pooler_activation(model.albert.pooler(first))
        ),
        layers="encoder.albert_layer_groups",
        embedded="encoder.embedding_hidden_mapping_in",
    ),
    "distilbert": Family(
        _DISTILBERT_PARTS,
        lambda model, first: model.classifier(F.relu(model.pre_classifier(first))),
        layers="transformer.layer",
    ),
    "mpnet": _ROBERTA._replace(parts=_MPNET_PARTS, attention=_distances),
    "deberta-v2": Family(
        _DEBERTA_PARTS,
        lambda model, first: model.classifier(model.pooler(first[:, None])),
        attention=_disentangled,
        fits=_is_disentangled,
    ),
    "modernbert": Family(
        _MODERNBERT_PARTS,
        lambda model, pooled: model.classifier(model.head(pooled)),
        layers="layers",
        attention=_rotary,
        norm="final_norm",
        normed_sum=False,
        fits=_is_plainly_rotary,
    ),
}
