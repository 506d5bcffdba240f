"""The user's folder of prompts, what files inherit, and where the errors in them are."""

from __future__ import annotations

from pathlib import Path

import pytest

from claimscore.errors import ConfigError
from claimscore.prompts import available_versions, load_prompt, load_prompt_file


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_takes_from_its_parent_what_it_does_not_say(tmp_path: Path) -> None:
    write(
        tmp_path / "decompose" / "warm.toml",
        'inherits = "v1"\nsystem = "Break it up."\n[settings]\ntemperature = 0.9\n',
    )
    ours, mine = load_prompt("decompose"), load_prompt("decompose", "warm", tmp_path)
    assert (mine.name, mine.version, mine.system) == ("decompose", "warm", "Break it up.")
    assert (mine.user, mine.examples, mine.output) == (ours.user, ours.examples, ours.output)
    assert (mine.settings.temperature, mine.settings.max_tokens) == (0.9, 256)
    assert (mine.summary_settings.temperature, mine.summary_settings.max_tokens) == (0.9, 1024)
    assert mine.changes == "", "what changed in the parent is not what changed here"


def test_the_digest_is_that_of_the_whole(tmp_path: Path) -> None:
    base = write(tmp_path / "base.toml", 'inherits = "negate=v1"\n')
    child = write(tmp_path / "child.toml", 'inherits = "base.toml"\nversion = "mine"\n')
    before = load_prompt_file(child)
    assert before.digest == load_prompt("negate").digest
    assert (before.name, before.version) == ("negate", "mine")
    write(base, 'inherits = "negate=v1"\nsystem = "Negate."\n')
    assert load_prompt_file(child).digest != before.digest


def test_a_limit_of_tokens_goes_with_the_tokens_that_it_limits(tmp_path: Path) -> None:
    file = tmp_path / "decompose" / "v7.toml"
    text = 'inherits = "v1"\n[settings]\nmax_tokens_limit = 300\n'
    mine = load_prompt("decompose", str(write(file, text)))
    assert (mine.settings.max_tokens_limit, mine.summary_settings.max_tokens_limit) == (300, None)
    assert mine.digest != load_prompt("decompose").digest
    mine = load_prompt("decompose", str(write(file, text + "[settings.summary]\nmax_tokens = 7\n")))
    assert (mine.settings.max_tokens_limit, mine.summary_settings.max_tokens_limit) == (300, None)
    text = 'inherits = "facts=v1"\n[settings]\nmax_tokens_limit = 4000\n'
    mine = load_prompt_file(write(tmp_path / "mine.toml", text))
    assert mine.summary_settings.max_tokens_limit == 4000


def test_a_version_means_the_file_beside_before_ours(tmp_path: Path) -> None:
    write(tmp_path / "facts" / "v1.toml", 'inherits = "v1"\n[settings]\nmax_tokens = 77\n')
    write(tmp_path / "facts" / "v3.toml", 'inherits = "v1"\nsystem = "Facts."\n')
    assert load_prompt("facts", "v1", tmp_path).settings.max_tokens == 77
    third = load_prompt("facts", "v3", tmp_path)
    assert (third.settings.max_tokens, third.system) == (77, "Facts.")
    assert third.examples == load_prompt("facts").examples


#: What is wrong in a file, whose first line is `inherits = "facts=v1"` where it has no such line.
WRONG = [
    ('inherits = "v1"', "of which prompt\\? .*TASK=v1"),
    ('name = "decompose"\ninherits = "facts=v1"', "line 2: .*another task"),
    ('name = "decompose"\n\ninherits = "v99"', "line 3: .*decompose=v99"),
    ('inherits = "none.toml"', "line 1: .*no such file"),
    ('inherits = "x/v1"', "line 1: .*name a version"),
    ("inherits = 1", "line 1: inherits must be a text"),
    ('inherits = "decompose=v1"\n[settings]\ntexts_per_request = 4', "line 3: .*go together"),
    ('inherits = "decompose=v1"\nuser = "$texts"', "line 2: .*go together"),
    ("[settings]\nsamples = 3", "line 3: samples = 3 at temperature 0"),
    ("[settings]\nmax_tokens_limit = 9", "line 3: settings.max_tokens_limit = 9 is below max_tok"),
    ('[settings]\nmodel = "openai:x"', "line 3: settings.model must be the model's name"),
    ("[settings.summary]\nmax_token = 4", "line 3: settings: unknown key 'max_token'"),
    ("[settings]\ntemperature = inf", "line 3: .*a number"),
    ("[settings]\ntemperature = true", "line 3: .*a number"),
    ("[settings]\nmax_tokens = 0", "line 3: .*at least 1"),
    ('system = """\n[settings]\n"""\n[settings] # how\n"max_tokens" = 0', "line 6: .*at least 1"),
    ("[setings]", "unknown key 'setings'"),
    ("[settings\nx = 1", "line 2"),
    ("examples = 3", "line 2: examples are tables"),
    ('[[examples]]\nuser = "x"\nanswer = "y"', "exactly `user` and"),
    ('version = "a|b"', "line 2: version = .*letters"),
    ('version = "a\\n\\u001b[31m"', "line 2: version = .*letters"),
    ('systm = "x"', "line 2: unknown key 'systm'"),
    ('user = ""', "user must be a text"),
    ('name = ""', "name must be a text"),
    ('user = "$ text"', "line 2: user has a lone \\$"),
    ('[output]\nsure = "float"', "output.sure: unknown type 'float'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    text = text if "inherits" in text else f'inherits = "facts=v1"\n{text}'
    path = write(tmp_path / "mine.toml", text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_prompt_file(path)
    assert str(caught.value).startswith(str(path))


def test_a_ring_is_refused(tmp_path: Path) -> None:
    for name, parent in (("a", "b"), ("b", "c"), ("c", "b")):
        write(tmp_path / "facts" / f"{name}.toml", f'inherits = "{parent}"\n')
    with pytest.raises(ConfigError, match=r"in a ring: .*b.toml inherits .*c.toml inherits .*b"):
        load_prompt("facts", "a", tmp_path)
    write(tmp_path / "own.toml", 'inherits = "own.toml"\n')
    with pytest.raises(ConfigError, match="in a ring"):
        load_prompt_file(tmp_path / "own.toml")


def test_a_version_is_a_word(tmp_path: Path) -> None:
    for name in ("ok", ".hidden", "a|b", "a b", "a\nb"):
        write(tmp_path / "facts" / f"{name}.toml", 'inherits = "v1"\n')
    assert available_versions("facts", tmp_path) == ["v1", "v2", "ok"]
    with pytest.raises(ConfigError, match="a version is of letters"):
        load_prompt("facts", "a|b", tmp_path)


def test_a_file_in_the_folder_of_another_task(tmp_path: Path) -> None:
    write(tmp_path / "paraphrase" / "x.toml", 'name = "facts"\ninherits = "facts=v1"\n')
    with pytest.raises(ConfigError, match=r'name = "facts" in a folder of paraphrase'):
        load_prompt("paraphrase", "x", tmp_path)
