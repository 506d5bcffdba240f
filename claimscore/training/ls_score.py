"""Train LS_Score: good summaries above their damaged copies, by a ranking loss.

Wu et al. 2020 (contrastive learning), and whl97/LS-Score c8a57a2. No rating and no label is used
but that the given summaries are good. The same configuration, data, thread count and machine give
the same bytes.
"""

from __future__ import annotations

import difflib
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claimscore.errors import InputError
from claimscore.evaluation.result import EvaluationResult, OnCount, Section, fixed, silent
from claimscore.metrics.linguistic_semantic import ALPHA
from claimscore.pipeline.encoders.batching import longest_first, pad, plan_batches
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.loading import LoadedModel
from claimscore.pipeline.encoders.ls_model import (
    LinguisticHead,
    LSSettings,
    load_backbone,
    new_head,
    write_checkpoint,
)
from claimscore.text import split_sentences
from claimscore.training.recipes import LSTrainingConfig, read_texts

#: Of the word pieces that are deleted, and of a sentence's words that change places.
SHARE = 0.2

#: How summaries are damaged.
NEGATIVES = ("delete", "add", "disorder_words", "disorder_sentences")

#: Texts are cut to so many tokens in training alone.
TRAIN_TOKENS = 128

#: The head's learning rate, and records a step.
HEAD_LR, BATCH_SIZE = 1e-3, 4

#: Epochs in a row that rank worse than the best, after which the training ends.
PATIENCE = 3

_PUNCTUATION = frozenset(string.punctuation)
_WORDS = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")


class Candidates(NamedTuple):
    """Ids of a document and of its summaries, the good one first."""

    document: list[int]
    summaries: list[list[int]]


class DrawnRecords(NamedTuple):
    """Records to learn from, records held out, and how many pairs could not be used."""

    learning: list[Candidates]
    held_out: list[Candidates]
    skipped: int


@dataclass(frozen=True)
class CandidateMaker:
    """Turns a document and its summary into candidates, always the same for the same seed."""

    tokenizer: Any  # transformers' tokenizers are untyped
    negatives: Sequence[str]
    seed: int
    max_tokens: int

    def __call__(self, document: str, summary: str) -> Candidates | None:
        """The candidates; None where there is nothing to rank.

        So is a document with no more sentences than its summary (as in the published code), a
        blank summary, and one of which every negative equals it.
        """
        of_document, sentences = split_sentences(document), split_sentences(summary)
        if not sentences or len(of_document) <= len(sentences):
            return None
        pieces = self._pieces(summary)
        good = self._ids(pieces)
        summaries = [good]
        for name in self.negatives:
            rng = random.Random(f"{self.seed} {name} {document} {summary}")
            if name == "delete":
                bad = self._ids(delete_pieces(pieces, rng))
            else:
                bad = self._ids(self._pieces(self._changed(name, sentences, of_document, rng)))
            if bad != good and len(bad) > 2:
                summaries.append(bad)
        if len(summaries) == 1:
            return None
        return Candidates(self._ids(self._pieces(document)), summaries)

    def _changed(
        self, name: str, sentences: Sequence[str], document: Sequence[str], rng: random.Random
    ) -> str:
        if name == "add":
            return " ".join(add_sentence(sentences, document, rng))
        if name == "disorder_sentences":
            return " ".join(disorder_sentences(sentences, rng))
        return " ".join(word for words in disorder_words(sentences, rng) for word in words)

    def _pieces(self, text: str) -> list[str]:
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces: list[str] = self.tokenizer.convert_ids_to_tokens(ids)
        return pieces

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        """Ids between [CLS] and [SEP], cut to the most tokens."""
        ids = self.tokenizer.convert_tokens_to_ids(list(pieces[: self.max_tokens - 2]))
        return [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]


