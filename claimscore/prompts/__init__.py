"""Prompts: one file a version, `prompts/<task>/v<N>.toml`, never edited once released."""

from __future__ import annotations

from claimscore.prompts.files import (
    DEFAULT_VERSION,
    Spec,
    available_versions,
    load_prompt,
    load_prompt_file,
    prompt_names,
)
from claimscore.prompts.prompt import Prompt, numbered

__all__ = [
    "DEFAULT_VERSION",
    "Prompt",
    "Spec",
    "available_versions",
    "load_prompt",
    "load_prompt_file",
    "numbered",
    "prompt_names",
]
