"""From a name in the settings to a model in memory: where it is, which version, on what device.

Only safetensors weights are read and no code from a model's repository is run. Whatever is wrong
with a model is said in one line that names what to do, before anything is spent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from claimscore import minilm
from claimscore.config import DType, EncoderConfig
from claimscore.errors import ConfigError, UnknownModelError
from claimscore.pipeline.encoders import embedded
from claimscore.pipeline.encoders.backbone import LoadedEncoder, encoder_backbone
from claimscore.pipeline.encoders.devices import resolve_device
from claimscore.pipeline.encoders.packed import packing_pays
from claimscore.pipeline.encoders.packed_families import family_of
from claimscore.pipeline.encoders.protocols import ModelInfo

logger = logging.getLogger("claimscore")

EMBEDDED = "embedded"

_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "tf_model.h5", "flax_model.msgpack")
#: Everything else that a model's numbers depend on.
_TEXTS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)


class ModelFolder(NamedTuple):
    """A model's folder on this disk, the name it was asked for by, and its exact version."""

    name: str
    folder: Path
    revision: str


def find_model(spec: str, *, offline: bool, also: Sequence[str] = ()) -> ModelFolder:
    """Return where ``HF_ID[@REV]`` or a folder is, fetched from the hub if need be.

    ``also`` are patterns of further files, in subfolders too, that the numbers depend on.
    Raises `UnknownModelError` where there is no such model, `ConfigError` where it cannot be used.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        source = ModelFolder(spec, path, "")
        check_files(source)
        return source._replace(revision=folder_digest(path, also))
    if path.exists():
        raise ConfigError(f"{spec} is a file; name the folder that holds the model")
    name, _, revision = spec.partition("@")
    if spec.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(name):
        raise UnknownModelError(f"{spec}: there is no such folder, and no hub model is named so")
    source = _from_hub(name, revision or None, offline=offline, also=also)
    check_files(source)
    return source


def check_files(source: ModelFolder) -> None:
    """Raise `ConfigError` unless the folder holds a config and safetensors weights."""
    folder = source.folder
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{source.name}: {folder} has no config.json; name a folder written by save_pretrained"
        )
    if any(True for pattern in _WEIGHTS[:2] for _ in folder.glob(pattern)):
        return
    if any(True for pattern in _PICKLED for _ in folder.glob(pattern)):
        raise ConfigError(
            f"{source.name} has only pickled weights, which could run code and are never read; "
            "convert them once with save_pretrained, which writes model.safetensors"
        )
    raise ConfigError(
        f"{source.name} has no weights as safetensors (model.safetensors); name a model or "
        "revision that has them"
    )


def folder_digest(folder: Path, also: Sequence[str] = ()) -> str:
    """Return 12 hex digits of the SHA-256 over names and bytes of config, tokenizer, weights.

    Why: a folder has no commit, and the same path may hold another model tomorrow. ``also`` as
    in `find_model`.
    """
    files = {path for pattern in (*_TEXTS, *_WEIGHTS, *also) for path in folder.glob(pattern)}
    digest = hashlib.sha256()
    for path in sorted(files):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:12]


def resolve_dtype(name: DType, device: torch.device) -> torch.dtype:
    """Return torch's dtype; float16 needs a GPU, since on a CPU it is slow and overflows."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise ConfigError(f"unknown dtype {name!r}; known: {', '.join(known)}")
    if name == "float16" and device.type == "cpu":
        raise ConfigError("float16 is not for the CPU; use --dtype float32 or bfloat16")
    if name == "bfloat16" and device.type == "cpu" and not packing_pays(torch.bfloat16):
        logger.warning("this CPU has no products in bfloat16: --dtype float32 is faster on it")
    return known[name]


def load_config(source: ModelFolder) -> Any:  # transformers' config classes share no typed fields
    """Return the model's configuration."""
    from transformers import AutoConfig

    with usable(source), quiet():
        return AutoConfig.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )


def load_tokenizer(
    source: ModelFolder, *, needs_padding: bool = True
) -> Any:  # the Auto classes return an untyped union
    """Return the model's tokenizer; one without a padding token cannot pad by itself."""
    from transformers import AutoTokenizer

    with usable(source), quiet():
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )
    if needs_padding and tokenizer.pad_token_id is None:
        raise ConfigError(f"{source.name}: its tokenizer has no padding token; name another model")
    return tokenizer


def load_weights(
    source: ModelFolder,
    auto_class: Any,  # an Auto class of transformers; they have no common typed base
    config: Any,
    *,
    device: torch.device,
    dtype: torch.dtype,
    may_lack: Callable[[str], bool] = lambda name: False,
) -> Any:
    """Return the model in evaluation mode on the device, every parameter from the checkpoint.

    A parameter that the checkpoint lacks would be random, and so would the scores be: refused,
    except where ``may_lack`` says that it is not used.
    """
    with usable(source), quiet():
        model, info = auto_class.from_pretrained(
            source.folder,
            config=config,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=dtype,
            output_loading_info=True,
        )
    missing = sorted(name for name in info["missing_keys"] if not may_lack(name))
    if missing:
        raise ConfigError(
            f"{source.name} has no weights for {', '.join(missing[:3])}"
            f"{' and more' if len(missing) > 3 else ''}: it was not trained for this task; "
            "name another model"
        )
    with usable(source):
        return model.to(device).eval()