def draw_records(
    pairs: Sequence[tuple[str, str]],
    make: Callable[[str, str], Candidates | None],
    most: int,
    holdout: float,
    seed: int,
) -> DrawnRecords:
    """Draw at most ``most`` usable (document, summary); hold out that share of the documents.

    One document at least is held out; all pairs of a document are on one side.
    """
    used: list[tuple[str, Candidates]] = []
    skipped = 0
    for index in np.random.default_rng(seed).permutation(len(pairs)).tolist():
        if len(used) == most:
            break
        candidates = make(*pairs[index])
        if candidates is None:
            skipped += 1
        else:
            used.append((pairs[index][0], candidates))
    documents = list(dict.fromkeys(document for document, _ in used))
    held_out = set(documents[: max(1, int(len(documents) * holdout))])
    sides: tuple[list[Candidates], list[Candidates]] = ([], [])
    for document, record in used:
        sides[document in held_out].append(record)
    return DrawnRecords(*sides, skipped)


def delete_pieces(pieces: Sequence[str], rng: random.Random) -> list[str]:
    """Leave out int(`SHARE`·n) random word pieces, and with a `##` piece the one before it."""
    drawn = rng.sample(range(len(pieces)), int(len(pieces) * SHARE))
    before = [index - 1 for index in drawn if pieces[index].startswith("##")]
    gone = {*drawn, *before}
    return [piece for index, piece in enumerate(pieces) if index not in gone]


def disorder_words(
    sentences: Sequence[str], rng: random.Random, share: float = SHARE
) -> list[list[str]]:
    """In each sentence, swap int(share·n) pairs of words; punctuation marks are words too.

    The places are two random draws that each hold a word other than punctuation, so a swap may
    undo another. A sentence with too few words stays as it is (the published code never returns
    from one).
    """
    return [_swapped(_WORDS.findall(sentence), rng, share) for sentence in sentences]


