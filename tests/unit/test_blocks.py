"""Blocks: how a text is cut, by the authors' code, by their paper, and without their filter."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimscore.blocks import GRANULARITIES, KEEP, SPLITTERS, Cut, find_cut, window_spans
from claimscore.errors import ConfigError

#: A cut that leaves out what SummaC's code leaves out.
CODE = functools.partial(Cut, keep="code")
TEXT = "The first sentence. The second one here. The third sentence.\n\nShort. The fourth sentence."


ONE, TWO, THREE, FOUR = (
    "The first sentence.",
    "The second one here.",
    "The third sentence.",
    "The fourth sentence.",
)


@pytest.mark.parametrize(
    ("cut", "blocks"),
    [
        (CODE("sentence"), [ONE, TWO, THREE, FOUR]),
        (Cut("sentence"), [ONE, TWO, THREE, "Short.", FOUR]),
        (CODE("2sents"), [f"{ONE} {TWO}", f"{TWO} {THREE}", f"{THREE} {FOUR}", FOUR]),
        (CODE("2sents_disjoint"), [f"{ONE} {TWO}", f"{THREE} {FOUR}"]),
        (CODE("paragraph"), TEXT.split("\n\n")),
        (CODE("mixed"), [ONE, TWO, THREE, FOUR, *TEXT.split("\n\n")]),
        (Cut("document"), [TEXT]),
    ],
    ids=str,
)
def test_a_text_is_cut_as_the_reference_code_cuts_it(cut: Cut, blocks: list[str]) -> None:
    """`Short.` has at most ten characters and is dropped before sentences are joined."""
    assert cut.blocks(TEXT) == blocks


@pytest.mark.parametrize(("length", "kept"), [(10, 0), (11, 1)])
def test_ten_characters_are_short_and_eleven_are_not(length: int, kept: int) -> None:
    assert len(CODE().blocks("x" * (length - 1) + ".")) == kept


def test_lines_are_paragraphs_where_no_line_is_empty() -> None:
    assert Cut("paragraph").blocks("one paragraph\nanother one") == ["one paragraph", "another one"]
    assert len(Cut("paragraph").blocks("one paragraph\nstill it\n\nanother one")) == 2


def test_only_the_code_reads_at_most_a_hundred_blocks_of_a_document() -> None:
    texts = ["\n".join(f"This is sentence {i}." for i in range(80))] * 2
    assert len(CODE().document_blocks(texts)) == 100
    assert len(Cut().document_blocks(texts)) == 160
    assert len(CODE().blocks(texts[0] + "\n" + texts[1])) == 160


@given(st.lists(st.integers(1, 90), max_size=30))
def test_windows_lose_no_sentence_and_none_could_be_joined(sizes: list[int]) -> None:
    windows = window_spans(sizes, 60)
    assert [place for window in windows for place in window] == list(range(len(sizes)))
    sums = [sum(sizes[place] for place in window) for window in windows]
    assert all(total <= 60 or len(w) == 1 for total, w in zip(sums, windows, strict=True))
    firsts = [sizes[window.start] for window in windows[1:]]
    assert all(a + b > 60 for a, b in zip(sums, firsts, strict=False))


@given(st.text(), st.sampled_from(GRANULARITIES), st.sampled_from(KEEP))
def test_no_block_is_blank(text: str, granularity: str, keep: str) -> None:
    blocks = Cut(granularity, keep=keep).blocks(text)
    assert all(block.strip() for block in blocks)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize("keep", KEEP)
def test_a_cut_is_found_by_its_name(granularity: str, splitter: str, keep: str) -> None:
    cut = Cut(granularity, splitter, keep)
    found = find_cut(cut.name)
    assert found.name == cut.name
    assert (found.granularity, found.keep) == (granularity, keep)
    if granularity not in ("paragraph", "document"):
        assert found == cut


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown cut word; known: sentence, 2sents"):
        find_cut("word")
