"""Tiny random models with real tokenizers, written to a folder as the hub has them.

Seconds on one CPU thread, no download. The numbers mean nothing, but every path of the code that
a real model takes is taken: config, tokenizer files, safetensors weights.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: The fixture `tiny` of the pipeline's tests: a model's folder by family and kind, made once.
Folders = Callable[..., Path]

LABELS = ("contradiction", "neutral", "entailment")

TEXTS = (
    "The hotel was clean and quiet, near the beach.",
    "the rooms were not clean and the staff was rude!",
    "We had a great stay: the pool was warm and the food was good.",
    "Breakfast wasn't included, was it?",
    "a very expensive city hotel",
    "Nothing was as promised; never again.",
)
#: More tokens than a tiny model reads.
LONG = "the hotel was not clean and the staff was rude! " * 9
_WORDS = sorted({word for text in TEXTS for word in text.lower().replace("'", " ' ").split()})
_PIECES = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?:;'-", "##s", "##ing", "##ed"]


class _Family(NamedTuple):
    """A tokenizer's class, kind and special tokens; what a config's sizes are called here.

    ``more_positions`` are those that a config counts beyond the tokens that it reads.
    """

    tokenizer: str
    kind: str
    specials: str
    sizes: dict[str, Any]
    more_positions: int = 0
    layers: tuple[str, ...] = ("num_hidden_layers",)
    positions: str = "max_position_embeddings"


_USUAL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
_SMALL = {**_USUAL, "embedding_size": 16}
_BERT = "[PAD] [UNK] [CLS] [SEP] [MASK]"
_ROBERTA = _USUAL | {
    **{"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
}
_DEBERTA = _USUAL | {
    **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": -1},
    **{"position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0},
}
_DEBERTA_2 = {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
_ALBERT = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_DISTILBERT = {"dim": 32, "n_heads": 4, "hidden_dim": 64}
_MPNET = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_MODERNBERT = {
    **{"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2},
    **{"eos_token_id": 3, "local_attention": 8, "global_attn_every_n_layers": 2},
}
_BART = {
    **{"d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "bos_token_id": 0, "pad_token_id": 1},
    **{"eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2},
}
_GPT2 = {"n_embd": 32, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
_T5 = {
    **{"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "pad_token_id": 0},
    **{"eos_token_id": 1, "decoder_start_token_id": 0, "initializer_factor": 1.0},
}
_FAMILIES = {
    "bert": _Family("Bert", "pieces", _BERT, _USUAL),
    "electra": _Family("Electra", "pieces", _BERT, _SMALL),
    "roberta": _Family("Roberta", "bytes", "<s> <pad> </s> <unk> <mask>", _ROBERTA, 2),
    "xlm-roberta": _Family("XLMRoberta", "unigram", "<s> <pad> </s> <unk>", _ROBERTA, 2),
    "albert": _Family("Albert", "unigram", "<pad> <unk> [CLS] [SEP] [MASK]", _SMALL | _ALBERT),
    "distilbert": _Family("DistilBert", "pieces", _BERT, _DISTILBERT, layers=("n_layers",)),
    "deberta": _Family("Deberta", "bytes", "[PAD] [CLS] [SEP] [UNK] [MASK]", _DEBERTA),
    "deberta-v2": _Family("DebertaV2", "unigram", _BERT, _DEBERTA | _DEBERTA_2),
    "mpnet": _Family("MPNet", "pieces", "<s> <pad> </s> [UNK] <mask>", _USUAL | _MPNET, 2),
    "modernbert": _Family("Bert", "pieces", _BERT, _USUAL | _MODERNBERT),
    "bart": _Family(
        *("Bart", "bytes", "<s> <pad> </s> <unk> <mask>", _BART),
        layers=("encoder_layers", "decoder_layers"),
    ),
    "gpt2": _Family(
        "GPT2", "bytes", "<|endoftext|>", _GPT2, layers=("n_layer",), positions="n_positions"
    ),
    "t5": _Family("T5", "unigram", "<pad> </s> <unk>", _T5, layers=("num_layers",)),
}
#: The families that have a classifier.
FAMILIES = tuple(family for family in _FAMILIES if family not in ("gpt2", "t5"))


def save_tiny_nli(
    folder: Path, family: str = "bert", *, labels: Sequence[str] = LABELS, **options: Any
) -> Path:
    """Write a sequence-classification model whose columns are named by ``labels``; return it."""
    named = {"id2label": dict(enumerate(labels)), "label2id": {x: i for i, x in enumerate(labels)}}
    return _save(folder, "AutoModelForSequenceClassification", family, named, **options)


def save_tiny_encoder(folder: Path, family: str = "bert", **options: Any) -> Path:
    """Write a plain encoder; return its folder. Options are those of `_save`."""
    return _save(folder, "AutoModel", family, {}, **options)


def save_tiny_causal(folder: Path, family: str = "gpt2", **options: Any) -> Path:
    """Write a causal language model; return its folder."""
    return _save(folder, "AutoModelForCausalLM", family, {}, **options)


def save_tiny_masked(folder: Path, family: str = "bert", **options: Any) -> Path:
    """Write a masked language model that likes some words of `TEXTS`; return its folder."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    no_dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    _save(folder, "AutoModelForMaskedLM", family, no_dropout, **options)
    model = AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bias = model.get_output_embeddings().bias
    for word in ("hotel", "clean", "staff", "pool", "great", "warm", "rooms", "nothing"):
        bias.data[tokenizer.convert_tokens_to_ids(word)] += 3.0
    model.save_pretrained(folder)
    return folder


