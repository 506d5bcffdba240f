"""Tiny random models with real tokenizers, written to a folder as the hub has them.

Seconds on one CPU thread, no download. The numbers mean nothing, but every path of the code that
a real model takes is taken: config, tokenizer files, safetensors weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAMILIES = (
    *("bert", "electra", "roberta", "xlm-roberta", "albert"),
    *("distilbert", "deberta", "deberta-v2", "mpnet", "modernbert", "bart"),
)
LABELS = ("contradiction", "neutral", "entailment")

TEXTS = (
    "The hotel was clean and quiet, near the beach.",
    "the rooms were not clean and the staff was rude!",
    "We had a great stay: the pool was warm and the food was good.",
    "Breakfast wasn't included, was it?",
    "a very expensive city hotel",
    "Nothing was as promised; never again.",
)
_WORDS = sorted({word for text in TEXTS for word in text.lower().replace("'", " ' ").split()})
_PIECES = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?:;'-", "##s", "##ing", "##ed"]
_SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


def save_tiny_nli(
    folder: Path,
    family: str = "bert",
    *,
    labels: Sequence[str] = LABELS,
    seed: int = 0,
    layers: int = 2,
    max_tokens: int = 64,
) -> Path:
    """Write a sequence-classification model whose columns are named by ``labels``; return it."""
    from transformers import AutoModelForSequenceClassification

    tokenizer, config = _tokenizer(family, max_tokens), _config(family, layers, max_tokens)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    return _save(folder, AutoModelForSequenceClassification, config, tokenizer, seed)


def save_tiny_encoder(
    folder: Path, family: str = "bert", *, seed: int = 0, layers: int = 2, max_tokens: int = 64
) -> Path:
    """Write a plain encoder; return its folder."""
    from transformers import AutoModel

    tokenizer, config = _tokenizer(family, max_tokens), _config(family, layers, max_tokens)
    return _save(folder, AutoModel, config, tokenizer, seed)


def save_tiny_causal(
    folder: Path, family: str = "gpt2", *, seed: int = 0, layers: int = 2, max_tokens: int = 64
) -> Path:
    """Write a causal language model; return its folder."""
    from transformers import AutoModelForCausalLM

    tokenizer, config = _tokenizer(family, max_tokens), _config(family, layers, max_tokens)
    return _save(folder, AutoModelForCausalLM, config, tokenizer, seed)


def save_tiny_seq2seq(
    folder: Path, family: str = "bart", *, seed: int = 0, layers: int = 2, max_tokens: int = 64
) -> Path:
    """Write a sequence-to-sequence language model; return its folder."""
    from transformers import AutoModelForSeq2SeqLM

    tokenizer, config = _tokenizer(family, max_tokens), _config(family, layers, max_tokens)
    return _save(folder, AutoModelForSeq2SeqLM, config, tokenizer, seed)


def _save(folder: Path, auto_class: Any, config: Any, tokenizer: Any, seed: int) -> Path:
    import torch

    config.vocab_size = len(tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto_class.from_config(config)
        # Biases and norms start as constants; noise makes every parameter matter.
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _config(family: str, layers: int, max_tokens: int) -> Any:
    from transformers import AutoConfig

    sizes: dict[str, Any] = {**_SIZES, "num_hidden_layers": layers}
    sizes["max_position_embeddings"] = max_tokens
    if family in ("roberta", "xlm-roberta"):
        sizes |= {"max_position_embeddings": max_tokens + 2, "type_vocab_size": 1}
        sizes |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    elif family == "electra":
        sizes["embedding_size"] = 16
    elif family == "albert":
        sizes["embedding_size"] = 16
        sizes |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    elif family == "deberta":
        sizes |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        sizes |= {"max_relative_positions": -1, "position_biased_input": False}
        sizes |= {"type_vocab_size": 0, "pad_token_id": 0}
    elif family == "deberta-v2":
        sizes |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        sizes |= {"max_relative_positions": -1, "position_buckets": 16, "share_att_key": True}
        sizes |= {"norm_rel_ebd": "layer_norm", "position_biased_input": False}
        sizes |= {"type_vocab_size": 0, "pad_token_id": 0}
    elif family == "mpnet":
        sizes |= {"max_position_embeddings": max_tokens + 2, "pad_token_id": 1}
        sizes |= {"bos_token_id": 0, "eos_token_id": 2}
    elif family == "modernbert":
        sizes |= {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8}
        sizes |= {"bos_token_id": 2, "eos_token_id": 3, "global_attn_every_n_layers": 2}
    elif family == "distilbert":
        sizes = {"dim": 32, "n_heads": 4, "hidden_dim": 64, "n_layers": layers}
        sizes["max_position_embeddings"] = max_tokens
    elif family == "gpt2":
        sizes = {"n_embd": 32, "n_head": 4, "n_layer": layers, "n_positions": max_tokens}
        sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    elif family == "t5":
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": layers}
        sizes |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
        sizes["initializer_factor"] = 1.0
    elif family == "bart":
        sizes = {"d_model": 32, "encoder_layers": layers, "decoder_layers": layers}
        sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        sizes |= {"max_position_embeddings": max_tokens, "bos_token_id": 0, "pad_token_id": 1}
        sizes |= {"eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
    return AutoConfig.for_model(family, initializer_range=0.2, **sizes)


def _tokenizer(family: str, max_tokens: int) -> Any:
    import transformers

    name = {
        "bert": "BertTokenizer",
        "electra": "ElectraTokenizer",
        "distilbert": "DistilBertTokenizer",
        "roberta": "RobertaTokenizer",
        "bart": "BartTokenizer",
        "gpt2": "GPT2Tokenizer",
        "t5": "T5Tokenizer",
        "deberta": "DebertaTokenizer",
        "xlm-roberta": "XLMRobertaTokenizer",
        "albert": "AlbertTokenizer",
        "deberta-v2": "DebertaV2Tokenizer",
        "mpnet": "MPNetTokenizer",
        "modernbert": "BertTokenizer",
    }[family]
    tokenizer_class = getattr(transformers, name)
    if family in ("roberta", "bart"):
        return _byte_level(tokenizer_class, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], max_tokens)
    if family == "gpt2":
        return _byte_level(tokenizer_class, ["<|endoftext|>"], max_tokens)
    if family == "t5":
        return _unigram(tokenizer_class, ["<pad>", "</s>", "<unk>"], max_tokens)
    if family == "deberta":
        specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
        return _byte_level(tokenizer_class, specials, max_tokens)
    if family == "xlm-roberta":
        return _unigram(tokenizer_class, ["<s>", "<pad>", "</s>", "<unk>"], max_tokens)
    if family == "deberta-v2":
        return _unigram(tokenizer_class, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], max_tokens)
    if family == "albert":
        return _unigram(tokenizer_class, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], max_tokens)
    continued = [f"##{piece}" for piece in _PIECES if not piece.startswith("##")]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if family == "mpnet":
        specials = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    names = dict.fromkeys([*specials, *_PIECES, *continued, *_WORDS])
    vocabulary = {piece: i for i, piece in enumerate(names)}
    return tokenizer_class(vocab=vocabulary, model_max_length=max_tokens)


def _byte_level(tokenizer_class: Any, specials: list[str], max_tokens: int) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        TEXTS, vocab_size=400, min_frequency=1, special_tokens=specials, show_progress=False
    )
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return tokenizer_class(vocab=model["vocab"], merges=merges, model_max_length=max_tokens)


def _unigram(tokenizer_class: Any, specials: list[str], max_tokens: int) -> Any:
    pieces = [*specials, "▁", *(f"▁{word}" for word in _WORDS), *_PIECES[:-3]]
    scored = [(piece, 0.0 if piece in specials else -float(i)) for i, piece in enumerate(pieces)]
    return tokenizer_class(vocab=scored, model_max_length=max_tokens)
