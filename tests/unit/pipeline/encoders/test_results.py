"""Results of models across runs: found again bit for bit, or computed; never a wrong number."""

import contextlib
import resource
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimscore.pipeline.encoders.protocols import ModelInfo, RejectedItemsError
from claimscore.pipeline.encoders.results import open_store

INFO = ModelInfo("org/model", "abc", "float32")


class Model:
    """Numbers that no two calls give alike, so that a stored one shows."""

    def __init__(self, info: ModelInfo = INFO, limit: int = 512) -> None:
        self.info = info
        self.facts = {"limit": str(limit)}
        self.asked: list[Any] = []
        self.tokenised = 0

    def _numbers(self, items: Sequence[Any], width: int, on_batch: Any) -> NDArray[np.float32]:
        assert len(set(items)) == len(items)
        rejected = tuple(i for i, item in enumerate(items) if "huge" in str(item))
        if rejected:
            raise RejectedItemsError("too large", "out_of_memory", rejected)
        rng = np.random.default_rng(len(self.asked))
        self.asked += items
        if on_batch is not None:
            for done in range(1, len(items) + 1):
                on_batch(done)
        return rng.random((len(items), width)).astype(np.float32)

    def truncates(self, items: Sequence[Any]) -> NDArray[np.bool_]:
        self.tokenised += len(items)
        return np.array(["long" in str(item) for item in items], dtype=bool)


class Classifier(Model):
    def classify(self, pairs: Sequence[Any], *, on_batch: Any = None) -> NDArray[np.float32]:
        return self._numbers(pairs, 3, on_batch)


class Encoder(Model):
    def embed(self, texts: Sequence[str], *, on_batch: Any = None) -> NDArray[np.float32]:
        if any(not text.strip() for text in texts):
            raise ValueError("a text is empty")
        return self._numbers(texts, 7, on_batch)


def opened(folder: Path, model: Any, notices: list[str] | None = None) -> Any:
    return open_store(folder, on_notice=([] if notices is None else notices).append).around(model)


def pairs(*names: str) -> list[tuple[str, str]]:
    return [(name, f"{name} too") for name in names]


def test_stored_and_new_pairs_come_back_in_order(tmp_path: Path) -> None:
    first, second = Classifier(), Classifier()
    before = opened(tmp_path, first).classify(pairs("a", "b", "a", "c"))
    again = opened(tmp_path, second).classify(pairs("x", "c", "a", "x", "b"))
    assert second.asked == pairs("x")
    assert again[[2, 4, 1]].tobytes() == before[[0, 1, 3]].tobytes()
    assert again[0].tobytes() == again[3].tobytes()
    assert before[0].tobytes() == before[2].tobytes()


def test_a_pair_is_not_its_texts_the_other_way_round(tmp_path: Path) -> None:
    """Premise and hypothesis, and where one ends and the other begins, are told apart."""
    model = Classifier()
    opened(tmp_path, model).classify([("ab", "c")])
    opened(tmp_path, model).classify([("c", "ab"), ("a", "bc"), ("ab", "c"), ("", "abc")])
    assert model.asked == [("ab", "c"), ("c", "ab"), ("a", "bc"), ("", "abc")]


def test_embeddings_are_stored_by_the_text_that_is_read(tmp_path: Path) -> None:
    model = Encoder()
    before = opened(tmp_path, model).embed(["one", " two "])
    after = opened(tmp_path, model).embed(["two", "one\n", "\ud800"])
    assert before[[1, 0]].tobytes() == after[:2].tobytes()
    assert model.asked == ["one", "two", "\ud800"]
    with pytest.raises(ValueError, match="empty"):
        opened(tmp_path, model).embed(["one", " "])


@pytest.mark.parametrize("what", ["model", "revision", "dtype", "limit"])
def test_what_changes_numbers_is_never_shared(tmp_path: Path, what: str) -> None:
    opened(tmp_path, Classifier()).classify(pairs("a"))
    model = Classifier(limit=256) if what == "limit" else Classifier(INFO._replace(**{what: "x"}))
    opened(tmp_path, model).classify(pairs("a"))
    assert model.asked == pairs("a")


