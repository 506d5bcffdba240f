"""Tiny LS_Score checkpoints: the golden one, and a random one."""

import json
import shutil
from pathlib import Path

from claimscore.pipeline.encoders.ls_model import (
    FORMAT,
    HEAD,
    SETTINGS,
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
    (folder / SETTINGS).write_text(json.dumps({"format": FORMAT}), encoding="utf-8")
    return folder


def tiny_checkpoint(folder: Path, *, max_tokens: int = 64) -> Path:
    """A random model of two small layers that reads ``max_tokens`` tokens."""
    backbone = load_backbone(str(save_tiny_encoder(folder / "backbone")))
    head = new_head(backbone.model, 1)
    return write_checkpoint(folder / "model", LSSettings(max_tokens), head, backbone)
