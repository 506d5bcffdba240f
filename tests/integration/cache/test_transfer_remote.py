"""`export` and `import` through an object store."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from claimscore.cache.transfer import export_answers, import_answers
from claimscore.cli import main
from claimscore.errors import ConfigError
from claimscore.storage import open_storage
from tests.support.cache_samples import entries, filled, opened

N = 30


@pytest.mark.parametrize("name", ["answers.jsonl", "deep/er/answers.jsonl.gz"])
def test_answers_travel_by_a_bucket(
    name: str,
    s3: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    filled(tmp_path / "mine", N)
    with opened(tmp_path / "mine") as cache:
        export_answers(cache, tmp_path / Path(name).name)
    mine, theirs = (("--cache-dir", str(tmp_path / who)) for who in ("mine", "theirs"))
    assert main(["cache", "export", f"{s3}/{name}", *mine]) == 0
    assert open_storage(s3).read(name) == (tmp_path / Path(name).name).read_bytes()
    assert main(["cache", "import", f"{s3}/{name}", *theirs]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{s3}/{name}: 30 answers written"
    assert said[1].startswith(f"{s3}/{name}: 30 answers added")
    with opened(tmp_path / "theirs") as cache:
        assert cache.get_many(list(entries(N))) == entries(N)
    assert not list(scratch.iterdir())


def test_what_cannot_be(s3: str, tmp_path: Path) -> None:
    filled(tmp_path / "mine", 1)
    open_storage(s3).write("foreign.jsonl", b"{}\n")
    with opened(tmp_path / "mine") as cache:
        for address, message in (
            (f"{s3}/none.jsonl", "none.jsonl: there is no such file"),
            (f"{s3}/foreign.jsonl", "foreign.jsonl: not a file that `claimscore cache export`"),
            ("s3://no-such-bucket/a.jsonl", "^s3://no-such-bucket: there is no such bucket"),
            (s3, "this is not a file"),
        ):
            with pytest.raises(ConfigError, match=message):
                import_answers(cache, address)
        for address, message in (
            (s3, "this is not a file"),
            ("s3://no-such-bucket/a.jsonl", "a.jsonl: there is no such bucket"),
            ("https://host/a.jsonl", "can only be read"),
        ):
            with pytest.raises(ConfigError, match=message):
                export_answers(cache, address)