def token_limit(tokenizer: Any, config: Any, model: Any) -> int:  # untyped, as above
    """Return how many tokens the model can read, its special tokens included.

    The tokenizer's own limit may be missing (a huge number). RoBERTa and its kin count positions
    from the padding index on, so that many of the position embeddings are no tokens.
    """
    limit = min(int(tokenizer.model_max_length), 10**6)
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions <= 0:
        return limit
    for name, module in model.named_modules():
        padding_index = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding_index is not None:
            positions -= padding_index + 1
            break
    return min(limit, int(positions))


@contextlib.contextmanager
def usable(source: ModelFolder) -> Iterator[None]:
    """Turn what transformers raises about a broken model into one line of `ConfigError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as exc:
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        reason = lines[0] if lines else type(exc).__name__
        raise ConfigError(f"{source.name} cannot be loaded: {reason}") from exc


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' loading reports and bars off the terminal; restore them afterwards."""
    from transformers.utils import logging

    transformers_logging: Any = logging  # the bars' functions have no types
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _from_hub(
    name: str, revision: str | None, *, offline: bool, also: Sequence[str] = ()
) -> ModelFolder:
    """Return the hub's snapshot folder; its name is the commit."""
    from huggingface_hub import errors, snapshot_download

    asked = f"{name}@{revision}" if revision else name
    try:
        folder = Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=[*_TEXTS, *_WEIGHTS, *also],
                ignore_patterns=["*/*.model"] if also else ["*/*"],
                local_files_only=offline,
            )
        )
    except errors.GatedRepoError as exc:
        raise ConfigError(f"{asked} is gated: accept its terms on the hub and log in") from exc
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ) as exc:
        raise UnknownModelError(
            f"{asked}: the model hub has no such model or revision, and there is no such folder"
        ) from exc
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as exc:
        raise UnknownModelError(
            f"{asked} is not in the local model cache and "
            f"{'--offline is set' if offline else 'the model hub cannot be reached'}; "
            f"fetch it once with a network, name a folder, or use 'embedded'"
        ) from exc
    except OSError as exc:
        raise ConfigError(f"{asked} cannot be fetched: {exc}") from exc
    return ModelFolder(asked, folder, folder.name)


class LoadedModel(NamedTuple):
    """A model in memory with its tokenizer (transformers': untyped).

    ``limit`` is how many tokens it can read, the special ones included.
    """

    info: ModelInfo
    model: Any
    tokenizer: Any
    limit: int


class ModelLoader:
    """Loads the models of a config onto its device, in its arithmetic.

    Raises `ConfigError` for a device or a dtype that is not there.
    """

    def __init__(self, config: EncoderConfig) -> None:
        if config.dtype == "auto":  # resolved before, where it is to be more
            config = dataclasses.replace(config, dtype="float32")
        self.config = config
        self.device = resolve_device(config.device)
        self.dtype = resolve_dtype(config.dtype, self.device)

    def find(self, spec: str, also: Sequence[str] = ()) -> ModelFolder:
        """Return where a model is: `find_model`, and for ``embedded`` the package's backbone."""
        if spec == EMBEDDED:
            folder = minilm.find(offline=self.config.offline)
            return ModelFolder(EMBEDDED, folder, minilm.SHA256[:12])
        return find_model(spec, offline=self.config.offline, also=also)

    def settings(self, source: ModelFolder) -> Any:
        """Return the model's configuration for `backbone`, which may be changed."""
        if source.name == EMBEDDED:
            return SimpleNamespace(**embedded.read_settings(source.folder))
        return load_config(source)

    def backbone(
        self, source: ModelFolder, settings: Any, *, has_last_layer: bool = True
    ) -> LoadedEncoder:
        """Load an encoder to run; for ``embedded`` transformers is not imported."""
        if source.name != EMBEDDED:
            info, model, tokenizer, limit = self.encoder(source, settings)
            if not has_last_layer and hasattr(model, "final_norm"):
                model.final_norm = torch.nn.Identity()
            backbone = encoder_backbone(model, tokenizer, dtype=self.dtype)
            return LoadedEncoder(info, backbone, tokenizer, limit)
        info = ModelInfo(EMBEDDED, source.revision, self.config.dtype)
        return embedded.load_packed(
            info, source.folder, vars(settings), device=self.device, dtype=self.dtype
        )

    def encoder(self, source: ModelFolder, settings: Any = None) -> LoadedModel:
        """Load an encoder without the head that its checkpoint may have."""
        from transformers import AutoModel

        # The pooler is a first-token output, which is not read here.
        return self.load(source, AutoModel, settings, may_lack=lambda name: "pooler" in name)

    def load(
        self,
        source: ModelFolder,
        auto_class: Any,
        settings: Any = None,
        *,
        needs_padding: bool = True,
        may_lack: Callable[[str], bool] = lambda name: False,
        is_packed: bool = False,
    ) -> LoadedModel:
        """Load a model as `load_weights` does; ``settings`` is its config where that is changed.

        A model that runs packed, as those of a family do, is loaded in float32, and keeps that
        beside its products.
        """
        settings = load_config(source) if settings is None else settings
        tokenizer = load_tokenizer(source, needs_padding=needs_padding)
        if needs_padding and getattr(settings, "pad_token_id", None) is None:
            settings.pad_token_id = tokenizer.pad_token_id
        is_packed = is_packed or family_of(settings) is not None
        model = load_weights(
            source,
            auto_class,
            settings,
            device=self.device,
            dtype=torch.float32 if is_packed else self.dtype,
            may_lack=may_lack,
        )
        info = ModelInfo(source.name, source.revision, self.config.dtype)
        return LoadedModel(info, model, tokenizer, token_limit(tokenizer, model.config, model))
