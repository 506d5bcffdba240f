"""Train the parser of the claim maker on sentences that spaCy's `en_core_web_sm` parses.

    python -m scripts.parser.train sentences.txt --out parser.safetensors

Needs spaCy and its model beside claimscore[offline]. The sentences stand one a line in a text file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from claimscore import minilm
from claimscore.baseline.parser import MAX_PIECES, Parser, kind_of, read_vocabulary
from claimscore.baseline.tree import tokenise

LAYERS, ARC, LABEL, KINDS = 3, 256, 96, 8
PIECES_A_BATCH = 2600

#: Words of a sentence with the teacher's tag, label and head (itself for the root).
Parsed = list[tuple[str, str, str, int]]


def parse(sentences: list[str], teacher: str) -> list[Parsed]:
    """What the teacher says of sentences that are cut into claimscore's words."""
    spacy: Any = importlib.import_module("spacy")
    nlp = importlib.import_module(teacher).load(disable=["ner", "lemmatizer"])
    words = [tokenise(sentence) for sentence in sentences]
    docs = (
        spacy.tokens.Doc(nlp.vocab, [w.text for w in sentence], [w.space for w in sentence])
        for sentence in words
        if sentence
    )
    return [
        [(token.text, token.tag_, token.dep_, token.head.i) for token in doc]
        for doc in nlp.pipe(docs, batch_size=128)
    ]


