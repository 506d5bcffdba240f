"""Which words of a text a masked language model gets right, with a summary at hand and without.

BLANC (Vasilyev et al. 2020, Fill in the BLANC: Human-free quality estimation of document summaries)
masks the tokens of each sentence in turns, every sixth at once. *Help* puts the summary before the
sentence, or full stops in its place; *tune* trains the model on the summary first. All constants
are those of the authors' program (PrimerAI/blanc). Sentences are cut by the rules here.
"""

from __future__ import annotations

import copy
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import PaddedModel
from claimscore.pipeline.encoders.distinct import distinct
from claimscore.pipeline.encoders.language_models import Likelihood, load_language_model
from claimscore.pipeline.encoders.protocols import OnBatch
from claimscore.pipeline.encoders.tokenizing import TokenBatch, WholeRows, ragged
from claimscore.text import split_sentences

#: Every so many tokens of a sentence are masked at once.
GAP = 6

#: Letters of a token that is masked: a whole word, and the first piece of a word. Other pieces of a
#: word are never masked.
LEAST_WORD, LEAST_LEAD = 4, 2

#: Tokens of a sentence that remain at least where sentence and summary are too long together.
LEAST_SENTENCE = 100

#: Training on a summary: passes over it, the length of its chunks and the step between them, the
#: share of tokens masked at once, and of these the shares that are replaced and left as they are.
EPOCHS, CHUNK, STRIDE, MASKED, REPLACED, KEPT = 10, 64, 32, 0.15, 0.1, 0.1
LEARNING_RATE, WEIGHT_DECAY, SEED = 5e-5, 1e-2, 1

#: Tokens that replace others in training, where the vocabulary is as large as BERT's.
_REPLACEMENTS = (1000, 29_999)

_IGNORED = -100
_WORD_BEGINS = "Ġ▁"

Ids = tuple[int, ...]


class Masking(NamedTuple):
    """Token ids with some masked; the places of these, and the ids that stood there."""

    ids: Ids
    places: tuple[int, ...]
    answers: Ids

    def after(self, first: Ids, last: Ids) -> Masking:
        """With other tokens around it."""
        places = tuple(place + len(first) for place in self.places)
        return Masking(first + self.ids + last, places, self.answers)