def _swapped(words: list[str], rng: random.Random, share: float) -> list[str]:
    n_swaps = int(len(words) * share)
    if not n_swaps or all(word in _PUNCTUATION for word in words):
        return words
    first, second = (_places(words, n_swaps, rng) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        words[a], words[b] = words[b], words[a]
    return words


def _places(words: Sequence[str], count: int, rng: random.Random) -> list[int]:
    while True:
        places = rng.sample(range(len(words)), count)
        if any(words[place] not in _PUNCTUATION for place in places):
            return places


def disorder_sentences(sentences: Sequence[str], rng: random.Random) -> list[str]:
    """The sentences in another order, drawn from all others; a text of one sentence has none."""
    shuffled = list(sentences)
    if len(set(sentences)) > 1:
        while shuffled == list(sentences):
            rng.shuffle(shuffled)
    return shuffled


def add_sentence(
    sentences: Sequence[str], document_sentences: Sequence[str], rng: random.Random
) -> list[str]:
    """Put a sentence of the document at a random place.

    The document's sentence that is most like a sentence of the summary (difflib's quick ratio,
    the first at a tie) is left out beforehand, one for each; where none is left, nothing is added.
    """
    left = list(document_sentences)
    for sentence in sentences:
        if left:
            ratios = [
                difflib.SequenceMatcher(None, sentence, other).quick_ratio() for other in left
            ]
            left.pop(ratios.index(max(ratios)))
    place = rng.randrange(len(sentences) + 1)
    added = [rng.choice(left)] if left else []
    return [*sentences[:place], *added, *sentences[place:]]


# Candidates: documents with a good summary and its negatives, as token ids

#: Token positions, padded ones included, that go through the backbone together in training.
GROUP_TOKENS = 1024


class LSEpoch(NamedTuple):
    """Mean losses, and the share of held-out records whose good summary scores above the others."""

    epoch: int
    train_loss: float | None
    held_out_loss: float
    first_share: float


class Ranker(nn.Module):
    """Backbone and head with the scores, the loss, and one pass over the records."""

    def __init__(self, backbone: LoadedModel, config: LSTrainingConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone.model
        self.head: LinguisticHead = new_head(backbone.model, config.seed).to(backbone.model.device)
        self._pad_id = int(backbone.tokenizer.pad_token_id)
        for name, module in self.backbone.named_modules():
            if isinstance(module, nn.Dropout) and ".attention.self" not in name:
                module.p = config.dropout
        for name, parameter in self.backbone.named_parameters():
            if "pooler" in name:
                parameter.requires_grad_(False)

    def optimizer(self, factor: float) -> torch.optim.Adam:
        """Adam with one group for the backbone and one for the head, rates times ``factor``."""
        groups = [
            {"params": [p for p in module.parameters() if p.requires_grad], "lr": rate * factor}
            for module, rate in ((self.backbone, self.config.lr), (self.head, HEAD_LR))
        ]
        return torch.optim.Adam(groups, fused=True)

    def train_epoch(
        self,
        records: Sequence[Candidates],
        optimizer: torch.optim.Adam,
        epoch: int,
        progress: OnCount,
    ) -> float:
        """Take one step a batch, records in an order drawn for the epoch; return the mean loss."""
        self.train()
        order = np.random.default_rng((self.config.seed, epoch)).permutation(len(records)).tolist()
        size, total = BATCH_SIZE, 0.0
        steps = -(-len(records) // size)
        for step in range(steps):
            batch = [records[i] for i in order[step * size : (step + 1) * size]]
            torch.manual_seed((self.config.seed * 1_009 + epoch) * 1_000_003 + step)
            loss = torch.stack([hinges(scores) for scores in self(batch)]).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
            optimizer.step()
            total += float(loss.detach()) * len(batch)
            progress((epoch - 1) * steps + step + 1, self.config.epochs * steps)
        return total / len(records)

    @torch.no_grad()
    def measure(self, records: Sequence[Candidates]) -> tuple[float, float]:
        """The mean loss, and how often the good summary scores above all others."""
        self.eval()
        size = BATCH_SIZE
        batches = [records[i : i + size] for i in range(0, len(records), size)]
        rows = [scores for batch in batches for scores in self(batch)]
        first = [bool((scores[0] > scores[1:]).all()) for scores in rows]
        return float(np.mean([float(hinges(scores)) for scores in rows])), float(np.mean(first))

    def forward(self, batch: Sequence[Candidates]) -> tuple[Tensor, ...]:
        """LS = 0.01·L + S of each record's summaries, ``[1 + negatives]``, the good one first."""
        documents, _ = self._read([record.document for record in batch])
        sizes = [len(record.summaries) for record in batch]
        rows = [row for record in batch for row in record.summaries]
        summaries, linguistic = self._read(rows, likelihood=True)
        left = documents.repeat_interleave(torch.tensor(sizes, device=documents.device), dim=0)
        semantic = F.cosine_similarity(left, summaries, dim=1, eps=1e-6)
        return torch.split(linguistic + semantic, sizes)

    def _read(
        self, rows: Sequence[list[int]], *, likelihood: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The [CLS] states of the rows and, with ``likelihood``, their 0.01·L (else nothing).

        Rows of like lengths go through the backbone together.
        """
        order = longest_first([len(row) for row in rows])
        widths = [len(rows[i]) for i in order]
        states: list[Tensor] = []
        values: list[Tensor] = []
        for batch in plan_batches(widths, 0, GROUP_TOKENS, padded=True):
            group = [rows[i] for i in order[batch.start : batch.stop]]
            ids = self._tensor(group, self._pad_id)
            mask = self._tensor([[1] * len(row) for row in group], 0)
            hidden = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
            states.append(hidden[:, 0])
            if likelihood:
                counted = mask.bool()
                logs = torch.zeros(ids.shape, device=ids.device)
                logs[counted] = self.head(hidden[counted], ids[counted])
                values.append(ALPHA * logs.sum(dim=1) / mask.sum(dim=1))
        back = torch.from_numpy(np.argsort(order)).to(self.backbone.device)
        return torch.cat(states)[back], torch.cat(values)[back] if values else torch.zeros(0)

    def _tensor(self, rows: Sequence[Sequence[int]], value: int) -> Tensor:
        padded = pad(rows, max(map(len, rows)), value, left=False)
        return torch.from_numpy(padded).to(self.backbone.device)


def hinges(scores: Tensor) -> Tensor:
    """The loss of a record: Σ over the others of max(0, 1 − (first − other))."""
    return F.relu(1 - (scores[0] - scores[1:])).sum()


def train_ls_score(config: LSTrainingConfig, progress: OnCount = silent) -> EvaluationResult:
    """Train, and write the epoch that ranks best on the held-out records; the table `epochs` has
    all, epoch 0 the untrained model.

    Best is the largest share of held-out records whose good summary scores above all its
    negatives, then the smallest loss; the untrained model only where ``epochs`` is 0. After an
    epoch with a smaller share than the best, the learning rate is a tenth; after `PATIENCE` of
    them in a row it ends (as the published code). `InputError` where too little can be used.
    """
    device = resolve_device(config.device)
    backbone = load_backbone(config.backbone, offline=config.offline, device=device)
    limit = min(config.max_tokens, backbone.limit)
    make = CandidateMaker(
        backbone.tokenizer,
        NEGATIVES,
        seed=config.seed,
        max_tokens=min(limit, TRAIN_TOKENS),
    )
    texts = read_texts(config.tables).select("source", "summary").unique(maintain_order=True)
    drawn = draw_records(texts.rows(), make, config.max_records, config.holdout, config.seed)
    if not drawn.learning:
        raise InputError(
            f"{', '.join(config.tables)}: too little to train on; it takes two documents that "
            f"have more sentences than their summaries ({drawn.skipped} pairs were left out)"
        )
    model = Ranker(backbone, config)
    optimizer, factor, worse = model.optimizer(1.0), 1.0, 0
    epochs = [LSEpoch(0, None, *model.measure(drawn.held_out))]
    best, kept = epochs[0], None
    for number in range(1, config.epochs + 1):
        loss = model.train_epoch(drawn.learning, optimizer, number, progress)
        epoch = LSEpoch(number, loss, *model.measure(drawn.held_out))
        falls = number > 1 and epoch.first_share < best.first_share
        if kept is None or (epoch.first_share, -epoch.held_out_loss) > (
            best.first_share,
            -best.held_out_loss,
        ):
            best, kept = epoch, {k: v.detach().clone() for k, v in model.state_dict().items()}
        epochs.append(epoch)
        worse = worse + 1 if falls else 0
        if worse == PATIENCE:
            break
        if falls:
            factor *= 0.1
            optimizer = model.optimizer(factor)
    if kept is not None:
        model.load_state_dict(kept)
    settings = LSSettings(limit, config.recipe())
    write_checkpoint(config.out, settings, model.head, backbone)
    facts = {
        **{"model": str(config.out), "best_epoch": best.epoch, "records": len(drawn.learning)},
        **{"held_out": len(drawn.held_out), "skipped": drawn.skipped},
    }
    table = pl.DataFrame(epochs, schema=LSEpoch._fields, orient="row")
    return EvaluationResult(
        "ls-score", "LS_Score", config, {"epochs": table}, facts, [_section(facts, epochs)]
    )


def _section(facts: Mapping[str, Any], epochs: Sequence[LSEpoch]) -> Section:
    """Where the model is, and how each epoch ranks the held-out records."""
    note = (
        "model: {model}   epoch {best_epoch} of {records:,} records, {held_out:,} held out, "
        "{skipped:,} could not be used"
    )
    rows = [
        (str(epoch), fixed(loss, 4), fixed(held_out_loss, 4), f"{100 * share:.1f}")
        for epoch, loss, held_out_loss, share in epochs
    ]
    header = ("epoch", "loss", "held-out loss", "good summary first, %")
    return Section("LS_Score", header, rows, (note.format(**facts),))