class Network(nn.Module):
    """`claimscore.baseline.parser.Parser` with gradients; see there."""

    def __init__(self, n_tags: int, n_labels: int) -> None:
        super().__init__()
        folder = minilm.find()
        config = BertConfig.from_pretrained(folder, num_hidden_layers=LAYERS)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        self.bert = BertModel.from_pretrained(folder, config=config, add_pooling_layer=False)
        width = 2 * self.bert.config.hidden_size
        self.bert.embeddings.word_embeddings.weight.requires_grad_(False)
        self.case = nn.Embedding(KINDS, width // 2)
        nn.init.zeros_(self.case.weight)
        self.tag = nn.Linear(width, n_tags)
        self.arc_dependent, self.arc_head = nn.Linear(width, ARC), nn.Linear(width, ARC)
        self.label_dependent, self.label_head = nn.Linear(width, LABEL), nn.Linear(width, LABEL)
        self.arc = nn.Parameter(torch.randn(ARC + 1, ARC) * 0.02)
        self.label = nn.Parameter(torch.randn(n_labels, LABEL + 1, LABEL + 1) * 0.02)
        self.root = nn.Parameter(torch.zeros(width))
        self.drop = nn.Dropout(0.15)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Cross entropies of heads, tags (by half) and labels; the last of the right heads."""
        x = self.bert.embeddings(input_ids=batch["ids"]) + self.case(batch["kinds"])
        hidden = (1 - batch["mask"][:, None, None, :].float()) * -1e4
        x = self.bert.encoder(x, attention_mask=hidden)[0]

        def at(place: Tensor) -> Tensor:
            return x.gather(1, place[:, :, None].expand(-1, -1, x.shape[-1]))

        words = self.drop(torch.cat([at(batch["first"]), at(batch["last"])], -1))
        with_root = torch.cat([self.root.expand(len(x), 1, -1).to(words.dtype), words], 1)
        dependents = _with_one(F.gelu(self.arc_dependent(words)))
        arcs = dependents @ self.arc @ F.gelu(self.arc_head(with_root)).transpose(1, 2)
        known = F.pad(batch["heads"] >= 0, (1, 0), value=True)
        arcs = arcs.float().masked_fill(~known[:, None, :], -1e4)
        right = batch["heads"].clamp(min=0)[:, :, None].expand(-1, -1, words.shape[-1])
        labels = torch.einsum(
            "bwi,lij,bwj->bwl",
            _with_one(F.gelu(self.label_dependent(words))),
            self.label,
            _with_one(F.gelu(self.label_head(with_root.gather(1, right)))),
        )
        pairs = ((arcs, "heads", 1.0), (self.tag(words), "tags", 0.5), (labels, "labels", 1.0))
        return torch.stack(
            [
                weight * F.cross_entropy(scores.float().flatten(0, 1), batch[name].flatten())
                for scores, name, weight in pairs
            ]
        ).sum()


def _with_one(x: Tensor) -> Tensor:
    return F.pad(x, (0, 1), value=1.0)


def make_samples(parsed: list[Parsed], tags: list[str], labels: list[str]) -> list[dict[str, Any]]:
    """Sentences as lists of numbers; those that the parser would not read are left out."""
    reader = Parser({"layer.0.": np.zeros(1)}, np.zeros((1, 1)), read_vocabulary(), tags, labels)
    samples = []
    for sentence in parsed:
        pieces = [reader.pieces(word) for word, *_ in sentence]
        ends = np.cumsum([len(ids) for ids in pieces]).tolist()
        if len(sentence) > 70 or ends[-1] > MAX_PIECES:
            continue
        kinds = [
            kind_of(word) for (word, *_), ids in zip(sentence, pieces, strict=True) for _ in ids
        ]
        samples.append(
            {
                "ids": [101, *(piece for ids in pieces for piece in ids), 102],
                "kinds": [0, *kinds, 0],
                "first": [end - len(ids) + 1 for end, ids in zip(ends, pieces, strict=True)],
                "last": ends,
                "heads": [0 if head == k else head + 1 for k, (*_, head) in enumerate(sentence)],
                "tags": [tags.index(tag) for _, tag, _, _ in sentence],
                "labels": [labels.index(label) for _, _, label, _ in sentence],
            }
        )
    return samples


def make_batches(samples: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Tensor]]:
    """Sentences of like length together, in random order."""
    order = list(range(len(samples)))
    rng.shuffle(order)
    batches: list[list[int]] = []
    for start in range(0, len(order), 4096):
        waiting: list[int] = []
        for k in sorted(order[start : start + 4096], key=lambda k: len(samples[k]["ids"])):
            if waiting and (len(waiting) + 1) * len(samples[k]["ids"]) > PIECES_A_BATCH:
                batches.append(waiting)
                waiting = []
            waiting.append(k)
        batches.append(waiting)
    rng.shuffle(batches)
    return [_padded([samples[k] for k in batch]) for batch in batches]


def _padded(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    def column(name: str, fill: int) -> Tensor:
        rows = [torch.tensor(sample[name]) for sample in samples]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

    batch = {name: column(name, 0) for name in ("ids", "kinds", "first", "last")}
    batch |= {name: column(name, -100) for name in ("heads", "tags", "labels")}
    lengths = torch.tensor([len(sample["ids"]) for sample in samples])
    batch["mask"] = torch.arange(batch["ids"].shape[1])[None] < lengths[:, None]
    return batch


def train(network: Network, samples: list[dict[str, Any]], passes: int, seed: int) -> None:
    rng = random.Random(seed)
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for name, p in named if name.startswith("bert.")], "lr": 1.5e-4},
            {"params": [p for name, p in named if not name.startswith("bert.")], "lr": 1e-3},
        ],
        betas=(0.9, 0.98),
        weight_decay=0.01,
    )
    batches = [batch for _ in range(passes) for batch in make_batches(samples, rng)]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1, (k + 1) / 200) * max(0.02, 1 - k / len(batches))
    )
    network.train()
    for k, batch in enumerate(batches):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = network.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if k % 100 == 0:
            print(f"batch {k} of {len(batches)}: loss {loss.item():.3f}", flush=True)


def pack(network: Network) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of the file: matrices ``[in, out]`` int8, a scale a column; vectors float16."""
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "position": state["bert.embeddings.position_embeddings.weight"][: MAX_PIECES + 6],
        "type": state["bert.embeddings.token_type_embeddings.weight"],
        "embedding_norm.weight": state["bert.embeddings.LayerNorm.weight"],
        "embedding_norm.bias": state["bert.embeddings.LayerNorm.bias"],
        "case": state["case.weight"],
        **{name: state[name] for name in ("arc", "label", "root")},
    }
    for name in ("tag", "arc_dependent", "arc_head", "label_dependent", "label_head"):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = (
            state[f"{name}.weight"].T,
            state[f"{name}.bias"],
        )
    parts = {
        "out": "attention.output.dense",
        "in": "intermediate.dense",
        "down": "output.dense",
        "norm1": "attention.output.LayerNorm",
        "norm2": "output.LayerNorm",
    }
    for layer in range(LAYERS):
        old, new = f"bert.encoder.layer.{layer}.", f"layer.{layer}."
        for end in ("weight", "bias"):
            qkv = [state[f"{old}attention.self.{x}.{end}"].T for x in ("query", "key", "value")]
            tensors[f"{new}qkv.{end}"] = np.concatenate(qkv, axis=-1)
            for part, name in parts.items():
                tensors[f"{new}{part}.{end}"] = state[f"{old}{name}.{end}"].T
    packed = {}
    for name, value in tensors.items():
        if value.ndim == 1 or name in ("type", "case"):
            packed[name] = np.ascontiguousarray(value.astype(np.float16))
            continue
        scale = np.abs(value).max(axis=tuple(range(value.ndim - 1)), keepdims=True) / 127
        packed[name] = np.ascontiguousarray(np.round(value / scale).astype(np.int8))
        packed[f"{name}.scale"] = np.ascontiguousarray(scale.astype(np.float32))
    return packed


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sentences", type=Path, help="a text file, a sentence a line")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--teacher", default="en_core_web_sm", help="module of the spaCy model")
    options.add_argument("--passes", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    torch.manual_seed(given.seed)
    parsed = parse(given.sentences.read_text(encoding="utf-8").splitlines(), given.teacher)
    tags = sorted({tag for sentence in parsed for _, tag, _, _ in sentence})
    labels = sorted({label for sentence in parsed for _, _, label, _ in sentence})
    network = Network(len(tags), len(labels))
    train(network, make_samples(parsed, tags, labels), given.passes, given.seed)
    about = {"format": "claimscore-parser-1", "tags": tags, "labels": labels}
    save_file(pack(network), given.out, metadata={"claimscore": json.dumps(about)})


if __name__ == "__main__":
    main()
