"""The user's folder of prompts, and what is wrong in a file."""

from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.prompts import available_versions, load_prompt, load_prompt_file
from tests.support.prompt_files import prompt_file


def test_settings_of_a_summary_are_those_of_a_sentence(tmp_path: Path) -> None:
    mine = load_prompt_file(
        prompt_file(tmp_path / "m.toml", "decompose=v1", "[settings]\ntemperature = 0.9\n")
    )
    assert (mine.settings.temperature, mine.settings.max_tokens) == (0.9, 256)
    assert (mine.summary_settings.temperature, mine.summary_settings.max_tokens) == (0.9, 1024)


def test_a_limit_of_tokens_goes_with_the_tokens_that_it_limits(tmp_path: Path) -> None:
    file, limit = tmp_path / "v7.toml", "[settings]\nmax_tokens_limit = 4000\n"
    mine = load_prompt("decompose", str(prompt_file(file, "decompose=v1", limit)))
    assert (mine.settings.max_tokens_limit, mine.summary_settings.max_tokens_limit) == (4000, None)
    assert mine.digest != load_prompt("decompose").digest
    mine = load_prompt_file(prompt_file(file, "facts=v1", limit))
    assert mine.summary_settings.max_tokens_limit == 4000


def test_the_folder_goes_before_ours(tmp_path: Path) -> None:
    prompt_file(tmp_path / "facts" / "v1.toml", "facts=v1", "[settings]\nmax_tokens = 77\n")
    prompt_file(tmp_path / "facts" / "v3.toml", "facts=v1", 'system = "Facts."')
    assert load_prompt("facts", "v1", tmp_path).settings.max_tokens == 77
    assert load_prompt("facts", "v3", tmp_path).system == "Facts."
    assert load_prompt("facts", "v2", tmp_path).digest == load_prompt("facts", "v2").digest


#: What is wrong in a copy of `facts=v1` with these keys, and the key that is named.
WRONG = [
    ("[settings]\ntexts_per_request = 4", "user: .*go together"),
    ('user = "$texts"', "user: .*go together"),
    ('user = "$texts"\noutput = {}\n[settings]\ntexts_per_request = 4', "user: .*needs \\[output"),
    ("[settings]\nsamples = 3", "settings.samples: at temperature 0"),
    ("[settings]\nmax_tokens_limit = 9", "settings.max_tokens_limit: 9 is below max_tokens"),
    ('[settings]\nmodel = "m"', "settings.model: Extra inputs"),
    ("[settings.summary]\nmax_token = 4", "settings.summary.max_token: Extra inputs"),
    ("[settings]\ntemperature = inf", "settings.temperature: .*finite number"),
    ("[settings]\ntemperature = true", "settings.temperature: .*valid number"),
    ("[settings]\nmax_tokens = 0", "settings.max_tokens: .*greater than or equal to 1"),
    ('[settings]\nmax_tokens = "9"', "settings.max_tokens: .*valid integer"),
    ("[settings.extra]\nsystem = 1", "settings.extra: system: it cannot be set here"),
    ("[setings]", "setings: Extra inputs"),
    ('inherits = "v1"', "inherits: Extra inputs"),
    ("examples = 3", "examples: .*valid list"),
    ('[[examples]]\nuser = "x"\nanswer = "y"', "examples.0.assistant: Field required"),
    ('version = "a|b"', "version: .*match pattern"),
    ('version = "a\\n\\u001b[31m"', "version: .*match pattern"),
    ('name = ""', "name: .*match pattern"),
    ("system = 1", "system: .*valid string"),
    ('user = ""', "user: must be a text"),
    ('user = "$ text"', "user: has a lone \\$"),
    ('[output]\nsure = "float"', "output: output.sure: unknown type 'float'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = prompt_file(tmp_path / "mine.toml", "facts=v1", text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_prompt_file(path)
    assert f"{path}: " in str(caught.value)


def test_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "facts"\nuser = ""\nsystm = "x"\n')
    with pytest.raises(ConfigError, match="version") as caught:
        load_prompt_file(path)
    for line in ("version: Field required", "user: must be a text", "systm: Extra inputs"):
        assert f"{path}: {line}" in str(caught.value)
    for text, said in (("[settings\nx = 1", ".*line 1"), ("x = " + "[" * 3000, "lists or tables")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"mine\.toml: {said}"):
            load_prompt_file(path)


def test_a_version_is_a_word(tmp_path: Path) -> None:
    for name in ("ok", ".hidden", "a|b", "a b", "a\nb"):
        prompt_file(tmp_path / "facts" / f"{name}.toml", "facts=v1", 'version = "x"')
    assert available_versions("facts", tmp_path) == ["v1", "v2", "ok"]
    for name, version in (("facts", "a|b"), ("facts", "../facts/v1"), ("../facts", "v1")):
        with pytest.raises(ConfigError, match="a version is like v1"):
            load_prompt(name, version, tmp_path)


def test_a_file_in_the_place_of_another(tmp_path: Path) -> None:
    prompt_file(tmp_path / "paraphrase" / "x.toml", "facts=v1")
    prompt_file(tmp_path / "facts" / "y.toml", "facts=v1", 'version = "z"')
    for name, version, says in (("paraphrase", "x", "facts=x"), ("facts", "y", "facts=z")):
        with pytest.raises(ConfigError, match=f"it says {says}; .*as its place: {name}={version}"):
            load_prompt(name, version, tmp_path)