def test_stored_pairs_know_whether_they_were_cut(tmp_path: Path) -> None:
    opened(tmp_path, Classifier()).classify(pairs("long", "b"))
    stored = opened(tmp_path, model := Classifier())
    stored.classify(pairs("long", "b", "long", "also long"))
    assert model.tokenised == 1
    assert stored.truncates(pairs("b", "long", "b")).tolist() == [False, True, False]
    assert model.tokenised == 1
    assert stored.truncates(pairs("very long", "b")).tolist() == [True, False]


def test_progress_counts_inputs_and_rejected_ones_are_the_callers(tmp_path: Path) -> None:
    opened(tmp_path, Classifier()).classify(pairs("a"))
    heard: list[int] = []
    stored = opened(tmp_path, Classifier())
    stored.classify(pairs("a", "b", "a", "c", "b"), on_batch=heard.append)
    assert heard == [2, 3, 5]
    with pytest.raises(RejectedItemsError) as caught:
        stored.classify(pairs("huge", "a", "new", "huge"))
    assert caught.value.indices == (0, 3)
    assert stored.classify([]).shape == (0, 3)


def test_facts_are_kept_by_name(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new")
    assert store.recall("pace") is None
    for value in ({"safe": True}, {"per_second": 12.5, "of": "ä\ud800"}):
        store.remember("pace", value)
    store.remember("\ud800", {})
    assert open_store(tmp_path / "new").recall("pace") == value
    assert store.size() == (2, store.path.stat().st_size)
    assert [path.stat().st_mode & 0o077 for path in (store.path, store.path.parent)] == [0, 0]


@given(data=st.data())
def test_damage_never_gives_a_wrong_number(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    asked = pairs(*map(str, range(300)))
    right = opened(folder, Classifier()).classify(asked)
    path = folder / "models.db"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(content)
    notices: list[str] = []
    stored = opened(folder, model := Classifier(), notices)
    numbers = stored.classify(asked)
    for pair, row, before in zip(asked, numbers, right, strict=True):
        assert pair in model.asked or row.tobytes() == before.tobytes()
    stored.classify(asked)
    assert len(notices) <= 1
    assert all("remove or rename the file" in notice for notice in notices)


def other_program(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE notes (text)")


def other_format(path: Path) -> None:
    open_store(path.parent).remember("a", {})
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA application_id = 99")


def no_database(path: Path) -> None:
    path.write_text("a text " * 999)


@pytest.mark.parametrize("make", [other_program, other_format, no_database, Path.mkdir])
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """One notice names it and says what to do, and the calls go on without it."""
    path = tmp_path / "models.db"
    make(path)
    before = path.is_file() and path.read_bytes()
    notices: list[str] = []
    stored = opened(tmp_path, model := Classifier(), notices)
    for _ in range(2):
        stored.classify(pairs("a"))
    assert model.asked == pairs("a", "a")
    assert (path.is_file() and path.read_bytes()) == before
    assert len(notices) == 1
    assert str(path) in notices[0]


def test_a_full_disk_means_going_on_without(tmp_path: Path) -> None:
    """What was stored is used; the call that was not kept leaves nothing."""
    many = pairs(*map(str, range(5000)))
    opened(tmp_path, model := Classifier()).classify(pairs("a"))
    size = (tmp_path / "models.db").stat().st_size
    notices: list[str] = []
    stored = opened(tmp_path, model, notices)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30_000, limits[1]))
    try:
        stored.classify([*many, *pairs("a")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    stored.classify(pairs("a"))
    assert model.asked == [*pairs("a"), *many]
    assert len(notices) == 1
    assert "make room" in notices[0]
    assert open_store(tmp_path).size()[0] == 1


def test_threads_share_a_store(tmp_path: Path) -> None:
    """Calls at once: every pair has one number for all, and all are counted."""
    model = Classifier()
    model._numbers = lambda items, width, on_batch: np.random.default_rng().random(  # type: ignore[method-assign]
        (len(items), width), np.float32
    )
    stored = opened(tmp_path, model)
    calls = [
        pairs(*(f"{'long ' * (n % 2)}{(start + n) % 90}" for n in range(60)))
        for start in range(0, 90, 5)
    ]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(stored.classify, calls * 3))
    numbers: dict[tuple[str, str], bytes] = {}
    for call, answer in zip(calls * 3, answers, strict=True):
        for pair, row in zip(call, answer, strict=True):
            assert numbers.setdefault(pair, row.tobytes()) == row.tobytes()
    again = opened(tmp_path, Classifier())
    for pair, row in numbers.items():
        assert again.classify([pair]).tobytes() == row