class MaskedLanguageModel(Likelihood):
    """Counts of masked tokens that are predicted, under a masked language model."""

    def __init__(self, model: Any, *details: Any, **options: Any) -> None:
        super().__init__(*details, **options)
        self._model = model
        self._specials = (self._tokenizer.cls_token_id,), (self._tokenizer.sep_token_id,)
        (self._filler, *_) = self._ids(".")

    @property
    def limit(self) -> int:
        """The most tokens of a summary and a sentence together; longer ones are cut."""
        return self.window

    def help_counts(
        self, sources: Sequence[str], summaries: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """Return ``[n, 4]``: tokens right in neither case, only with the summary, only without it,
        and in both. Each masking is read with the summary before it and with full stops."""
        pairs = distinct(list(zip(sources, summaries, strict=True)))
        maskings: list[Masking] = []
        owners: list[int] = []
        for owner, (source, summary) in enumerate(pairs.items):
            for masking, help_ids in self._helped(source, summary):
                for before in ((self._filler,) * len(help_ids), help_ids):
                    maskings.append(masking.after(self._specials[0] + before, self._specials[1]))
                    owners.append(owner)
        right = self._right(pairs, maskings, owners, self._logits, on_batch)
        return _counts(len(pairs.items), owners[::2], right[::2], right[1::2])[pairs.inverse]

    def tune_counts(
        self, sources: Sequence[str], summaries: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float64]:
        """Return ``[n, 4]`` as `help_counts`, of the model trained on the summary and as it is."""
        pairs = distinct(list(zip(sources, summaries, strict=True)))
        output = np.zeros((len(pairs.items), 4))
        for place, (source, summary) in enumerate(pairs.items):
            one = distinct([(source, summary)])
            maskings = [
                masking.after(*self._specials)
                for sentence in self._sentences(source)
                for masking in self._maskings(self._fitting(sentence, ()))
            ]
            owners = [0] * len(maskings)
            tuned = self._tuned(summary)
            before = self._right(one, maskings, owners, self._logits, None)
            after = self._right(one, maskings, owners, tuned, None)
            output[place] = _counts(1, owners, before, after)[0]
            if on_batch is not None:
                on_batch(place + 1)
        return output[pairs.inverse]

    def truncates(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
        """Return for each (source, summary) whether something was cut, ``[n]``."""
        room = self.limit - 2
        return np.array(
            [
                len(self._ids(_clean(summary))) + max(map(len, self._sentences(source)), default=0)
                > room
                for source, summary in pairs
            ],
            dtype=bool,
        )

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _sentences(self, text: str) -> list[Ids]:
        return [tuple(self._ids(sentence)) for sentence in split_sentences(_clean(text))]

    def _helped(self, source: str, summary: str) -> Iterator[tuple[Masking, Ids]]:
        """Every masking of the source's sentences, with the summary's tokens that fit beside it."""
        parts = self._sentences(summary)
        whole = tuple(token for part in parts for token in part)
        for sentence in self._sentences(source):
            cut = self._fitting(sentence, whole)
            room = self.limit - 2 - len(cut)
            beside = whole if len(whole) <= room else _first_parts(parts, room)
            for masking in self._maskings(cut):
                yield masking, beside

    def _fitting(self, sentence: Ids, summary: Ids) -> Ids:
        """The sentence, cut where it and the summary are too long; some of it always remains."""
        excess = max(0, 2 + len(summary) + len(sentence) - self.limit)
        least = max(0, len(sentence) - min(LEAST_SENTENCE, self.limit - 2))
        return sentence[: len(sentence) - min(excess, least)]

    def _maskings(self, sentence: Ids) -> list[Masking]:
        """The sentence with every sixth token masked, beginning with each of the first six."""
        gap = min(GAP, len(sentence))
        wanted = set(self._maskable(sentence))
        steps = [
            [i for i in range(first, len(sentence), gap) if i in wanted] for first in range(gap)
        ]
        return [self._masked(sentence, places) for places in steps if places]

    def _maskable(self, ids: Ids) -> list[int]:
        """The places of words of four letters, and of pieces of two that begin a longer word."""
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(list(ids))
        marked = any(piece[:1] in _WORD_BEGINS for piece in pieces)

        def goes_on(place: int) -> bool:
            if place == len(pieces):
                return False
            if not marked:
                return pieces[place].startswith("##")
            return place > 0 and pieces[place][:1] not in _WORD_BEGINS

        return [
            place
            for place, piece in enumerate(pieces)
            if not goes_on(place)
            and len(piece.lstrip(_WORD_BEGINS))
            >= (LEAST_LEAD if goes_on(place + 1) else LEAST_WORD)
        ]

    def _masked(self, ids: Ids, places: Sequence[int]) -> Masking:
        masked = list(ids)
        for place in places:
            masked[place] = self._tokenizer.mask_token_id
        return Masking(tuple(masked), tuple(places), tuple(ids[place] for place in places))

    def _right(
        self,
        items: Any,
        maskings: Sequence[Masking],
        owners: Sequence[int],
        logits: Callable[[TokenBatch], Tensor],
        on_batch: OnBatch | None,
    ) -> list[NDArray[np.bool_]]:
        """For each masking which of its masked tokens are predicted."""

        def forward(places: list[int], batch: TokenBatch) -> Iterator[NDArray[np.bool_]]:
            output = logits(batch)
            for i, place in enumerate(places):
                masked = torch.tensor(maskings[place].places, device=output.device)
                best = output[i, masked].argmax(-1).cpu().numpy()
                yield best == np.array(maskings[place].answers)

        rows = WholeRows(ragged(masking.ids for masking in maskings))
        of_rows = np.array(owners, dtype=np.int64)
        return self._each(items, rows, forward, on_batch, owners=of_rows) if maskings else []

    # -- training on a summary

    def _tuned(self, summary: str) -> PaddedModel:
        """A copy of the model that was trained on a summary; the same for the same summary."""
        model = copy.deepcopy(self._model)
        examples = self._examples(summary)
        decayed, others = list[Tensor](), list[Tensor]()
        for name, parameter in model.named_parameters():
            plain = name.endswith("bias") or "LayerNorm.weight" in name
            (others if plain else decayed).append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": WEIGHT_DECAY},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=LEARNING_RATE,
        )
        steps = max(1, EPOCHS * len(examples))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        devices = [self._logits.device] if self._logits.device.type == "cuda" else []
        model.train()
        with torch.random.fork_rng(devices):
            torch.manual_seed(SEED)
            for ids, labels in EPOCHS * examples:
                optimizer.zero_grad()
                inputs = torch.tensor([ids], device=self._logits.device)
                wanted = torch.tensor([labels], device=self._logits.device)
                model(input_ids=inputs, labels=wanted).loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        return PaddedModel(
            _logits_of(model), device=self._logits.device, pad_id=self._logits.pad_id
        )

    def _examples(self, summary: str) -> list[tuple[list[int], list[int]]]:
        """Ids and labels of every masking of every chunk of the summary."""
        draw = random.Random(SEED)
        ids = tuple(self._ids(summary))
        output = []
        size = min(CHUNK, self.limit - 2)
        for start in range(0, len(ids), STRIDE):
            chunk = ids[start : start + size]
            places = self._maskable(chunk)
            draw.shuffle(places)
            n = max(int(len(chunk) * MASKED), 1)
            for begin in range(0, len(places), n):
                masking = self._masked(chunk, sorted(places[begin : begin + n]))
                output.append(self._example(masking.after(*self._specials), draw))
        return output

    def _example(self, masking: Masking, draw: random.Random) -> tuple[list[int], list[int]]:
        ids, labels = list(masking.ids), [_IGNORED] * len(masking.ids)
        last = min(_REPLACEMENTS[1], len(self._tokenizer) - 1)
        for place, answer in zip(masking.places, masking.answers, strict=True):
            labels[place] = answer
            chance = draw.random()
            if chance < REPLACED:
                ids[place] = draw.randint(min(_REPLACEMENTS[0], last // 30), last)
            elif chance < REPLACED + KEPT:
                ids[place] = answer
        return ids, labels


def _counts(
    n: int,
    owners: Sequence[int],
    before: Sequence[NDArray[np.bool_]],
    after: Sequence[NDArray[np.bool_]],
) -> NDArray[np.float64]:
    """``[n, 4]``: right in neither, only after, only before, in both."""
    output = np.zeros((n, 4))
    for owner, one, other in zip(owners, before, after, strict=True):
        output[owner] += np.bincount(2 * one + other, minlength=4)
    return output


def _first_parts(parts: Sequence[Ids], room: int) -> Ids:
    """Whole sentences from the first on; of a first one that is too long its last tokens."""
    kept: Ids = ()
    for part in parts:
        if len(kept) + len(part) > room:
            break
        kept += part
    return kept or parts[0][len(parts[0]) - room :]


def _clean(text: str) -> str:
    return unicodedata.normalize("NFKD", text)


def _logits_of(model: Any) -> Callable[..., Tensor]:
    def logits(**inputs: Tensor) -> Tensor:
        output: Tensor = model(**inputs).logits
        return output

    return logits


def load(config: EncoderConfig) -> MaskedLanguageModel:
    """Load the model that ``config.masked_lm`` names; `ConfigError` where it is none."""
    from transformers import AutoModelForMaskedLM

    assert config.masked_lm is not None, "check_named"
    loaded, options = load_language_model(config, config.masked_lm, AutoModelForMaskedLM)
    if loaded.tokenizer.mask_token_id is None:
        raise ConfigError(
            f"{loaded.info.model}: its tokenizer has no mask token; name another --masked-lm, such "
            "as google-bert/bert-base-uncased"
        )
    return MaskedLanguageModel(
        loaded.model, loaded.info, _logits_of(loaded.model), loaded.tokenizer, **options
    )
