"""The families of transformers that run packed: where their parts are, how their tokens attend."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
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
    tanh_gelu,
)
from claimscore.pipeline.encoders.token_rows import TokenBatch


class Family(NamedTuple):
    """``layers`` gives the parts of a model's layers in order, one that runs twice given twice;
    ``encoder`` is the attribute of the model that holds them, ``embedded`` the path of what
    follows the embeddings, ``norm`` that of the last norm; ``head`` gives the logits of a
    classifier from one state for each row. ``fits`` says whether a config is what was tried."""

    layers: Callable[[Any], list[LayerParts]]
    head: Callable[[Any, Tensor], Tensor]
    encoder: str = "encoder"
    embedded: str | None = None
    norm: str | None = None
    fits: Callable[[Any], bool] = lambda config: True


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
        found: Tensor = states if after is None else after(states)
        return found

    made: dict[int, Layer] = {}
    parts = family.layers(model)
    layers = [made.setdefault(id(one), Layer(one, dtype)) for one in parts]
    setattr(model, family.encoder, None)  # its weights are laid out anew
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
        return family.head(model, states)

    return logits


def _find(model: Any, path: str | None) -> Any:
    try:
        return None if path is None else attrgetter(path)(model)
    except AttributeError:  # where sizes are equal, nothing follows the embeddings
        return None


def _gelu_or(name: Any, module: Any) -> Callable[[Tensor], Tensor]:
    """An activation; GELU as the function that is computed within the product."""
    found: Callable[[Tensor], Tensor] = _GELUS.get(name, module)
    return found


#: By transformers' names of activations.
_GELUS = {"gelu": F.gelu, "gelu_new": tanh_gelu, "gelu_pytorch_tanh": tanh_gelu}


def _bert_layers(model: Any) -> list[LayerParts]:
    return [
        _feed_forward(
            layer,
            model.config.hidden_act,
            query=layer.attention.self.query,
            key=layer.attention.self.key,
            value=layer.attention.self.value,
            attended=layer.attention.output.dense,
            norms=(layer.attention.output.LayerNorm, layer.output.LayerNorm),
            heads=model.config.num_attention_heads,
        )
        for layer in model.encoder.layer
    ]


def _feed_forward(layer: Any, act: Any, **parts: Any) -> LayerParts:
    """The parts of a layer whose feed-forward block is BERT's."""
    return LayerParts(
        inner=layer.intermediate.dense,
        outer=layer.output.dense,
        activation=_gelu_or(act, layer.intermediate.intermediate_act_fn),
        **parts,
    )


def _albert_layers(model: Any) -> list[LayerParts]:
    config, groups = model.config, model.encoder.albert_layer_groups
    made = [
        [
            LayerParts(
                query=layer.attention.query,
                key=layer.attention.key,
                value=layer.attention.value,
                attended=layer.attention.dense,
                inner=layer.ffn,
                outer=layer.ffn_output,
                norms=(layer.attention.LayerNorm, layer.full_layer_layer_norm),
                heads=config.num_attention_heads,
                activation=_gelu_or(config.hidden_act, layer.activation),
            )
            for layer in group.albert_layers
        ]
        for group in groups
    ]
    of_group = config.num_hidden_layers / config.num_hidden_groups
    return [one for i in range(config.num_hidden_layers) for one in made[int(i / of_group)]]


def _distilbert_layers(model: Any) -> list[LayerParts]:
    return [
        LayerParts(
            query=layer.attention.q_lin,
            key=layer.attention.k_lin,
            value=layer.attention.v_lin,
            attended=layer.attention.out_lin,
            inner=layer.ffn.lin1,
            outer=layer.ffn.lin2,
            norms=(layer.sa_layer_norm, layer.output_layer_norm),
            heads=model.config.n_heads,
            activation=_gelu_or(model.config.activation, layer.ffn.activation),
        )
        for layer in model.transformer.layer
    ]


def _mpnet_layers(model: Any) -> list[LayerParts]:
    encoder = model.encoder
    attention = _Bucketed(encoder.relative_position_bucket, encoder.relative_attention_bias)
    return [
        _feed_forward(
            layer,
            model.config.hidden_act,
            query=layer.attention.attn.q,
            key=layer.attention.attn.k,
            value=layer.attention.attn.v,
            attended=layer.attention.attn.o,
            norms=(layer.attention.LayerNorm, layer.output.LayerNorm),
            heads=model.config.num_attention_heads,
            attention=attention,
        )
        for layer in model.encoder.layer
    ]


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
        found: Tensor = self._bias(self._bucket(places[None, :] - places[:, None]))
        return found.permute(2, 0, 1).contiguous()


