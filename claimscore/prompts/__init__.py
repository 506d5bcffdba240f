"""Prompts: one file a version, `prompts/<task>/v<N>.toml`, never edited once released."""

from __future__ import annotations

from claimscore.prompts.prompt import (
    Prompt,
    available_versions,
    load_prompt,
    load_prompt_file,
    prompt_names,
    prompt_source,
)

__all__ = [
    "Prompt",
    "available_versions",
    "load_prompt",
    "load_prompt_file",
    "prompt_names",
    "prompt_source",
]