def save_tiny_seq2seq(folder: Path, family: str = "bart", **options: Any) -> Path:
    """Write a sequence-to-sequence language model; return its folder."""
    return _save(folder, "AutoModelForSeq2SeqLM", family, {}, **options)


def stock_states(folder: Path, text: str) -> tuple[Any, Any]:
    """The stock model's states of a text alone ``[layers, tokens, d]``, and its own tokens."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    row = tokenizer(text, truncation=True, max_length=64, return_special_tokens_mask=True)
    with torch.no_grad():
        states = model(torch.tensor([row["input_ids"]]), output_hidden_states=True).hidden_states
    return torch.cat(states).numpy(), np.array(row["special_tokens_mask"]) == 0


def _save(
    folder: Path,
    auto_class: str,
    family: str,
    settings: dict[str, Any],
    *,
    seed: int = 0,
    layers: int = 2,
    max_tokens: int = 64,
) -> Path:
    import torch
    import transformers

    about = _FAMILIES[family]
    tokenizer = _tokenizer(about, max_tokens)
    sizes = {**about.sizes, **dict.fromkeys(about.layers, layers)}
    sizes[about.positions] = max_tokens + about.more_positions
    config = transformers.AutoConfig.for_model(family, initializer_range=0.2, **sizes)
    config.update({"vocab_size": len(tokenizer), **settings})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, auto_class).from_config(config)
        # Biases and norms start as constants; noise makes every parameter matter.
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(about: _Family, max_tokens: int) -> Any:
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    specials = about.specials.split()
    make = getattr(transformers, f"{about.tokenizer}Tokenizer")
    if about.kind == "bytes":
        trained = ByteLevelBPETokenizer()
        trained.train_from_iterator(
            TEXTS, vocab_size=400, min_frequency=1, special_tokens=specials, show_progress=False
        )
        model = json.loads(trained.to_str())["model"]
        merges = [tuple(merge) for merge in model["merges"]]
        return make(vocab=model["vocab"], merges=merges, model_max_length=max_tokens)
    if about.kind == "unigram":
        numbers = ["▁1"] if about.tokenizer == "T5" else []  # as the real one, which lacks "▁0"
        names = [*specials, "▁", *numbers, *(f"▁{word}" for word in _WORDS), *_PIECES[:-3]]
        scored = [(name, 0.0 if name in specials else -float(i)) for i, name in enumerate(names)]
        return make(vocab=scored, model_max_length=max_tokens)
    continued = [f"##{piece}" for piece in _PIECES if not piece.startswith("##")]
    pieces = dict.fromkeys([*specials, *_PIECES, *continued, *_WORDS])
    return make(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=max_tokens)