def _deberta_layers(model: Any) -> list[LayerParts]:
    return [
        _feed_forward(
            layer,
            model.config.hidden_act,
            query=layer.attention.self.query_proj,
            key=layer.attention.self.key_proj,
            value=layer.attention.self.value_proj,
            attended=layer.attention.output.dense,
            norms=(layer.attention.output.LayerNorm, layer.output.LayerNorm),
            heads=model.config.num_attention_heads,
            attention=_Disentangled(layer.attention.self, model.encoder.get_rel_embedding()),
        )
        for layer in model.encoder.layer
    ]


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
            found = torch.zeros((), device=query.device, dtype=query.dtype)
            if of_asked is not None:
                steps = (row * width, len(query) * width, width - 1, 1)
                found = of_asked.as_strided(size, steps, token * width + far - 1)
            if of_read is not None:
                steps = (group.length * width, n * width, 1, width - 1)
                found = found + of_read.as_strided(size, steps, group.token * width + far - 1)
            return found

        return attend(query, key, value, segments, scale=self._scale, bias=bias)

    def _places(self, far: int, device: torch.device) -> Tensor:
        """The place in the tables of each distance from ``1 - far`` to ``far - 1``."""
        from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

        found = torch.arange(1 - far, far, device=device)
        if min(self._buckets) > 0:
            found = make_log_bucket_position(found, *self._buckets).long()
        return (found + self._span).clamp(0, 2 * self._span - 1)


def _modernbert_layers(model: Any) -> list[LayerParts]:
    config = model.config
    found = []
    for layer in model.layers:
        query, key, value = _split(layer.attn.Wqkv, 3)
        inner, gate = _split(layer.mlp.Wi, 2)
        local = layer.attention_type == "sliding_attention"
        found.append(
            LayerParts(
                query=query,
                key=key,
                value=value,
                attended=layer.attn.Wo,
                inner=inner,
                outer=layer.mlp.Wo,
                norms=(layer.attn_norm, layer.mlp_norm),
                heads=config.num_attention_heads,
                activation=_gelu_or(config.hidden_activation, layer.mlp.act),
                attention=_Rotary(
                    model.rotary_emb, layer.attention_type, config.sliding_window if local else None
                ),
                gate=gate,
                normed_sum=False,
            )
        )
    return found


def _split(linear: nn.Linear, n: int) -> list[nn.Linear]:
    """The ``n`` equal parts of a layer that computes several at once; they share its memory."""
    found = []
    biases = [None] * n if linear.bias is None else linear.bias.detach().chunk(n)
    for weight, bias in zip(linear.weight.detach().chunk(n), biases, strict=True):
        part = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        part.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            part.bias = nn.Parameter(bias, requires_grad=False)
        found.append(part)
    return found


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
        found: Tensor = head(states)
        return found

    return backbone, logits


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


def _distilbert_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(F.relu(model.pre_classifier(first)))
    return logits


def _deberta_head(model: Any, first: Tensor) -> Tensor:
    logits: Tensor = model.classifier(model.pooler(first.unsqueeze(1)))
    return logits


def _modernbert_head(model: Any, pooled: Tensor) -> Tensor:
    logits: Tensor = model.classifier(model.head(pooled))
    return logits


def _is_disentangled(config: Any) -> bool:
    """DeBERTa-v2's largest models have a convolution besides, others may have no distances."""
    return bool(config.relative_attention) and not getattr(config, "conv_kernel_size", 0)


def _is_plainly_rotary(config: Any) -> bool:
    return all(kind["rope_type"] == "default" for kind in config.rope_parameters.values())


_ROBERTA = Family(_bert_layers, _roberta_head)

#: By transformers' ``model_type``.
FAMILIES = {
    "bert": Family(_bert_layers, _bert_head),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": _ROBERTA._replace(embedded="embeddings_project"),
    "albert": Family(_albert_layers, _albert_head, embedded="encoder.embedding_hidden_mapping_in"),
    "distilbert": Family(_distilbert_layers, _distilbert_head, encoder="transformer"),
    "mpnet": Family(_mpnet_layers, _roberta_head),
    "deberta-v2": Family(_deberta_layers, _deberta_head, fits=_is_disentangled),
    "modernbert": Family(
        *(_modernbert_layers, _modernbert_head, "layers", None, "final_norm", _is_plainly_rotary)
    ),
}
