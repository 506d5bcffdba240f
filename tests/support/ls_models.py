"""Tiny LS_Score checkpoints: the golden one, and a random one with either head."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from claimscore.pipeline.encoders.loading import folder_digest
from claimscore.pipeline.encoders.ls_model import (
    FORMAT,
    HEAD,
    HERE,
    SETTINGS,
    HeadKind,
    LSSettings,
    load_backbone,
    new_head,
    write_checkpoint,
)
from tests.support.shared_data import shared
from tests.support.tiny_models import save_tiny_encoder


def golden_checkpoint(folder: Path) -> Path:
    """The published golden weights as a checkpoint folder, written by hand."""
    source = shared("data/ls_score")
    folder.mkdir(parents=True)
    for path in (source / "tiny_bert").iterdir():
        shutil.copyfile(path, folder / path.name)
    shutil.copyfile(source / "ls_head.safetensors", folder / HEAD)
    settings = {"format": FORMAT, "backbone": HERE, "revision": folder_digest(folder)}
    (folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    return folder


def tiny_checkpoint(folder: Path, kind: HeadKind = "ls", *, max_tokens: int = 64) -> Path:
    """A random model of two small layers that reads ``max_tokens`` tokens."""
    backbone = load_backbone(str(save_tiny_encoder(folder / "backbone")))
    settings = LSSettings(HERE, backbone.info.revision, head=kind, max_tokens=max_tokens)
    out = folder / "model"
    return write_checkpoint(out, settings, new_head(kind, backbone.model, 1), backbone, True)
