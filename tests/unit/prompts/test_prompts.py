"""Prompt files: what is sent, which version it is, and how a wrong file is refused."""

import hashlib
import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.errors import ConfigError, ParseError
from claimscore.prompts import Spec, available_versions, load_prompt, load_prompt_file, prompt_names
from claimscore.prompts.output import AnswerForm

DIGESTS = json.loads((Path(__file__).parent / "digests.json").read_text())
TONE = """
name = "tone"
version = "v1"
system = "You judge the tone of a review."
user = "Review: $text"
[settings]
temperature = 0.5
max_tokens = 32
[output]
tone = "string"
confidence = "number"
[[examples]]
user = "Review: Lovely."
assistant = '{"tone": "positive", "confidence": 0.9}'
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prompt.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_released_prompts_are_never_edited() -> None:
    specs = [Spec(name, version) for name in prompt_names() for version in available_versions(name)]
    found = {
        f"{spec.name}={spec.version}": {
            "digest": spec.load().digest,
            "sha256": hashlib.sha256(spec.path().read_bytes()).hexdigest(),
        }
        for spec in specs
    }
    edited = sorted(name for name, was in DIGESTS.items() if found.get(name) != was)
    assert not edited, (
        f"{', '.join(edited)}: a released prompt was edited or removed. Scores were published "
        "under its version, and answers are cached under its words. Put the file back as it was "
        "(git show), and make the change in a new file, v<N+1>.toml."
    )
    new = {name: now for name, now in found.items() if name not in DIGESTS}
    assert not new, (
        "new prompts: once they are as they shall be released, add them to "
        f"tests/unit/prompts/digests.json: {json.dumps(new, indent=2)}"
    )


def test_a_prompt_is_rendered_as_a_conversation(tmp_path: Path) -> None:
    prompt = load_prompt_file(write(tmp_path, TONE))
    for fields, message in (({}, "missing fields"), ({"text": "a", "other": "b"}, "unknown")):
        with pytest.raises(ConfigError, match=message):
            prompt.render(fields)
    roles = [message.role for message in prompt.render({"text": "Fine."})]
    assert roles == ["system", "user", "assistant", "user"]
    assert prompt.render({"text": "Fine."})[-1].content == "Review: Fine."


@given(text=st.text())
def test_a_text_is_never_formatted_twice(text: str) -> None:
    assert load_prompt("decompose").render({"text": text})[-1].content == text


def test_a_column_may_have_any_name(tmp_path: Path) -> None:
    """Also that of a parameter of a function which fills it in."""
    prompt = load_prompt_file(write(tmp_path, TONE.replace("$text", "$self $fields $mapping $kws")))
    fields = {name: name.upper() for name in prompt.fields}
    assert prompt.render(fields)[-1].content == "Review: SELF FIELDS MAPPING KWS"


@pytest.mark.parametrize(
    ("old", "new", "is_sent"),
    [
        ("Review: $text", "Text: $text", True),
        ("judge", "rate", True),
        ("max_tokens = 32", "max_tokens = 33", True),
        ("[output]", "[settings.extra]\nseed = 1\n[output]", True),
        ("[output]", "[settings.extra]\n[output]", False),
        ('confidence = "number"', 'sureness = "number"', True),
        ("0.9", "0.8", True),
        ('version = "v1"', 'version = "v2"\nchanges = "none"', False),
    ],
)
def test_the_digest_is_of_what_is_sent(tmp_path: Path, old: str, new: str, is_sent: bool) -> None:
    before = load_prompt_file(write(tmp_path, TONE)).digest
    after = load_prompt_file(write(tmp_path, TONE.replace(old, new))).digest
    assert (after != before) == is_sent


def test_an_unknown_version_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="versions of decompose: v1"):
        load_prompt("decompose", "v99")
    with pytest.raises(ConfigError, match="tasks: answers, decompose"):
        load_prompt("summarise")
    with pytest.raises(ConfigError, match="must end in"):
        load_prompt("decompose", "own.txt")
    with pytest.raises(ConfigError, match="no such file"):
        load_prompt("decompose", str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "empty"),
        ("I think so.", "Invalid JSON"),
        ('{"tone": "good"}', "confidence: Field required"),
        ('{"tone": "good", "confidence": "1"}', "valid number"),
        ('{"tone": 1, "confidence": 1}', "valid string"),
        ('{"tone": "a", "confidence": 1, "x": 2}', "Extra inputs"),
        ('[{"tone": "a", "confidence": 1}]', "object"),
        ('{"tone": "a", "confidence": 1', "Invalid JSON"),
        ('Here:\n```json\n{"tone": "a", "confidence": 1}\n```', "Invalid JSON"),
        *(
            (f'{{"tone": "a", "confidence": {number}}}', "finite|valid number|Invalid JSON")
            for number in ("NaN", "Infinity", "-Infinity", "1e999", "1" + 400 * "0")
        ),
    ],
)
def test_an_answer_is_parsed_strictly(tmp_path: Path, answer: str, message: str) -> None:
    """But for one code fence; without an output the answer is the text."""
    prompt = load_prompt_file(write(tmp_path, TONE))
    with pytest.raises(ParseError, match=message):
        prompt.parse(answer)
    right = {"tone": "good", "confidence": 1.0}
    assert prompt.parse(f"```json\n{json.dumps(right)}\n```") == right
    plain = load_prompt_file(write(tmp_path, TONE.partition("[output]")[0]))
    assert plain.schema is None
    assert plain.parse(" Fine.\n") == {"answer": "Fine."}
    with pytest.raises(ParseError, match="empty"):
        plain.parse(" \n")


def test_the_schema_is_strict_at_every_level() -> None:
    schema = load_prompt("facts").schema
    assert schema is not None
    item = schema.schema["properties"]["facts"]["items"]
    assert item["additionalProperties"] is False
    assert item["required"] == ["subject", "description"]


def test_column_names_may_be_words_that_libraries_reserve(tmp_path: Path) -> None:
    names = ["json", "copy", "model_config", "_private", "class", "schema"]
    lines = "\n".join(f'{name} = "string"' for name in names)
    plain = TONE.partition("[output]")[0] + f"[output]\n{lines}\n"
    prompt = load_prompt_file(write(tmp_path, plain))
    answer = dict(zip(names, string.ascii_letters, strict=False))
    assert prompt.parse(json.dumps(answer)) == answer
    form = AnswerForm({"range": {"type": "string", "minimum": "number"}})
    assert form.parse('{"range": {"type": "x", "minimum": 1}}')["range"]["type"] == "x"


BOUNDED = """
tone = ["positive", "negative"]
stars = [1, 2, 3]
confidence = {type = "number", minimum = 0, maximum = 1}
counts = [{type = "integer", minimum = 1}]
"""
RIGHT = {"tone": "positive", "stars": 3, "confidence": 0.5, "counts": [1, 2]}


def test_enumerations_and_ranges_are_in_the_schema_and_checked(tmp_path: Path) -> None:
    plain = TONE.partition("[output]")[0]
    prompt = load_prompt_file(write(tmp_path, f"{plain}[output]{BOUNDED}"))
    assert prompt.schema is not None
    assert prompt.schema.schema["properties"] == {
        "tone": {"type": "string", "enum": ["positive", "negative"]},
        "stars": {"type": "integer", "enum": [1, 2, 3]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "counts": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    }
    assert prompt.parse(json.dumps(RIGHT)) == RIGHT
    for wrong in (
        *({"tone": value} for value in ("mixed", "Positive", None)),
        *({"stars": value} for value in (4, "3", 2.5)),
        *({"confidence": value} for value in (-0.1, 1.1, "0.5")),
        *({"counts": value} for value in ([0], [1.5], 1)),
    ):
        with pytest.raises(ParseError, match=next(iter(wrong))):
            prompt.parse(json.dumps(RIGHT | wrong))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ('["a", "a"]', "is no enumeration"),
        ('["a", 1]', "is no enumeration"),
        ('["string", "number"]', "is no enumeration"),
        ("[0.5, 1.5]", "is no enumeration"),
        ('{type = "number", minimum = 2, maximum = 1}', "no number is from 2 to 1"),
        ('{type = "number", minimum = inf}', "no number is from inf to inf"),
        ('{type = "string", minimum = 1}', "unknown type 1"),
        ('["adjective"]', "unknown type 'adjective'"),
    ],
)
def test_wrong_values_and_bounds_name_the_column(kind: str, said: str, tmp_path: Path) -> None:
    plain = TONE.partition("[output]")[0]
    with pytest.raises(ConfigError, match=r"prompt\.toml: output: output\.tone") as caught:
        load_prompt_file(write(tmp_path, f"{plain}[output]\ntone = {kind}\n"))
    assert said in str(caught.value)
