"""One vector a text, from a sentence encoder: the numbers that sentence-transformers gives.

The steps from token states to a vector are read from a sentence-transformers folder, `modules.json`
and the folder of its pooling, after which vectors may be normalised. A plain encoder has none of it
and gets the mean over its tokens. Everything else that a model may ask for is refused: an embedding
that leaves a step out is another model's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from claimscore.config import EncoderConfig
from claimscore.errors import ConfigError
from claimscore.pipeline.encoders.backbone import LoadedEncoder, TextModel, refuse_nan, row_sums
from claimscore.pipeline.encoders.distinct import distinct_texts
from claimscore.pipeline.encoders.loading import EMBEDDED, ModelFolder, ModelLoader
from claimscore.pipeline.encoders.protocols import OnBatch
from claimscore.pipeline.encoders.tokenizing import TokenBatch

logger = logging.getLogger("claimscore")

#: Files besides the usual ones that an embedding depends on.
LAYOUT_FILES = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
)


class SentenceLayout(NamedTuple):
    """How the token states of rows become vectors ``[rows, d]``, of unit length where `normalised`.

    ``limit`` is the most tokens that the authors let the model read, None where they do not say.
    """

    pooling: str
    normalised: bool = False
    limit: int | None = None
    lower_case: bool = False

    @property
    def reads_first_only(self) -> bool:
        """Whether the first token's state is all that is read."""
        return self.pooling == "cls"

    def vectors(self, states: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        """Pool states ``[tokens, dim]`` of rows one after another.

        Where `reads_first_only`, states are those of the first tokens, ``[rows, dim]``.
        """
        pooled = POOLINGS[self.pooling](states, lengths)
        return F.normalize(pooled, dim=-1) if self.normalised else pooled


def _mean(states: Tensor, lengths: NDArray[np.int64]) -> Tensor:
    return row_sums(states, lengths) / torch.from_numpy(lengths).to(states)[:, None]


#: Name as sentence-transformers writes it -> pooling of states ``[tokens, dim]`` of rows.
POOLINGS: dict[str, Callable[[Tensor, NDArray[np.int64]], Tensor]] = {
    "mean": _mean,
    "cls": lambda states, lengths: states,
}

#: The mean over all tokens, special ones included.
PLAIN = SentenceLayout("mean")
#: What the authors of all-MiniLM-L6-v2 let it read, and what they do with its states.
EMBEDDED_LAYOUT = SentenceLayout("mean", normalised=True, limit=256)


class BatchedEmbedder(TextModel):
    """Sentence embeddings from one model on one device.

    Guarantees: rows in the order of the input, each distinct text encoded once, and never a
    vector with a NaN. ``layout`` says how token states become a vector.
    """

    def __init__(
        self, loaded: LoadedEncoder, layout: SentenceLayout, batch_tokens: int | None = None
    ) -> None:
        limit = loaded.limit if layout.limit is None else min(loaded.limit, layout.limit)
        super().__init__(loaded._replace(limit=limit), batch_tokens)
        self.layout = layout

    @property
    def facts(self) -> dict[str, str]:
        """The settings besides `info` that change the numbers, for the stored results."""
        return {
            "limit": str(self.limit),
            "layout": f"{self.layout.pooling}{' normalize' * self.layout.normalised}",
            "lower_case": str(self.layout.lower_case),
            "packed": str(self.packed),
        }

    def as_read(self, text: str) -> str:
        """A text as the tokenizer gets it."""
        return text.lower() if self.layout.lower_case else text

    def embed(
        self, texts: Sequence[str], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, d]`` vectors in the order of the texts; no texts give ``[0, 0]``.

        ``on_batch`` hears the number of texts done after each batch and may raise to stop. Raises
        `ValueError` for a blank text, and `RejectedItemsError` naming the texts of which the
        tokenizer leaves nothing or which do not fit into memory.
        """
        unique = distinct_texts(texts)
        vectors = self._each(unique, self._encoded(unique).rows, self._vectors, on_batch)
        return np.stack(vectors)[unique.inverse] if vectors else np.zeros((0, 0), dtype=np.float32)

    def _vectors(self, places: list[int], batch: TokenBatch) -> NDArray[np.float32]:
        read = self._backbone.first if self.layout.reads_first_only else self._backbone.states
        states = refuse_nan(self.layout.vectors(read(batch), batch.lengths), self.info)
        vectors: NDArray[np.float32] = states.cpu().numpy()
        return vectors


def load(config: EncoderConfig) -> BatchedEmbedder:
    """Load the sentence encoder that ``config.embedder`` names: "embedded", HF_ID[@REV], a folder.

    A sentence-transformers model is used as its folder says, any other encoder with the mean over
    its tokens. `ConfigError` where it cannot be had, or asks for a step that is not known here.
    """
    loader = ModelLoader(config)
    source = loader.find(config.embedder, also=LAYOUT_FILES)
    settings = loader.settings(source)
    if getattr(settings, "is_encoder_decoder", False):
        raise ConfigError(f"{source.name} is not a plain encoder; name another sentence encoder")
    embedded = source.name == EMBEDDED
    layout = EMBEDDED_LAYOUT if embedded else read_layout(source)
    if layout is PLAIN:
        logger.warning(
            "%s is no sentence-transformers model: the mean over its tokens is used", source.name
        )
    return BatchedEmbedder(loader.backbone(source, settings), layout, config.batch_tokens)


def read_layout(source: ModelFolder) -> SentenceLayout:
    """The layout of a model's folder; `PLAIN` where it has no `modules.json`.

    `ConfigError` for a module, a pooling or an option that is not known here.
    """
    path = source.folder / "modules.json"
    if not path.is_file():
        return PLAIN
    modules = _read(source, path)
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise ConfigError(f"{source.name}: {path} is not a list of modules")
    kinds = [str(item.get("type", "")).rpartition(".")[2] for item in modules]
    places = [str(item.get("path", "")) for item in modules]
    if any(Path(place).name != place or place == ".." for place in places):
        raise ConfigError(f"{source.name}: {path} names a folder outside of the model's own")
    folders = [source.folder / place for place in places]
    if kinds[:2] != ["Transformer", "Pooling"] or folders[0] != source.folder:
        raise ConfigError(
            f"{source.name}: an encoder in the model's own folder and a pooling are expected, "
            f"not {', '.join(kinds) or 'nothing'}; name another sentence encoder"
        )
    _refuse_prompt(source)
    settings = _settings(source, source.folder / "sentence_bert_config.json")
    pooling = _pooling(source, folders[1])
    if others := [kind for kind in kinds[2:] if kind != "Normalize"]:
        raise ConfigError(
            f"{source.name}: its module {others[0]} is not known here (known: Transformer, "
            "Pooling, Normalize); name another sentence encoder"
        )
    limit = settings.get("max_seq_length")
    return SentenceLayout(
        pooling,
        normalised=len(kinds) > 2,
        limit=None if limit is None else int(limit),
        lower_case=bool(settings.get("do_lower_case")),
    )


def _refuse_prompt(source: ModelFolder) -> None:
    settings = _settings(source, source.folder / "config_sentence_transformers.json")
    name = settings.get("default_prompt_name")
    if name and (settings.get("prompts") or {}).get(name):
        raise ConfigError(
            f"{source.name} puts the prompt {name!r} before every text, which is not done here; "
            "name another sentence encoder"
        )


def _pooling(source: ModelFolder, folder: Path) -> str:
    """The name of the one pooling; older folders have a yes or no for each kind."""
    settings = _settings(source, folder / "config.json", needed=True)
    pooling = settings.get("pooling_mode")
    if pooling is None:
        marks = [key.removeprefix("pooling_mode_") for key, on in settings.items() if on is True]
        renamed = {"cls_token": "cls", "mean_tokens": "mean"}
        known = [renamed.get(mark, mark) for mark in marks if mark != "include_prompt"]
        pooling = known[0] if len(known) == 1 else "+".join(known)
    if isinstance(pooling, list):
        pooling = "+".join(map(str, pooling))
    if pooling not in POOLINGS:
        raise ConfigError(
            f"{source.name}: its pooling {pooling or '(none)'} is not known here "
            f"(known: {', '.join(POOLINGS)}); name another sentence encoder"
        )
    return str(pooling)


def _settings(source: ModelFolder, path: Path, *, needed: bool = False) -> dict[str, Any]:
    """A JSON object; where the file may be missing, an empty one."""
    if not needed and not path.is_file():
        return {}
    content = _read(source, path)
    if not isinstance(content, dict):
        raise ConfigError(f"{source.name}: {path} is not a JSON object")
    return content


def _read(source: ModelFolder, path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{source.name}: {path} cannot be read: {exc}") from exc
